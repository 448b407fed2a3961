//! Bodies of responses: what is looked at, what passes unread, and how it is put together again.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use failsoft_core::{
    BoxError, Class, Facts, Fault, Finding, Held, Hold, Insight, ReadWhole, Report, Severity, SoftKind,
    UnpinBody, Verdict, Whole, class_of_status, is_encoded, json,
};
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Parts,
};

use crate::{
    Answer, Asked, Beyond, Bodies, Check, Mode, StreamMode, Validator, checks, events,
    judge::{Judgement, Judging},
    mode::Step,
    streams::AtEnd,
};

/// A response whose body is being read, or whose answer is being judged.
pub struct Reading<B> {
    /// Taken when it is done.
    parts: Option<Parts>,
    asked: Option<Arc<Asked>>,
    stage: Stage<B>,
}

enum Stage<B> {
    Body { whole: ReadWhole<B>, is_stream: bool },
    Judging { held: Option<Held<B>>, judging: Box<Judging> },
}

impl<B> Reading<B> {
    fn body(
        parts: Parts,
        body: B,
        is_stream: bool,
        asked: Option<Arc<Asked>>,
        validator: &Validator,
    ) -> Self {
        let whole = ReadWhole::new(body, validator.max_body);
        Self { parts: Some(parts), asked, stage: Stage::Body { whole, is_stream } }
    }
}

/// What was found in an answer.
pub(crate) struct Found<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) report: Report,
    pub(crate) answer: &'a Answer,
}

#[diagnostic::do_not_recommend]
impl<Res: Hold<Body: UnpinBody>> Mode<Res> for Bodies {
    type Out = Res::Out;
    type Reading = Reading<Res::Body>;

    fn open(
        &self,
        response: Res,
        asked: Option<Arc<Asked>>,
        validator: &Arc<Validator>,
    ) -> Step<Res::Out, Self::Reading> {
        let (parts, body) = response.open();
        // A failed response is the upstream's own word, which clients want to parse.
        if !class_of_status(parts.status).is_success() {
            return Step::Done(Ok(Res::close(parts, Held::unread(body))));
        }
        let insight = Insight::of(&parts.extensions);
        let refused = insight.and_then(|insight| refusal(insight, parts.status.as_u16(), validator));
        if let Some(fault) = refused {
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
            Some(answer) => {
                let answer = answer.with_asked(asked.clone());
                match judge(parts, Held::unread(body), &answer, validator) {
                    Judged::Done(result) => Step::Done(result.map(|(parts, held)| Res::close(parts, held))),
                    Judged::Slow { parts, held, judging } => {
                        let stage = Stage::Judging { held: Some(held), judging };
                        Step::Read(Reading { parts: Some(parts), asked, stage })
                    }
                }
            }
            None if !is_stream => Step::Read(Reading::body(parts, body, false, asked, validator)),
            None if is_settled || validator.streams == StreamMode::Unread => {
                events::unchecked(validator, "stream");
                Step::Done(Ok(Res::close(parts, Held::unread(body))))
            }
            None if validator.streams == StreamMode::Hold => {
                Step::Read(Reading::body(parts, body, true, asked, validator))
            }
            None => {
                let held = at_end(&parts, Held::unread(body), asked.as_ref(), validator);
                Step::Done(Ok(Res::close(parts, held)))
            }
        }
    }

    fn poll_read(
        reading: &mut Self::Reading,
        validator: &Arc<Validator>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res::Out, BoxError>> {
        let Reading { parts: slot, asked, stage } = reading;
        if let Stage::Body { whole, is_stream } = stage {
            let (is_stream, whole) = (*is_stream, ready!(Pin::new(whole).poll(cx)));
            let Some(parts) = slot.take() else { return Poll::Pending };
            let asked = asked.take();
            match read(parts, whole, is_stream, asked, validator) {
                Judged::Done(result) => {
                    return Poll::Ready(result.map(|(parts, held)| Res::close(parts, held)));
                }
                Judged::Slow { parts, held, judging } => {
                    *slot = Some(parts);
                    *stage = Stage::Judging { held: Some(held), judging };
                }
            }
        }
        let Stage::Judging { held, judging } = stage else { return Poll::Pending };
        let (verdict, report) = ready!(judging.poll(cx));
        let (Some(mut parts), Some(held)) = (slot.take(), held.take()) else { return Poll::Pending };
        let found = Found { verdict, report, answer: judging.answer() };
        let insight = parts.extensions.get_or_insert_with(Insight::new);
        Poll::Ready(match failed(insight, parts.status.as_u16(), found, validator) {
            Some(fault) => Err(fault.into()),
            None => Ok(Res::close(parts, held)),
        })
    }
}

fn promises_content(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    length.is_some_and(|length| length > 0)
}

/// What became of an answer: known, or waiting for a judge.
enum Judged<B> {
    Done(Result<(Parts, Held<B>), BoxError>),
    Slow { parts: Parts, held: Held<B>, judging: Box<Judging> },
}

/// Looks at a body that was read.
fn read<B>(
    parts: Parts,
    whole: Whole<B>,
    is_stream: bool,
    asked: Option<Arc<Asked>>,
    validator: &Arc<Validator>,
) -> Judged<B> {
    match whole {
        // The answer to a HEAD: it tells the length of what it does not have.
        Whole::Complete { bytes, trailers } if bytes.is_empty() && promises_content(&parts.headers) => {
            events::unchecked(validator, "head");
            Judged::Done(Ok((parts, Held::whole(bytes, trailers))))
        }
        Whole::Complete { bytes, trailers } => {
            read_whole(parts, bytes, trailers, is_stream, asked, validator)
        }
        Whole::TooLarge(held) if is_stream && validator.beyond == Beyond::AtEnd => {
            let held = at_end(&parts, held, asked.as_ref(), validator);
            Judged::Done(Ok((parts, held)))
        }
        Whole::TooLarge(held) => Judged::Done(too_large(parts, validator).map(|parts| (parts, held))),
        Whole::Failed { error, .. } => Judged::Done(Err(cut(error, &parts, validator))),
        _ => {
            let error = "a body that ended in a way nobody knows";
            Judged::Done(Err(cut(error.into(), &parts, validator)))
        }
    }
}

/// Looks at a body that was held to its end: by what a reader inside has made of it meanwhile, and where there was none by
/// itself, unless it is a stream.
fn read_whole<B>(
    parts: Parts,
    bytes: Bytes,
    trailers: Option<HeaderMap>,
    is_stream: bool,
    asked: Option<Arc<Asked>>,
    validator: &Arc<Validator>,
) -> Judged<B> {
    let insight = Insight::of(&parts.extensions);
    let refused = insight.and_then(|insight| refusal(insight, parts.status.as_u16(), validator));
    if let Some(fault) = refused {
        return Judged::Done(Err(fault.into()));
    }
    let settled = insight.filter(|insight| insight.verdict().is_some());
    match settled.and_then(|insight| insight.read(Answer::of_facts)) {
        Some(answer) => judge(parts, Held::whole(bytes, trailers), &answer.with_asked(asked), validator),
        None if is_stream => {
            events::unchecked(validator, "stream");
            Judged::Done(Ok((parts, Held::whole(bytes, trailers))))
        }
        None => {
            let answer = Answer::of_body(&bytes, is_encoded(&parts.headers)).with_asked(asked);
            judge(parts, Held::whole(bytes, trailers), &answer, validator)
        }
    }
}

/// A stream that is judged at its end, if a reader says by then what it was.
fn at_end<B>(
    parts: &Parts,
    held: Held<B>,
    asked: Option<&Arc<Asked>>,
    validator: &Arc<Validator>,
) -> Held<B> {
    match AtEnd::of(parts, validator, asked) {
        Some(gate) => held.gated(gate),
        None => {
            events::unchecked(validator, "stream");
            held
        }
    }
}

/// A reader inside found a failure although the status says success: nobody may take this for an answer.
pub(crate) fn refusal(insight: &Insight, status: u16, validator: &Validator) -> Option<Fault> {
    let (verdict, facts) = insight.learn(|facts| {
        let verdict = facts.verdict.filter(|verdict| !verdict.is_success())?;
        facts.inside_success = true;
        Some((verdict, facts.clone()))
    })?;
    let (verdict, report) = match looped(verdict, &facts, validator) {
        Some((verdict, report)) => {
            insight.learn(|facts| (facts.verdict, facts.report) = (Some(verdict), report.clone()));
            (verdict, report)
        }
        None => (verdict, facts.report.clone()),
    };
    events::judged(validator, &verdict, &report);
    let fault = validator.fault(verdict, report, Some(status)).with_answer(&facts);
    Some(if fault.message().is_some() { fault } else { fault.with_message("found inside a success") })
}

/// Whether an answer was cut at the limit of tokens because it never came to an end: more tokens would not help.
fn looped(verdict: Verdict, facts: &Facts, validator: &Validator) -> Option<(Verdict, Report)> {
    let is_cut = verdict.class() == Class::Soft(SoftKind::Truncated) && !validator.allow_repetition;
    let text = facts.text.as_deref().filter(|text| is_cut && !json::is_blank(text))?;
    let mut report = checks::Repetition.on_text(text);
    (report.worst() == Some(Severity::Error)).then(|| {
        report.merge(facts.report.clone());
        (Verdict::soft(SoftKind::Repetition), report)
    })
}

/// The content types of which a body is no single answer.
fn is_stream(headers: &HeaderMap) -> bool {
    const STREAMS: [&str; 11] = [
        "text/event-stream",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/jsonlines",
        "application/stream+json",
        "application/json-seq",
        // Connect, where it streams; its single answers are `application/json`.
        "application/connect+json",
        "application/connect+proto",
        "application/vnd.amazon.eventstream",
        "multipart/x-mixed-replace",
    ];
    // By its bytes: whatever stands in its parameters, an endless stream must not be held.
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    // gRPC frames its messages and says in trailers how it went.
    const GRPC: &[u8] = b"application/grpc";
    let grpc = essence.get(..GRPC.len());
    STREAMS.iter().any(|stream| essence.eq_ignore_ascii_case(stream.as_bytes()))
        || grpc.is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
}

/// Looks at an answer, as far as that takes no time.
fn judge<B>(mut parts: Parts, held: Held<B>, answer: &Answer, validator: &Arc<Validator>) -> Judged<B> {
    let status = parts.status.as_u16();
    let answer = answer.clone().with_status(status);
    match Judgement::begin(validator, &answer) {
        Judgement::Slow(judging) => Judged::Slow { parts, held, judging },
        Judgement::Done(verdict, report) => {
            let insight = parts.extensions.get_or_insert_with(Insight::new);
            let found = Found { verdict, report, answer: &answer };
            Judged::Done(match failed(insight, status, found, validator) {
                Some(fault) => Err(fault.into()),
                None => Ok((parts, held)),
            })
        }
    }
}

/// Says in the insight what was found, and makes a fault of what fails.
pub(crate) fn failed(
    insight: &Insight,
    status: u16,
    found: Found<'_>,
    validator: &Validator,
) -> Option<Fault> {
    let Found { verdict, mut report, answer } = found;
    events::judged(validator, &verdict, &report);
    let earlier = insight.learn(|facts| {
        // What a reader says of a good answer says more, such as to send it back to go on.
        let goes_on = facts.verdict.filter(|earlier| earlier.is_success() && verdict.is_success());
        facts.verdict = goes_on.or(Some(verdict));
        facts.inside_success = !verdict.is_success();
        let earlier = facts.report.clone();
        facts.report.merge(report.clone());
        earlier
    });
    if verdict.is_success() {
        return None;
    }
    report.merge(earlier);
    let mut facts = insight.facts();
    answer.tell(&mut facts);
    Some(validator.fault(verdict, report, Some(status)).with_answer(&facts))
}

fn too_large(mut parts: Parts, validator: &Validator) -> Result<Parts, BoxError> {
    let message = format!("longer than {} bytes, and not looked at", validator.max_body);
    let finding = Finding::new(SoftKind::Malformed, "body.too_large", message);
    match validator.beyond {
        Beyond::Pass | Beyond::AtEnd => {
            events::unchecked(validator, "too large");
            let insight = parts.extensions.get_or_insert_with(Insight::new);
            insight.learn(|facts| facts.report.push(finding.with_severity(Severity::Warning)));
            Ok(parts)
        }
        Beyond::Fail => {
            let (verdict, report) = (Verdict::soft(SoftKind::Malformed), Report::from(finding));
            events::judged(validator, &verdict, &report);
            Err(validator.fault(verdict, report, Some(parts.status.as_u16())).into())
        }
    }
}

/// A body that failed on the way: its error passes as it is where it says what it means.
fn cut(error: BoxError, parts: &Parts, validator: &Validator) -> BoxError {
    let verdict = Verdict::of_error(&*error);
    events::cut(validator, &verdict);
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
        f.debug_struct("Reading").field("asked", &self.asked).finish_non_exhaustive()
    }
}
