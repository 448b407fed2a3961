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
//! | `{"error": {"code", "message", "status", "details"}}` | Google; the [details](google) say what kind of limit it was |
//! | `{"message"}`, and the header `x-amzn-ErrorType` or a field `__type` | AWS |
//!
//! An error may lie as JSON text inside `error.message` or OpenRouter's `error.metadata.raw`: that is looked into, once.
//!
//! What decides, in this order: a typed name or number in the body, then the status. Free text only narrows a 400, 404
//! or 429, and a number inside a text never decides.

mod google;
mod names;
mod phrases;

use std::{borrow::Cow, time::Duration};

use failsoft_core::{Class, Facts, Finding, Finish, Hint, SoftKind, Verdict, advice, with_headers};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use self::{google::Details, names::Said};
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
    /// A limit for which waiting does not help is used up.
    is_quota: bool,
    /// When to come back, from a documented field.
    advice: Option<Duration>,
}

/// The fields of a body by which it is told what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Top<'a> {
    /// The object.
    pub(crate) text: &'a str,
    error: Option<&'a str>,
    detail: Option<&'a str>,
    pub(crate) object: Option<&'a str>,
    pub(crate) choices: Option<&'a str>,
    pub(crate) usage: Option<&'a str>,
    pub(crate) data: Option<&'a str>,
    id: Option<&'a str>,
}

impl<'a> Top<'a> {
    /// `None` when the text is neither an object nor a list of one.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let text = unwrapped(text);
        let [error, detail, object, choices, usage, data, id] =
            lens::fields(text, ["error", "detail", "object", "choices", "usage", "data", "id"])?;
        let error = error.filter(|raw| lens::tells(raw));
        Some(Self { text, error, detail, object, choices, usage, data, id })
    }

    /// The object itself.
    pub(crate) const fn text(&self) -> &'a str {
        self.text
    }

    /// Whether it was sent inside a list.
    pub(crate) fn is_listed(&self, text: &str) -> bool {
        self.text.len() != text.len()
    }

    /// The error that this body says it is.
    pub(crate) fn error(&self) -> Option<ErrorBody<'a>> {
        if let Some(error) = self.error {
            let mut body = ErrorBody::of_value(error);
            // What stands beside the error counts too, after it.
            if let Some(beside) = ErrorBody::flat(self.text) {
                body.add(beside);
            }
            return Some(body);
        }
        if self.is_error() {
            return ErrorBody::flat(self.text);
        }
        self.detail.filter(|raw| self.choices.is_none() && lens::truthy(raw)).map(ErrorBody::of_value)
    }

    /// The error that this body is at an endpoint that is not known here: what such an endpoint tells of, a job that is
    /// known by its id, may have an error of its own, and be told well.
    pub(crate) fn error_of_unknown_endpoint(&self) -> Option<ErrorBody<'a>> {
        let is_error = self.is_error() || self.error.is_some() && self.object.or(self.id).is_none();
        if is_error { self.error() } else { None }
    }

    /// An error without a word that it is one, in place of an answer.
    pub(crate) fn instead_of_answer(&self) -> Option<ErrorBody<'a>> {
        let typed = |body: &ErrorBody<'_>| !body.names.is_empty() || body.number.is_some();
        ErrorBody::flat(self.text).filter(|body| !body.message.is_empty() && typed(body))
    }

    /// The error in the body of a failed response, which need not say that it is one.
    pub(crate) fn failure(&self) -> Option<ErrorBody<'a>> {
        self.error().or_else(|| ErrorBody::flat(self.text))
    }

    fn is_error(&self) -> bool {
        self.object.and_then(lens::string).is_some_and(|object| object == "error")
    }
}

impl<'a> ErrorBody<'a> {
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

    /// An error of which there is nothing but a text.
    pub(crate) const fn of_text(message: &'a str) -> Self {
        Self {
            names: Vec::new(),
            number: None,
            message: Cow::Borrowed(message),
            flagged: false,
            is_quota: false,
            advice: None,
        }
    }

    /// An error that says what it is in a header, whatever its body is.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        aws_type(headers).map(|_| Self::default())
    }

    /// The same with a name that was said beside it, which is more telling than those in it. Of AWS's
    /// `com.amazon.coral#ThrottlingException:http://…` the middle is the name.
    pub(crate) fn named(mut self, name: &'a str) -> Self {
        self.names.splice(0..0, aws_name(name).map(Cow::Borrowed));
        self
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
        let names = [
            "code",
            "type",
            "status",
            "error_type",
            "innererror",
            "message",
            "msg",
            "Message",
            "__type",
            "details",
        ];
        let [code, kind, status, error_type, inner, message, msg, aws, aws_type, details] =
            lens::fields(raw, names)?;
        let message = message.or(msg).or(aws).and_then(lens::string).unwrap_or_default();
        let mut body = Self { message, ..Self::default() };
        let [inner] = inner.and_then(|inner| lens::fields(inner, ["code"])).unwrap_or_default();
        for raw in [code, inner, status, kind, error_type].into_iter().flatten() {
            body.name(raw);
        }
        if let Some(Cow::Borrowed(name)) = aws_type.and_then(lens::string) {
            body = body.named(name);
        }
        if let Some(details) = details.map(Details::read) {
            body.names.extend(details.reasons);
            body.is_quota = details.is_quota;
            body.advice = details.retry_after;
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
            is_quota: body.is_quota,
            advice: body.advice,
            flagged: false,
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
        self.is_quota |= other.is_quota;
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
        let headers = headers.and_then(headers_of);
        let advice = headers.and_then(|map| advice::retry_after(&map, advice::wall_clock()));
        self.advice = advice.or(self.advice);
    }

    /// A code that is a plain word, as codes are: it can be repeated to anyone.
    pub(crate) fn code(&self) -> Option<&str> {
        let is_plain = |name: &&str| {
            name.len() <= 64
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        };
        self.names.iter().map(|name| &**name).find(is_plain)
    }

    /// Whether a code or type in it is one of an error, though nothing else says that it is one.
    pub(crate) fn is_surely_one(&self) -> bool {
        let names_error = |name: &Cow<'_, str>| names::said(name).is_some() || name.ends_with("rror");
        self.number.is_some() || self.names.iter().any(names_error)
    }

    /// Writes down what this error means. `status` is the response's, where that says failure.
    pub(crate) fn tell(&self, status: Option<StatusCode>, headers: &HeaderMap, facts: &mut Facts) {
        let verdict = self.verdict(status, headers);
        if verdict.class() == Class::Refused {
            facts.finish = Some(Finish::ContentFilter);
        }
        facts.verdict = Some(verdict);
        facts.report.push(self.finding(verdict.class()));
    }

    /// What it says, as far as that can be repeated: of a message only numbers, for it may hold a prompt or a key.
    fn finding(&self, class: Class) -> Finding {
        let room = Some(()).filter(|()| class == Class::ContextLength);
        if let Some((prompt, window)) = room.and_then(|()| phrases::prompt_and_window(&self.message)) {
            let left = window.saturating_sub(prompt);
            let message = format!(
                "the prompt takes {prompt} of {window} tokens, and leaves {left} for the answer: less than `max_tokens`"
            );
            return Finding::of(class, "error.max_tokens", message);
        }
        let message = match self.code() {
            Some(code) => format!("the target reports an error: {code}"),
            None => "the target reports an error".to_owned(),
        };
        Finding::of(class, "error", message)
    }

    /// What this error means, with the advice that body and headers give.
    pub(crate) fn verdict(&self, status: Option<StatusCode>, headers: &HeaderMap) -> Verdict {
        let verdict = self.decided(status, aws_type(headers));
        // A limit of which nobody waits for the end may come with the advice to do so.
        let advice = self.advice.filter(|_| verdict.class() != Class::Quota);
        with_headers(verdict.with_advice(advice), headers)
    }

    /// `aws` is the name of the exception that AWS says in a header.
    fn decided(&self, status: Option<StatusCode>, aws: Option<&str>) -> Verdict {
        if self.flagged {
            return Verdict::of(Class::Refused);
        }
        let names = || aws.into_iter().chain(self.names.iter().map(|name| &**name));
        let said: Vec<Said> = names().filter_map(names::said).collect();
        let surely = |said: &Said| if let Said::Surely(class) = said { Some(*class) } else { None };
        // Money first: whatever else is said, waiting does not help.
        let sure: Vec<Class> = said.iter().filter_map(surely).collect();
        let is_limit = match &sure[..] {
            [] => self.number.or(status) == Some(StatusCode::TOO_MANY_REQUESTS),
            sure => sure.iter().all(|class| *class == Class::RateLimited),
        };
        if is_limit && (self.is_quota || google::has_limit_of_zero(&self.message)) {
            return Verdict::of(Class::Quota);
        }
        // AWS calls a limit by the day a throttle too, and has one name for both.
        if names().any(names::is_aws_throttle) && phrases::is_long_limit(&self.message) {
            return Verdict::of(Class::Quota);
        }
        let quota = sure.iter().find(|class| **class == Class::Quota);
        if let Some(class) = quota.or_else(|| sure.first()) {
            return self.typed(*class);
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
            // Google sheds what one model cannot take: another model is asked at once.
            Class::Overloaded if self.names.iter().any(|name| names::is_capacity_of_model(name)) => {
                verdict.with_hint(Hint::Fallback)
            }
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

/// The name of the exception that AWS says in a header.
fn aws_type(headers: &HeaderMap) -> Option<&str> {
    aws_name(headers.get("x-amzn-errortype")?.to_str().ok()?)
}

/// `com.amazon.coral#ThrottlingException:http://…` is a `ThrottlingException`.
fn aws_name(text: &str) -> Option<&str> {
    let text = text.split(':').next().unwrap_or_default();
    let name = text.rsplit('#').next().unwrap_or_default().trim();
    (!name.is_empty()).then_some(name)
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
