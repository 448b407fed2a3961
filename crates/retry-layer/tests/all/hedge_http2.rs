//! Hedging over one real HTTP/2 connection: what the server sees of a loser.

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use retry_layer::HedgeLayer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tower::{Layer, ServiceExt as _};

/// Answers the request that it is to answer, and sends what the stream of the other one ends with.
async fn serve(listener: TcpListener, hold_first: bool, ends: mpsc::UnboundedSender<h2::Reason>) {
    let (socket, _) = listener.accept().await.unwrap();
    let mut connection = h2::server::handshake(socket).await.unwrap();
    let mut number = 0;
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        number += 1;
        if number <= 2 && (number == 1) == hold_first {
            let ends = ends.clone();
            // The connection is driven by the loop.
            tokio::spawn(async move {
                let reason = poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
                ends.send(reason).unwrap();
            });
        } else {
            // The second answers, or the first does once the second has come.
            if number == 1 {
                let (_, mut second) = connection.accept().await.unwrap().unwrap();
                number += 1;
                let ends = ends.clone();
                tokio::spawn(async move {
                    let reason = poll_fn(|cx| second.poll_reset(cx)).await.unwrap();
                    ends.send(reason).unwrap();
                });
            }
            respond.send_response(Response::new(()), true).unwrap();
        }
    }
}

#[tokio::test]
async fn a_losers_stream_is_reset_and_its_connection_stays() {
    for hold_first in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ends, mut ended) = mpsc::unbounded_channel();
        let server = tokio::spawn(serve(listener, hold_first, ends));
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let driver = tokio::spawn(connection);
        let client = tower::service_fn(move |request: Request<Empty<Bytes>>| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        });
        let layer = HedgeLayer::builder().delay(Duration::from_millis(5)).build().unwrap();
        let service = layer.layer(client);
        let ask = || Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
        assert_eq!(service.clone().oneshot(ask()).await.unwrap().status(), 200);
        // The loser's, told at once, and not by the end of the connection.
        let reason = tokio::time::timeout(Duration::from_secs(10), ended.recv()).await.unwrap();
        assert_eq!(reason, Some(h2::Reason::CANCEL));
        assert!(!driver.is_finished() && !server.is_finished());
        assert_eq!(service.oneshot(ask()).await.unwrap().status(), 200);
    }
}
