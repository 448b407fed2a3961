use std::fmt;

use crate::reflect::BadAnswer;

/// Changes a request so that it says what was wrong with the answer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot change the request `{Req}`",
    note = "`reask_fn(|request: MyRequest, bad| …)` can; `chat::ChatReask` (feature `chat`) can where the request's body \
            lies in memory: `http::Request` with a body of `Bytes`, `String` or `Vec<u8>`, `reqwest::Request`"
)]
pub trait Reask<Req> {
    /// Changes a copy of the call's first request. `None` where no change can help: then the outcome is returned.
    fn reask(&self, request: Req, bad: &BadAnswer) -> Option<Req>;
}

/// A function as a [`Reask`].
pub const fn reask_fn<Req, F: Fn(Req, &BadAnswer) -> Option<Req>>(reask: F) -> ReaskFn<F> {
    ReaskFn(reask)
}

/// Made by [`reask_fn`].
#[derive(Clone, Copy)]
pub struct ReaskFn<F>(F);

impl<Req, F: Fn(Req, &BadAnswer) -> Option<Req>> Reask<Req> for ReaskFn<F> {
    fn reask(&self, request: Req, bad: &BadAnswer) -> Option<Req> {
        (self.0)(request, bad)
    }
}

impl<F> fmt::Debug for ReaskFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaskFn").finish_non_exhaustive()
    }
}
