//! [`Replay`]: sending a request more than once without asking that it be `Clone`.
//!
//! | strategy | for |
//! |---|---|
//! | [`Auto`], the default | types that implement [`Repeat`]: `http::Request` with a cloneable body, `reqwest::Request`, `Arc`, strings, numbers, `Bytes` |
//! | [`Cloned`] | any other `Clone` type |
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

use std::{rc::Rc, sync::Arc};

/// How a layer keeps a request so that it can be sent again.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot repeat the request `{Req}`",
    note = "the default, `Auto`, repeats what implements `failsoft_core::Repeat`; for another `Clone` type call \
            `.replay(Cloned)` on the builder, for one that must be sent once `.replay(Once)`"
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

    /// The name of the target that the request itself gives. By default none.
    fn target(&self, _: &Req) -> Option<Arc<str>> {
        None
    }
}

/// A request that knows how to repeat itself.
#[diagnostic::on_unimplemented(
    message = "the request `{Self}` does not say how it can be sent again",
    note = "for a `Clone` type call `.replay(Cloned)` on the layer's builder, for one that must be sent once \
            `.replay(Once)`; or implement `failsoft_core::Repeat`"
)]
pub trait Repeat: Sized {
    /// Another copy; `None` when this request can be sent only once, such as one with a streaming body.
    fn repeat(&self) -> Option<Self>;

    /// Whether sending it again is harmless even if the target has already acted on it. By default yes: a type
    /// without a method such as HTTP's leaves that to whoever puts a retry around its service.
    fn is_idempotent(&self) -> bool {
        true
    }

    /// The name of the target, where the request has one: an HTTP request's authority. By default none.
    fn target(&self) -> Option<Arc<str>> {
        None
    }
}

/// Asks the request itself, through [`Repeat`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Auto;

impl<Req: Repeat> Replay<Req> for Auto {
    type Kept = Req;

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

    fn target(&self, request: &Req) -> Option<Arc<str>> {
        request.target()
    }
}

/// Clones the request, whatever it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cloned;

impl<Req: Clone> Replay<Req> for Cloned {
    type Kept = Req;

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

/// Whether HTTP calls the method idempotent (RFC 9110, section 9.2.2), or the request carries an
/// `Idempotency-Key`.
#[cfg(feature = "http")]
fn is_idempotent(method: &http::Method, headers: &http::HeaderMap) -> bool {
    method.is_idempotent() || headers.contains_key("idempotency-key")
}

/// A name of a target ends up in logs, and a password must not.
#[cfg(feature = "http")]
fn without_userinfo(authority: &str) -> Arc<str> {
    authority.rsplit('@').next().unwrap_or(authority).into()
}

#[cfg(feature = "http")]
impl<B: Clone> Repeat for http::Request<B> {
    fn repeat(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn is_idempotent(&self) -> bool {
        is_idempotent(self.method(), self.headers())
    }

    fn target(&self) -> Option<Arc<str>> {
        self.uri().authority().map(|authority| without_userinfo(authority.as_str()))
    }
}

#[cfg(feature = "reqwest-013")]
impl Repeat for reqwest::Request {
    /// `None` for a streaming body.
    fn repeat(&self) -> Option<Self> {
        self.try_clone()
    }

    fn is_idempotent(&self) -> bool {
        is_idempotent(self.method(), self.headers())
    }

    fn target(&self) -> Option<Arc<str>> {
        self.url().has_host().then(|| without_userinfo(self.url().authority()))
    }
}

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

    #[cfg(feature = "http")]
    #[test]
    fn a_post_is_idempotent_only_with_a_key() {
        let post = |key: bool| {
            let builder = http::Request::post("http://a/");
            let builder = if key { builder.header("idempotency-key", "1") } else { builder };
            builder.body(()).unwrap()
        };
        assert!(!post(false).is_idempotent());
        assert!(post(true).is_idempotent());
        assert!(http::Request::put("http://a/").body(()).unwrap().is_idempotent());
    }

    #[cfg(feature = "http")]
    #[test]
    fn the_authority_names_the_target_without_its_password() {
        let target = |uri: &str| http::Request::get(uri).body(()).unwrap().target();
        assert_eq!(
            target("https://user:secret@models.example:8443/v1").as_deref(),
            Some("models.example:8443")
        );
        assert_eq!(target("/v1"), None);
    }
}
