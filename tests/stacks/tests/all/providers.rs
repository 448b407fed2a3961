//! Three providers over real HTTP, one after the other dead, throttled, slow and wrong, behind circuits that refuse and
//! circuits that only tell.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use breaker_layer::{
    BreakerLayer, Circuit,
    engine::{Mode, State},
};
use failsoft_core::{BoxError, Call, Trail};
use fallback_layer::{FallbackLayer, Route, restart::RestartLayer};
use llm_layer::{LlmLayer, Provider};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tower::{Layer, ServiceBuilder, ServiceExt, timeout::TimeoutLayer, util::BoxCloneSyncService};

const SECOND: Duration = Duration::from_secs(1);

const GOOD: &str = r#"{"choices": [{"message": {"content": "Bern"}, "finish_reason": "stop"}]}"#;

/// What a provider does.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Does {
    Answer,
    /// Resets every connection.
    Dead,
    /// Says so, for a while or without a word of how long.
    Throttle,
    /// Takes the request, and is silent.
    Silent,
    /// Answers with half a JSON.
    HalfJson,
    /// Promises more bytes than it sends.
    Cut,
    /// Answers with a page of some proxy.
    Html,
    /// Answers 35 of 100 with an error, by its own seed.
    Flaky,
    /// Breaks off in the middle of a stream.
    CutStream,
    /// Streams to the end.
    Stream,
}

const ALL: [Does; 10] = [
    Does::Answer,
    Does::Dead,
    Does::Throttle,
    Does::Silent,
    Does::HalfJson,
    Does::Cut,
    Does::Html,
    Does::Flaky,
    Does::CutStream,
    Does::Stream,
];

/// A provider on another thread, whose clock is its own.
struct Server {
    addr: SocketAddr,
    does: AtomicU8,
    asked: AtomicU64,
    /// How many requests are waiting in vain.
    silent: watch::Sender<u64>,
    seed: u64,
}

impl Server {
    fn now(&self, does: Does) {
        self.does.store(does as u8, Relaxed);
    }

    async fn handle(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let does = ALL[usize::from(self.does.load(Relaxed))];
        if does == Does::Dead {
            // Gone without a word.
            return socket.set_zero_linger();
        }
        let mut request = [0; 2048];
        let _ = socket.read(&mut request).await?;
        let count = self.asked.fetch_add(1, Relaxed);
        let json = |status: &str, body: &str| {
            let length = body.len();
            format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
        };
        let event = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{{{delta}}}}}]}}\n\n");
        let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
        let answer = match does {
            Does::Throttle => {
                json("429 Slow Down\r\nretry-after: 60", r#"{"error": {"code": "rate_limit_exceeded"}}"#)
            }
            Does::HalfJson => json("200 OK", &GOOD[..GOOD.len() / 2]),
            Does::Cut => json("200 OK", GOOD)[..150].to_owned(),
            Does::Html => json("200 OK", "<html>Bad gateway</html>").replace("application/json", "text/html"),
            Does::Flaky if mix(self.seed, count) % 100 < 35 => {
                json("500 Oops", r#"{"error": {"message": "oops"}}"#)
            }
            Does::CutStream => {
                let begun = event("\"content\":\"Ber\"") + &event("\"content\":\"n, or\"") + "data: {\"choi";
                format!("{stream}content-length: 9999\r\n\r\n{begun}")
            }
            Does::Stream => {
                let end =
                    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
                format!("{stream}\r\n{}{end}", event("\"content\":\"Bern\""))
            }
            Does::Silent => {
                self.silent.send_modify(|waiting| *waiting += 1);
                // Until the client has had enough.
                let _ = socket.read(&mut request).await;
                return Ok(());
            }
            _ => json("200 OK", GOOD),
        };
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await
    }
}

/// SplitMix64, so that each provider fails in its own, and always the same, places.
fn mix(seed: u64, count: u64) -> u64 {
    let mut bits = (seed << 32).wrapping_add(count).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn serve(seed: u64) -> Arc<Server> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let (does, asked) = (AtomicU8::new(Does::Answer as u8), AtomicU64::new(0));
    let server = Arc::new(Server { addr, does, asked, silent: watch::Sender::new(0), seed });
    let serving = Arc::clone(&server);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let server = Arc::clone(&serving);
                tokio::spawn(async move { server.handle(socket).await });
            }
        });
    });
    server
}

/// Time passes at once: the clock of this thread's runtime stands still only meanwhile.
async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const NAMES: [&str; 3] = ["a", "b", "c"];

type Stack = BoxCloneSyncService<reqwest::Request, reqwest::Response, BoxError>;

/// Three providers, each behind a circuit of its own, and the stack in front of them.
struct Fleet {
    servers: Vec<Arc<Server>>,
    circuits: Vec<Circuit>,
    stack: Stack,
    client: reqwest::Client,
    body: &'static str,
}

impl Fleet {
    fn new(mode: Mode) -> Self {
        Self::with(mode, |stack| stack, r#"{"messages": []}"#)
    }

    fn with(mode: Mode, around: impl FnOnce(Stack) -> Stack, body: &'static str) -> Self {
        let servers: Vec<_> = (0..3).map(serve).collect();
        let client = reqwest::Client::new();
        let mut circuits = Vec::new();
        let mut route = |place: usize| {
            let (addr, seed) = (servers[place].addr, place as u64);
            let breaker =
                BreakerLayer::builder().name(NAMES[place]).mode(mode).jitter(0.0).seed(seed).build().unwrap();
            circuits.push(breaker.circuit().clone());
            let service = ServiceBuilder::new()
                .layer(breaker)
                .layer(LlmLayer::new(Provider::OpenAiCompatible))
                .layer(TimeoutLayer::new(SECOND))
                .map_request(move |mut request: reqwest::Request| {
                    let _ = request.url_mut().set_port(Some(addr.port()));
                    request
                })
                .service(client.clone());
            (circuits[place].clone(), service)
        };
        let (health, first) = route(0);
        let layer = FallbackLayer::builder().name(NAMES[0]).health(health);
        let layer = (1..3).fold(layer, |layer, place| {
            let (health, service) = route(place);
            layer.route(Route::new(NAMES[place], service).health(health))
        });
        let stack = around(BoxCloneSyncService::new(layer.build().unwrap().layer(first)));
        Self { servers, circuits, stack, client, body }
    }

    /// One call: what it gave, and its trail. Where a provider is silent, time passes.
    async fn ask(&self) -> (Result<String, BoxError>, Trail) {
        let call = Call::begin();
        let answer = call.scope(async {
            let request =
                self.client.post("http://127.0.0.1:1/v1/chat/completions").body(self.body).build()?;
            let response = self.stack.clone().oneshot(request).await?.error_for_status()?;
            Ok(response.text().await?)
        });
        let silence = async {
            let mut silent: Vec<_> = self.servers.iter().map(|server| server.silent.subscribe()).collect();
            let mut changes: futures_util::stream::FuturesUnordered<_> =
                silent.iter_mut().map(|silent| silent.changed()).collect();
            loop {
                let _ = futures_util::StreamExt::next(&mut changes).await;
                jump(SECOND).await;
                if changes.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let answer = tokio::select! {
            answer = answer => answer,
            () = silence => unreachable!("it never ends"),
        };
        (answer, call.trail())
    }

    /// So many calls, each of which must be answered; how many of those that began when the circuit of a provider was
    /// open began with that provider, and how many there were.
    async fn all_are_answered(&self, calls: usize, bad: usize) -> (usize, usize) {
        let (mut missed, mut counted) = (0, 0);
        for call in 0..calls {
            let known = self.circuits[bad].state() != State::Closed;
            let (answer, trail) = self.ask().await;
            assert_eq!(answer.as_deref().ok(), Some(GOOD), "call {call}: {answer:?} {trail}");
            counted += usize::from(known);
            missed += usize::from(known && first_asked(&trail) == NAMES[bad]);
        }
        (missed, counted)
    }
}

/// The route that was asked first: not one that was skipped or refused.
fn first_asked(trail: &Trail) -> String {
    let asked = trail.attempts().iter().find(|attempt| !attempt.verdict.class().is_denied());
    asked.unwrap().target.as_deref().unwrap().to_owned()
}

async fn fails_and_comes_back(mode: Mode, fault: Does) {
    let fleet = Fleet::new(mode);
    for bad in 0..3 {
        let server = &fleet.servers[bad];
        let first = bad == 0;
        assert_eq!(fleet.all_are_answered(3, bad).await, (0, 0));
        server.now(fault);
        let (mut missed, mut counted) = fleet.all_are_answered(if first { 62 } else { 3 }, bad).await;
        if first {
            assert_eq!(fleet.circuits[bad].state(), State::Open, "{mode:?} {fault:?}");
            // The open time is over, and the one that asks then finds it still failing.
            jump(70 * SECOND).await;
            let again = fleet.all_are_answered(60, bad).await;
            (missed, counted) = (missed + again.0, counted + again.1);
            assert!(counted >= 100, "{mode:?} {fault:?}: {counted}");
            assert!(missed * 100 <= counted * 2, "{mode:?} {fault:?}: {missed} of {counted}");
        }
        server.now(Does::Answer);
        jump(300 * SECOND).await;
        for _ in 0..4 {
            assert_eq!(fleet.ask().await.0.unwrap(), GOOD);
        }
        assert_eq!(fleet.circuits[bad].state(), State::Closed, "{mode:?} {fault:?}");
        for _ in 0..5 {
            let (_, trail) = fleet.ask().await;
            assert_eq!(first_asked(&trail), "a", "{mode:?} {fault:?}: traffic is back");
        }
    }
}

const MODES: [Mode; 2] = [Mode::Enforcing, Mode::Advisory];

#[tokio::test]
async fn one_that_is_dead_is_left_and_taken_again() {
    for mode in MODES {
        fails_and_comes_back(mode, Does::Dead).await;
    }
}

#[tokio::test]
async fn one_that_throttles_is_left_and_taken_again() {
    for mode in MODES {
        fails_and_comes_back(mode, Does::Throttle).await;
    }
}

#[tokio::test]
async fn one_that_is_silent_is_left_and_taken_again() {
    for mode in MODES {
        fails_and_comes_back(mode, Does::Silent).await;
    }
}

#[tokio::test]
async fn one_whose_answers_are_corrupt_is_left_and_taken_again() {
    for mode in MODES {
        for corrupt in [Does::HalfJson, Does::Cut, Does::Html] {
            fails_and_comes_back(mode, corrupt).await;
        }
    }
}

#[tokio::test]
async fn as_long_as_one_can_answer_every_call_is_answered() {
    for mode in MODES {
        let fleet = Fleet::new(mode);
        // Which one is good changes before any circuit has recovered: one that is open is still asked at last.
        for good in 0..3 {
            for (place, server) in fleet.servers.iter().enumerate() {
                let faults = [Does::Dead, Does::HalfJson, Does::Throttle];
                server.now(if place == good { Does::Answer } else { faults[place] });
            }
            for call in 0..30 {
                let (answer, trail) = fleet.ask().await;
                assert_eq!(answer.as_deref().ok(), Some(GOOD), "{mode:?}, good {good}, call {call}: {trail}");
            }
        }
    }
}

#[tokio::test]
async fn with_all_failing_in_a_third_of_calls_the_caller_gets_at_least_the_least_bad_ones_successes() {
    for mode in MODES {
        let fleet = Fleet::new(mode);
        fleet.servers.iter().for_each(|server| server.now(Does::Flaky));
        let mut answered = 0;
        for _ in 0..150 {
            answered += usize::from(fleet.ask().await.0.is_ok());
        }
        // One alone gives 65 of 100.
        assert!(answered * 100 >= 150 * 65, "{mode:?}: {answered} of 150");
    }
}

// G57
#[tokio::test]
async fn a_stream_that_breaks_off_over_http_goes_on_behind_an_event() {
    let around = |stack: Stack| BoxCloneSyncService::new(RestartLayer::new().layer(stack));
    let ask = r#"{"messages": [], "stream": true}"#;
    let fleet = Fleet::with(Mode::Enforcing, around, ask);
    fleet.servers[0].now(Does::CutStream);
    fleet.servers[1].now(Does::Stream);
    let (answer, trail) = fleet.ask().await;
    let text = answer.unwrap();
    let (before, after) = text.split_once("event: failsoft.restart\n").unwrap();
    assert!(before.contains("\"Ber\"") && before.ends_with("n, or\"}}]}\n\n"), "{before}");
    assert!(
        after
            .starts_with("data: {\"type\":\"failsoft.restart\",\"class\":\"transient\",\"route\":\"b\"}\n\n"),
        "{after}"
    );
    assert!(after.ends_with("data: [DONE]\n\n"), "{after}");
    assert_eq!(
        trail.to_string(),
        "a transient (next_route) > a denied.loop (skipped) > b success (answered)"
    );

    // Without the layer it is a failure after the first content, and nothing of another route.
    let fleet = Fleet::with(Mode::Enforcing, |stack| stack, ask);
    fleet.servers[0].now(Does::CutStream);
    let (answer, _) = fleet.ask().await;
    answer.unwrap_err();
    assert_eq!(fleet.servers[1].asked.load(Relaxed), 0);
}
