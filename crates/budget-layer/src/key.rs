//! Whose budget a call is charged to, and which calls pass the soft line.

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::Labels;

/// Says whose budget a request is charged to.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives no key for the request `{Req}`",
    note = "`.key_fn(|request: &{Req}| …)` must take a reference to the request of the service and return a `String` \
            or another type that converts into `Arc<str>`"
)]
pub trait Keyed<Req> {
    /// The key; `None` for the budget that all such calls share.
    fn key(&self, request: &Req) -> Option<Arc<str>>;

    /// `false` where [`key`](Self::key) is always `None`.
    #[doc(hidden)]
    #[inline]
    fn may_have_keys(&self) -> bool {
        true
    }

    /// Visits the keys of all budgets that a call is charged to, in their order.
    #[doc(hidden)]
    #[inline]
    fn each(&self, request: &Req, mut visit: impl FnMut(Option<Arc<str>>))
    where
        Self: Sized,
    {
        visit(self.key(request));
    }

    /// What is written of a call into the layer's book.
    #[doc(hidden)]
    fn labels(&self, _: &Req) -> Labels {
        Labels::default()
    }
}

/// Two budgets, or more, each with its own keys: see [`BudgetBuilder::also`](crate::BudgetBuilder::also).
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(pub(crate) A, pub(crate) B);

impl<Req, A: Keyed<Req>, B: Keyed<Req>> Keyed<Req> for And<A, B> {
    fn key(&self, request: &Req) -> Option<Arc<str>> {
        self.0.key(request)
    }

    #[inline]
    fn each(&self, request: &Req, mut visit: impl FnMut(Option<Arc<str>>)) {
        self.0.each(request, &mut visit);
        self.1.each(request, &mut visit);
    }

    #[inline]
    fn may_have_keys(&self) -> bool {
        self.0.may_have_keys() || self.1.may_have_keys()
    }

    fn labels(&self, request: &Req) -> Labels {
        self.0.labels(request)
    }
}

/// Keys, and what is written into a book: see [`BudgetBuilder::book`](crate::BudgetBuilder::book).
#[derive(Clone, Copy)]
pub struct Labelled<K, F>(pub(crate) K, pub(crate) F);

impl<Req, K: Keyed<Req>, F: Fn(&Req) -> Labels> Keyed<Req> for Labelled<K, F> {
    fn key(&self, request: &Req) -> Option<Arc<str>> {
        self.0.key(request)
    }

    #[inline]
    fn each(&self, request: &Req, visit: impl FnMut(Option<Arc<str>>)) {
        self.0.each(request, visit);
    }

    #[inline]
    fn may_have_keys(&self) -> bool {
        self.0.may_have_keys()
    }

    fn labels(&self, request: &Req) -> Labels {
        (self.1)(request)
    }
}

impl<K: fmt::Debug, F> fmt::Debug for Labelled<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Labelled").field(&self.0).finish_non_exhaustive()
    }
}

/// One budget for all calls: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneForAll;

impl<Req> Keyed<Req> for OneForAll {
    fn key(&self, _: &Req) -> Option<Arc<str>> {
        None
    }

    #[inline]
    fn may_have_keys(&self) -> bool {
        false
    }
}

/// A key function, see [`BudgetBuilder::key_fn`](crate::BudgetBuilder::key_fn).
pub struct KeyFn<F, O>(F, PhantomData<fn() -> O>);

impl<F, O> KeyFn<F, O> {
    pub(crate) const fn new(key: F) -> Self {
        Self(key, PhantomData)
    }
}

impl<Req, F, O> Keyed<Req> for KeyFn<F, O>
where
    F: Fn(&Req) -> O,
    O: Into<Arc<str>>,
{
    fn key(&self, request: &Req) -> Option<Arc<str>> {
        Some((self.0)(request).into())
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

/// Says which calls pass the soft line.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not know the request `{Req}`",
    note = "`.allow_restricted(|request: &{Req}| …)` must take a reference to the request of the service"
)]
pub trait PassSoft<Req> {
    /// Whether this call passes, such as one that only reads or costs nothing.
    fn passes(&self, request: &Req) -> bool;
}

/// All calls pass the soft line, which is then only told: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllPass;

impl<Req> PassSoft<Req> for AllPass {
    fn passes(&self, _: &Req) -> bool {
        true
    }
}

/// A function that says which calls pass, see [`BudgetBuilder::allow_restricted`](crate::BudgetBuilder::allow_restricted).
#[derive(Clone, Copy)]
pub struct PassFn<F>(F);

impl<F> PassFn<F> {
    pub(crate) const fn new(passes: F) -> Self {
        Self(passes)
    }
}

impl<Req, F: Fn(&Req) -> bool> PassSoft<Req> for PassFn<F> {
    fn passes(&self, request: &Req) -> bool {
        (self.0)(request)
    }
}

impl<F> fmt::Debug for PassFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassFn")
    }
}
