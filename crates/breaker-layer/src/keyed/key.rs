//! Which circuit a request belongs to.

use std::{fmt, marker::PhantomData};

/// Says which circuit a request belongs to.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives no key for the request `{Req}`",
    note = "`.key_fn(|request: &{Req}| …)` must take a reference to the request of the service and return a `String`, an \
            `Arc<str>` or another type that is `AsRef<str>`; `.key_ref` takes functions that return a part of the \
            request as `&str`"
)]
pub trait Keyed<Req> {
    /// Hands on the key of a request.
    fn with_key<T>(&self, request: &Req, found: impl FnOnce(&str) -> T) -> T;
}

/// One circuit for all calls: the default of [`BreakerBuilder`](crate::BreakerBuilder).
#[derive(Clone, Copy, Debug, Default)]
pub struct OneForAll;

/// A key function, see [`BreakerBuilder::key_fn`](crate::BreakerBuilder::key_fn).
pub struct KeyFn<F, O>(F, PhantomData<fn() -> O>);

impl<F, O> KeyFn<F, O> {
    pub(crate) const fn new(key: F) -> Self {
        Self(key, PhantomData)
    }
}

impl<Req, F, O> Keyed<Req> for KeyFn<F, O>
where
    F: Fn(&Req) -> O,
    O: AsRef<str>,
{
    fn with_key<T>(&self, request: &Req, found: impl FnOnce(&str) -> T) -> T {
        found((self.0)(request).as_ref())
    }
}

impl<F: Clone, O> Clone for KeyFn<F, O> {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl<F, O> fmt::Debug for KeyFn<F, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFn")
    }
}

/// A key function that returns a part of the request, see
/// [`BreakerBuilder::key_ref`](crate::BreakerBuilder::key_ref).
#[derive(Clone, Copy)]
pub struct KeyRef<F>(F);

impl<F> KeyRef<F> {
    pub(crate) const fn new(key: F) -> Self {
        Self(key)
    }
}

impl<Req, F> Keyed<Req> for KeyRef<F>
where
    F: Fn(&Req) -> &str,
{
    fn with_key<T>(&self, request: &Req, found: impl FnOnce(&str) -> T) -> T {
        found((self.0)(request))
    }
}

impl<F> fmt::Debug for KeyRef<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRef")
    }
}

/// A circuit for each host that requests go to, see
/// [`BreakerBuilder::per_authority`](crate::BreakerBuilder::per_authority).
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, Default)]
pub struct ByAuthority;

#[cfg(feature = "http")]
impl<Req: failsoft_core::Authority> Keyed<Req> for ByAuthority {
    fn with_key<T>(&self, request: &Req, found: impl FnOnce(&str) -> T) -> T {
        found(request.authority().unwrap_or_default())
    }
}
