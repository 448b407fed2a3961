//! Error bodies in every shape that OpenAI-compatible servers send.
//!
//! | shape | sent by |
//! |---|---|
//! | `{"error": {"message", "type", "param", "code"}}` | OpenAI, Azure, Groq, OpenRouter (`code` is a number), newer vLLM |
//! | `{"object": "error", "message", "type", "code"}` | Mistral, older vLLM |
//! | `[{"error": …}]` | Google's gateways |
//! | `{"error": "text"}` | Ollama, text-generation servers |
//! | `{"detail": …}` | FastAPI servers |
//! | `{"message", "code" or "type"}` | gateways |
//!
//! An error may lie as JSON text inside `error.message` or OpenRouter's `error.metadata.raw`: that is looked into, once.
//!
//! What decides, in this order: a typed name or number in the body, then the status. Free text only narrows a 400, 404
//! or 429, and a number inside a text never decides.

mod names;
mod phrases;

use std::{borrow::Cow, time::Duration};

use failsoft_core::{Class, Facts, Finish, Hint, SoftKind, Verdict, advice, with_headers};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use self::names::Said;
use crate::{lens, provider::of_status};

/// What an error body says.
#[derive(Debug, Default)]
pub(crate) struct ErrorBody<'a> {
    /// Codes and types, most telling first.
    names: Vec<Cow<'a, str>>,
    /// A code that is an HTTP status.
    number: Option<StatusCode>,
    message: Cow<'a, str>,
    /// Moderation flagged the input.
    flagged: bool,
    /// When to come back, from a documented field.
    advice: Option<Duration>,
}

impl<'a> ErrorBody<'a> {
    /// Reads the body of a failed response.
    pub(crate) fn of_failure(text: &'a str) -> Option<Self> {
        let text = unwrapped(text);
        Self::explicit(text).or_else(|| Self::flat(text))
    }

    /// Reads an error in the body of a response whose status says success and that has no answer in it.
    pub(crate) fn instead_of_answer(text: &'a str) -> Option<Self> {
        Self::flat(text)
            .filter(|body| !body.message.is_empty() && (!body.names.is_empty() || body.number.is_some()))
    }

    /// Reads an error that stands in a list.
    pub(crate) fn in_list(text: &'a str) -> Option<Self> {
        Self::explicit(unwrapped(text))
    }

    /// Reads a body that says itself that it is an error.
    pub(crate) fn explicit(text: &'a str) -> Option<Self> {
        let [error, object, detail, choices] = lens::fields(text, ["error", "object", "detail", "choices"])?;
        if let Some(error) = error.filter(|raw| lens::truthy(raw)) {
            let mut body = Self::of_value(error);
            // What stands beside the error counts too, after it.
            if let Some(beside) = Self::flat(text) {
                body.add(beside);
            }
            return Some(body);
        }
        if object.and_then(lens::string).is_some_and(|object| object == "error") {
            return Self::flat(text);
        }
        detail.filter(|raw| choices.is_none() && lens::truthy(raw)).map(Self::of_value)
    }

    /// The value of an `error` field.
    pub(crate) fn of_value(raw: &'a str) -> Self {
        if let Some(body) = Self::flat(raw) {
            return body;
        }
        if let Some(message) = lens::string(raw) {
            return Self { message, ..Self::default() }.with_nested();
        }
        // A list of problems, as FastAPI gives it: the first is enough to know the kind.
        let mut first = None;
        lens::each(raw, |element| {
            first = Self::flat(element);
            false
        });
        first.unwrap_or_default()
    }

    /// The fields of an error object, and what is nested in it.
    fn flat(raw: &'a str) -> Option<Self> {
        let [metadata] = lens::fields(raw, ["metadata"])?;
        let mut body = Self::shallow(raw)?.with_nested();
        if let Some(metadata) = metadata {
            body.metadata(metadata);
        }
        Some(body)
    }

    fn shallow(raw: &'a str) -> Option<Self> {
        let names = ["code", "type", "status", "error_type", "innererror", "message", "msg"];
        let [code, kind, status, error_type, inner, message, msg] = lens::fields(raw, names)?;
        let message = message.or(msg).and_then(lens::string).unwrap_or_default();
        let mut body = Self { message, ..Self::default() };
        let [inner] = inner.and_then(|inner| lens::fields(inner, ["code"])).unwrap_or_default();
        for raw in [code, inner, status, kind, error_type].into_iter().flatten() {
            body.name(raw);
        }
        Some(body)
    }

    /// Adds the error that lies as JSON text inside the message.
    fn with_nested(mut self) -> Self {
        if let Some(nested) = Self::nested(&self.message) {
            self.add(nested);
        }
        self
    }

    /// An error that lies as JSON text inside another's; not looked into further.
    fn nested(text: &str) -> Option<ErrorBody<'static>> {
        let text = unwrapped(text.trim());
        let [error] = lens::fields(text, ["error"])?;
        let body = ErrorBody::shallow(error.unwrap_or(text))?;
        Some(ErrorBody {
            names: body.names.into_iter().map(|name| Cow::Owned(name.into_owned())).collect(),
            message: Cow::Owned(body.message.into_owned()),
            number: body.number,
            ..ErrorBody::default()
        })
    }

    /// Adds what another error says, after what this one does.
    fn add(&mut self, other: Self) {
        self.names.extend(other.names);
        self.number = self.number.or(other.number);
        if self.message.is_empty() {
            self.message = other.message;
        } else if !other.message.is_empty() && other.message != self.message {
            self.message = Cow::Owned(format!("{}\n{}", self.message, other.message));
        }
        self.flagged |= other.flagged;
        self.advice = self.advice.or(other.advice);
    }

    /// A code or type: a name, or a number as a number or as text.
    fn name(&mut self, raw: &'a str) {
        let name = lens::string(raw);
        let number = name.as_deref().unwrap_or(raw).parse().ok();
        match number.and_then(|number| StatusCode::from_u16(number).ok()) {
            Some(status) if status.is_client_error() || status.is_server_error() => {
                self.number = self.number.or(Some(status));
            }
            _ => self.names.extend(name.filter(|name| !name.is_empty())),
        }
    }

    /// OpenRouter's `metadata`: why moderation flagged the input, the upstream's own error, and rate-limit headers.
    fn metadata(&mut self, raw: &'a str) {
        let [reasons, flagged, upstream, headers] =
            lens::fields(raw, ["reasons", "flagged_input", "raw", "headers"]).unwrap_or_default();
        self.flagged = reasons.is_some_and(lens::has_elements) || flagged.is_some();
        if let Some(nested) = upstream.and_then(lens::string).and_then(|text| Self::nested(&text)) {
            self.add(nested);
        }
        self.advice =
            headers.and_then(headers_of).and_then(|map| advice::retry_after(&map, advice::wall_clock()));
    }

    /// Writes down what this error means. `status` is the response's, where that says failure.
    pub(crate) fn tell(&self, status: Option<StatusCode>, headers: &HeaderMap, facts: &mut Facts) {
        let verdict = self.verdict(status, headers);
        if verdict.class() == Class::Refused {
            facts.finish = Some(Finish::ContentFilter);
        }
        facts.verdict = Some(verdict);
    }

    /// What this error means, with the advice that body and headers give.
    pub(crate) fn verdict(&self, status: Option<StatusCode>, headers: &HeaderMap) -> Verdict {
        with_headers(self.decided(status).with_advice(self.advice), headers)
    }

    fn decided(&self, status: Option<StatusCode>) -> Verdict {
        if self.flagged {
            return Verdict::of(Class::Refused);
        }
        let said: Vec<Said> = self.names.iter().filter_map(|name| names::said(name)).collect();
        let surely = |said: &Said| if let Said::Surely(class) = said { Some(*class) } else { None };
        // Money first: whatever else is said, waiting does not help.
        let quota = said.iter().filter_map(surely).find(|class| *class == Class::Quota);
        if let Some(class) = quota.or_else(|| said.iter().find_map(surely)) {
            return self.typed(class);
        }
        match (self.number.or(status), said.first()) {
            (Some(status), _) => self.narrowed(status),
            (None, Some(Said::Broadly(Class::Invalid))) => self.narrowed(StatusCode::BAD_REQUEST),
            (None, Some(Said::Broadly(Class::ModelNotFound))) => self.narrowed(StatusCode::NOT_FOUND),
            (None, Some(Said::Broadly(class) | Said::Surely(class))) => Verdict::of(*class),
            // An error of which nothing is known, inside a success: something upstream failed.
            (None, None) => Verdict::of(Class::Transient),
        }
    }

    /// A class that a name in the body gave.
    fn typed(&self, class: Class) -> Verdict {
        let verdict = Verdict::of(class);
        match class {
            // The model wrote something unusable, and writes something else the next time.
            Class::Soft(SoftKind::ToolCall | SoftKind::Malformed) => verdict.with_hint(Hint::Same),
            Class::RateLimited => self.rate_limited(),
            _ => verdict,
        }
    }

    /// One request above the limit of a whole minute never fits, however long one waits.
    fn rate_limited(&self) -> Verdict {
        let verdict = Verdict::of(Class::RateLimited);
        if phrases::never_fits(&self.message) { verdict.with_hint(Hint::Modify) } else { verdict }
    }

    /// A status, narrowed by the message where that is allowed.
    fn narrowed(&self, status: StatusCode) -> Verdict {
        let narrowed = match status.as_u16() {
            400 => phrases::of_bad_request(&self.message),
            404 => phrases::of_not_found(&self.message),
            429 => phrases::of_rate_limit(&self.message),
            _ => None,
        };
        match narrowed {
            Some(class) => Verdict::of(class),
            None if status == StatusCode::TOO_MANY_REQUESTS => self.rate_limited(),
            None => of_status(status),
        }
    }
}

/// The first element of an array, or the text itself.
fn unwrapped(text: &str) -> &str {
    let mut first = text;
    lens::each(text, |element| {
        first = element;
        false
    });
    first
}

/// Headers that were sent inside a body.
fn headers_of(raw: &str) -> Option<HeaderMap> {
    let wanted = [
        "retry-after",
        "Retry-After",
        "retry-after-ms",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    let mut map = HeaderMap::new();
    for (name, value) in wanted.iter().zip(lens::fields(raw, wanted)?) {
        let Some(value) = value else { continue };
        let text = lens::string(value).unwrap_or(Cow::Borrowed(value));
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&text))
        {
            map.append(name, value);
        }
    }
    Some(map)
}

#[cfg(test)]
mod tests;
