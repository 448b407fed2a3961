//! One attempt on a route: how far it has come, and what came of it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use failsoft_core::{BoxError, Class, Fault, Verdict};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::LAYER;

pin_project! {
    /// How far an attempt has come.
    #[project = StageProj]
    pub(super) enum Stage<T, F, KF> {
        // Not asked yet, or becoming ready.
        Ready { service: T },
        Call { #[pin] future: F },
        // The answer is good so far, and read to its end.
        Keep { #[pin] future: KF },
        Over,
    }
}

/// What came of an attempt.
pub(super) enum Outcome<Res> {
    Response(Res),
    /// A response that was found to be a failure.
    Bad(Res, Verdict),
    Error(BoxError),
    /// Readiness failed; that service is used up.
    Unready(BoxError),
    NotReadyInTime,
    TimedOut,
    /// The body of an answer that was to be kept broke off.
    Cut(BoxError),
}

/// How far an attempt comes in a poll.
pub(super) enum Progress<Res, Out, KF> {
    Waits {
        called: bool,
    },
    Done(Outcome<Res>),
    /// The answer was good, and is read to its end to be kept.
    Later(KF),
    /// The answer was good, and was kept.
    Kept(Out),
}

/// Begins an attempt, and takes it as far as it goes at once: as [`drive`], but in line.
#[inline(always)]
pub(super) fn begin<T, Req, KF, Out>(
    mut stage: Pin<&mut Stage<T, T::Future, KF>>,
    request: &mut Option<Req>,
    cx: &mut Context<'_>,
) -> Progress<T::Response, Out, KF>
where
    T: Service<Req, Error: Into<BoxError>>,
{
    let StageProj::Ready { service } = stage.as_mut().project() else {
        return Progress::Waits { called: true };
    };
    match make_ready(service, request, cx) {
        Poll::Ready(Ok(future)) => stage.set(Stage::Call { future }),
        Poll::Ready(Err(error)) => return Progress::Done(Outcome::Unready(error)),
        Poll::Pending => return Progress::Waits { called: false },
    }
    let StageProj::Call { future } = stage.project() else { return Progress::Waits { called: true } };
    Progress::of(future.poll(cx))
}

/// Takes an attempt as far as it goes.
#[inline]
pub(super) fn drive<T, Req, KF, Out>(
    mut stage: Pin<&mut Stage<T, T::Future, KF>>,
    request: &mut Option<Req>,
    cx: &mut Context<'_>,
) -> Progress<T::Response, Out, KF>
where
    T: Service<Req, Error: Into<BoxError>>,
    KF: Future<Output = Result<Out, BoxError>>,
{
    loop {
        match stage.as_mut().project() {
            StageProj::Ready { service } => match make_ready(service, request, cx) {
                Poll::Ready(Ok(future)) => stage.set(Stage::Call { future }),
                Poll::Ready(Err(error)) => return Progress::Done(Outcome::Unready(error)),
                Poll::Pending => return Progress::Waits { called: false },
            },
            StageProj::Call { future } => return Progress::of(future.poll(cx)),
            StageProj::Keep { future } => {
                return match future.poll(cx) {
                    Poll::Ready(Ok(answer)) => Progress::Kept(answer),
                    Poll::Ready(Err(error)) => Progress::Done(Outcome::Cut(error)),
                    Poll::Pending => Progress::Waits { called: true },
                };
            }
            StageProj::Over => return Progress::Waits { called: true },
        }
    }
}

/// Readies a service and calls it.
#[inline]
fn make_ready<T, Req>(
    service: &mut T,
    request: &mut Option<Req>,
    cx: &mut Context<'_>,
) -> Poll<Result<T::Future, BoxError>>
where
    T: Service<Req, Error: Into<BoxError>>,
{
    ready!(service.poll_ready(cx)).map_err(Into::into)?;
    Poll::Ready(match request.take() {
        Some(request) => Ok(service.call(request)),
        None => Err(Fault::new(Class::Unknown, LAYER).with_message("the request was sent already").into()),
    })
}

impl<Res, Out, KF> Progress<Res, Out, KF> {
    #[inline]
    fn of<E: Into<BoxError>>(polled: Poll<Result<Res, E>>) -> Self {
        match polled {
            Poll::Ready(Ok(response)) => Self::Done(Outcome::Response(response)),
            Poll::Ready(Err(error)) => Self::Done(Outcome::Error(error.into())),
            Poll::Pending => Self::Waits { called: true },
        }
    }
}
