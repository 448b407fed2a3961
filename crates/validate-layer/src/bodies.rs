//! Bodies of responses: what is looked at, what passes unread, and how it is put together again.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use failsoft_core::{
    BoxError, Class, Fault, Finding, Held, Hold, Insight, ReadWhole, Report, Severity, SoftKind, Verdict,
    Whole, class_of_status, is_encoded,
};
use http::{HeaderMap, header::CONTENT_TYPE, response::Parts};

use crate::{Answer, Beyond, Bodies, Mode, Validator, events, mode::Step};

/// A response whose body is being read.
pub struct Reading<B> {
    /// Taken when the body is there.
    parts: Option<Parts>,
    whole: ReadWhole<B>,
}

impl<Res: Hold<Body: Unpin>> Mode<Res> for Bodies {
    type Out = Res::Out;
    type Reading = Reading<Res::Body>;

    fn open(&self, response: Res, validator: &Validator) -> Step<Res::Out, Self::Reading> {
        let (parts, body) = response.open();
        // A failed response is the upstream's own word, which clients want to parse.
        if !class_of_status(parts.status).is_success() {
            return Step::Done(Ok(Res::close(parts, Held::unread(body))));
        }
        let insight = Insight::of(&parts.extensions);
        if let Some(fault) = insight.and_then(|insight| refused(insight, &parts, validator)) {
            return Step::Done(Err(fault.into()));
        }
        if matches!(parts.status.as_u16(), 100..=199 | 204 | 205) {
            return Step::Done(Ok(Res::close(parts, Held::unread(body))));
        }
        let answer = insight.and_then(|insight| insight.read(Answer::of_facts));
        let is_stream = is_stream(&parts.headers);
        // Of a stream that is still running, what is known is not the whole answer.
        let is_settled = insight.is_some_and(|insight| insight.verdict().is_some());
        match answer.filter(|_| !is_stream || is_settled) {
            Some(answer) => Step::Done(
                judged(parts, answer, validator).map(|parts| Res::close(parts, Held::unread(body))),
            ),
            None if is_stream => {
                events::unchecked(validator.name(), "stream");
                Step::Done(Ok(Res::close(parts, Held::unread(body))))
            }
            None => {
                Step::Read(Reading { parts: Some(parts), whole: ReadWhole::new(body, validator.max_body) })
            }
        }
    }

    fn poll_read(
        reading: &mut Self::Reading,
        validator: &Validator,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res::Out, BoxError>> {
        let whole = ready!(Pin::new(&mut reading.whole).poll(cx));
        let Some(parts) = reading.parts.take() else { return Poll::Pending };
        Poll::Ready(match whole {
            Whole::Complete { bytes, trailers } => {
                let answer = Answer::of_body(&bytes, is_encoded(&parts.headers));
                judged(parts, answer, validator).map(|parts| Res::close(parts, Held::whole(bytes, trailers)))
            }
            Whole::TooLarge(held) => too_large(parts, validator).map(|parts| Res::close(parts, held)),
            Whole::Failed { error, .. } => Err(cut(error, &parts, validator)),
            _ => Err(cut("a body that ended in a way nobody knows".into(), &parts, validator)),
        })
    }
}

/// A reader inside found a failure although the status says success: nobody may take this for an answer.
fn refused(insight: &Insight, parts: &Parts, validator: &Validator) -> Option<Fault> {
    let (verdict, facts) = insight.learn(|facts| {
        let verdict = facts.verdict.filter(|verdict| !verdict.is_success())?;
        facts.inside_success = true;
        Some((verdict, facts.clone()))
    })?;
    events::judged(validator.name(), &verdict, &facts.report);
    let fault =
        validator.fault(verdict, facts.report.clone(), Some(parts.status.as_u16())).with_answer(&facts);
    Some(if fault.message().is_some() { fault } else { fault.with_message("found inside a success") })
}

/// The content types of which a body is no single answer.
fn is_stream(headers: &HeaderMap) -> bool {
    const STREAMS: [&str; 6] = [
        "text/event-stream",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/vnd.amazon.eventstream",
        "multipart/x-mixed-replace",
    ];
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    // gRPC frames its messages and says in trailers how it went.
    let grpc = essence.get(.."application/grpc".len());
    STREAMS.iter().any(|stream| essence.eq_ignore_ascii_case(stream))
        || grpc.is_some_and(|start| start.eq_ignore_ascii_case("application/grpc"))
}

/// Looks at an answer and says in the insight what was found.
fn judged(mut parts: Parts, answer: Answer, validator: &Validator) -> Result<Parts, BoxError> {
    let status = parts.status.as_u16();
    let answer = answer.with_status(status);
    let (verdict, mut report) = validator.judge(&answer);
    events::judged(validator.name(), &verdict, &report);
    let insight = parts.extensions.get_or_insert_with(Insight::new);
    let earlier = insight.learn(|facts| {
        facts.verdict = Some(verdict);
        facts.inside_success = !verdict.is_success();
        let earlier = facts.report.clone();
        facts.report.extend(report.findings().iter().cloned());
        earlier
    });
    if verdict.is_success() {
        return Ok(parts);
    }
    report.extend(earlier.findings().iter().cloned());
    let mut facts = insight.facts();
    answer.tell(&mut facts);
    Err(validator.fault(verdict, report, Some(status)).with_answer(&facts).into())
}

fn too_large(mut parts: Parts, validator: &Validator) -> Result<Parts, BoxError> {
    let message = format!("longer than {} bytes, and not looked at", validator.max_body);
    let finding = Finding::new(SoftKind::Malformed, "body.too_large", message);
    match validator.beyond {
        Beyond::Pass => {
            events::unchecked(validator.name(), "too large");
            let insight = parts.extensions.get_or_insert_with(Insight::new);
            insight.learn(|facts| facts.report.push(finding.with_severity(Severity::Warning)));
            Ok(parts)
        }
        Beyond::Fail => {
            let (verdict, report) = (Verdict::soft(SoftKind::Malformed), Report::from(finding));
            events::judged(validator.name(), &verdict, &report);
            Err(validator.fault(verdict, report, Some(parts.status.as_u16())).into())
        }
    }
}

/// A body that failed on the way: its error passes as it is where it says what it means.
fn cut(error: BoxError, parts: &Parts, validator: &Validator) -> BoxError {
    let verdict = Verdict::of_error(&*error);
    events::cut(validator.name(), &verdict);
    if verdict.class() != Class::Unknown {
        return error;
    }
    Fault::new(Class::Transient, env!("CARGO_PKG_NAME"))
        .with_target_if(validator.name.clone())
        .with_message("the body broke off")
        .with_status(parts.status.as_u16())
        .with_source(error)
        .into()
}

impl<B> fmt::Debug for Reading<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("whole", &self.whole).finish_non_exhaustive()
    }
}
