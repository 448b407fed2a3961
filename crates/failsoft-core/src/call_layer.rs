//! [`CallLayer`]: outermost, begins a [`Call`] for each request and puts its trail on the response.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//! use failsoft_core::{Call, CallLayer, Trail};
//! use tower::{ServiceBuilder, ServiceExt as _, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let service = ServiceBuilder::new()
//!     .layer(CallLayer::new().timeout(Duration::from_secs(60)).max_attempts(4).trail_header(true))
//!     .service(service_fn(|_: http::Request<()>| async {
//!         assert!(Call::current_deadline().is_some());
//!         Ok::<_, Infallible>(http::Response::new(()))
//!     }));
//! let response = service.oneshot(http::Request::new(())).await.unwrap();
//! assert!(response.extensions().get::<Trail>().is_some());
//! # });
//! ```

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Call, CallOptions, Trail, call::Scoped};

/// The header that [`CallLayer::trail_header`] sets.
pub const TRAIL_HEADER: &str = "x-failsoft-trail";

/// A longer trail is cut in the header, at so many bytes.
const MAX_HEADER: usize = 1024;

/// Begins a [`Call`] for each request. Put it outermost.
#[derive(Clone, Debug, Default)]
pub struct CallLayer {
    timeout: Option<Duration>,
    max_attempts: Option<u32>,
    header: bool,
}

impl CallLayer {
    /// No deadline and no cap: the trail alone.
    #[must_use]
    pub const fn new() -> Self {
        Self { timeout: None, max_attempts: None, header: false }
    }

    /// The deadline of each call, counted from it, for the layers inside that obey one, such as retry and fallback: this
    /// layer has no timer and ends nothing by itself. A body may run longer. Default none.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// At most so many attempts a call, over all layers and routes; 0 and 1 both mean the first only. Default none.
    #[must_use]
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Also writes a trail that is not empty into the header `x-failsoft-trail`, for people. Default `false`: it names
    /// targets.
    #[must_use]
    pub const fn trail_header(mut self, on: bool) -> Self {
        self.header = on;
        self
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService { inner, layer: self.clone() }
    }
}

/// The service of [`CallLayer`].
#[derive(Clone, Debug)]
pub struct CallService<S> {
    inner: S,
    layer: CallLayer,
}

impl<S> CallService<S> {
    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req> Service<Req> for CallService<S>
where
    S: Service<Req>,
    S::Response: PutTrail,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = CallFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let CallLayer { timeout, max_attempts, header } = self.layer;
        let mut options =
            timeout.map_or_else(CallOptions::default, |timeout| Call::options().timeout(timeout));
        if let Some(attempts) = max_attempts {
            options = options.max_attempts(attempts);
        }
        let call = options.begin();
        let future = call.enter(|| self.inner.call(request));
        CallFuture { future: call.scope(future), call, header }
    }
}

pin_project! {
    /// The future of [`CallService`].
    #[derive(Debug)]
    pub struct CallFuture<F> {
        #[pin]
        future: Scoped<F>,
        call: Call,
        header: bool,
    }
}

impl<F, Res, E> Future for CallFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    Res: PutTrail,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut outcome = ready!(this.future.poll(cx));
        if let Ok(response) = &mut outcome {
            response.put_trail(this.call.trail(), *this.header);
        }
        Poll::Ready(outcome)
    }
}

/// A response that can carry the trail of its call.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a trail",
    note = "for responses other than `http::Response` and `reqwest::Response`, begin the call yourself: \
            `let call = Call::begin(); call.scope(future).await; call.trail()`"
)]
pub trait PutTrail {
    /// Puts the trail into the extensions and, with `header`, into the header `x-failsoft-trail`.
    fn put_trail(&mut self, trail: Trail, header: bool);
}

impl<B> PutTrail for http::Response<B> {
    fn put_trail(&mut self, trail: Trail, header: bool) {
        if header && !trail.is_empty() {
            put_header(self.headers_mut(), &trail);
        }
        self.extensions_mut().insert(trail);
    }
}

#[cfg(feature = "reqwest-013")]
impl PutTrail for reqwest::Response {
    fn put_trail(&mut self, trail: Trail, header: bool) {
        if header && !trail.is_empty() {
            put_header(self.headers_mut(), &trail);
        }
        self.extensions_mut().insert(trail);
    }
}

fn put_header(headers: &mut http::HeaderMap, trail: &Trail) {
    // A target's name is the user's and may hold anything; a header may not.
    let visible = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let text: String = trail.to_string().chars().take(MAX_HEADER).map(visible).collect();
    if let Ok(value) = text.parse() {
        headers.insert(TRAIL_HEADER, value);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceBuilder, ServiceExt as _, service_fn};

    use super::*;
    use crate::{Attempt, Class, Next, Verdict};

    async fn trail_of(layer: CallLayer) -> http::Response<()> {
        let service = service_fn(|_: ()| async {
            for _ in 0..5 {
                if Call::take_attempt().is_ok() {
                    let attempt = Attempt::new("x", Verdict::of(Class::Overloaded)).then(Next::Retry);
                    Call::record(attempt.on(Some("höst".into())));
                }
            }
            Ok::<_, Infallible>(http::Response::new(()))
        });
        ServiceBuilder::new().layer(layer).service(service).oneshot(()).await.unwrap()
    }

    #[tokio::test]
    async fn the_trail_is_in_the_extensions_and_only_by_option_in_a_header() {
        let response = trail_of(CallLayer::new().max_attempts(3)).await;
        assert_eq!(response.extensions().get::<Trail>().map(|trail| trail.attempts().len()), Some(2));
        assert!(response.headers().is_empty());
        let response = trail_of(CallLayer::new().max_attempts(2).trail_header(true)).await;
        assert_eq!(response.headers()[TRAIL_HEADER], "h?st overloaded (retry)");
    }

    #[tokio::test]
    async fn a_long_trail_is_cut_in_the_header() {
        let response = trail_of(CallLayer::new().trail_header(true)).await;
        assert!(response.headers()[TRAIL_HEADER].len() <= MAX_HEADER);
    }
}
