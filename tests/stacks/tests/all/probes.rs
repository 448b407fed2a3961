//! The breaker's probes over real HTTP: who gets through, and what becomes of those that never come back.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use breaker_layer::{
    Breaker, BreakerBuilder, BreakerLayer,
    engine::{Probes, Reason, State},
};
use failsoft_core::{BoxError, Class, Denier, Fault, FaultDetails};
use futures_util::{StreamExt as _, stream};
use llm_layer::{LlmLayer, Provider};
use tokio::sync::{Barrier, watch};
use tower::{Layer, ServiceBuilder, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

const EVENTS: [&str; 3] = [
    "data: {\"choices\":[{\"delta\":{\"content\":\"Bern\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];

/// A server on a thread of its own, with a clock of its own: `/` answers when the gate is open, `/stream` streams at once,
/// `/beginning` only the first event, and both keep the socket open then.
struct Server {
    url: String,
    gate: watch::Sender<bool>,
    /// Requests for `/` that came.
    came: watch::Receiver<usize>,
}

fn serve() -> Server {
    let (gate, is_open) = watch::channel(false);
    let (count, came) = watch::channel(0);
    let count = Arc::new(count);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = move || {
        let (mut is_open, count) = (is_open.clone(), Arc::clone(&count));
        async move {
            count.send_modify(|count| *count += 1);
            is_open.wait_for(|is_open| *is_open).await.unwrap();
            "well"
        }
    };
    let stream = |events: &'static [&'static str]| {
        let events =
            events.iter().map(|event| Ok::<_, BoxError>(bytes::Bytes::from_static(event.as_bytes())));
        let body = Body::from_stream(stream::iter(events).chain(stream::pending()));
        ([("content-type", "text/event-stream")], body)
    };
    let router = Router::new()
        .route("/", get(answer))
        .route("/stream", post(async move || stream(&EVENTS)))
        .route("/beginning", post(async move || stream(&EVENTS[..1])));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    Server { url, gate, came }
}

/// One failed probe opens it, for 1 s; lease 10 s.
fn breaker(probes: u32) -> BreakerBuilder {
    BreakerLayer::builder()
        .name("it")
        .open_time(SECOND)
        .jitter(0.0)
        .lease(10 * SECOND)
        .probes(Probes::Failures { probes, to_open: 1 })
}

/// One call, read to its end.
async fn ask(service: Breaker<reqwest::Client>, url: String) -> Result<String, BoxError> {
    let request = reqwest::Request::new(reqwest::Method::GET, url.parse()?);
    Ok(service.oneshot(request).await?.text().await?)
}

fn is_probing(error: &BoxError) -> bool {
    let fault = Fault::find(&**error).unwrap();
    assert_eq!(fault.class(), Class::Denied(Denier::Circuit));
    FaultDetails::is_probing(fault)
}

/// Time passes at once: the clock of this thread's runtime stands still only meanwhile.
async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn probes_that_are_all_cancelled_come_back_and_the_next_ones_decide() {
    let mut server = serve();
    let layer = breaker(3).build().unwrap();
    let (circuit, service) = (layer.circuit().clone(), layer.layer(reqwest::Client::new()));
    circuit.half_open().unwrap();
    let probes: Vec<_> = (0..3).map(|_| tokio::spawn(ask(service.clone(), server.url.clone()))).collect();
    server.came.wait_for(|came| *came == 3).await.unwrap();
    assert!(is_probing(&ask(service.clone(), server.url.clone()).await.unwrap_err()), "none is left");

    probes.iter().for_each(tokio::task::JoinHandle::abort);
    for probe in probes {
        assert!(probe.await.unwrap_err().is_cancelled());
    }
    let snapshot = circuit.snapshot();
    assert_eq!((snapshot.state, snapshot.probes, snapshot.counts.total), (State::HalfOpen, 0, 0));

    server.gate.send(true).unwrap();
    for _ in 0..3 {
        assert_eq!(ask(service.clone(), server.url.clone()).await.unwrap(), "well");
    }
    assert_eq!(circuit.state(), State::Closed);
}

#[tokio::test]
async fn a_probe_that_never_returns_is_given_up_after_its_lease_and_decides_nothing_any_more() {
    let mut server = serve();
    let layer = breaker(1).build().unwrap();
    let (circuit, service) = (layer.circuit().clone(), layer.layer(reqwest::Client::new()));
    circuit.half_open().unwrap();
    let hung = tokio::spawn(ask(service.clone(), server.url.clone()));
    server.came.wait_for(|came| *came == 1).await.unwrap();
    jump(9 * SECOND).await;
    assert!(is_probing(&ask(service.clone(), server.url.clone()).await.unwrap_err()));
    jump(SECOND).await;
    assert!(!is_probing(&ask(service.clone(), server.url.clone()).await.unwrap_err()), "open again");
    assert_eq!(circuit.snapshot().reason, Some(Reason::LeaseEnded));

    jump(SECOND).await;
    let next = tokio::spawn(ask(service.clone(), server.url.clone()));
    server.came.wait_for(|came| *came == 2).await.unwrap();
    assert_eq!((circuit.state(), circuit.snapshot().probes), (State::HalfOpen, 1));
    // the lost one fails after all, while the next is on its way
    hung.abort();
    assert!(hung.await.unwrap_err().is_cancelled());
    assert_eq!(
        (circuit.state(), circuit.snapshot().probes),
        (State::HalfOpen, 1),
        "its place is not given twice"
    );
    server.gate.send(true).unwrap();
    assert_eq!(next.await.unwrap().unwrap(), "well");
    assert_eq!(circuit.state(), State::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_callers_at_the_moment_of_half_open_just_the_probes_reach_the_server() {
    const CALLERS: usize = 1_000;
    for _ in 0..5 {
        let mut server = serve();
        let layer = breaker(3).build().unwrap();
        let (circuit, service) = (layer.circuit().clone(), layer.layer(reqwest::Client::new()));
        // open, and the next call may probe: the first of the thousand does the step
        circuit.open_for(Duration::ZERO).unwrap();
        let together = Arc::new(Barrier::new(CALLERS));
        let (done, mut refused) = watch::channel(0);
        let done = Arc::new(done);
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (service, url) = (service.clone(), server.url.clone());
                let (together, done) = (Arc::clone(&together), Arc::clone(&done));
                tokio::spawn(async move {
                    together.wait().await;
                    let answer = ask(service, url).await;
                    if let Err(error) = &answer {
                        assert!(is_probing(error));
                        done.send_modify(|done| *done += 1);
                    }
                    answer.is_ok()
                })
            })
            .collect();
        refused.wait_for(|refused| *refused == CALLERS - 3).await.unwrap();
        server.came.wait_for(|came| *came == 3).await.unwrap();
        assert_eq!((circuit.state(), circuit.snapshot().probes), (State::HalfOpen, 3));
        server.gate.send(true).unwrap();
        let mut good = 0;
        for caller in callers {
            good += usize::from(caller.await.unwrap());
        }
        assert_eq!((good, *server.came.borrow()), (3, 3));
        assert_eq!((circuit.state(), circuit.snapshot().refused_in_all), (State::Closed, CALLERS as u64 - 3));
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_at_done_is_a_good_probe_and_one_that_stops_before_gives_it_back() {
    for (path, state) in [("beginning", State::HalfOpen), ("stream", State::Closed)] {
        let server = serve();
        let layer = breaker(1).build().unwrap();
        let circuit = layer.circuit().clone();
        let service = ServiceBuilder::new()
            .layer(layer)
            .layer(LlmLayer::new(Provider::OpenAiCompatible))
            .service(reqwest::Client::new());
        circuit.half_open().unwrap();
        let body = r#"{"messages":[],"stream":true}"#;
        let url = format!("{}/{path}", server.url);
        let request = reqwest::Client::new().post(url).body(body).build().unwrap();
        let mut response = service.oneshot(request).await.unwrap();
        let until = if path == "stream" { "[DONE]\n\n" } else { "Bern" };
        let mut read = String::new();
        while !read.contains(until) {
            let piece = response.chunk().await.unwrap().unwrap();
            read.push_str(std::str::from_utf8(&piece).unwrap());
        }
        assert_eq!(circuit.snapshot().probes, u32::from(state == State::HalfOpen));
        drop(response);
        assert_eq!((circuit.state(), circuit.snapshot().probes), (state, 0), "{path}");
    }
}
