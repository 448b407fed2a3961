//! The layers around hyper-util's client: it is a `tower::Service` of `http` requests already, and needs no adapter.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use breaker_layer::BreakerLayer;
use bytes::Bytes;
use failsoft_core::{Backoff, BoxError, backoff::Jitter};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use retry_layer::RetryLayer;
use stream_layer::{AnyLine, StreamLayer};
use tower::{Service, ServiceBuilder, ServiceExt};

/// Asks once; gives the lines, and how many requests the server got.
async fn ask(failures: u32) -> Result<(String, u32), BoxError> {
    let (url, asked) = serve(failures).await?;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut service = ServiceBuilder::new()
        .layer(
            // The default waits are 1 s, doubled, with full jitter.
            RetryLayer::builder()
                .target("log")
                .backoff(Backoff::fixed(Duration::from_millis(5)).jitter(Jitter::None))
                .build()?,
        )
        .layer(BreakerLayer::builder().name("log").build()?)
        // A first line within 10 s, and no silence of more than 30 s: those are the defaults.
        .layer(StreamLayer::new(AnyLine::default()))
        .service(client);
    let request = Request::get(url).body(Full::default())?;
    let response = service.ready().await?.call(request).await?;
    let body = response.into_body().collect().await?.to_bytes();
    Ok((String::from_utf8(body.into())?, asked.load(Relaxed)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    for failures in [0, 2] {
        let (lines, asked) = ask(failures).await?;
        println!("{asked} requests:\n{lines}");
    }
    Ok(())
}

/// A server on 127.0.0.1 that is overloaded for so many requests.
async fn serve(failures: u32) -> Result<(String, Arc<AtomicU32>), BoxError> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/lines", listener.local_addr()?);
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let service = hyper::service::service_fn(move |_| {
                let overloaded = count.fetch_add(1, Relaxed) < failures;
                async move {
                    let status = if overloaded { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
                    Response::builder()
                        .status(status)
                        .header("content-type", "application/x-ndjson")
                        .body(Full::<Bytes>::from("{\"line\": 1}\n{\"line\": 2}\n"))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
            );
        }
    });
    Ok((url, asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_overloaded_server_is_asked_again() -> Result<(), BoxError> {
        for failures in [0, 2] {
            assert_eq!(ask(failures).await?, ("{\"line\": 1}\n{\"line\": 2}\n".to_owned(), failures + 1));
        }
        Ok(())
    }
}
