//! Where the answers are: in the bodies of responses, or in plain values.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Facts, Report, Verdict};

use crate::{
    Answer, Asked, Validator, events,
    judge::{Judgement, Judging},
};

/// How an answer is got out of a response. [`Bodies`] and [`Values`] are the two there are.
#[diagnostic::on_unimplemented(
    message = "validate-layer cannot look into the response `{Res}`",
    note = "`http::Response<B>` works, where `B: http_body::Body + Unpin` with an error that converts into `BoxError`; \
            `reqwest::Response` does with the feature `reqwest-013`; for plain values use \
            `ValidateLayer::values(|response: &_| Answer::new(…))`"
)]
pub trait Mode<Res>: sealed::Sealed {
    /// The response once it was looked at.
    type Out;

    /// A response whose answer is being read.
    #[doc(hidden)]
    type Reading;

    #[doc(hidden)]
    fn open(
        &self,
        response: Res,
        asked: Option<Arc<Asked>>,
        validator: &Arc<Validator>,
    ) -> Step<Self::Out, Self::Reading>;

    #[doc(hidden)]
    fn poll_read(
        reading: &mut Self::Reading,
        validator: &Arc<Validator>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::Out, BoxError>>;
}

pub(crate) mod sealed {
    #[allow(unnameable_types, reason = "sealed")]
    pub trait Sealed {}
}

/// What a response turned out to be.
#[doc(hidden)]
#[derive(Debug)]
pub enum Step<Out, Reading> {
    Done(Result<Out, BoxError>),
    Read(Reading),
}

/// Answers are in the bodies of `http::Response` or `reqwest::Response`: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bodies {
    _private: (),
}

impl Bodies {
    pub(crate) const fn new() -> Self {
        Self { _private: () }
    }
}

impl sealed::Sealed for Bodies {}

/// Answers are in plain values, out of which a function gets them.
#[derive(Clone, Copy)]
pub struct Values<F> {
    extract: F,
}

impl<F> Values<F> {
    pub(crate) const fn new(extract: F) -> Self {
        Self { extract }
    }
}

impl<F> sealed::Sealed for Values<F> {}

impl<Res, F: Fn(&Res) -> Answer> Mode<Res> for Values<F> {
    type Out = Res;
    type Reading = Judged<Res>;

    fn open(
        &self,
        response: Res,
        asked: Option<Arc<Asked>>,
        validator: &Arc<Validator>,
    ) -> Step<Res, Self::Reading> {
        let answer = (self.extract)(&response).with_asked(asked);
        match Judgement::begin(validator, &answer) {
            Judgement::Done(verdict, report) => {
                Step::Done(found(response, &answer, verdict, report, validator))
            }
            Judgement::Slow(judging) => Step::Read(Judged { response: Some(response), judging }),
        }
    }

    fn poll_read(
        reading: &mut Self::Reading,
        validator: &Arc<Validator>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, BoxError>> {
        let (verdict, report) = ready!(reading.judging.poll(cx));
        let Some(response) = reading.response.take() else { return Poll::Pending };
        Poll::Ready(found(response, reading.judging.answer(), verdict, report, validator))
    }
}

/// A value that is being judged.
#[doc(hidden)]
pub struct Judged<Res> {
    /// Taken when it is.
    response: Option<Res>,
    judging: Box<Judging>,
}

fn found<Res>(
    response: Res,
    answer: &Answer,
    verdict: Verdict,
    report: Report,
    validator: &Validator,
) -> Result<Res, BoxError> {
    events::judged(validator, &verdict, &report);
    if verdict.is_success() {
        return Ok(response);
    }
    let mut facts = Facts::default();
    facts.verdict = Some(verdict);
    facts.report = report.clone();
    answer.tell(&mut facts);
    Err(validator.fault(verdict, report, None).with_answer(&facts).into())
}

impl<Res> fmt::Debug for Judged<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judged").field("judging", &self.judging).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for Values<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}
