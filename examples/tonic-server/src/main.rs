//! A tonic server behind the layers: a method that fails is left alone for a while, the others go on, and callers are told
//! when to come back. Health and reflection come generated, so that no `protoc` is needed.
//!
//! ```text
//! cargo run -p tonic-server              # asks itself a few questions
//! cargo run -p tonic-server -- serve     # serves at 127.0.0.1:50051 until it is stopped
//! ```

mod health;

use failsoft::{breaker::Circuits, core::to_status, prelude::*};
use http::Request;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{body::Body, transport::Server};
use tonic_health::pb::{FILE_DESCRIPTOR_SET, health_server::HealthServer};
use tower::ServiceBuilder;

/// Serves, and gives the URL and the circuits.
async fn serve(address: &str) -> Result<(String, Circuits), BoxError> {
    let breaker = BreakerLayer::builder()
        .name("grpc")
        .consecutive_failures(3)
        .key_fn(|request: &Request<Body>| request.uri().path().to_owned())
        .build()?;
    let circuits = breaker.circuits().clone();
    let stack = ServiceBuilder::new()
        // tonic makes an answer of a status, and `Unknown` of every other error.
        .map_err(to_status)
        .layer(breaker)
        .into_inner();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET);

    let listener = TcpListener::bind(address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let serving = Server::builder()
        .layer(stack)
        .add_service(HealthServer::new(health::Checks))
        .add_service(reflection.build_v1()?)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    Ok((url, circuits))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    if std::env::args().any(|arg| arg == "serve") {
        println!("{}", serve("127.0.0.1:50051").await?.0);
        std::future::pending::<()>().await;
    }
    let (url, _circuits) = serve("127.0.0.1:0").await?;
    let mut client = health::client(&url)?;
    for service in ["", "database", "database", "database", ""] {
        match health::check(&mut client, service).await {
            Ok(status) => println!("{service:?}: {status:?}"),
            Err(status) => println!("{service:?}: {:?}: {}", status.code(), status.message()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;
    use tonic_health::pb::health_check_response::ServingStatus;

    #[tokio::test]
    async fn a_method_that_fails_is_left_alone_and_the_caller_is_told_when_to_come_back()
    -> Result<(), BoxError> {
        let (url, circuits) = serve("127.0.0.1:0").await?;
        let mut client = health::client(&url)?;
        assert_eq!(health::check(&mut client, "").await?, ServingStatus::Serving);
        for _ in 0..3 {
            let status = health::check(&mut client, "database").await.expect_err("it is down");
            assert_eq!((status.code(), status.message()), (Code::Unavailable, "no connection"));
        }

        let refused = health::check(&mut client, "").await.expect_err("the method's circuit is open");
        assert_eq!(refused.code(), Code::Unavailable);
        let pushback = refused.metadata().get("grpc-retry-pushback-ms").and_then(|value| value.to_str().ok());
        assert!(
            pushback.is_some_and(|value| value.parse::<u64>().is_ok_and(|ms| ms > 20_000)),
            "{refused:?}"
        );
        assert_eq!(circuits.len(), 1);

        // Another method has its own circuit.
        let status = health::watch(&mut client).await.expect_err("it is not there");
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(circuits.len(), 2);
        Ok(())
    }
}
