//! [`Asked`]: what is known of a request, for checks that need it.
//!
//! Whether a tool may be called, whether its arguments are right, and whether an answer with nothing in it is a failure, is known
//! from the request only. A layer looks at requests where it was told how: see [`Inspect`].
//!
//! ```
//! use failsoft_core::ToolCall;
//! use validate_layer::Asked;
//!
//! let asked = Asked::new().with_call(ToolCall::new("get_weather", r#"{"city": "Oslo"}"#));
//! assert_eq!(asked.calls()[0].name.as_ref(), "get_weather");
//! ```

use std::{fmt, sync::Arc};

use failsoft_core::ToolCall;

/// What is known of a request.
#[derive(Clone, Default)]
pub struct Asked {
    bytes: Option<usize>,
    calls: Vec<ToolCall>,
    offered: Vec<Arc<str>>,
    key: Option<Arc<str>>,
    text: Option<Arc<str>>,
    /// Which tools it offers is not known for certain.
    pub(crate) is_unreadable: bool,
    #[cfg(all(feature = "http", feature = "schema"))]
    pub(crate) tools: Option<Arc<[crate::offered::Offered]>>,
}

impl Asked {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// It is so many bytes long.
    #[must_use]
    pub const fn with_bytes(mut self, bytes: usize) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// It calls a tool.
    #[must_use]
    pub fn with_call(mut self, call: ToolCall) -> Self {
        self.calls.push(call);
        self
    }

    /// It offers a tool of this name to a model.
    #[must_use]
    pub fn with_offered(mut self, name: impl Into<Arc<str>>) -> Self {
        self.offered.push(name.into());
        self
    }

    /// What its answers are compared by, where [drift](crate::drift) is looked for: a route, a prompt's name, a tenant.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Its question, for a [judge](crate::Judge) that needs it.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// How long it is, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> Option<usize> {
        self.bytes
    }

    /// The tools that it calls.
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        &self.calls
    }

    /// The names of the tools that it offers.
    pub fn offered(&self) -> impl Iterator<Item = &str> {
        self.offered.iter().map(|name| &**name)
    }

    /// What its answers are compared by.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Its question.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

impl fmt::Debug for Asked {
    /// Without the question and the arguments: they do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked")
            .field("bytes", &self.bytes)
            .field("calls", &self.calls.len())
            .field("offered", &self.offered)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// How a layer looks at requests: [`Unseen`], [`InspectFn`], and with the features `http` and `schema` `ChatRequests` are the ways there are.
#[diagnostic::on_unimplemented(
    message = "validate-layer cannot look at the request `{Req}` before `{S}`",
    note = "the function given to `asked_fn` takes a reference to the request of the service, and the service is `Clone`, so that \
            a refused call gives its readiness back; `chat_requests` takes `http::Request` with a body that lies in memory, and \
            `reqwest::Request` with the feature `reqwest-013`"
)]
pub trait Inspect<S, Req>: sealed::Sealed {
    /// What is known of a request; `None` where nobody looks.
    #[doc(hidden)]
    fn asked(&self, request: &Req) -> Option<Asked>;

    /// Lets the readiness of a service go that is not called after all.
    #[doc(hidden)]
    fn let_go(&self, service: &mut S);
}

pub(crate) mod sealed {
    #[allow(unnameable_types, reason = "sealed")]
    pub trait Sealed {}
}

/// Requests are not looked at: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unseen {
    _private: (),
}

impl Unseen {
    pub(crate) const fn new() -> Self {
        Self { _private: () }
    }
}

impl sealed::Sealed for Unseen {}

impl<S, Req> Inspect<S, Req> for Unseen {
    #[inline]
    fn asked(&self, _: &Req) -> Option<Asked> {
        None
    }

    fn let_go(&self, _: &mut S) {}
}

/// A function says what is known of a request; see [`ValidateBuilder::asked_fn`](crate::ValidateBuilder::asked_fn).
#[derive(Clone, Copy)]
pub struct InspectFn<F>(F);

impl<F> InspectFn<F> {
    pub(crate) const fn new(inspect: F) -> Self {
        Self(inspect)
    }
}

impl<F> sealed::Sealed for InspectFn<F> {}

impl<S: Clone, Req, F: Fn(&Req) -> Asked> Inspect<S, Req> for InspectFn<F> {
    fn asked(&self, request: &Req) -> Option<Asked> {
        Some((self.0)(request))
    }

    fn let_go(&self, service: &mut S) {
        // Only a service that is dropped gives its readiness back.
        *service = service.clone();
    }
}

impl<F> fmt::Debug for InspectFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InspectFn").finish_non_exhaustive()
    }
}
