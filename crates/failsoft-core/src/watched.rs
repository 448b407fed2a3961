//! [`Watched`]: a body that carries a guard to its end.
//!
//! ```
//! use failsoft_core::{ByResponse, Classify, Guard, Step, Verdict, Watch};
//! use http_body_util::BodyExt as _;
//!
//! struct Print;
//! impl Guard for Print {
//!     fn settle(&mut self, verdict: Verdict) { println!("{verdict}") }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let response = http::Response::new(http_body_util::Full::<bytes::Bytes>::from("hello"));
//! let Step::AtEnd(judge) = ByResponse.response(&response) else { unreachable!() };
//! let response = judge.follow(response, Print);
//! response.into_body().collect().await.unwrap(); // prints "success"
//! # });
//! ```

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::{BoxError, Class, End, Guard, Judge, Seen, Verdict, Watch};

pin_project! {
    /// A body that shows what passes to a judge, and settles a guard with the verdict: once, at the protocol's own
    /// end, at the last frame, or at an error. Dropped before that, it drops the guard, which means cancelled.
    ///
    /// Size hint and end of stream are those of the body inside; its error becomes a [`BoxError`] and is otherwise
    /// passed on as it is. A panic of the body inside is a failure of [`Class::Unknown`], as that of a future is, and
    /// goes on.
    pub struct Watched<B, J, G> {
        #[pin]
        body: B,
        // Last, so that it settles after everything that the body may still report while it drops.
        watch: Option<(J, G)>,
    }
}

impl<B, J, G> Watched<B, J, G> {
    /// A body that nobody watches.
    pub const fn bare(body: B) -> Self {
        Self { body, watch: None }
    }

    /// The body inside.
    pub const fn get_ref(&self) -> &B {
        &self.body
    }
}

/// An empty body that nobody watches: what a layer outside answers with in place of the service, such as tower-http's timeout.
impl<B: Default, J, G> Default for Watched<B, J, G> {
    fn default() -> Self {
        Self::bare(B::default())
    }
}

impl<B: Body, J: Judge, G: Guard> Watched<B, J, G> {
    /// A body that is watched. One that has already ended is settled at once.
    pub fn new(body: B, judge: J, guard: G) -> Self {
        let mut watch = Some((judge, guard));
        if body.is_end_stream() {
            settle(&mut watch, End::Clean(None));
        }
        Self { body, watch }
    }
}

fn settle<J: Judge, G: Guard>(watch: &mut Option<(J, G)>, end: End<'_>) {
    if let Some((judge, mut guard)) = watch.take() {
        guard.settle(judge.end(end));
    }
}

fn show<J: Judge, G: Guard>(watch: &mut Option<(J, G)>, data: &impl Buf) {
    let mut slices = [std::io::IoSlice::new(&[]); 16];
    let count = data.chunks_vectored(&mut slices);
    for slice in &slices[..count] {
        let Some((judge, guard)) = watch else { return };
        match judge.data(slice) {
            Seen::Nothing => {}
            Seen::Content => guard.content(),
            Seen::End(verdict) => {
                guard.settle(verdict);
                *watch = None;
            }
        }
    }
}

/// What is watched while the body inside is at work: if this is dropped meanwhile, that panicked.
struct Polling<'a, J, G: Guard> {
    watch: &'a mut Option<(J, G)>,
    panics: bool,
}

impl<J, G: Guard> Drop for Polling<'_, J, G> {
    fn drop(&mut self) {
        if self.panics {
            if let Some((_, mut guard)) = self.watch.take() {
                guard.settle(const { Verdict::of(Class::Unknown) });
            }
        }
    }
}

impl<B, J, G> Body for Watched<B, J, G>
where
    B: Body<Error: Into<BoxError>>,
    J: Judge,
    G: Guard,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        let mut this = self.project();
        let mut polling = Polling { watch: &mut *this.watch, panics: true };
        let polled = this.body.as_mut().poll_frame(cx);
        polling.panics = false;
        drop(polling);
        match ready!(polled) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    show(this.watch, data);
                    // Whoever knows the length may never poll again.
                    if this.body.is_end_stream() {
                        settle(this.watch, End::Clean(None));
                    }
                } else {
                    settle(this.watch, End::Clean(frame.trailers_ref()));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(err)) => {
                let err = err.into();
                settle(this.watch, End::Error(&*err));
                Poll::Ready(Some(Err(err)))
            }
            None => {
                settle(this.watch, End::Clean(None));
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: fmt::Debug, J, G> fmt::Debug for Watched<B, J, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("body", &self.body)
            .field("settled", &self.watch.is_none())
            .finish_non_exhaustive()
    }
}

impl<B, J> Watch<http::Response<B>> for J
where
    B: Body<Error: Into<BoxError>>,
    J: Judge,
{
    type Out<G: Guard> = http::Response<Watched<B, J, G>>;

    fn follow<G: Guard>(self, response: http::Response<B>, guard: G) -> Self::Out<G> {
        response.map(|body| Watched::new(body, self, guard))
    }

    fn bare<G: Guard>(response: http::Response<B>) -> Self::Out<G> {
        response.map(Watched::bare)
    }
}

/// A guard that calls a function with the verdict, or with [`Verdict::CANCELLED`] when it is dropped before.
pub struct GuardFn<F: FnOnce(Verdict) + Send + Sync + 'static>(Option<F>);

impl<F: FnOnce(Verdict) + Send + Sync + 'static> GuardFn<F> {
    /// Calls `settle` exactly once.
    pub const fn new(settle: F) -> Self {
        Self(Some(settle))
    }
}

impl<F: FnOnce(Verdict) + Send + Sync + 'static> Guard for GuardFn<F> {
    fn settle(&mut self, verdict: Verdict) {
        if let Some(settle) = self.0.take() {
            settle(verdict);
        }
    }
}

impl<F: FnOnce(Verdict) + Send + Sync + 'static> Drop for GuardFn<F> {
    fn drop(&mut self) {
        self.settle(Verdict::CANCELLED);
    }
}

impl<F: FnOnce(Verdict) + Send + Sync + 'static> fmt::Debug for GuardFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardFn").field(&self.0.is_some()).finish()
    }
}
