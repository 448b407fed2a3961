//! Two hundred clients and a server in outage: real HTTP, spoken by hyper on both sides of a pipe in memory, so that the paused
//! clock drives every byte of it. The same with sockets is `examples/storm.rs`.

use std::{
    convert::Infallible,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::{Backoff, BoxError, Jitter};
use http_body_util::Empty;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use retry_layer::{RetryBudget, RetryBuilder, RetryLayer};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower::{Layer, Service, ServiceExt};

const CLIENTS: usize = 200;
const SECOND: Duration = Duration::from_secs(1);
/// What an answer takes, good or bad.
const TAKES: Duration = Duration::from_millis(20);
const CLIENT: &str = "x-client";

/// A server that answers 503 during its outage, and remembers when it was asked by whom.
#[derive(Clone)]
struct Server(Arc<Shared>);

struct Shared {
    began: Instant,
    outage: Range<Duration>,
    arrivals: Mutex<Vec<(Duration, usize)>>,
}

impl Server {
    fn new(outage: Range<Duration>) -> Self {
        Self(Arc::new(Shared { began: Instant::now(), outage, arrivals: Mutex::default() }))
    }

    async fn answer(
        self,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Empty<Bytes>>, Infallible> {
        let Shared { began, outage, arrivals } = &*self.0;
        let client = request.headers()[CLIENT].to_str().unwrap().parse().unwrap();
        arrivals.lock().unwrap().push((began.elapsed(), client));
        let status = if outage.contains(&began.elapsed()) { 503 } else { 200 };
        sleep(TAKES).await;
        Ok(http::Response::builder().status(status).body(Empty::new()).unwrap())
    }

    fn arrivals(&self) -> Vec<(Duration, usize)> {
        self.0.arrivals.lock().unwrap().clone()
    }

    fn arrived_within(&self, time: Range<Duration>) -> usize {
        self.arrivals().iter().filter(|(at, _)| time.contains(at)).count()
    }

    /// The most requests that came within any of the tenths of a second of this time.
    fn peak(&self, time: &Range<Duration>) -> usize {
        let tenth = SECOND / 10;
        let tenths = (0..).map(|i| time.start + i * tenth).take_while(|start| *start < time.end);
        tenths.map(|start| self.arrived_within(start..start + tenth)).max().unwrap()
    }
}

/// A connection of its own for each request.
impl Service<http::Request<Empty<Bytes>>> for Server {
    type Response = http::Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Empty<Bytes>>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(4 * 1024);
            let answer = service_fn(move |request| server.clone().answer(request));
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(theirs), answer),
            );
            let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await?;
            tokio::spawn(connection);
            Ok(send.send_request(request).await?)
        })
    }
}

fn request(client: usize) -> http::Request<Empty<Bytes>> {
    http::Request::get("/").header(CLIENT, client).body(Empty::new()).unwrap()
}

/// What was asked for, and what came of it.
#[derive(Default)]
struct Calls {
    begun: Vec<Duration>,
    failed: Vec<Duration>,
}

impl Calls {
    fn begun_within(&self, time: Range<Duration>) -> usize {
        self.begun.iter().filter(|at| time.contains(at)).count()
    }
}

/// All clients call again and again, and think for about a second in between, until the time is over.
async fn run(layer: &RetryLayer, server: &Server, until: Duration) -> Calls {
    let began = server.0.began;
    let calls = Arc::new(Mutex::new(Calls::default()));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (service, calls) = (layer.layer(server.clone()), Arc::clone(&calls));
        clients.spawn(async move {
            // Numbers that look random and are the same each time.
            let mut random = client as u64 + 1;
            let mut think = move || {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                Duration::from_millis(500 + (random >> 33) % 1_000)
            };
            sleep(think()).await;
            while began.elapsed() < until {
                calls.lock().unwrap().begun.push(began.elapsed());
                let answer = service.clone().oneshot(request(client)).await.unwrap();
                if !answer.status().is_success() {
                    calls.lock().unwrap().failed.push(began.elapsed());
                }
                sleep(think()).await;
            }
        });
    }
    // Those that wait for a retry when the time is over are not waited for.
    sleep_until(began + until).await;
    clients.shutdown().await;
    std::mem::take(&mut calls.lock().unwrap())
}

fn seeded() -> RetryBuilder {
    RetryLayer::builder().seed(7)
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_the_requests_are_the_calls_and_a_fifth_after_the_initial_balance() {
    let server = Server::new(Duration::ZERO..Duration::MAX);
    let budget = RetryBudget::builder().ratio(0.2).min_per_sec(0.0).initial(100.0).build().unwrap();
    let calls = run(&seeded().budget(budget).build().unwrap(), &server, 40 * SECOND).await;
    let (requests, begun) = (server.arrivals().len(), calls.begun.len());
    assert!(begun > 4_000 && calls.failed.len() > 4_000, "{begun} calls");
    assert!(requests <= begun + begun / 5 + 100, "{requests} requests for {begun} calls");
    // Once the initial balance is spent, and what is spent then arrives.
    let time = 20 * SECOND..40 * SECOND;
    let (requests, begun) = (server.arrived_within(time.clone()), calls.begun_within(time));
    let amplification = requests as f64 / begun as f64;
    assert!((1.15..=1.21).contains(&amplification), "{requests} requests for {begun} calls");
}

#[tokio::test(start_paused = true)]
async fn by_default_a_few_a_second_come_on_top_and_without_a_budget_each_call_is_sent_four_times() {
    let server = Server::new(Duration::ZERO..Duration::MAX);
    let calls = run(&seeded().build().unwrap(), &server, 20 * SECOND).await;
    let (requests, begun) = (server.arrivals().len(), calls.begun.len());
    assert!(requests <= begun + begun / 5 + 100 + 20 * 10, "{requests} requests for {begun} calls");

    let server = Server::new(Duration::ZERO..Duration::MAX);
    let calls = run(&seeded().without_budget().build().unwrap(), &server, 20 * SECOND).await;
    let (requests, begun) = (server.arrivals().len(), calls.begun.len());
    assert!(requests > begun * 3, "{requests} requests for {begun} calls");
}

/// All clients call at one moment, in an outage: for each retry, how long each client waited.
async fn waits(jitter: Jitter) -> Vec<Vec<Duration>> {
    let server = Server::new(Duration::ZERO..Duration::MAX);
    let layer = seeded().without_budget().backoff(Backoff::default().jitter(jitter)).build().unwrap();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(layer.layer(server.clone()).oneshot(request(client)));
    }
    clients.join_all().await;
    let mut waits = vec![Vec::new(); 3];
    for client in 0..CLIENTS {
        let arrivals = server.arrivals();
        let times: Vec<_> = arrivals.iter().filter(|(_, of)| *of == client).map(|(at, _)| *at).collect();
        assert_eq!(times.len(), 4);
        for (waits, pair) in waits.iter_mut().zip(times.windows(2)) {
            waits.push(pair[1] - pair[0] - TAKES);
        }
    }
    waits
}

fn histogram(waits: &[Duration], range: &Range<f64>) -> [usize; 10] {
    let mut bins = [0; 10];
    for wait in waits {
        let place = (wait.as_secs_f64() - range.start) / (range.end - range.start);
        // A timer rings up to a millisecond late.
        assert!((0.0..1.01).contains(&place), "{wait:?}");
        bins[((place * 10.0) as usize).min(9)] += 1;
    }
    bins
}

#[tokio::test(start_paused = true)]
async fn clients_that_failed_together_come_back_spread_over_the_whole_range() {
    for (retry, waits) in waits(Jitter::Full).await.iter().enumerate() {
        // From the floor to the delay: 1, 2 and 4 seconds.
        let bins = histogram(waits, &(0.1..[1.0, 2.0, 4.0][retry]));
        // Twenty each: four standard deviations, and less than twice what is fair.
        assert!(bins.iter().all(|bin| (4..=37).contains(bin)), "{bins:?}");
    }
    // Without jitter they come back as one.
    for waits in waits(Jitter::None).await {
        let (first, last) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*last - *first <= Duration::from_millis(2));
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_recovery_there_is_no_burst() {
    let server = Server::new(15 * SECOND..45 * SECOND);
    let calls = run(&seeded().build().unwrap(), &server, 60 * SECOND).await;
    let before = server.peak(&(2 * SECOND..15 * SECOND));
    let after = server.peak(&(45 * SECOND..60 * SECOND));
    assert!(
        after <= before + before / 4,
        "at most {before} requests in a tenth of a second before, then {after}"
    );
    // And what is asked from then on is answered.
    let failed = calls.failed.iter().filter(|at| **at > 45 * SECOND + TAKES * 2).count();
    assert_eq!(failed, 0);
}
