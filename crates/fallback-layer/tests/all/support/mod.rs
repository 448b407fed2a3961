//! What the tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail by panicking")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use failsoft_core::{BoxError, Call, Class, Condition, Fault, FaultDetails, Health, Mark, Trail};
use tower::Service;

/// What a [`Target`] does when it is called.
#[derive(Clone, Copy, Debug)]
pub enum Does {
    Answer,
    Fail(Class),
    FailAfter(Duration, Class),
    FailWithAdvice(Class, Duration),
    Hang,
    AnswerAfter(Duration),
    NeverReady,
    FailReady,
    FailReadyOf(Class),
}

/// A service that does what it is told and panics when it is called unready or twice. It answers with its name.
#[derive(Debug)]
pub struct Target {
    pub name: &'static str,
    pub does: Arc<Mutex<Does>>,
    pub calls: Arc<AtomicU32>,
    /// Whether each call was marked as a last resort.
    pub last_resort: Arc<Mutex<Vec<bool>>>,
    ready: bool,
}

impl Target {
    pub fn new(name: &'static str, does: Does) -> Self {
        Self {
            name,
            does: Arc::new(Mutex::new(does)),
            calls: Arc::default(),
            last_resort: Arc::default(),
            ready: false,
        }
    }

    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    pub fn now(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }
}

impl Clone for Target {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            does: self.does.clone(),
            calls: self.calls.clone(),
            last_resort: self.last_resort.clone(),
            ready: false,
        }
    }
}

impl<Req> Service<Req> for Target {
    type Response = &'static str;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<&'static str, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match *self.does.lock().unwrap() {
            Does::NeverReady => Poll::Pending,
            Does::FailReady => Poll::Ready(Err("readiness failed".into())),
            Does::FailReadyOf(class) => Poll::Ready(Err(Fault::new(class, "test").into())),
            _ => {
                self.ready = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn call(&mut self, _: Req) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "{} was called unready", self.name);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.last_resort.lock().unwrap().push(Call::is_marked(Mark::LastResort));
        let (name, does) = (self.name, *self.does.lock().unwrap());
        Box::pin(async move {
            let fail = |class| Fault::new(class, "test").with_target(name);
            match does {
                Does::Fail(class) => Err(fail(class).into()),
                Does::FailAfter(after, class) => {
                    tokio::time::sleep(after).await;
                    Err(fail(class).into())
                }
                Does::FailWithAdvice(class, after) => Err(fail(class).with_retry_after(after).into()),
                Does::Hang => std::future::pending().await,
                Does::AnswerAfter(after) => {
                    tokio::time::sleep(after).await;
                    Ok(name)
                }
                Does::Answer | Does::NeverReady | Does::FailReady | Does::FailReadyOf(_) => Ok(name),
            }
        })
    }
}

/// A health that a test sets.
#[derive(Clone)]
pub struct Fit(Arc<Mutex<(Condition, Option<Duration>)>>);

impl Fit {
    pub fn new(condition: Condition, recovers_in: Option<u64>) -> Self {
        Self(Arc::new(Mutex::new((condition, recovers_in.map(Duration::from_secs)))))
    }

    pub fn poor(recovers_in: u64) -> Self {
        Self::new(Condition::Poor, Some(recovers_in))
    }

    pub fn poor_for(recovers_in: Duration) -> Self {
        Self(Arc::new(Mutex::new((Condition::Poor, Some(recovers_in)))))
    }

    pub fn now(&self, condition: Condition) {
        self.0.lock().unwrap().0 = condition;
    }
}

impl Health for Fit {
    fn condition(&self) -> Condition {
        self.0.lock().unwrap().0
    }

    fn recovers_in(&self) -> Option<Duration> {
        self.0.lock().unwrap().1
    }
}

pub fn fault(err: &BoxError) -> &FaultDetails {
    Fault::find(&**err).expect("a fault")
}

/// `a transient (next_route) > b success (answered)`.
pub fn told(trail: &Trail) -> String {
    trail.to_string()
}

/// Runs a call inside a `Call`, and gives the trail too.
pub async fn traced<F: Future>(future: F) -> (F::Output, String) {
    let call = Call::begin();
    let output = call.scope(future).await;
    (output, told(&call.trail()))
}
