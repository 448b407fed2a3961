//! A gateway in axum: each route has its own stack, `/health` tells of all circuits, and what fails is answered as JSON with
//! `Retry-After`.
//!
//! ```text
//! cargo run -p axum-server              # asks itself a few questions
//! cargo run -p axum-server -- serve     # serves until it is stopped: curl -i http://127.0.0.1:8080/health
//! ```

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
    routing::{get, post},
};
use failsoft::{
    breaker::{Registry, RegistrySnapshot},
    core::error_response,
    prelude::*,
    presets::{HostedModel, Server},
};
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

type Model = BoxCloneSyncService<reqwest::Request, reqwest::Response, BoxError>;

#[derive(Clone)]
struct Gateway {
    model: Model,
    circuits: Registry,
    client: reqwest::Client,
    url: String,
}

/// Hands a question on to the model. What comes back passes as it is: status, headers and body, a stream too.
async fn chat(State(mut gateway): State<Gateway>, question: String) -> Response {
    let asked = async {
        let request = gateway.client.post(&gateway.url).body(question).build()?;
        gateway.model.ready().await?.call(request).await
    };
    match asked.await {
        Ok(response) => axum::http::Response::<reqwest::Body>::from(response).map(Body::new),
        Err(error) => error_response(&error).map(Body::from),
    }
}

async fn health(State(gateway): State<Gateway>) -> Json<RegistrySnapshot> {
    Json(gateway.circuits.snapshot())
}

fn tenant(request: &Request) -> String {
    let tenant = request.headers().get("x-tenant").and_then(|tenant| tenant.to_str().ok());
    tenant.unwrap_or("nobody").to_owned()
}

/// The routes, in front of a model at `url`.
fn app(url: &str) -> Result<Router, BoxError> {
    let circuits = Registry::new();
    let client = reqwest::Client::builder().retry(reqwest::retry::never()).build()?;
    let model = HostedModel::new("model")
        // Callers that know of retries get the model's own word, and need not wait here for what it advised others.
        .retry(|retry| retry.max_retries(0).share_advice(false))
        .breaker(|breaker| breaker.registry(&circuits).consecutive_failures(3))
        .build()?
        .layer(client.clone());
    let model = BoxCloneSyncService::new(model);
    let gateway = Gateway { model, circuits: circuits.clone(), client, url: url.to_owned() };

    // Each tenant has so many tokens; a question is taken for 1 000 until its answer says how many it was.
    let chat_stack = ServiceBuilder::new()
        .layer(RespondLayer)
        .layer(BudgetLayer::builder().tokens(10_000).key_fn(tenant).estimate_fixed(1_000).build()?);
    // What is called from here has 10 s, and the circuit of this route is its own.
    let report_stack = Server::new("reports")
        .timeout(std::time::Duration::from_secs(10))
        .breaker(|breaker| breaker.registry(&circuits).consecutive_failures(3))
        .build()?;
    Ok(Router::new()
        .route("/chat", post(chat).layer(chat_stack))
        .route("/reports", get(async || StatusCode::INTERNAL_SERVER_ERROR).layer(report_stack))
        .route("/health", get(health))
        .with_state(gateway))
}

async fn serve(app: Router, address: &str) -> Result<String, BoxError> {
    let listener = TcpListener::bind(address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

/// In place of a real model: overloaded.
async fn overloaded() -> Result<String, BoxError> {
    let answer = async || (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "2")], "no room");
    serve(Router::new().fallback(answer), "127.0.0.1:0").await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let model = overloaded().await?;
    if std::env::args().any(|arg| arg == "serve") {
        let url = serve(app(&model)?, "127.0.0.1:8080").await?;
        println!("{url}/chat, {url}/reports, {url}/health");
        std::future::pending::<()>().await;
    }
    let url = serve(app(&model)?, "127.0.0.1:0").await?;
    let client = reqwest::Client::new();
    for question in ["one", "two", "three", "four"] {
        let response = client.post(format!("{url}/chat")).body(question).send().await?;
        let advice = response.headers().get("retry-after").cloned();
        println!("{} retry-after {advice:?}: {}", response.status(), response.text().await?);
    }
    println!("{}", client.get(format!("{url}/health")).send().await?.text().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    async fn asked(request: reqwest::RequestBuilder) -> Result<(u16, Option<String>, String), BoxError> {
        let response = request.send().await?;
        let advice = response
            .headers()
            .get("retry-after")
            .map(|advice| advice.to_str().unwrap_or_default().to_owned());
        Ok((response.status().as_u16(), advice, response.text().await?))
    }

    #[tokio::test]
    async fn each_route_fails_by_itself_and_health_tells_of_all() -> Result<(), BoxError> {
        let url = serve(app(&overloaded().await?)?, "127.0.0.1:0").await?;
        let client = reqwest::Client::new();

        // The model's own word, as it said it; then the circuit's.
        for _ in 0..3 {
            let told = asked(client.post(format!("{url}/chat"))).await?;
            assert_eq!(told, (503, Some("2".to_owned()), "no room".to_owned()));
        }
        let (status, advice, body) = asked(client.post(format!("{url}/chat"))).await?;
        assert_eq!(status, 503);
        assert!(advice.is_some_and(|advice| advice.parse::<u64>().is_ok_and(|seconds| seconds > 2)));
        assert_eq!(serde_json::from_str::<Value>(&body)?["error"]["target"], "model");

        // The other route has its own circuit, which is closed.
        assert_eq!(asked(client.get(format!("{url}/reports"))).await?.0, 500);

        let health: Value = serde_json::from_str(&asked(client.get(format!("{url}/health"))).await?.2)?;
        let states: Vec<_> = health["circuits"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|circuit| (circuit["name"].clone(), circuit["state"].clone()))
            .collect();
        assert_eq!(
            states,
            [("model".into(), "open".into()), ("reports".into(), "closed".into())],
            "{health}"
        );
        Ok(())
    }

    #[tokio::test]
    async fn a_tenant_that_has_spent_its_budget_is_told_so_and_others_are_served() -> Result<(), BoxError> {
        // Says nothing of usage, so that each question costs what it was taken for.
        let model = serve(Router::new().fallback(async || "an answer"), "127.0.0.1:0").await?;
        let url = serve(app(&model)?, "127.0.0.1:0").await?;
        let client = reqwest::Client::new();
        let ask = |tenant| asked(client.post(format!("{url}/chat")).header("x-tenant", tenant));
        let mut served = 0;
        let denied = loop {
            match ask("a").await? {
                (200, ..) => served += 1,
                denied => break denied,
            }
        };
        assert_eq!((served, denied.0), (10, 429));
        assert_eq!(ask("b").await?.0, 200);
        Ok(())
    }
}
