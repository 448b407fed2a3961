//! Where a caller's span is current: what the layers and the services inside them tell `tracing` belongs to it, in every attempt, on
//! every route and while the body is read. Every test sets its subscriber first.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use breaker_layer::BreakerLayer;
use bytes::Bytes;
use failsoft_core::{Backoff, CarryLayer, Jitter, UncarryLayer};
use fallback_layer::{FallbackLayer, Route};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use retry_layer::RetryLayer;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::trace::TraceLayer;
use tracing::{Event, Instrument as _, Level, Subscriber, info_span, subscriber::DefaultGuard};
use tracing_subscriber::{
    Registry,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<InSpan>>>);

/// The target of an event, and the outermost span that it is in.
type InSpan = (String, Option<&'static str>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Told {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let target = event.metadata().target();
        // Not what the client, the runtime and tower tell.
        if target.starts_with("spans") || target.contains("_layer") || target.starts_with("failsoft") {
            let outermost = context.event_scope(event).and_then(|spans| spans.last()).map(|span| span.name());
            self.0.lock().unwrap().push((target.to_owned(), outermost));
        }
    }
}

impl Told {
    fn listen() -> (Self, DefaultGuard) {
        let told = Self::default();
        (told.clone(), tracing::subscriber::set_default(Registry::default().with(told)))
    }

    /// How many were told by each target; all were in the caller's span.
    fn all_in(&self, span: &str, targets: &[(&str, usize)]) {
        let told = self.0.lock().unwrap();
        assert!(told.iter().all(|(_, outermost)| *outermost == Some(span)), "{told:#?}");
        for (target, at_least) in targets {
            let events = told.iter().filter(|(from, _)| from.starts_with(target)).count();
            assert!(events >= *at_least, "{target} told {events}: {told:#?}");
        }
    }
}

type Request = http::Request<String>;
type Body = StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

fn request() -> Request {
    http::Request::get("http://models.example/v1").body(String::new()).unwrap()
}

/// Tells of itself at the call, later, and while its body is read.
async fn upstream(request: Request) -> Result<http::Response<Body>, Infallible> {
    tracing::info!("asked");
    tokio::time::sleep(Duration::from_secs(1)).await;
    tracing::info!("answers");
    let frames = futures_util::stream::once(async {
        tokio::task::yield_now().await;
        tracing::info!("is read");
        Ok(Frame::data(Bytes::from_static(b"text")))
    });
    let status = if request.headers().contains_key("good") { 200 } else { 503 };
    Ok(http::Response::builder().status(status).body(StreamBody::new(Box::pin(frames) as _)).unwrap())
}

fn retry() -> RetryLayer {
    let backoff = Backoff::fixed(Duration::from_secs(1)).jitter(Jitter::None);
    RetryLayer::builder().backoff(backoff).max_retries(2).build().unwrap()
}

fn breaker() -> BreakerLayer {
    BreakerLayer::builder().name("upstream").consecutive_failures(3).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn attempts_routes_and_bodies_are_in_the_callers_span() {
    let (told, _guard) = Told::listen();
    let first = ServiceBuilder::new().layer(retry()).layer(breaker()).service(service_fn(upstream));
    let second = ServiceBuilder::new()
        .map_request(|mut request: Request| {
            request.headers_mut().insert("good", http::HeaderValue::from_static("1"));
            request
        })
        .layer(breaker())
        .service(service_fn(upstream));
    let service = FallbackLayer::builder().route(Route::boxed("second", second)).build().unwrap();
    let first = tower::util::BoxCloneSyncService::new(first);
    let response = async {
        let response = service.layer(first).oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
    };
    response.instrument(info_span!("caller")).await;
    // Three attempts and one more tell twice each, and one body is read; the circuit opens.
    told.all_in("caller", &[("spans", 9), ("breaker_layer", 1), ("failsoft_retry", 1), ("failsoft", 2)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_a_buffer_is_in_the_span_of_who_asked() {
    let (told, _guard) = Told::listen();
    let service = {
        // The worker is spawned here, in a span of its own.
        let _elsewhere = info_span!("elsewhere").entered();
        ServiceBuilder::new()
            .layer(retry())
            .layer(CarryLayer)
            .buffer(8)
            .layer(UncarryLayer)
            .layer(breaker())
            .service(service_fn(upstream))
    };
    let asked = service.oneshot(request()).instrument(info_span!("caller"));
    // In a task of its own.
    let response = tokio::spawn(asked).await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    told.all_in("caller", &[("spans", 6), ("breaker_layer", 1)]);
}

/// tower-http's span of a request is current while its body is read too, so what is learnt at the end of a body belongs to it.
#[tokio::test(start_paused = true)]
async fn in_a_trace_layer_the_end_of_a_body_is_in_the_span_of_its_request() {
    let (told, _guard) = Told::listen();
    let breaking = service_fn(async |_: Request| {
        let frames = [
            Ok(Frame::data(Bytes::from_static(b"half"))),
            Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
        ];
        Ok::<_, Infallible>(http::Response::new(StreamBody::new(futures_util::stream::iter(frames))))
    });
    let opens = BreakerLayer::builder().name("upstream").consecutive_failures(1).build().unwrap();
    let circuit = opens.circuit().clone();
    let trace = TraceLayer::new_for_http()
        .make_span_with(|_: &Request| tracing::span!(Level::INFO, "request"))
        .on_failure(());
    let service = ServiceBuilder::new().layer(trace).layer(opens).service(breaking);
    let response = service.oneshot(request()).await.unwrap();
    // Read by another task, which knows of no span.
    tokio::spawn(response.into_body().collect()).await.unwrap().err().unwrap();
    assert_eq!(circuit.state().as_str(), "open");
    told.all_in("request", &[("breaker_layer", 1)]);
}
