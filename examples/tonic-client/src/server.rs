//! A server on 127.0.0.1 that is unavailable for so many calls.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use failsoft::prelude::BoxError;
use tokio_stream::{Empty, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, transport::Server};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};

struct Warming {
    left: Arc<AtomicU32>,
}

#[tonic::async_trait]
impl Health for Warming {
    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(Status::unavailable("warming up"));
        }
        Ok(Response::new(HealthCheckResponse { status: ServingStatus::Serving.into() }))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("ask again instead"))
    }
}

pub(crate) async fn serve(failures: u32) -> Result<String, BoxError> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let service = HealthServer::new(Warming { left: Arc::new(AtomicU32::new(failures)) });
    let serving =
        Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    Ok(url)
}
