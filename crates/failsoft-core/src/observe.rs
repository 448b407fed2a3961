//! [`ObserveLayer`]: answers an agent with an [`Observation`] where a call of a tool was refused or failed.
//!
//! An error ends an agent's turn, or comes to the model as a text that teaches it nothing. With this layer around its tools
//! the model is told what happened, how long it lasts and what to do instead, as an answer like any other.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::{BoxError, Class, Denier, Fault, ObserveLayer};
//! use tower::{ServiceBuilder, ServiceExt as _, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! struct ToolCall { name: &'static str }
//!
//! let observe = ObserveLayer::new(|observation| observation.to_json()).tool_fn(|call: &ToolCall| call.name);
//! let tools = ServiceBuilder::new().layer(observe).service(service_fn(|_: ToolCall| async {
//!     let refused = Fault::new(Class::Denied(Denier::Circuit), "breaker-layer");
//!     Err::<String, BoxError>(refused.with_retry_after(Duration::from_secs(30)).into())
//! }));
//! let answer = tools.oneshot(ToolCall { name: "search" }).await.unwrap(); // the error is `Infallible`
//! assert!(answer.starts_with(r#"{"error":"CIRCUIT_BREAKER_OPEN","tool":"search","#));
//! # });
//! ```
//!
//! To the layers around it such an answer is a good one: it belongs outside of those that count, retry or fall back. The
//! errors' own texts stay inside, as [`Observation::of_error`] says.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{BoxError, Class, Classify, ErrorsOnly, IntoBoxError, Observation, Step};

/// Answers errors with observations; put it outside of the layers that refuse and fail.
#[derive(Clone, Copy)]
pub struct ObserveLayer<F, T = NoTool, C = ErrorsOnly> {
    answer: F,
    tool: T,
    classify: C,
}

/// The service of [`ObserveLayer`].
pub struct Observing<S, F, T = NoTool, C = ErrorsOnly> {
    inner: S,
    answer: F,
    tool: T,
    classify: C,
    /// What the inner service's readiness failed with: told as the answer of the next call.
    unready: Option<BoxError>,
}

/// Names the tool that a request calls.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no tool for the request `{Req}`",
    note = "`.tool_fn(|request: &{Req}| …)` must take a reference to the request of the service"
)]
pub trait ToolOf<Req> {
    /// What is kept until the answer.
    type Name: Into<String>;

    /// The tool's name, if it has one.
    fn tool_of(&self, request: &Req) -> Option<Self::Name>;
}

/// The tool is not named: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTool;

/// A function that names the tool, see [`ObserveLayer::tool_fn`].
#[derive(Clone, Copy)]
pub struct ToolFn<G>(G);

impl<Req> ToolOf<Req> for NoTool {
    type Name = String;

    fn tool_of(&self, _: &Req) -> Option<String> {
        None
    }
}

impl<Req, G, N> ToolOf<Req> for ToolFn<G>
where
    G: Fn(&Req) -> N,
    N: Into<String>,
{
    type Name = N;

    fn tool_of(&self, request: &Req) -> Option<N> {
        Some((self.0)(request))
    }
}

impl<F> ObserveLayer<F> {
    /// Makes the answer from the observation, such as its [`to_json`](Observation::to_json) in the message of a tool.
    pub const fn new<Res>(answer: F) -> Self
    where
        F: Fn(Observation) -> Res,
    {
        Self { answer, tool: NoTool, classify: ErrorsOnly }
    }
}

impl<F, T, C> ObserveLayer<F, T, C> {
    /// Names the tool, by a function of the request. Default: the observation names none.
    pub fn tool_fn<Req, N, G>(self, tool: G) -> ObserveLayer<F, ToolFn<G>, C>
    where
        G: Fn(&Req) -> N,
        N: Into<String>,
    {
        ObserveLayer { answer: self.answer, tool: ToolFn(tool), classify: self.classify }
    }

    /// Answers also those responses with an observation that this gives another verdict than success at once, such as
    /// [`ByResponse`](crate::ByResponse) to HTTP's statuses; one whose verdict comes with the end of its body passes.
    /// Default: errors only.
    pub fn classify<D>(self, classify: D) -> ObserveLayer<F, T, D> {
        ObserveLayer { answer: self.answer, tool: self.tool, classify }
    }
}

impl<S, F: Clone, T: Clone, C: Clone> Layer<S> for ObserveLayer<F, T, C> {
    type Service = Observing<S, F, T, C>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { answer, tool, classify } = self.clone();
        Observing { inner, answer, tool, classify, unready: None }
    }
}

impl<S, F, T, C> Observing<S, F, T, C> {
    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, F: Clone, T: Clone, C: Clone> Clone for Observing<S, F, T, C> {
    /// A clone asks the inner service's clone anew.
    fn clone(&self) -> Self {
        let (answer, tool, classify) = (self.answer.clone(), self.tool.clone(), self.classify.clone());
        Self { inner: self.inner.clone(), answer, tool, classify, unready: None }
    }
}

impl<S, F, T, C, Req> Service<Req> for Observing<S, F, T, C>
where
    S: Service<Req, Error: IntoBoxError>,
    F: Fn(Observation) -> S::Response + Clone,
    T: ToolOf<Req>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = ObserveFuture<S::Future, F, T::Name, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.unready.is_none() {
            self.unready = ready!(self.inner.poll_ready(cx)).err().map(Into::into);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let tool = self.tool.tool_of(&request);
        let unready = self.unready.take();
        let future = if unready.is_none() { Some(self.inner.call(request)) } else { None };
        ObserveFuture { future, unready, tool, answer: self.answer.clone(), classify: self.classify.clone() }
    }
}

pin_project! {
    /// The future of [`Observing`].
    pub struct ObserveFuture<Fut, F, N, C> {
        #[pin]
        future: Option<Fut>,
        unready: Option<BoxError>,
        tool: Option<N>,
        answer: F,
        classify: C,
    }
}

impl<Fut, F, N, C, Res, E> Future for ObserveFuture<Fut, F, N, C>
where
    Fut: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    F: Fn(Observation) -> Res,
    N: Into<String>,
    C: Classify<Res>,
{
    type Output = Result<Res, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = match this.future.as_pin_mut() {
            Some(future) => ready!(future.poll(cx)).map_err(Into::into),
            None => Err(this.unready.take().unwrap_or_else(|| "polled after it was ready".into())),
        };
        let observation = match outcome {
            Err(err) => Observation::of_error(&err),
            Ok(response) => match this.classify.response(&response) {
                Step::Now(verdict) if !matches!(verdict.class(), Class::Success | Class::Cancelled) => {
                    Observation::of_verdict(verdict)
                }
                Step::Now(_) | Step::AtEnd(_) => return Poll::Ready(Ok(response)),
            },
        };
        let observation = match this.tool.take() {
            Some(tool) => observation.tool(tool),
            None => observation,
        };
        Poll::Ready(Ok((this.answer)(observation)))
    }
}

impl<F, T, C> fmt::Debug for ObserveLayer<F, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserveLayer").finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, F, T, C> fmt::Debug for Observing<S, F, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observing").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<G> fmt::Debug for ToolFn<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolFn")
    }
}

impl<Fut, F, N, C> fmt::Debug for ObserveFuture<Fut, F, N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserveFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::{Denier, Fault, Limit, Verdict, classify_fn};

    /// A tool that does as it is told.
    async fn obey(told: Result<u16, Class>) -> Result<String, BoxError> {
        match told {
            Ok(code) => Ok(code.to_string()),
            Err(class) => Err(Fault::new(class, "x").into()),
        }
    }

    async fn code(told: Result<u16, Class>) -> String {
        let layer = ObserveLayer::new(|observation| observation.code().to_owned());
        layer.layer(service_fn(obey)).oneshot(told).await.unwrap()
    }

    #[tokio::test]
    async fn an_answer_passes_and_each_error_is_told_by_its_code() {
        assert_eq!(code(Ok(7)).await, "7");
        assert_eq!(code(Err(Class::Transient)).await, "TOOL_EXECUTION_FAILURE");
        assert_eq!(code(Err(Class::Timeout(Limit::Total))).await, "TOOL_EXECUTION_TIMEOUT");
        assert_eq!(code(Err(Class::Denied(Denier::Budget))).await, "EXECUTION_ABORTED_TOKEN_LIMIT");
        assert_eq!(code(Err(Class::Denied(Denier::Circuit))).await, "CIRCUIT_BREAKER_OPEN");
    }

    #[tokio::test]
    async fn a_response_that_failed_is_told_where_somebody_says_so() {
        let classify = classify_fn(|answer: &String| match answer.as_str() {
            "500" => Verdict::of(Class::Transient),
            _ => Verdict::SUCCESS,
        });
        let layer = ObserveLayer::new(|observation| observation.to_json()).classify(classify);
        let service = layer.layer(service_fn(obey));
        assert_eq!(service.clone().oneshot(Ok(200)).await.unwrap(), "200");
        let told = service.oneshot(Ok(500)).await.unwrap();
        assert!(told.starts_with(r#"{"error":"TOOL_EXECUTION_FAILURE","#), "{told}");
    }

    /// Its readiness fails for good, and it must never be called.
    #[derive(Clone)]
    struct Dead;

    impl Service<()> for Dead {
        type Response = String;
        type Error = BoxError;
        type Future = std::future::Ready<Result<String, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err(Fault::new(Class::Overloaded, "x").into()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            panic!("called without being ready")
        }
    }

    #[tokio::test]
    async fn an_error_of_readiness_is_told_as_an_answer() {
        let layer = ObserveLayer::new(|observation| observation.code().to_owned());
        assert_eq!(layer.layer(Dead).oneshot(()).await.unwrap(), "TOOL_EXECUTION_FAILURE");
    }
}
