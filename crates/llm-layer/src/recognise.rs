//! Which dialect is spoken, where nobody said so: by the path of the request, its headers and its shape, else by the
//! shape of the answer.

use http::HeaderMap;

use crate::{Provider, lens, request::Look};

/// What the path of a request says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) provider: Option<Provider>,
    /// It is known to be another endpoint than one that answers with what a model wrote.
    pub(crate) is_other: bool,
    /// The answer comes as a stream, whatever the body says.
    pub(crate) streams: Option<bool>,
}

impl Endpoint {
    /// Reads a path: `/v1/chat/completions`, and whatever stands before it.
    pub(crate) fn of(path: &str) -> Self {
        let path = path.trim_end_matches('/');
        let below = |name: &str| {
            path.rsplit_once(name)
                .map(|(_, rest)| rest)
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let of = |provider, is_other| Self { provider: Some(provider), is_other, streams: None };
        if below("/chat/completions") == Some("") || below("/completions") == Some("") {
            return of(Provider::OpenAiCompatible, false);
        }
        if let Some(rest) = below("/responses") {
            return of(Provider::OpenAiResponses, !rest.is_empty());
        }
        if let Some(rest) = below("/messages").filter(|_| below("/threads").is_none()) {
            return of(Provider::Anthropic, !rest.is_empty());
        }
        if ["/embeddings", "/moderations", "/rerank", "/models"].iter().any(|name| path.ends_with(name)) {
            return Self { is_other: true, ..Self::default() };
        }
        if let Some((_, method)) = path.rsplit_once(':') {
            match method {
                "generateContent" => return Self::streaming(Provider::Gemini, false),
                "streamGenerateContent" => return Self::streaming(Provider::Gemini, true),
                "countTokens" | "embedContent" | "batchEmbedContents" => return of(Provider::Gemini, true),
                _ => {}
            }
        }
        if below("/converse") == Some("") {
            return Self::streaming(Provider::Bedrock, false);
        }
        if below("/converse-stream") == Some("") {
            return Self::streaming(Provider::Bedrock, true);
        }
        // A model's own events, in chunks: failures are told in the way of all of Bedrock's streams.
        if path.ends_with("/invoke-with-response-stream") {
            let is_claude = path.contains("anthropic");
            return Self::streaming(if is_claude { Provider::Anthropic } else { Provider::Bedrock }, true);
        }
        if below("/api/chat") == Some("") || below("/api/generate") == Some("") {
            return of(Provider::Ollama, false);
        }
        // Anthropic's models at Google, and at Amazon.
        if path.ends_with(":rawPredict") || path.ends_with(":streamRawPredict") || path.ends_with("/invoke") {
            let provider = path.contains("anthropic").then_some(Provider::Anthropic);
            return Self { provider, ..Self::default() };
        }
        Self::default()
    }

    const fn streaming(provider: Provider, streams: bool) -> Self {
        Self { provider: Some(provider), is_other: false, streams: Some(streams) }
    }
}

/// The dialect of a request.
pub(crate) fn of_request(look: &Look<'_>) -> Option<Provider> {
    let endpoint = look.path.map(Endpoint::of).unwrap_or_default();
    endpoint.provider.or_else(|| look.headers.and_then(of_headers)).or_else(|| of_body(look.body.as_deref()?))
}

fn of_headers(headers: &HeaderMap) -> Option<Provider> {
    headers.contains_key("anthropic-version").then_some(Provider::Anthropic)
}

fn of_body(body: &[u8]) -> Option<Provider> {
    let text = std::str::from_utf8(body).ok()?;
    let names = ["anthropic_version", "messages", "max_tokens", "system", "stop_sequences", "input"];
    let [version, messages, max, system, stops, input] = lens::fields(text, names)?;
    if version.is_some() || messages.and(max).is_some() && system.or(stops).is_some() {
        Some(Provider::Anthropic)
    } else if input.is_some() && messages.is_none() {
        // Vectors and speech are made of an `input` too, and have none of these.
        let names = [
            "instructions",
            "tools",
            "max_output_tokens",
            "stream",
            "text",
            "reasoning",
            "previous_response_id",
        ];
        lens::fields(text, names)?.iter().any(Option::is_some).then_some(Provider::OpenAiResponses)
    } else {
        of_native_body(text)
    }
}

/// The dialect of a request by what only one dialect has.
fn of_native_body(text: &str) -> Option<Provider> {
    let names = ["contents", "messages", "prompt", "inferenceConfig", "toolConfig", "keep_alive", "options"];
    let [contents, messages, prompt, inference, tools, keep_alive, options] = lens::fields(text, names)?;
    if contents.is_some() {
        Some(Provider::Gemini)
    } else if messages.is_some() && inference.or(tools).is_some() {
        Some(Provider::Bedrock)
    } else if messages.or(prompt).is_some() && keep_alive.or(options).is_some() {
        Some(Provider::Ollama)
    } else {
        None
    }
}

/// The dialect of a whole answer, which is an object.
pub(crate) fn of_answer(text: &str) -> Option<Provider> {
    let names = ["choices", "object", "type", "content", "output"];
    let [choices, object, kind, content, output] = lens::fields(text, names).unwrap_or_default();
    if choices.is_some() {
        Some(Provider::OpenAiCompatible)
    } else if output.is_some() && object == Some("\"response\"") {
        Some(Provider::OpenAiResponses)
    } else if content.is_some() && kind == Some("\"message\"") {
        Some(Provider::Anthropic)
    } else {
        native(text)
    }
}

/// Whether an object is what Gemini, Bedrock or Ollama answer, as a whole or as a piece of a stream.
fn native(object: &str) -> Option<Provider> {
    let [candidates, feedback, usage] =
        lens::fields(object, ["candidates", "promptFeedback", "usageMetadata"])?;
    if candidates.or(feedback).or(usage).is_some() {
        return Some(Provider::Gemini);
    }
    let names = ["stopReason", "messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"];
    if lens::fields(object, names)?.into_iter().flatten().next().is_some() {
        return Some(Provider::Bedrock);
    }
    let [done, message, response] = lens::fields(object, ["done", "message", "response"])?;
    (done.is_some() && message.or(response).is_some()).then_some(Provider::Ollama)
}

/// The dialect of a stream by one of its events; `None` when that says nothing, such as a keepalive.
pub(crate) fn of_event(data: &str) -> Option<Provider> {
    let [choices, kind] = lens::fields(data, ["choices", "type"])?;
    if choices.is_some() {
        return Some(Provider::OpenAiCompatible);
    }
    if let Some(provider) = native(data) {
        return Some(provider);
    }
    match &*lens::some_string(kind)? {
        "message_start" | "content_block_start" | "content_block_delta" => Some(Provider::Anthropic),
        kind if kind.starts_with("response.") => Some(Provider::OpenAiResponses),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_which_dialect_is_spoken_whatever_stands_before_it() {
        for (path, provider, is_other) in [
            ("/v1/chat/completions", Some(Provider::OpenAiCompatible), false),
            ("/openai/deployments/d/chat/completions", Some(Provider::OpenAiCompatible), false),
            ("/v1/completions/", Some(Provider::OpenAiCompatible), false),
            ("/v1/responses", Some(Provider::OpenAiResponses), false),
            ("/v1/responses/resp_1/cancel", Some(Provider::OpenAiResponses), true),
            ("/v1/messages", Some(Provider::Anthropic), false),
            ("/v1/messages/count_tokens", Some(Provider::Anthropic), true),
            ("/v1/threads/t/messages", None, false),
            (
                "/v1/projects/p/locations/l/publishers/anthropic/models/m:streamRawPredict",
                Some(Provider::Anthropic),
                false,
            ),
            ("/model/eu.anthropic.claude/invoke", Some(Provider::Anthropic), false),
            ("/model/amazon.titan/invoke", None, false),
            ("/v1beta/models/gemini-2.5-flash:generateContent", Some(Provider::Gemini), false),
            ("/v1beta/models/gemini-2.5-flash:streamGenerateContent", Some(Provider::Gemini), false),
            ("/v1beta/models/gemini-2.5-flash:countTokens", Some(Provider::Gemini), true),
            ("/v1beta/openai/chat/completions", Some(Provider::OpenAiCompatible), false),
            ("/model/eu.amazon.nova-pro-v1:0/converse", Some(Provider::Bedrock), false),
            ("/model/eu.amazon.nova-pro-v1%3A0/converse-stream", Some(Provider::Bedrock), false),
            ("/model/amazon.titan/invoke-with-response-stream", Some(Provider::Bedrock), false),
            ("/model/eu.anthropic.claude/invoke-with-response-stream", Some(Provider::Anthropic), false),
            ("/api/chat", Some(Provider::Ollama), false),
            ("/ollama/api/generate/", Some(Provider::Ollama), false),
            ("/api/embed", None, false),
            ("/v1/embeddings", None, true),
            ("/", None, false),
            ("", None, false),
        ] {
            let endpoint = Endpoint::of(path);
            assert_eq!((endpoint.provider, endpoint.is_other), (provider, is_other), "{path}");
        }
    }

    #[test]
    fn where_the_path_says_nothing_headers_and_shape_do() {
        let body = |body: &'static str| Look { body: Some(body.as_bytes().into()), ..Look::default() };
        assert_eq!(of_request(&body(r#"{"messages":[]}"#)), None);
        assert_eq!(of_request(&body(r#"{"input":"x","model":"m"}"#)), None);
        assert_eq!(of_request(&body(r#"{"input":"x","stream":true}"#)), Some(Provider::OpenAiResponses));
        assert_eq!(
            of_request(&body(r#"{"messages":[],"max_tokens":1,"system":"x"}"#)),
            Some(Provider::Anthropic)
        );
        assert_eq!(
            of_request(&body(r#"{"anthropic_version":"bedrock-2023-05-31"}"#)),
            Some(Provider::Anthropic)
        );
        for (shape, provider) in [
            (r#"{"contents":[]}"#, Provider::Gemini),
            (r#"{"messages":[],"inferenceConfig":{}}"#, Provider::Bedrock),
            (r#"{"messages":[],"toolConfig":{}}"#, Provider::Bedrock),
            (r#"{"messages":[],"options":{"num_predict":9}}"#, Provider::Ollama),
            (r#"{"prompt":"x","keep_alive":0}"#, Provider::Ollama),
        ] {
            assert_eq!(of_request(&body(shape)), Some(provider), "{shape}");
        }
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("anthropic-version"),
            http::HeaderValue::from_static("2023-06-01"),
        )]);
        assert_eq!(
            of_request(&Look { headers: Some(&headers), ..Look::default() }),
            Some(Provider::Anthropic)
        );
    }

    #[test]
    fn an_answer_says_which_dialect_it_is() {
        for (answer, provider) in [
            (r#"{"choices":[]}"#, Some(Provider::OpenAiCompatible)),
            (r#"{"object":"response","output":[]}"#, Some(Provider::OpenAiResponses)),
            (r#"{"type":"message","content":[]}"#, Some(Provider::Anthropic)),
            (r#"{"candidates":[]}"#, Some(Provider::Gemini)),
            (r#"{"promptFeedback":{}}"#, Some(Provider::Gemini)),
            (r#"{"output":{"message":{}},"stopReason":"end_turn"}"#, Some(Provider::Bedrock)),
            (r#"{"message":{},"done":true}"#, Some(Provider::Ollama)),
            (r#"{"response":"x","done":false}"#, Some(Provider::Ollama)),
            (r#"{"message":"x"}"#, None),
            (r#"{"content":"x"}"#, None),
            ("[]", None),
        ] {
            assert_eq!(of_answer(answer), provider, "{answer}");
        }
        for (event, provider) in [
            (r#"{"choices":[]}"#, Some(Provider::OpenAiCompatible)),
            (r#"{"type":"response.created"}"#, Some(Provider::OpenAiResponses)),
            (r#"{"type":"message_start"}"#, Some(Provider::Anthropic)),
            (r#"{"usageMetadata":{}}"#, Some(Provider::Gemini)),
            (r#"{"contentBlockDelta":{}}"#, Some(Provider::Bedrock)),
            (r#"{"message":{},"done":false}"#, Some(Provider::Ollama)),
            (r#"{"type":"ping"}"#, None),
            ("null", None),
        ] {
            assert_eq!(of_event(event), provider, "{event}");
        }
    }
}
