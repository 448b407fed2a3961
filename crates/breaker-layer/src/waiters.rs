//! Who waits for a circuit to admit calls again.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::Circuit;

/// The wakers of services that are pending while the circuit refuses. Woken by transitions, and by probes and last-resort
/// calls that come back, never by themselves.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Waiters {
    /// Waits under a key; a new one if there is none yet.
    pub(crate) fn wait(&self, key: &mut Option<u64>, cx: &Context<'_>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = *key.get_or_insert_with(|| {
            inner.next += 1;
            inner.next
        });
        inner.wakers.entry(key).or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
    }

    /// Waits no longer.
    pub(crate) fn forget(&self, key: u64) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).wakers.remove(&key);
        drop(waker);
    }

    /// Wakes all, outside of the lock.
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).wakers);
        wakers.into_values().for_each(Waker::wake);
    }
}

/// One service that may wait.
pub(crate) struct Wait {
    circuit: Circuit,
    key: Option<u64>,
    /// Until when there is nothing to wait for but a transition.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    pub(crate) fn new(circuit: Circuit) -> Self {
        Self { circuit, key: None, sleep: None }
    }

    /// From now on a transition wakes.
    pub(crate) fn listen(&mut self, cx: &Context<'_>) {
        self.circuit.shared().waiters().wait(&mut self.key, cx);
    }

    /// Ready when the open time, or the lease of the probes, is over.
    pub(crate) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.circuit.snapshot().time_left.and_then(|left| Instant::now().checked_add(left));
        // none: forced open
        let Some(deadline) = deadline else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    }

    /// Waits no longer.
    pub(crate) fn end(&mut self) {
        self.sleep = None;
        if let Some(key) = self.key.take() {
            self.circuit.shared().waiters().forget(key);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("waits", &self.key.is_some()).finish_non_exhaustive()
    }
}
