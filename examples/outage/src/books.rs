//! What a provider writes down of its own traffic: the bill, request by request, in the name of the session that asked.

use crate::job::Step;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Books {
    requests: AtomicU64,
    open: AtomicUsize,
    entries: Mutex<Vec<Entry>>,
}

/// One request that was read, when it was over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) session: String,
    pub(crate) step: Step,
    /// Prompt and completion tokens, as far as they were produced.
    pub(crate) tokens: u64,
    pub(crate) ended: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client went away, or was cut off.
    Left,
    /// To its end, but without a word on what it cost.
    Untold,
    /// To its end, with the usage in it.
    Told,
    /// With an error status: nothing was produced.
    TurnedDown,
}

impl Books {
    /// The number of a request that was read just now.
    pub(crate) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests that are still being answered.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The open entry of one request. It is written into the books when it is dropped, with the answer or without.
#[derive(Debug)]
pub(crate) struct Tab {
    books: Arc<Books>,
    entry: Entry,
}

impl Tab {
    pub(crate) fn open(books: &Arc<Books>, session: &str, step: Step) -> Self {
        books.open.fetch_add(1, Ordering::AcqRel);
        let entry = Entry { session: session.to_owned(), step, tokens: 0, ended: Ended::Left };
        Self { books: Arc::clone(books), entry }
    }

    pub(crate) fn add(&mut self, tokens: u64) {
        self.entry.tokens += tokens;
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        self.entry.ended = ended;
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        self.books.entries.lock().unwrap_or_else(PoisonError::into_inner).push(self.entry.clone());
        self.books.open.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tab_is_written_down_when_it_is_gone_however_that_comes() {
        let books = Arc::<Books>::default();
        let mut tab = Tab::open(&books, "a", Step::Tool);
        tab.add(7);
        let other = Tab::open(&books, "b", Step::Plan);
        assert_eq!((books.open(), books.entries().len()), (2, 0));
        tab.end(Ended::Told);
        drop((tab, other));
        let entry =
            |session: &str, step, tokens, ended| Entry { session: session.into(), step, tokens, ended };
        let expected = [entry("a", Step::Tool, 7, Ended::Told), entry("b", Step::Plan, 0, Ended::Left)];
        assert_eq!((books.open(), books.entries()), (0, expected.to_vec()));
    }
}
