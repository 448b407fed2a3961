//! [`Replay`]: sending a request more than once without asking that it be `Clone`.
//!
//! | strategy | for |
//! |---|---|
//! | [`Auto`], the default | types that implement [`Repeat`]: `http::Request` with a cloneable body, `reqwest::Request`, `Arc`, strings, numbers, `Bytes` |
//! | [`Cloned`] | any other `Clone` type |
//! | `Buffered` (feature `http`) | HTTP requests whose body is a stream: those of tonic, of an axum router, of a proxy |
//! | [`Once`] | requests that must not be sent twice |
//!
//! ```
//! use failsoft_core::{Auto, Replay};
//!
//! let (first, mut kept) = Auto.keep("question".to_owned());
//! assert_eq!(first, "question");
//! assert_eq!(Auto.again(&mut kept, true).as_deref(), Some("question")); // the last one is moved
//! assert_eq!(Auto.again(&mut kept, true), None);
//! ```

#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod buffered;
#[cfg(feature = "http")]
mod headers;
#[cfg(feature = "http")]
mod tape;

use std::{rc::Rc, sync::Arc, time::Duration};

#[cfg(feature = "reqwest-013")]
pub use self::buffered::KeptReqwest;
#[cfg(feature = "http")]
pub use self::{
    body::ReplayBody,
    buffered::{Buffered, KeptRequest},
};

/// How a layer keeps a request so that it can be sent again.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot repeat the request `{Req}`",
    note = "`Auto`, the default, repeats what implements `failsoft_core::Repeat`, and `Cloned` what is `Clone`; for a body that \
            is a stream call `.replay(Buffered::new(65_536, Body::new))` on the builder, and for a request that must be sent \
            once `.replay(Once)`"
)]
pub trait Replay<Req> {
    /// What is kept.
    type Kept;

    /// Splits a request into the one to send now and what is kept of it; `None` when it cannot be repeated.
    fn keep(&self, request: Req) -> (Req, Option<Self::Kept>);

    /// Another copy of the request. With `last`, it may be moved out and none is left.
    fn again(&self, kept: &mut Option<Self::Kept>, last: bool) -> Option<Req>;

    /// Whether sending the request again is harmless even if the target has already acted on it.
    fn is_idempotent(&self, request: &Req) -> bool;

    /// Whether the request itself says that it is idempotent, so that even what has side effects may be sent again. By
    /// default no: nothing is known.
    fn declares_idempotent(&self, _: &Req) -> bool {
        false
    }

    /// The name of the target that the request itself gives. By default none.
    fn target(&self, _: &Req) -> Option<Arc<str>> {
        None
    }

    /// The time that the request itself gives for its answer, such as `grpc-timeout`. By default none.
    fn timeout(&self, _: &Req) -> Option<Duration> {
        None
    }

    /// How often the sender of the request says that it has sent it before. By default never.
    fn sent_before(&self, _: &Req) -> u32 {
        0
    }

    /// Writes on the request what its target may know of the attempt. By default nothing.
    fn stamp(&self, _: &mut Req, _: &Stamp<'_>) {}
}

/// What an attempt tells its target of itself.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stamp<'a> {
    /// How many attempts there were before it; nothing is written of the first.
    pub sent_before: u32,
    /// A key that is the same for all attempts, and for nothing else.
    pub idempotency_key: Option<&'a str>,
    /// The time that is left for it.
    pub time_left: Option<Duration>,
}

impl<'a> Stamp<'a> {
    /// A stamp that says nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { sent_before: 0, idempotency_key: None, time_left: None }
    }

    /// Says how many attempts there were before.
    #[must_use]
    pub const fn with_sent_before(mut self, attempts: u32) -> Self {
        self.sent_before = attempts;
        self
    }

    /// Gives the key.
    #[must_use]
    pub const fn with_idempotency_key(mut self, key: &'a str) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Says how much time is left.
    #[must_use]
    pub const fn with_time_left(mut self, left: Option<Duration>) -> Self {
        self.time_left = left;
        self
    }
}

/// A request that knows how to repeat itself.
#[diagnostic::on_unimplemented(
    message = "the request `{Self}` does not say how it can be sent again",
    note = "`http::Request<B>` does where `B` is `Clone`; for a body that is a stream, such as axum's and tonic's, call \
            `.replay(Buffered::new(65_536, Body::new))` on the layer's builder, for a `Clone` type of your own `.replay(Cloned)`, \
            for a request that must be sent once `.replay(Once)`; or implement `failsoft_core::Repeat`"
)]
pub trait Repeat: Sized {
    /// Another copy; `None` when this request can be sent only once, such as one with a streaming body.
    fn repeat(&self) -> Option<Self>;

    /// Whether sending it again is harmless even if the target has already acted on it. By default yes: a type
    /// without a method such as HTTP's leaves that to whoever puts a retry around its service.
    fn is_idempotent(&self) -> bool {
        true
    }

    /// Whether the request itself says that it is idempotent: an HTTP method, a key. By default no: nothing is known.
    fn declares_idempotent(&self) -> bool {
        false
    }

    /// The name of the target, where the request has one: an HTTP request's authority. By default none.
    fn target(&self) -> Option<Arc<str>> {
        None
    }

    /// The time that the request itself gives for its answer: `grpc-timeout`. By default none.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// How often the sender of the request says that it has sent it before: `x-stainless-retry-count`, `x-retry-count`,
    /// `grpc-previous-rpc-attempts`. By default never.
    fn sent_before(&self) -> u32 {
        0
    }

    /// Writes on the request what its target may know of the attempt: for HTTP `x-retry-count`, `idempotency-key`; for gRPC
    /// `grpc-previous-rpc-attempts` and `grpc-timeout`. By default nothing.
    fn stamp(&mut self, _: &Stamp<'_>) {}
}

/// Asks the request itself, through [`Repeat`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Auto;

impl<Req: Repeat> Replay<Req> for Auto {
    type Kept = Req;

    // A request may be large: in line it need not be moved here and back.
    #[inline(always)]
    fn keep(&self, request: Req) -> (Req, Option<Req>) {
        let kept = request.repeat();
        (request, kept)
    }

    fn again(&self, kept: &mut Option<Req>, last: bool) -> Option<Req> {
        if last { kept.take() } else { kept.as_ref().and_then(Req::repeat) }
    }

    fn is_idempotent(&self, request: &Req) -> bool {
        request.is_idempotent()
    }

    fn declares_idempotent(&self, request: &Req) -> bool {
        request.declares_idempotent()
    }

    fn target(&self, request: &Req) -> Option<Arc<str>> {
        request.target()
    }

    #[inline]
    fn timeout(&self, request: &Req) -> Option<Duration> {
        request.timeout()
    }

    fn sent_before(&self, request: &Req) -> u32 {
        request.sent_before()
    }

    fn stamp(&self, request: &mut Req, stamp: &Stamp<'_>) {
        request.stamp(stamp);
    }
}

/// Clones the request, whatever it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cloned;

#[diagnostic::do_not_recommend]
impl<Req: Clone> Replay<Req> for Cloned {
    type Kept = Req;

    #[inline(always)]
    fn keep(&self, request: Req) -> (Req, Option<Req>) {
        (request.clone(), Some(request))
    }

    fn again(&self, kept: &mut Option<Req>, last: bool) -> Option<Req> {
        if last { kept.take() } else { kept.clone() }
    }

    fn is_idempotent(&self, _: &Req) -> bool {
        true
    }
}

/// Sends the request once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Once;

impl<Req> Replay<Req> for Once {
    type Kept = std::convert::Infallible;

    #[inline(always)]
    fn keep(&self, request: Req) -> (Req, Option<Self::Kept>) {
        (request, None)
    }

    fn again(&self, _: &mut Option<Self::Kept>, _: bool) -> Option<Req> {
        None
    }

    fn is_idempotent(&self, _: &Req) -> bool {
        false
    }
}

macro_rules! repeat_by_clone {
    ($($type:ty),+ $(,)?) => {$(
        impl Repeat for $type {
            fn repeat(&self) -> Option<Self> {
                Some(self.clone())
            }
        }
    )+};
}

repeat_by_clone!((), bool, char, String, Box<str>, &'static str);
repeat_by_clone!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

impl<T: ?Sized> Repeat for Arc<T> {
    fn repeat(&self) -> Option<Self> {
        Some(Self::clone(self))
    }
}

impl<T: ?Sized> Repeat for Rc<T> {
    fn repeat(&self) -> Option<Self> {
        Some(Self::clone(self))
    }
}

#[cfg(feature = "http")]
repeat_by_clone!(bytes::Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_repeated_is_kept_nowhere() {
        let (_, mut kept) = Once.keep(7);
        assert!(kept.is_none());
        assert_eq!(Replay::<i32>::again(&Once, &mut kept, false), None);
    }

    #[test]
    fn cloned_repeats_until_the_last_is_moved() {
        let (first, mut kept) = Cloned.keep(vec![1]);
        assert_eq!(first, [1]);
        assert_eq!(Cloned.again(&mut kept, false), Some(vec![1]));
        assert_eq!(Cloned.again(&mut kept, true), Some(vec![1]));
        assert_eq!(Cloned.again(&mut kept, true), None);
    }
}
