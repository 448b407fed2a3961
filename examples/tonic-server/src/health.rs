//! What is served, and who asks.

use failsoft::prelude::BoxError;
use tokio_stream::Empty;
use tonic::{Request, Response, Status, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient, health_server::Health,
};

/// The process is well; its database is not.
pub(crate) struct Checks;

#[tonic::async_trait]
impl Health for Checks {
    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match request.get_ref().service.as_str() {
            "" => Ok(Response::new(HealthCheckResponse { status: ServingStatus::Serving.into() })),
            "database" => Err(Status::unavailable("no connection")),
            _ => Err(Status::not_found("no such service")),
        }
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("ask again instead"))
    }
}

pub(crate) fn client(url: &str) -> Result<HealthClient<Channel>, BoxError> {
    Ok(HealthClient::new(Channel::from_shared(url.to_owned())?.connect_lazy()))
}

pub(crate) async fn check(
    client: &mut HealthClient<Channel>,
    service: &str,
) -> Result<ServingStatus, Status> {
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.map(|answer| answer.into_inner().status())
}

#[cfg(test)]
pub(crate) async fn watch(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.watch(HealthCheckRequest { service: String::new() }).await.map(|_| ())
}
