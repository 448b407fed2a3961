//! Requests whose body is a stream, sent again: on an axum router, and by reqwest over a socket.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::State, http::Request, routing::post};
use bytes::Bytes;
use failsoft_core::{Backoff, BoxError, Buffered, RespondLayer, TRAIL_HEADER};
use http_body::Frame;
use http_body_util::BodyExt as _;
use retry_layer::{RetryBuilder, RetryLayer};
use tower::{Layer, ServiceBuilder, ServiceExt};

/// Three pieces, of which each is there only at the second look.
#[derive(Default)]
struct Slow {
    sent: usize,
    looked: bool,
}

impl http_body::Body for Slow {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !std::mem::replace(&mut self.looked, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.looked = false;
        let piece = ["one ", "two ", "three"].get(self.sent);
        self.sent += 1;
        Poll::Ready(piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }
}

/// What a handler has seen, and in which of its calls it fails.
#[derive(Clone, Default)]
struct Seen {
    bodies: Arc<Mutex<Vec<String>>>,
    calls: Arc<AtomicUsize>,
}

async fn handler(State(seen): State<Seen>, body: String) -> http::StatusCode {
    seen.bodies.lock().unwrap().push(body);
    if seen.calls.fetch_add(1, SeqCst) < 2 {
        http::StatusCode::SERVICE_UNAVAILABLE
    } else {
        http::StatusCode::OK
    }
}

/// Fails before it has read anything.
async fn hasty(State(seen): State<Seen>, request: Request<Body>) -> http::StatusCode {
    if seen.calls.fetch_add(1, SeqCst) < 1 {
        return http::StatusCode::SERVICE_UNAVAILABLE;
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    seen.bodies.lock().unwrap().push(String::from_utf8(body.to_vec()).unwrap());
    http::StatusCode::OK
}

fn quick() -> RetryBuilder {
    RetryLayer::builder().backoff(Backoff::fixed(Duration::from_millis(1)))
}

#[tokio::test]
async fn an_axum_route_is_called_again_with_the_whole_body() {
    for (cap, status, calls) in [(64, 200, 3), (12, 503, 1)] {
        let seen = Seen::default();
        let retry = quick().replay(Buffered::new(cap, Body::new)).build().unwrap();
        let router = Router::new()
            .route("/", post(handler))
            .layer(ServiceBuilder::new().layer(RespondLayer).layer(retry))
            .with_state(seen.clone());
        let request = Request::post("/").body(Body::new(Slow::default())).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!((response.status().as_u16(), seen.calls.load(SeqCst)), (status, calls), "{cap}");
        assert!(!response.headers().contains_key(TRAIL_HEADER));
        assert!(seen.bodies.lock().unwrap().iter().all(|body| body == "one two three"));
    }
}

#[tokio::test]
async fn a_stream_of_reqwests_is_sent_again_over_a_socket() {
    for is_hasty in [false, true] {
        let seen = Seen::default();
        let route = if is_hasty { post(hasty) } else { post(handler) };
        let router = Router::new().route("/", route).with_state(seen.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });

        let client = reqwest::Client::builder().retry(reqwest::retry::never()).build().unwrap();
        let request = client.post(&url).body(reqwest::Body::wrap(Slow::default())).build().unwrap();
        let retry = quick().replay(Buffered::new(64, reqwest::Body::wrap)).build().unwrap();
        let response = retry.layer(client).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{is_hasty}");
        let bodies = seen.bodies.lock().unwrap();
        assert_eq!(bodies.len(), if is_hasty { 1 } else { 3 });
        assert!(bodies.iter().all(|body| body == "one two three"), "{bodies:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_or_answered_leaves_nothing_of_the_body() {
    let data = Bytes::from(vec![7u8; 1024]);
    let held: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let push = Arc::clone(&held);
    let service = tower::service_fn(move |request: Request<Body>| {
        let held = Arc::clone(&push);
        async move {
            let read = request.into_body().collect().await?.to_bytes();
            held.lock().unwrap().push(read);
            let mut response = axum::response::Response::new(Body::empty());
            if held.lock().unwrap().len() == 1 {
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            }
            Ok::<_, BoxError>(response)
        }
    });
    let retry = RetryLayer::builder().replay(Buffered::new(4096, Body::new)).build().unwrap();
    let service = retry.layer(service);
    for is_dropped in [true, false] {
        let request = Request::post("/").body(Body::from(data.clone())).unwrap();
        let call = service.clone().oneshot(request);
        if is_dropped {
            // It waits for its second attempt.
            assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
            assert_eq!(held.lock().unwrap().len(), 1);
        } else {
            assert_eq!(call.await.unwrap().status(), 200);
        }
        // The same memory, not a copy; and nobody else holds it.
        assert!(held.lock().unwrap().iter().all(|read| read.is_empty() || read.as_ptr() == data.as_ptr()));
        held.lock().unwrap().iter_mut().for_each(|read| *read = Bytes::new());
        assert!(data.is_unique(), "{is_dropped}");
    }
}
