//! The default classifier's knowledge of HTTP: status, `x-should-retry`, advice in headers, and the end of the body.
//!
//! | status | class |
//! |---|---|
//! | 1xx, 2xx | success, once the body has ended well |
//! | 401, 403 | auth |
//! | 402 | quota |
//! | 408 | timeout |
//! | 409, 425, other 5xx | transient |
//! | 429 | rate limited |
//! | 498, 503, 529 | overloaded |
//! | other 4xx, 3xx | invalid |
//!
//! ```
//! use failsoft_core::{Class, verdict_of_head};
//!
//! let (parts, ()) = http::Response::builder()
//!     .status(429)
//!     .header("retry-after", "7")
//!     .body(())
//!     .unwrap()
//!     .into_parts();
//! let verdict = verdict_of_head(parts.status, &parts.headers).expect("a failure");
//! assert_eq!(verdict.class(), Class::RateLimited);
//! assert_eq!(verdict.retry_after().map(|after| after.as_secs()), Some(7));
//! ```

use http::{HeaderMap, StatusCode};
use http_body::Body;

use crate::{
    BoxError, Class, End, Hint, Insight, Judge, Limit, Respond, Seen, Step, Verdict,
    advice::{retry_after, should_retry, wall_clock},
    grpc::{is_grpc, verdict_of_grpc},
};

/// What an HTTP status means by itself.
#[must_use]
pub const fn class_of_status(status: StatusCode) -> Class {
    match status.as_u16() {
        100..=299 => Class::Success,
        401 | 403 => Class::Auth,
        402 => Class::Quota,
        408 => Class::Timeout(Limit::Total),
        409 | 425 => Class::Transient,
        429 => Class::RateLimited,
        498 | 503 | 529 => Class::Overloaded,
        300..=499 => Class::Invalid,
        _ => Class::Transient,
    }
}

/// Whether a body is encoded, so that its bytes are not yet what they stand for. A client that decodes removes the
/// header.
///
/// No encoding are `identity`, nothing, and the name of a character set, which some servers put there.
#[must_use]
pub fn is_encoded(headers: &HeaderMap) -> bool {
    const PLAIN: [&str; 5] = ["", "identity", "none", "utf-8", "utf8"];
    headers.get_all(http::header::CONTENT_ENCODING).iter().any(|value| {
        let value = value.as_bytes().trim_ascii();
        !PLAIN.iter().any(|plain| plain.as_bytes().eq_ignore_ascii_case(value))
    })
}

/// The verdict on a failed response by its status and headers; `None` for a success.
#[must_use]
pub fn verdict_of_head(status: StatusCode, headers: &HeaderMap) -> Option<Verdict> {
    let class = class_of_status(status);
    (!class.is_success()).then(|| with_headers(Verdict::of(class), headers))
}

/// Adds to a failure what the headers say: advice, and `x-should-retry`.
///
/// `x-should-retry: true` does not repeat what cannot work: a quota, a credential.
#[must_use]
pub fn with_headers(verdict: Verdict, headers: &HeaderMap) -> Verdict {
    let verdict = verdict.with_advice(retry_after(headers, wall_clock()).or_else(|| verdict.retry_after()));
    let hint = match (should_retry(headers), verdict.hint()) {
        (Some(false), Hint::Same | Hint::After) => Hint::Never,
        (Some(true), Hint::Never) => Hint::Same,
        (_, hint) => hint,
    };
    verdict.with_hint(hint)
}

#[diagnostic::do_not_recommend]
impl<B: Body<Error: Into<BoxError>>> Respond for http::Response<B> {
    type Judge = BodyJudge;

    fn step(&self) -> Step<BodyJudge> {
        step(self.status(), self.headers(), self.extensions())
    }

    fn status_code(&self) -> Option<u16> {
        Some(self.status().as_u16())
    }

    fn target_headers(&self) -> Option<&HeaderMap> {
        crate::Degraded::of(self.extensions()).is_none().then(|| self.headers())
    }

    fn insight(&self) -> Option<&Insight> {
        Insight::of(self.extensions())
    }

    fn degrade(&mut self, degraded: &crate::Degraded, header: bool) {
        // Both at once cannot be borrowed of it.
        let mut headers = std::mem::take(self.headers_mut());
        degraded.clone().put(&mut headers, self.extensions_mut(), header);
        *self.headers_mut() = headers;
    }
}

/// A failure that an insight knows first; then status and headers; a success waits for the end of the body, unless
/// the insight knows it already.
pub(crate) fn step(
    status: StatusCode,
    headers: &HeaderMap,
    extensions: &http::Extensions,
) -> Step<BodyJudge> {
    let insight = Insight::of(extensions);
    let learnt = insight.and_then(Insight::verdict);
    let failure = learnt.filter(|verdict| !verdict.is_success());
    let grpc = is_grpc(headers);
    // A gRPC status in the headers: there are only trailers, and this was the whole answer.
    let trailers_only = || if grpc { verdict_of_grpc(headers) } else { None };
    match failure.or_else(|| verdict_of_head(status, headers)).or_else(trailers_only).or(learnt) {
        Some(verdict) => Step::Now(verdict),
        None => {
            let events = is_event_stream(headers);
            Step::AtEnd(BodyJudge { insight: insight.cloned(), grpc, events, pieces: 0 })
        }
    }
}

/// Waits for the end of a body: its error is a transient failure unless it says otherwise, its clean end is what
/// the [`Insight`] says by then, else a success.
///
/// Where a reader further in completes the insight while the body runs, its verdict is the protocol's own end: it
/// stands from then on, also when the client drops the body there without reading on. Where such a reader counts the
/// pieces of content, only bytes that brought one are content; where nobody does, all are, but for the comments of an
/// event stream.
#[derive(Clone, Debug)]
pub struct BodyJudge {
    insight: Option<Insight>,
    grpc: bool,
    /// It is a stream of server-sent events.
    events: bool,
    /// How many pieces there were when it was looked last.
    pieces: u64,
}

impl Judge for BodyJudge {
    fn data(&mut self, bytes: &[u8]) -> Seen {
        let learnt = self.insight.as_ref().map(|insight| insight.read(|facts| (facts.verdict, facts.pieces)));
        let (verdict, pieces) = learnt.unwrap_or_default();
        if let Some(verdict) = verdict {
            return Seen::End(verdict);
        }
        let is_content = match pieces {
            Some(pieces) => pieces > std::mem::replace(&mut self.pieces, pieces),
            None if self.events => !is_comment(bytes),
            None => !bytes.is_empty(),
        };
        if is_content { Seen::Content } else { Seen::Nothing }
    }

    fn end(self, end: End<'_>) -> Verdict {
        let learnt = self.insight.as_ref().and_then(Insight::verdict);
        match end {
            End::Clean(trailers) if self.grpc => {
                trailers.and_then(verdict_of_grpc).unwrap_or(const { Verdict::of(Class::Transient) })
            }
            End::Clean(_) => learnt.unwrap_or(Verdict::SUCCESS),
            End::Error(err) => verdict_of_body_error(err),
        }
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let of_type = |value: &http::HeaderValue| {
        value.as_bytes().get(..EVENTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENTS))
    };
    headers.get(http::header::CONTENT_TYPE).is_some_and(of_type)
}

/// Whether these bytes of an event stream are nothing but comments, such as `: ping`, by which servers keep a
/// connection open while a model works, or is stuck.
fn is_comment(bytes: &[u8]) -> bool {
    bytes
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .all(|line| line.first().is_none_or(|first| *first == b':'))
}

/// What the error of a body means: an error that nobody knows is a cut body.
#[must_use]
pub fn verdict_of_body_error(err: &(dyn std::error::Error + 'static)) -> Verdict {
    let verdict = Verdict::of_error(err);
    if verdict.class() == Class::Unknown { Verdict::of(Class::Transient) } else { verdict }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Empty, Full};

    use super::*;
    use crate::{ByResponse, Classify, GuardFn, Watch, Watched};

    fn head(status: u16, headers: &[(&'static str, &'static str)]) -> http::Response<Empty<Bytes>> {
        let mut builder = http::Response::builder().status(status);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(Empty::new()).unwrap()
    }

    fn now<B: Body<Error: Into<BoxError>>>(response: &http::Response<B>) -> Verdict {
        match ByResponse.response(response) {
            Step::Now(verdict) => verdict,
            Step::AtEnd(_) => panic!("a verdict now was expected"),
        }
    }

    #[test]
    fn each_status_has_its_class() {
        let table = [
            (301, Class::Invalid),
            (400, Class::Invalid),
            (401, Class::Auth),
            (402, Class::Quota),
            (403, Class::Auth),
            (404, Class::Invalid),
            (408, Class::Timeout(Limit::Total)),
            (409, Class::Transient),
            (425, Class::Transient),
            (429, Class::RateLimited),
            (498, Class::Overloaded),
            (500, Class::Transient),
            (502, Class::Transient),
            (503, Class::Overloaded),
            (520, Class::Transient),
            (529, Class::Overloaded),
            (999, Class::Transient),
        ];
        for (status, class) in table {
            assert_eq!(now(&head(status, &[])).class(), class, "{status}");
        }
    }

    #[test]
    fn a_body_is_encoded_by_a_coding_and_not_by_a_character_set() {
        for (coding, encoded) in [
            ("gzip", true),
            ("GZIP", true),
            ("br, identity", true),
            ("identity", false),
            ("Identity", false),
            ("", false),
            ("UTF-8", false),
        ] {
            assert_eq!(is_encoded(head(200, &[("content-encoding", coding)]).headers()), encoded, "{coding}");
        }
        assert!(!is_encoded(&HeaderMap::new()));
    }

    #[test]
    fn advice_is_read_on_failures_and_should_retry_is_obeyed() {
        let limited = now(&head(429, &[("retry-after", "3")]));
        assert_eq!(limited.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(now(&head(503, &[("x-should-retry", "false")])).hint(), Hint::Never);
        assert_eq!(now(&head(400, &[("x-should-retry", "true")])).hint(), Hint::Same);
        assert_eq!(now(&head(402, &[("x-should-retry", "true")])).hint(), Hint::Fallback);
    }

    #[test]
    fn a_failure_learnt_inside_a_success_outranks_the_status() {
        let mut response = head(200, &[]);
        let insight = Insight::new();
        insight.learn(|facts| facts.verdict = Some(Verdict::of(Class::Quota)));
        response.extensions_mut().insert(insight);
        assert_eq!(now(&response).class(), Class::Quota);
    }

    #[test]
    fn a_success_that_is_learnt_before_the_body_is_handed_on_needs_no_watching() {
        let mut response = head(200, &[]);
        let insight = Insight::new();
        insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
        response.extensions_mut().insert(insight.clone());
        assert!(now(&response).is_success());
        let mut failed = head(503, &[]);
        failed.extensions_mut().insert(insight);
        assert_eq!(now(&failed).class(), Class::Overloaded);
    }

    type Seen = Arc<Mutex<Vec<Verdict>>>;

    fn watch<B: Body<Error: Into<BoxError>>>(
        response: http::Response<B>,
    ) -> (http::Response<Watched<B, BodyJudge, impl crate::Guard>>, Seen) {
        let seen = Seen::default();
        let push = Arc::clone(&seen);
        let Step::AtEnd(judge) = ByResponse.response(&response) else {
            panic!("a success waits for its end")
        };
        (judge.follow(response, GuardFn::new(move |verdict| push.lock().unwrap().push(verdict))), seen)
    }

    fn classes(seen: &Seen) -> Vec<Class> {
        seen.lock().unwrap().iter().map(Verdict::class).collect()
    }

    #[tokio::test]
    async fn a_body_read_to_its_end_is_a_success_once() {
        let (response, seen) = watch(http::Response::new(Full::<Bytes>::from("hello")));
        let hint = Body::size_hint(response.body());
        assert_eq!(hint.exact(), Some(5));
        assert!(classes(&seen).is_empty());
        response.into_body().collect().await.unwrap();
        assert_eq!(classes(&seen), [Class::Success]);
    }

    #[tokio::test]
    async fn a_reader_that_knows_the_length_and_never_polls_again_settles_too() {
        let (response, seen) = watch(http::Response::new(Full::<Bytes>::from("hello")));
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(classes(&seen), [Class::Success]);
        drop(body);
        assert_eq!(classes(&seen).len(), 1);
    }

    #[test]
    fn an_empty_body_settles_at_once_and_a_dropped_one_is_cancelled() {
        let (_, seen) = watch(head(204, &[]));
        assert_eq!(classes(&seen), [Class::Success]);
        let (response, seen) = watch(http::Response::new(Full::<Bytes>::from("hello")));
        drop(response);
        assert_eq!(classes(&seen), [Class::Cancelled]);
    }

    #[tokio::test]
    async fn a_cut_body_is_transient_and_the_error_passes_unwrapped() {
        let body = Full::<Bytes>::from("hello").map_err(|never| match never {}).boxed();
        let body = http_body_util::Limited::new(body, 2);
        let (response, seen) = watch(http::Response::new(body));
        let err = response.into_body().collect().await.unwrap_err();
        assert!(err.downcast_ref::<http_body_util::LengthLimitError>().is_some());
        assert_eq!(classes(&seen), [Class::Transient]);
    }

    fn judge(content_type: &'static str, insight: Option<&Insight>) -> BodyJudge {
        let mut response = head(200, &[("content-type", content_type)]);
        if let Some(insight) = insight {
            response.extensions_mut().insert(insight.clone());
        }
        let Step::AtEnd(judge) = ByResponse.response(&response) else {
            panic!("a success waits for its end")
        };
        judge
    }

    #[test]
    fn comments_that_keep_an_event_stream_open_are_no_content() {
        let mut plain = judge("text/plain", None);
        let mut judge = judge("Text/Event-Stream; charset=utf-8", None);
        for nothing in [": ping\n\n", ":\r\n\r\n", "\n", ": OPENROUTER PROCESSING\n\n: again\n\n", ""] {
            assert_eq!(judge.data(nothing.as_bytes()), crate::Seen::Nothing, "{nothing:?}");
        }
        for content in ["data: x\n\n", ": ping\n\ndata: x\n\n", "\ndata", "event: ping\n"] {
            assert_eq!(judge.data(content.as_bytes()), crate::Seen::Content, "{content:?}");
        }
        assert_eq!(plain.data(b": colon"), crate::Seen::Content);
    }

    #[test]
    fn where_pieces_are_counted_only_bytes_that_bring_one_are_content() {
        let insight = Insight::new();
        let mut judge = judge("application/json", Some(&insight));
        assert_eq!(judge.data(b"nobody counts"), crate::Seen::Content);
        insight.learn(|facts| facts.pieces = Some(0));
        assert_eq!(judge.data(b"{\"type\":\"ping\"}"), crate::Seen::Nothing);
        insight.learn(|facts| facts.pieces = Some(2));
        assert_eq!(judge.data(b"hello"), crate::Seen::Content);
        assert_eq!(judge.data(b"{\"type\":\"ping\"}"), crate::Seen::Nothing);
    }

    fn grpc(headers: &[(&'static str, &'static str)]) -> http::Response<Empty<Bytes>> {
        let mut response = head(200, headers);
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        response
    }

    #[tokio::test]
    async fn grpc_is_judged_by_its_trailers_and_a_missing_status_is_a_cut_call() {
        for (status, class) in
            [(Some("0"), Class::Success), (Some("14"), Class::Overloaded), (None, Class::Transient)]
        {
            let trailers = status.map(|status| {
                let value = http::HeaderValue::from_static(status);
                Ok(HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), value)]))
            });
            let body = Full::<Bytes>::from("message").with_trailers(std::future::ready(trailers));
            let (response, seen) = watch(grpc(&[]).map(|_| Box::pin(body)));
            response.into_body().collect().await.unwrap();
            assert_eq!(classes(&seen), [class], "{status:?}");
        }
    }

    #[test]
    fn a_grpc_answer_of_trailers_only_is_judged_at_once_and_a_failed_http_status_stays_one() {
        assert_eq!(now(&grpc(&[("grpc-status", "8")])).class(), Class::RateLimited);
        let mut response = grpc(&[]);
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(now(&response).class(), Class::Overloaded);
    }

    #[tokio::test]
    async fn a_verdict_learnt_on_the_way_stands_when_the_client_drops_the_body_there() {
        // async-openai drops a stream at `[DONE]` without reading to its end.
        let insight = Insight::new();
        // Two frames and no known end: the client reads only the first.
        let body = Full::<Bytes>::from("[DONE]").with_trailers(std::future::ready(None));
        let mut response = http::Response::new(Box::pin(body));
        response.extensions_mut().insert(insight.clone());
        let (response, seen) = watch(response);
        insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(classes(&seen), [Class::Success]);
    }

    /// Panics at its first poll.
    struct Panics;

    impl Body for Panics {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            panic!("inside")
        }
    }

    #[tokio::test]
    async fn a_panic_of_the_body_is_a_failure_once_and_goes_on() {
        let (response, seen) = watch(http::Response::new(Panics));
        let reads = tokio::spawn(async move { response.into_body().collect().await.map(drop) });
        assert!(reads.await.unwrap_err().is_panic());
        assert_eq!(classes(&seen), [Class::Unknown]);
    }

    /// Ends at `[DONE]`.
    #[derive(Debug)]
    struct Done;

    impl Judge for Done {
        fn data(&mut self, bytes: &[u8]) -> crate::Seen {
            if bytes == b"[DONE]" { crate::Seen::End(Verdict::SUCCESS) } else { crate::Seen::Content }
        }

        fn end(self, _: End<'_>) -> Verdict {
            Verdict::of(Class::Transient)
        }
    }

    #[tokio::test]
    async fn a_drop_after_the_protocols_own_end_changes_nothing() {
        let seen = Seen::default();
        let push = Arc::clone(&seen);
        let guard = GuardFn::new(move |verdict| push.lock().unwrap().push(verdict));
        // Two frames, of which the client reads only the first.
        let body = Full::<Bytes>::from("[DONE]").with_trailers(std::future::ready(None));
        let mut body = Watched::new(Box::pin(body), Done, guard);
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(classes(&seen), [Class::Success]);
    }
}
