//! Who hears of transitions.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Listeners of one kind. They are never called under the lock, nor dropped under it.
pub(crate) struct Listeners<F: ?Sized>(Mutex<Inner<F>>);

struct Inner<F: ?Sized> {
    next: u64,
    all: Vec<(u64, Arc<F>)>,
}

impl<F: ?Sized> Default for Listeners<F> {
    fn default() -> Self {
        Self(Mutex::new(Inner { next: 0, all: Vec::new() }))
    }
}

impl<F: ?Sized> Listeners<F> {
    /// Under this number it can be removed.
    pub(crate) fn add(&self, listener: Arc<F>) -> u64 {
        let mut inner = self.lock();
        inner.next += 1;
        let id = inner.next;
        inner.all.push((id, listener));
        id
    }

    pub(crate) fn remove(&self, id: u64) {
        let mut inner = self.lock();
        let index = inner.all.iter().position(|(of, _)| *of == id);
        let removed = index.map(|index| inner.all.swap_remove(index));
        drop(inner);
        // what the listener owns drops outside of the lock
        drop(removed);
    }

    pub(crate) fn clear(&self) {
        let removed = std::mem::take(&mut self.lock().all);
        // as above
        drop(removed);
    }

    pub(crate) fn all(&self) -> Vec<Arc<F>> {
        self.lock().all.iter().map(|(_, listener)| Arc::clone(listener)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener of a circuit, or of all circuits of a keyed layer. Dropping it ends the listening.
#[must_use = "it listens until this is dropped; `forever` keeps it"]
pub struct Subscription(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Subscription {
    pub(crate) fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }

    /// Listens as long as the circuit lives.
    pub fn forever(mut self) {
        self.0 = None;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}
