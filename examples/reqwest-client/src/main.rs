//! A model with two providers, over a `reqwest::Client`: each with its own circuit and retries, the second in reserve, and
//! one budget around both. The providers are served from this process; with real ones only the URLs differ.

mod provider;

use failsoft::{core::backoff::Jitter, prelude::*, presets::HostedModel};
use reqwest::{Client, Request, Response, Url};
use std::time::Duration;
use tower::{Service, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

type Model = BoxCloneSyncService<Request, Response, BoxError>;

/// One provider: what goes around the client, and where it is.
fn provider(name: &'static str, url: &str, client: &Client) -> Result<(Model, Circuit), BoxError> {
    let url = Url::parse(url)?;
    // Real providers get the default waits: 1 s, doubled, with full jitter. Here nobody wants to wait.
    let soon = Backoff::fixed(Duration::from_millis(5)).jitter(Jitter::None);
    let layer = HostedModel::new(name)
        .provider(Provider::OpenAiCompatible)
        .retry(|retry| retry.max_retries(1).backoff(soon))
        .validate(|validate| validate.json_object().require("/city"))
        .build()?;
    let circuit = layer.circuit().clone();
    let service = ServiceBuilder::new()
        .layer(layer)
        .map_request(move |mut request: Request| {
            *request.url_mut() = url.clone();
            request
        })
        .service(client.clone());
    Ok((BoxCloneSyncService::new(service), circuit))
}

/// What came of one question.
#[derive(Debug)]
struct Told {
    text: String,
    trail: Trail,
    tokens: u64,
}

async fn ask(eu: &str, us: &str) -> Result<Told, BoxError> {
    // One place retries, and it is not the client.
    let client = Client::builder().timeout(Duration::from_secs(30)).retry(reqwest::retry::never()).build()?;
    let (first, first_circuit) = provider("eu", eu, &client)?;
    let (second, second_circuit) = provider("us", us, &client)?;
    let fallback = FallbackLayer::builder()
        .name("eu")
        .health(first_circuit)
        .route(Route::new("us", second).health(second_circuit))
        .build()?;
    let budget = BudgetLayer::builder().tokens(50_000).build()?;
    let ledger = budget.ledger().clone();
    let mut model = ServiceBuilder::new().layer(budget).layer(fallback).service(first);

    let body = r#"{"model": "m", "max_tokens": 100,
        "messages": [{"role": "user", "content": "Where is Bern? Answer in JSON."}]}"#;
    let request = client.post(eu).body(body).build()?;
    let call = Call::begin();
    let response = call.scope(async { model.ready().await?.call(request).await }).await?;
    let text = response.text().await?;
    Ok(Told { text, trail: call.trail(), tokens: ledger.unkeyed().spent() })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let good = provider::serve(provider::Weather::Good).await?;
    for weather in provider::Weather::ALL {
        let first = provider::serve(weather).await?;
        let told = ask(&first, &good).await?;
        println!("{weather:?}: {} tokens\n  {}\n  {}", told.tokens, told.trail, told.text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use provider::{BERN, Weather, answer, serve};

    #[tokio::test]
    async fn whatever_the_first_one_does_the_answer_is_right() -> Result<(), BoxError> {
        let good = serve(Weather::Good).await?;
        for weather in Weather::ALL {
            let told = ask(&serve(weather).await?, &good).await?;
            assert_eq!(told.text, answer(BERN), "{weather:?}");
            let by = told.trail.attempts().last().and_then(|last| last.target.as_deref());
            assert_eq!(by, Some(if weather == Weather::Good { "eu" } else { "us" }), "{weather:?}");
            assert!(told.tokens >= 21, "{told:?}");
        }
        Ok(())
    }
}
