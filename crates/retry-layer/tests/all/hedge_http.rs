//! Hedging around a real `reqwest::Client`, against real sockets.
#![cfg(feature = "reqwest-013")]

use std::time::Duration;

use retry_layer::HedgeLayer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::{Layer, ServiceExt};

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";

async fn read_head(socket: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
}

/// The server holds one request until the other is answered, and sees what becomes of its socket.
async fn race(hold_first: bool) -> reqwest::Response {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/models", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        read_head(&mut first).await;
        let (mut second, _) = listener.accept().await.unwrap();
        read_head(&mut second).await;
        let (mut held, mut answered) = if hold_first { (first, second) } else { (second, first) };
        answered.write_all(FINE.as_bytes()).await.unwrap();
        // The end of the loser's socket, or a reset.
        held.read(&mut [0; 64]).await.unwrap_or(0)
    });
    let client = reqwest::Client::builder().retry(reqwest::retry::never()).build().unwrap();
    let layer = HedgeLayer::builder().delay(Duration::from_millis(5)).build().unwrap();
    let response = layer.layer(client.clone()).oneshot(client.get(url).build().unwrap()).await.unwrap();
    let left = tokio::time::timeout(Duration::from_secs(10), server).await;
    assert_eq!(left.unwrap().unwrap(), 0, "the loser's socket is closed");
    response
}

#[tokio::test]
async fn the_losers_socket_is_seen_closed_by_the_server_whichever_it_is() {
    for hold_first in [true, false] {
        let response = race(hold_first).await;
        assert_eq!(response.text().await.unwrap(), "hello");
    }
}
