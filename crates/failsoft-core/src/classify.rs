//! [`Classify`]: who gives an outcome its [`Verdict`], and when.
//!
//! An error is judged at once, as `&dyn Error`. A response is judged at once, or by a [`Judge`] that follows its
//! body to the end; then each attempt has exactly one verdict: when the protocol's own end was seen, when the body
//! ended or failed, or when it was dropped before that.
//!
//! | response | classifier |
//! |---|---|
//! | `http::Response`, `reqwest::Response`, any type that implements [`Respond`] | [`ByResponse`], the default of every layer |
//! | plain values whose errors tell all | [`ErrorsOnly`] |
//! | plain values with a verdict of their own | [`classify_fn`] |
//!
//! ```
//! use failsoft_core::{Class, Classify, Step, Verdict, classify_fn};
//!
//! struct Reply { code: u16 }
//!
//! let classifier = classify_fn(|reply: &Reply| match reply.code {
//!     0 => Verdict::SUCCESS,
//!     7 => Verdict::of(Class::Overloaded),
//!     _ => Verdict::of(Class::Invalid),
//! });
//! let Step::Now(verdict) = classifier.response(&Reply { code: 7 }) else { unreachable!() };
//! assert_eq!(verdict.class(), Class::Overloaded);
//! ```

use std::{error::Error, fmt, marker::PhantomData};

use crate::{Degraded, Insight, Verdict};

/// When the verdict of a response comes.
#[derive(Clone, Copy, Debug)]
pub enum Step<J> {
    /// Now.
    Now(Verdict),
    /// At the end of the body: this judge follows it.
    AtEnd(J),
}

/// Gives outcomes their verdict.
///
/// Layers turn an error into a [`BoxError`](crate::BoxError) first and ask about a `&dyn Error`, so one classifier
/// serves every service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot give a verdict on the response `{Res}`",
    note = "it must judge what the service inside answers with: `ByResponse`, the default, serves `http::Response` and \
            `reqwest::Response` (feature `reqwest-013`); for other response types call `.classify(ErrorsOnly)`, \
            `.classify(classify_fn(|response: &{Res}| …))`, or implement `Respond`"
)]
pub trait Classify<Res> {
    /// Follows the body of a response whose verdict comes at its end.
    type Judge: Watch<Res>;

    /// The verdict on a response, or who gives it later.
    fn response(&self, response: &Res) -> Step<Self::Judge>;

    /// The verdict on an error. By default that of [`Verdict::of_error`].
    fn error(&self, error: &(dyn Error + 'static)) -> Verdict {
        Verdict::of_error(error)
    }

    /// The HTTP status of a response, for the fault that stands for it once it is gone. By default none.
    fn status_code(&self, _: &Res) -> Option<u16> {
        None
    }

    /// The headers that the target itself sent: none where something stands in for its answer. By default none.
    #[cfg(feature = "http")]
    fn target_headers<'a>(&self, _: &'a Res) -> Option<&'a http::HeaderMap> {
        None
    }

    /// What a reader further inside has learnt of a response. By default nothing.
    fn insight<'a>(&self, _: &'a Res) -> Option<&'a Insight> {
        None
    }

    /// Puts the mark on a response that it stands in for another, with `header` also where the caller's client sees it. By
    /// default nothing.
    fn degrade(&self, _: &mut Res, _: &Degraded, header: bool) {
        let _ = header;
    }
}

/// Judges one body while it passes.
pub trait Judge: Send + Sync + 'static {
    /// Looks at the next bytes of the body.
    fn data(&mut self, bytes: &[u8]) -> Seen {
        if bytes.is_empty() { Seen::Nothing } else { Seen::Content }
    }

    /// The body is over.
    fn end(self, end: End<'_>) -> Verdict;
}

/// What a [`Judge`] saw in some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing that the caller waits for, such as a keepalive.
    Nothing,
    /// Content: the target makes progress.
    Content,
    /// The protocol's own end: the verdict stands, whatever becomes of the body.
    End(Verdict),
}

/// How a body ended.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum End<'a> {
    /// As it should.
    #[cfg(feature = "http")]
    Clean(Option<&'a http::HeaderMap>),
    /// As it should.
    #[cfg(not(feature = "http"))]
    Clean,
    /// With an error.
    Error(&'a (dyn Error + 'static)),
}

impl fmt::Debug for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Error(_)) { "Error" } else { "Clean" })
    }
}

/// Waits for the verdict of one attempt. Its own `Drop` means that the attempt was cancelled.
pub trait Guard: Send + Sync + 'static {
    /// The target made progress.
    fn content(&mut self) {}

    /// The verdict is there. Called at most once, and never panics.
    fn settle(&mut self, verdict: Verdict);
}

/// Carries a [`Guard`] to the end of a response of the type `Res`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot follow the body of `{Res}`",
    note = "the body must implement `http_body::Body` with an error that converts into `BoxError`"
)]
pub trait Watch<Res>: Sized {
    /// The response once it carries a guard.
    type Out<G: Guard>;

    /// Follows the body of `response` and settles `guard` with the verdict.
    fn follow<G: Guard>(self, response: Res, guard: G) -> Self::Out<G>;

    /// A response whose verdict was given at once, in the same type.
    fn bare<G: Guard>(response: Res) -> Self::Out<G>;
}

/// The judge of responses without a body to follow: their type stays as it is. There is no value of it.
#[derive(Clone, Copy, Debug)]
pub enum NoBody {}

impl<Res> Watch<Res> for NoBody {
    type Out<G: Guard> = Res;

    fn follow<G: Guard>(self, _: Res, _: G) -> Res {
        match self {}
    }

    fn bare<G: Guard>(response: Res) -> Res {
        response
    }
}

/// A response that knows its own verdict.
#[diagnostic::on_unimplemented(
    message = "the default classifier does not know the response `{Self}`",
    note = "`http::Response<B>` is known where `B` is an `http_body::Body` with an error that converts into `BoxError`, and \
            `reqwest::Response` by the feature `reqwest-013`; for plain values call `.classify(ErrorsOnly)` or \
            `.classify(classify_fn(|response: &{Self}| …))` on the builder"
)]
pub trait Respond: Sized {
    /// Follows the body, where there is one; else [`NoBody`].
    type Judge: Watch<Self>;

    /// The verdict, or who gives it later.
    fn step(&self) -> Step<Self::Judge>;

    /// The HTTP status, where there is one.
    fn status_code(&self) -> Option<u16> {
        None
    }

    /// The headers that the target itself sent: none where something stands in for its answer.
    #[cfg(feature = "http")]
    fn target_headers(&self) -> Option<&http::HeaderMap> {
        None
    }

    /// What a reader further inside has learnt of it, where it carries that.
    fn insight(&self) -> Option<&Insight> {
        None
    }

    /// Takes the mark that it stands in for another, with `header` also where the caller's client sees it.
    fn degrade(&mut self, _: &Degraded, header: bool) {
        let _ = header;
    }
}

/// The default classifier: asks the response itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByResponse;

impl<Res: Respond> Classify<Res> for ByResponse {
    type Judge = Res::Judge;

    fn response(&self, response: &Res) -> Step<Self::Judge> {
        response.step()
    }

    fn status_code(&self, response: &Res) -> Option<u16> {
        response.status_code()
    }

    #[cfg(feature = "http")]
    fn target_headers<'a>(&self, response: &'a Res) -> Option<&'a http::HeaderMap> {
        response.target_headers()
    }

    fn insight<'a>(&self, response: &'a Res) -> Option<&'a Insight> {
        response.insight()
    }

    fn degrade(&self, response: &mut Res, degraded: &Degraded, header: bool) {
        response.degrade(degraded, header);
    }
}

/// Calls every response good, and judges errors only.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorsOnly;

impl<Res> Classify<Res> for ErrorsOnly {
    type Judge = NoBody;

    fn response(&self, _: &Res) -> Step<NoBody> {
        Step::Now(Verdict::SUCCESS)
    }
}

/// Judges responses by a function, and errors as usual or by [`errors`](ClassifyFn::errors).
pub const fn classify_fn<Res, F: Fn(&Res) -> Verdict>(response: F) -> ClassifyFn<Res, F> {
    ClassifyFn { response, error: Verdict::of_error, judged: PhantomData }
}

/// The classifier made by [`classify_fn`], for responses of the type `Res`.
pub struct ClassifyFn<Res, F, E = fn(&(dyn Error + 'static)) -> Verdict> {
    response: F,
    error: E,
    /// So that a function which judges another response is told as that, and not as a closure of another signature.
    judged: PhantomData<fn(&Res)>,
}

impl<Res, F, E> ClassifyFn<Res, F, E> {
    /// Judges errors by a function too.
    pub fn errors<G: Fn(&(dyn Error + 'static)) -> Verdict>(self, error: G) -> ClassifyFn<Res, F, G> {
        ClassifyFn { response: self.response, error, judged: PhantomData }
    }
}

impl<Res, F: Clone, E: Clone> Clone for ClassifyFn<Res, F, E> {
    fn clone(&self) -> Self {
        Self { response: self.response.clone(), error: self.error.clone(), judged: PhantomData }
    }
}

impl<Res, F: Copy, E: Copy> Copy for ClassifyFn<Res, F, E> {}

impl<Res, F, E> Classify<Res> for ClassifyFn<Res, F, E>
where
    F: Fn(&Res) -> Verdict,
    E: Fn(&(dyn Error + 'static)) -> Verdict,
{
    type Judge = NoBody;

    fn response(&self, response: &Res) -> Step<NoBody> {
        Step::Now((self.response)(response))
    }

    fn error(&self, error: &(dyn Error + 'static)) -> Verdict {
        (self.error)(error)
    }
}

impl<Res, F, E> fmt::Debug for ClassifyFn<Res, F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyFn").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    #[test]
    fn errors_of_a_function_classifier_can_be_judged_by_a_function_too() {
        let classifier = classify_fn(|_: &u8| Verdict::SUCCESS).errors(|_| Verdict::of(Class::Transient));
        assert_eq!(Classify::<u8>::error(&classifier, &fmt::Error).class(), Class::Transient);
        let usual = classify_fn(|_: &u8| Verdict::SUCCESS);
        assert_eq!(Classify::<u8>::error(&usual, &fmt::Error).class(), Class::Unknown);
    }
}
