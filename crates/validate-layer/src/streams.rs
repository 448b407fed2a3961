//! Streams: judged at their end while they pass, or held until they have one.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use failsoft_core::{BoxError, Gate, Insight, Verdict};
use http::response::Parts;

use crate::{
    Answer, Asked, Validator,
    bodies::{Found, failed, refusal},
    events,
    judge::{Judgement, Judging},
};

/// Judges a stream when its reader is done with it.
pub(crate) struct AtEnd {
    validator: Arc<Validator>,
    insight: Insight,
    asked: Option<Arc<Asked>>,
    status: u16,
    state: State,
}

enum State {
    /// The reader has not said what the answer is.
    Running,
    Judging(Box<Judging>),
    Over,
}

impl AtEnd {
    /// `None` where no reader has left an insight, so that nothing will be known at the end either.
    pub(crate) fn of(parts: &Parts, validator: &Arc<Validator>, asked: Option<&Arc<Asked>>) -> Option<Self> {
        let insight = Insight::of(&parts.extensions)?.clone();
        let (validator, asked) = (Arc::clone(validator), asked.cloned());
        Some(Self { validator, insight, asked, status: parts.status.as_u16(), state: State::Running })
    }

    fn judge(&mut self, verdict: Verdict) -> Result<(), BoxError> {
        if !verdict.is_success() {
            return match refusal(&self.insight, self.status, &self.validator) {
                Some(fault) => Err(fault.into()),
                None => Ok(()),
            };
        }
        let Some(answer) = self.insight.read(Answer::of_facts) else {
            events::unchecked(&self.validator, "stream");
            return Ok(());
        };
        let answer = answer.with_status(self.status).with_asked(self.asked.clone());
        match Judgement::begin(&self.validator, &answer) {
            Judgement::Slow(judging) => {
                self.state = State::Judging(judging);
                Ok(())
            }
            Judgement::Done(verdict, report) => self.found(&answer, verdict, report),
        }
    }

    fn found(
        &self,
        answer: &Answer,
        verdict: Verdict,
        report: failsoft_core::Report,
    ) -> Result<(), BoxError> {
        let found = Found { verdict, report, answer };
        failed(&self.insight, self.status, found, &self.validator).map_or(Ok(()), |fault| Err(fault.into()))
    }
}

impl Gate for AtEnd {
    fn poll_pass(&mut self, piece: Option<&Bytes>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if matches!(self.state, State::Running) {
            // Known with the bytes that show it, which may be followed by nothing.
            match self.insight.verdict() {
                None if piece.is_some() => return Poll::Ready(Ok(())),
                None => {
                    events::unchecked(&self.validator, "stream");
                    self.state = State::Over;
                }
                Some(verdict) => {
                    self.state = State::Over;
                    self.judge(verdict)?;
                }
            }
        }
        let State::Judging(judging) = &mut self.state else { return Poll::Ready(Ok(())) };
        let (verdict, report) = ready!(judging.poll(cx));
        let State::Judging(judging) = mem::replace(&mut self.state, State::Over) else {
            return Poll::Ready(Ok(()));
        };
        Poll::Ready(self.found(judging.answer(), verdict, report))
    }
}
