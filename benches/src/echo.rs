//! The service that costs nothing.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use failsoft_core::BoxError;
use tower::Service;

/// A service that is always ready and answers at once; each so many-th answer can be an error.
#[derive(Clone, Debug)]
pub struct Echo {
    until_failure: u64,
    fails_every: u64,
}

impl Echo {
    /// One that always answers.
    #[must_use]
    pub const fn good() -> Self {
        Self::failing(u64::MAX)
    }

    /// One that fails one call in `every`.
    #[must_use]
    pub const fn failing(every: u64) -> Self {
        Self { until_failure: every, fails_every: every }
    }
}

impl Service<u64> for Echo {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: u64) -> Self::Future {
        self.until_failure -= 1;
        if self.until_failure > 0 {
            return ready(Ok(request));
        }
        self.until_failure = self.fails_every;
        // A unit error in a box allocates nothing.
        ready(Err(Box::new(std::fmt::Error)))
    }
}
