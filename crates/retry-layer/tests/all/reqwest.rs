//! Around a real `reqwest::Client`, against real sockets.
#![cfg(feature = "reqwest-013")]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use failsoft_core::{Backoff, BoxError};
use retry_layer::{RetryBuilder, RetryLayer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
};
use tower::{Layer, ServiceExt};

/// Gives each connection one of the answers, the last again and again; an empty one closes it after the request was read.
async fn serve(answers: &'static [&'static str]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = socket.read_u8().await else { return };
                head.push(byte);
            }
            let answer = answers[count.fetch_add(1, SeqCst).min(answers.len() - 1)];
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, requests)
}

const DOWN: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";

fn quick() -> RetryBuilder {
    RetryLayer::builder().backoff(Backoff::fixed(Duration::from_millis(5)))
}

async fn send(method: http::Method, address: SocketAddr) -> Result<reqwest::Response, BoxError> {
    let client = reqwest::Client::builder().retry(reqwest::retry::never()).build()?;
    let request = client.request(method, format!("http://{address}/v1/chat")).build()?;
    quick().build()?.layer(client).oneshot(request).await
}

#[tokio::test]
async fn a_failure_response_is_followed_by_another_attempt_whatever_the_method() {
    let (address, requests) = serve(&[DOWN, DOWN, FINE]).await;
    let response = send(http::Method::POST, address).await.unwrap();
    assert_eq!((response.url().path(), requests.load(SeqCst)), ("/v1/chat", 3));
    assert_eq!(response.text().await.unwrap(), "hello");
}

#[tokio::test]
async fn a_connection_that_broke_after_the_request_is_tried_again_for_a_get_only() {
    let (address, requests) = serve(&["", FINE]).await;
    let error = send(http::Method::POST, address).await.unwrap_err();
    assert!(error.is::<reqwest::Error>());
    assert_eq!(requests.load(SeqCst), 1);

    let (address, requests) = serve(&["", FINE]).await;
    assert_eq!(send(http::Method::GET, address).await.unwrap().status(), 200);
    assert_eq!(requests.load(SeqCst), 2);
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_and_its_error_comes_back_as_it_was() {
    // Bound, so that nobody else gets the port, and not listened at.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let call = failsoft_core::Call::begin();
    let error = call.scope(send(http::Method::POST, address)).await.unwrap_err();
    assert!(error.downcast_ref::<reqwest::Error>().unwrap().is_connect());
    let trail = call.trail();
    assert_eq!(trail.attempts().len(), 4);
    assert_eq!(trail.attempts()[0].target.as_deref(), Some(address.to_string().as_str()));
}
