//! [`Fault`]: the one error that the layers originate.
//!
//! An error that merely passes through a layer is never wrapped, so it still downcasts at the top of a stack; what
//! a layer has to say itself is a `Fault`, found wherever it is in a chain of errors.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::{BoxError, Class, Denier, Fault};
//!
//! let err: BoxError = Fault::new(Class::Denied(Denier::Circuit), "breaker-layer")
//!     .with_target("model-a")
//!     .with_retry_after(Duration::from_secs(12))
//!     .into();
//!
//! let fault = Fault::find(&*err).expect("it is one");
//! assert_eq!(fault.target(), Some("model-a"));
//! assert_eq!(fault.retry_after(), Some(Duration::from_secs(12)));
//! assert_eq!(err.to_string(), "denied.circuit by breaker-layer: model-a, retry after 12s");
//! ```

use std::{borrow::Cow, error::Error, fmt, ops::Deref, sync::Arc, time::Duration};

use crate::{BoxError, Class, Denier, Facts, Report, Trail, Verdict, verdict::chain};

/// An answer whose text and tool calls have more bytes in all is not kept in a [`Fault`]: whoever asks again would have
/// to send, and pay for, all of it once more.
pub const MAX_ANSWER: usize = 64 * 1024;

/// An error that one of our layers originated.
///
/// Opaque, like `std::io::Error`: made with [`Fault::new`] and the `with_` methods, read through
/// [`FaultDetails`], to which it dereferences.
pub struct Fault(FaultDetails);

/// What a [`Fault`] knows. [`Fault::find`] gives it also where a transparent wrapper hides the fault itself.
pub struct FaultDetails {
    verdict: Verdict,
    layer: &'static str,
    target: Option<Arc<str>>,
    message: Option<Cow<'static, str>>,
    status: Option<u16>,
    probing: bool,
    more: Option<Box<More>>,
    source: Option<BoxError>,
}

/// What only few faults have; kept apart so that the usual refusal stays one small allocation.
#[derive(Default)]
struct More {
    report: Option<Report>,
    trail: Option<Trail>,
    answer: Option<Facts>,
    earlier: Vec<BoxError>,
}

impl Fault {
    /// A fault of a class, originated by the crate `layer`.
    #[must_use]
    pub const fn new(class: Class, layer: &'static str) -> Self {
        Self::with_verdict(Verdict::of(class), layer)
    }

    /// A fault with a whole verdict, originated by the crate `layer`.
    #[must_use]
    pub const fn with_verdict(verdict: Verdict, layer: &'static str) -> Self {
        Self(FaultDetails {
            verdict,
            layer,
            target: None,
            message: None,
            status: None,
            probing: false,
            more: None,
            source: None,
        })
    }

    /// Names the target: a circuit, a route, a host.
    #[must_use]
    pub fn with_target(mut self, target: impl Into<Arc<str>>) -> Self {
        self.0.target = Some(target.into());
        self
    }

    /// Names the target where it has a name.
    #[must_use]
    pub fn with_target_if(mut self, target: Option<Arc<str>>) -> Self {
        self.0.target = target;
        self
    }

    /// Says what happened, for people. Never put prompts or keys in it.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.message = Some(message.into());
        self
    }

    /// Adds advice: not before this much time has passed.
    #[must_use]
    pub const fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.verdict = self.0.verdict.with_retry_after(after);
        self
    }

    /// Adds the HTTP status of the upstream's response, where there was one; of a budget's denial, 402 where it is money that is used
    /// up, and 503 where nobody knows what is left.
    #[must_use]
    pub const fn with_status(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }

    /// Says that the target is being tried again just now, by another call.
    #[must_use]
    pub const fn with_probing(mut self) -> Self {
        self.0.probing = true;
        self
    }

    /// Adds what was found wrong with an answer.
    #[must_use]
    pub fn with_report(mut self, report: Report) -> Self {
        self.more().report = Some(report);
        self
    }

    /// Adds what is known of the answer that was wrong, for whoever asks again. Its text and its tool calls are kept only
    /// if they have at most [`MAX_ANSWER`] bytes in all.
    #[must_use]
    pub fn with_answer(mut self, answer: &Facts) -> Self {
        self.more().answer = Some(answer.within(MAX_ANSWER));
        self
    }

    /// Adds the steps that were taken before.
    #[must_use]
    pub fn with_trail(mut self, trail: Trail) -> Self {
        self.more().trail = Some(trail);
        self
    }

    /// Adds the errors of other routes that failed too.
    #[must_use]
    pub fn with_earlier(mut self, errors: Vec<BoxError>) -> Self {
        self.more().earlier = errors;
        self
    }

    /// Adds the error that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The first fault in an error's chain of sources, if there is one.
    #[must_use]
    pub fn find<'a>(err: &'a (dyn Error + 'static)) -> Option<&'a FaultDetails> {
        chain(err).find_map(|err| {
            let fault = err.downcast_ref::<Self>().map(|fault| &fault.0);
            fault.or_else(|| err.downcast_ref())
        })
    }

    fn more(&mut self) -> &mut More {
        self.0.more.get_or_insert_default()
    }
}

impl Deref for Fault {
    type Target = FaultDetails;

    fn deref(&self) -> &FaultDetails {
        &self.0
    }
}

impl FaultDetails {
    /// The whole verdict.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// What happened.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.verdict.class()
    }

    /// Advice: not before this much time has passed.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.verdict.retry_after()
    }

    /// The target's name.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// The crate that originated it, such as `breaker-layer`.
    #[must_use]
    pub const fn layer(&self) -> &'static str {
        self.layer
    }

    /// What happened, for people.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The HTTP status of the upstream's response that this fault stands for, where there was one.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        self.status
    }

    /// Whether the target is being tried again just now by another call, whose result will come soon: a circuit that
    /// is half-open.
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        self.probing
    }

    /// What was found wrong with the answer.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.more.as_ref()?.report.as_ref()
    }

    /// The answer that was wrong, as far as it was kept. It is never printed with the fault: answers do not belong in
    /// logs.
    #[must_use]
    pub fn answer(&self) -> Option<&Facts> {
        self.more.as_ref()?.answer.as_ref()
    }

    /// The steps that were taken before.
    #[must_use]
    pub fn trail(&self) -> Option<&Trail> {
        self.more.as_ref()?.trail.as_ref()
    }

    /// The errors of other routes that failed too, in the order they came.
    #[must_use]
    pub fn earlier(&self) -> &[BoxError] {
        self.more.as_ref().map_or(&[], |more| &more.earlier)
    }

    /// The HTTP status that tells a client of ours what happened.
    ///
    /// | class | status |
    /// |---|---|
    /// | a circuit's or a quarantine's denial, overloaded | 503 |
    /// | a budget's or a loop's denial, rate limited | 429; where [the fault says so](Fault::with_status), 402: money is used up, or 503: nobody knows what is left |
    /// | quota | 402 |
    /// | a rail's denial | 403 |
    /// | timeout | 504 |
    /// | context length, invalid, refused | 400 |
    /// | cancelled | 499 |
    /// | the rest: the target or its credential failed | 502 |
    #[must_use]
    pub const fn status_code(&self) -> u16 {
        match self.class() {
            Class::Denied(Denier::Circuit | Denier::Quarantine) | Class::Overloaded => 503,
            Class::Denied(Denier::Budget) if matches!(self.status, Some(402)) => 402,
            Class::Denied(Denier::Budget) if matches!(self.status, Some(503)) => 503,
            Class::Denied(Denier::Budget | Denier::Loop) | Class::RateLimited => 429,
            Class::Quota => 402,
            Class::Denied(Denier::Rail) => 403,
            Class::Timeout(_) => 504,
            Class::ContextLength | Class::Invalid | Class::Refused => 400,
            Class::Cancelled => 499,
            Class::Success
            | Class::Transient
            | Class::Auth
            | Class::ModelNotFound
            | Class::Soft(_)
            | Class::Unknown => 502,
        }
    }

    /// The fault as an HTTP response: the status of [`status_code`](Self::status_code), `Retry-After` in whole
    /// seconds rounded up, `x-should-retry: false` on our own denials, and a JSON body
    /// `{"error": {"type", "message", "target", "retry_after_ms"}}`.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn to_response(&self) -> http::Response<bytes::Bytes> {
        use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
        let mut response = http::Response::new(self.to_json().into());
        *response.status_mut() =
            http::StatusCode::from_u16(self.status_code()).unwrap_or(http::StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after() {
            let up = u64::from(after.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().saturating_add(up)));
        }
        if self.class().is_denied() {
            headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
        response
    }

    #[cfg(feature = "http")]
    fn to_json(&self) -> String {
        use std::fmt::Write as _;
        let mut json = format!("{{\"error\":{{\"type\":\"{}\",\"message\":", self.class());
        crate::text::push_json_str(&mut json, &self.say());
        if let Some(target) = self.target() {
            json.push_str(",\"target\":");
            crate::text::push_json_str(&mut json, target);
        }
        if let Some(after) = self.retry_after() {
            // Writing to a `String` cannot fail.
            let _ = write!(json, ",\"retry_after_ms\":{}", after.as_millis());
        }
        json.push_str("}}");
        json
    }

    fn say(&self) -> String {
        let mut text = format!("{} by {}", self.class(), self.layer);
        if let Some(target) = &self.target {
            text.push_str(": ");
            text.push_str(target);
        }
        if let Some(message) = &self.message {
            text.push_str(": ");
            text.push_str(message);
        }
        if let Some(after) = self.retry_after() {
            text.push_str(&format!(", retry after {after:?}"));
        }
        text
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.say())
    }
}

impl fmt::Display for FaultDetails {
    /// The report where there is one, else the class: a reporter that prints the whole chain repeats nothing long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.report() {
            Some(report) => report.fmt(f),
            None => self.class().fmt(f),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Debug for FaultDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("class", &self.class())
            .field("layer", &self.layer)
            .field("target", &self.target)
            .field("message", &self.message)
            .field("retry_after", &self.retry_after())
            .field("status", &self.status)
            .field("report", &self.report())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Error for Fault {
    /// The details, so that the fault is found even where a transparent wrapper forwards `source` past it; their
    /// own source is the cause.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl Error for FaultDetails {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|err| err as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finding, Finish, SoftKind, ToolCall};

    /// Forwards everything to what it holds, as `#[error(transparent)]` does.
    #[derive(Debug)]
    struct Transparent(BoxError);

    impl fmt::Display for Transparent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl Error for Transparent {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.source()
        }
    }

    #[test]
    fn a_fault_is_found_through_a_transparent_wrapper_and_through_a_plain_one() {
        let fault = || Fault::new(Class::Overloaded, "x").with_target("t");
        let transparent = Transparent(fault().into());
        assert_eq!(Fault::find(&transparent).and_then(FaultDetails::target), Some("t"));
        let plain = std::io::Error::other(fault());
        assert_eq!(Fault::find(&plain).map(FaultDetails::class), Some(Class::Overloaded));
    }

    #[test]
    fn the_cause_is_the_source_of_the_details() {
        let fault = Fault::new(Class::Transient, "x").with_source(fmt::Error);
        let details = fault.source().expect("always");
        assert!(details.source().expect("the cause").is::<fmt::Error>());
    }

    #[test]
    fn the_outermost_fault_wins() {
        let inner = Fault::new(Class::Transient, "inner");
        let outer = Fault::new(Class::Quota, "outer").with_source(inner);
        assert_eq!(Fault::find(&outer).map(FaultDetails::layer), Some("outer"));
    }

    #[test]
    fn a_report_is_kept() {
        let report = Report::from(Finding::new(SoftKind::Empty, "empty", "nothing"));
        let fault = Fault::new(Class::Soft(SoftKind::Empty), "x").with_report(report.clone());
        assert_eq!(fault.report(), Some(&report));
    }

    #[test]
    fn an_answer_is_kept_without_a_text_that_is_too_long_and_never_printed() {
        let mut facts = Facts { text: Some("secret".into()), ..Facts::default() };
        facts.tool_calls.push(ToolCall::new("pay", "{}"));
        let fault = Fault::new(Class::Soft(SoftKind::Schema), "x").with_answer(&facts);
        let answer = fault.answer().unwrap();
        assert_eq!((answer.text.as_deref(), answer.tool_calls.len()), (Some("secret"), 1));
        assert!(!format!("{fault:?} {fault}").contains("secret"));

        facts.text = Some("x".repeat(MAX_ANSWER - 4).into());
        facts.finish = Some(Finish::Stop);
        let fault = Fault::new(Class::Soft(SoftKind::Schema), "x").with_answer(&facts);
        let answer = fault.answer().unwrap();
        assert_eq!((answer.text.as_deref(), answer.tool_calls.len()), (None, 0));
        assert_eq!(answer.finish, Some(Finish::Stop));
    }

    #[cfg(feature = "http")]
    #[test]
    fn a_denial_as_a_response_rounds_retry_after_up_and_forbids_retrying() {
        let response = Fault::new(Class::Denied(Denier::Circuit), "breaker-layer")
            .with_target("a\"b\n")
            .with_retry_after(Duration::from_millis(1001))
            .to_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "2");
        assert_eq!(response.headers()["x-should-retry"], "false");
        let body = std::str::from_utf8(response.body()).unwrap();
        assert!(body.contains(r#""target":"a\"b\n""#), "{body}");
        assert!(body.contains(r#""retry_after_ms":1001"#), "{body}");
    }

    #[cfg(feature = "http")]
    #[test]
    fn an_upstreams_failure_as_a_response_leaves_retrying_to_the_client() {
        let response = Fault::new(Class::Timeout(crate::Limit::Total), "x").to_response();
        assert_eq!(response.status(), 504);
        assert!(response.headers().get("x-should-retry").is_none());
    }

    #[test]
    fn a_fault_is_small_enough_to_move() {
        assert!(size_of::<Fault>() <= 128, "{}", size_of::<Fault>());
    }
}
