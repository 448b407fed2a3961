use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::tape::{Read, Tape};
use crate::BoxError;

/// A request's body in one attempt, of which others may read the same: what [`Buffered`](super::Buffered) sends.
///
/// It reads the original as its reader asks, and holds nothing back. Size hint and end of stream are the original's; its
/// error becomes a [`BoxError`] and is otherwise passed on as it is.
pub struct ReplayBody<B> {
    shared: Arc<Shared<B>>,
    id: u64,
}

/// What is kept of a body, so that further attempts can read it. Dropped, the recording goes as soon as it is read.
pub(super) struct KeptBody<B>(Arc<Shared<B>>);

struct Shared<B> {
    tape: Mutex<Tape<B>>,
    /// Of all readers that wait: whoever is the foremost when the original goes on may be gone by then.
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting(Mutex<Vec<(u64, Waker)>>);

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> KeptBody<B> {
    /// With the body for the first attempt.
    pub(super) fn new(body: B, cap: usize) -> (Self, ReplayBody<B>) {
        let (tape, id) = Tape::new(body, cap);
        let shared = Arc::new(Shared { tape: Mutex::new(tape), waiting: Arc::default() });
        (Self(Arc::clone(&shared)), ReplayBody { shared, id })
    }
}

impl<B> KeptBody<B> {
    /// The body for one more attempt; `None` when it cannot be read from its beginning any more.
    pub(super) fn read(&self) -> Option<ReplayBody<B>> {
        let id = self.0.tape().add_reader()?;
        Some(ReplayBody { shared: Arc::clone(&self.0), id })
    }
}

impl<B> Drop for KeptBody<B> {
    fn drop(&mut self) {
        self.0.tape().release();
        self.0.waiting.wake_all();
    }
}

impl<B> Shared<B> {
    fn tape(&self) -> MutexGuard<'_, Tape<B>> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ReplayBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Shared { tape, waiting } = &*self.shared;
        // Before the original is asked: it may go on between its answer and the next line.
        waiting.add(self.id, cx.waker());
        let waker = Waker::from(Arc::clone(waiting));
        let mut tape = tape.lock().unwrap_or_else(PoisonError::into_inner);
        let read = ready!(tape.read(self.id, &mut Context::from_waker(&waker)));
        let others = tape.has_others();
        drop(tape);
        if matches!(read, Read::Wait) {
            return Poll::Pending;
        }
        waiting.remove(self.id);
        if others {
            waiting.wake_all();
        }
        Poll::Ready(match read {
            Read::Frame(frame) => Some(Ok(frame)),
            Read::Error(error) => Some(Err(error)),
            Read::End | Read::Wait => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.shared.tape().is_end_stream(self.id)
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.tape().size_hint(self.id)
    }
}

impl<B> Drop for ReplayBody<B> {
    fn drop(&mut self) {
        self.shared.tape().remove_reader(self.id);
        self.shared.waiting.remove(self.id);
        self.shared.waiting.wake_all();
    }
}

impl<B> fmt::Debug for ReplayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody").field("attempt", &self.id).finish_non_exhaustive()
    }
}

impl Waiting {
    fn with<T>(&self, f: impl FnOnce(&mut Vec<(u64, Waker)>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, id: u64, waker: &Waker) {
        self.with(|waiting| match waiting.iter_mut().find(|(of, _)| *of == id) {
            Some((_, old)) => old.clone_from(waker),
            None => waiting.push((id, waker.clone())),
        });
    }

    fn remove(&self, id: u64) {
        self.with(|waiting| waiting.retain(|(of, _)| *of != id));
    }

    fn wake_all(&self) {
        for (_, waker) in self.with(std::mem::take) {
            waker.wake();
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
