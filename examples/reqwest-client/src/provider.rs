//! A model provider on 127.0.0.1, in place of a real one.

use axum::{Router, http::StatusCode, routing::post};
use failsoft::prelude::BoxError;

/// How the provider is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weather {
    Good,
    /// 503.
    Overloaded,
    /// 200, and an error object where an answer should be.
    ErrorInside,
    /// 200, and an answer that breaks off in the middle of its JSON.
    HalfAnAnswer,
    /// 200, and good JSON without the field that was asked for.
    FieldMissing,
}

impl Weather {
    pub(crate) const ALL: [Self; 5] =
        [Self::Good, Self::Overloaded, Self::ErrorInside, Self::HalfAnAnswer, Self::FieldMissing];
}

/// The right answer, as it stands in a JSON string.
pub(crate) const BERN: &str = r#"{\"city\": \"Bern\"}"#;

pub(crate) fn answer(content: &str) -> String {
    format!(
        r#"{{"choices": [{{"message": {{"role": "assistant", "content": "{content}"}}, "finish_reason": "stop"}}],
           "usage": {{"prompt_tokens": 14, "completion_tokens": 7}}}}"#
    )
}

/// Serves one, and gives its URL.
pub(crate) async fn serve(weather: Weather) -> Result<String, BoxError> {
    let (status, body) = match weather {
        Weather::Good => (StatusCode::OK, answer(BERN)),
        Weather::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "{}".to_owned()),
        Weather::ErrorInside => {
            (StatusCode::OK, r#"{"error": {"type": "overloaded_error", "message": "busy"}}"#.to_owned())
        }
        Weather::HalfAnAnswer => (StatusCode::OK, answer(r#"{\"city\": \"Be"#)),
        Weather::FieldMissing => (StatusCode::OK, answer(r#"{\"town\": \"Bern\"}"#)),
    };
    let handler = async move || (status, [("content-type", "application/json")], body.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    let app = Router::new().route("/v1/chat/completions", post(handler));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}
