//! A real server over loopback for what only sockets show.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use futures_util::stream;

use crate::ANSWER;

/// A server on 127.0.0.1 that stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    url: String,
    open: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// The URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// How many answers are being written.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a server. `/slow` answers in pieces; `/endless` never ends; `/cut` breaks off; `/busy` answers 503.
///
/// # Panics
///
/// When loopback has no port left.
pub async fn serve() -> Server {
    let open = Arc::new(AtomicUsize::new(0));
    let (slow, endless) = (Arc::clone(&open), Arc::clone(&open));
    let router = Router::new()
        .route("/slow", post(move || async move { pieces(&slow, End::Clean) }))
        .route("/endless", post(move || async move { pieces(&endless, End::Never) }))
        .route("/cut", post(|| async { pieces(&Arc::default(), End::Cut) }))
        .route("/busy", post(|| async { (http::StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"busy"}"#) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let task = tokio::spawn(async move {
        // Ends with the task.
        let _ = axum::serve(listener, router).await;
    });
    Server { url, open, task }
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Clean,
    Cut,
    Never,
}

/// The answer in pieces, each its own write.
fn pieces(open: &Arc<AtomicUsize>, end: End) -> axum::response::Response {
    open.fetch_add(1, Ordering::SeqCst);
    let guard = Closing(Arc::clone(open));
    let body = stream::unfold((0, guard), move |(at, guard)| async move {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let chunks = ANSWER.as_bytes().chunks(64);
        let (length, half) = (chunks.len(), chunks.len() / 2);
        let item = match (end, ANSWER.as_bytes().chunks(64).nth(at)) {
            (End::Cut, _) if at >= half => Err(std::io::Error::other("cut")),
            (End::Never, None) => Ok(Bytes::from_static(b" ")),
            (_, Some(chunk)) => Ok(Bytes::from_static(chunk)),
            (_, None) => return None,
        };
        (at <= length || end == End::Never).then_some((item, (at + 1, guard)))
    });
    let mut response = axum::response::Response::new(Body::from_stream(body));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

struct Closing(Arc<AtomicUsize>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
