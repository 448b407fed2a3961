//! The layers under a generated tonic client. The health service's code comes generated with tonic-health, so that no `protoc`
//! is needed; any other client takes the same stack.

mod server;

use std::time::Duration;

use failsoft::{
    core::{Buffered, backoff::Jitter, to_status},
    prelude::*,
};
use tonic::{Request, Status, body::Body, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tower::{ServiceBuilder, util::BoxCloneSyncService};

/// A client's own service, boxed so that it has a name.
type Stack = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

fn stack(channel: Channel) -> Result<Stack, BoxError> {
    let service = ServiceBuilder::new()
        // Without this tonic calls every error that it does not know `Unknown`.
        .map_err(to_status)
        // The bodies differ in type from layer to layer; a generated client takes one.
        .map_response(|response: http::Response<_>| response.map(Body::new))
        .layer(
            RetryLayer::builder()
                .target("health")
                // A request is a stream: what was sent of it is kept, up to 64 KiB.
                .replay(Buffered::new(64 << 10, Body::new))
                // Reading twice does no harm. Without this only what was answered is repeated.
                .repeat_unanswered(true)
                // The default waits are 1 s, doubled, with full jitter.
                .backoff(Backoff::fixed(Duration::from_millis(5)).jitter(Jitter::None))
                .build()?,
        )
        .layer(BreakerLayer::builder().name("health").consecutive_failures(6).build()?)
        .service(channel);
    Ok(BoxCloneSyncService::new(service))
}

/// Asks once, within a second.
async fn check(client: &mut HealthClient<Stack>) -> Result<ServingStatus, Status> {
    let mut request = Request::new(HealthCheckRequest { service: String::new() });
    // Goes over the wire as `grpc-timeout`; the retry knows it and begins no wait that ends after it.
    request.set_timeout(Duration::from_secs(1));
    client.check(request).await.map(|answer| answer.into_inner().status())
}

async fn client(failures: u32) -> Result<HealthClient<Stack>, BoxError> {
    let channel = Channel::from_shared(server::serve(failures).await?)?.connect_lazy();
    Ok(HealthClient::new(stack(channel)?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    println!("{:?}", check(&mut client(2).await?).await);
    let mut client = client(u32::MAX).await?;
    for _ in 0..3 {
        if let Err(status) = check(&mut client).await {
            println!("{:?}: {}", status.code(), status.message());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test]
    async fn what_is_unavailable_for_a_moment_is_asked_again() -> Result<(), BoxError> {
        assert_eq!(check(&mut client(2).await?).await?, ServingStatus::Serving);
        Ok(())
    }

    #[tokio::test]
    async fn what_stays_so_is_told_as_the_server_said_it_and_then_by_the_circuit() -> Result<(), BoxError> {
        let mut client = client(u32::MAX).await?;
        let first = check(&mut client).await.map_err(|status| (status.code(), status.message().to_owned()));
        assert_eq!(first, Err((Code::Unavailable, "warming up".to_owned())));
        let _ = check(&mut client).await;

        let refused = check(&mut client).await.expect_err("the circuit is open");
        assert_eq!(refused.code(), Code::Unavailable);
        let fault = Fault::find(&refused).expect("the fault is the status's source");
        assert_eq!(
            (fault.class(), fault.target()),
            (Class::Denied(failsoft::core::Denier::Circuit), Some("health"))
        );
        Ok(())
    }
}
