//! What one call writes into a book.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use failsoft_core::{Attempted, Class, Usage};

use super::{Amounts, Book, Labels, Name, Part};
use crate::{Outcome, Price, account::MAX_CALL};

/// So many attempts of one call have their own rows; those that come then count with the last.
const MAX_ATTEMPTS: usize = 32;

/// One call that is to be booked.
pub(crate) struct Booking {
    book: Book,
    labels: Labels,
    heard: Mutex<Heard>,
}

/// What its attempts said.
#[derive(Debug, Default)]
struct Heard {
    attempts: Vec<Attempt>,
    is_settled: bool,
    /// On which route that was which came last after the settling.
    late: Option<Arc<str>>,
}

#[derive(Debug)]
struct Attempt {
    usage: Usage,
    route: Option<Arc<str>>,
    class: Option<Class>,
}

/// What a call was charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub(crate) outcome: Outcome,
    pub(crate) tokens: u64,
    /// In millionths; 0 without a price.
    pub(crate) money: u64,
    /// How much of that are the estimates of attempts that said nothing, and what one of them was estimated at.
    pub(crate) guessed: Guess,
    pub(crate) each: Guess,
}

/// An estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guess {
    pub(crate) tokens: u64,
    pub(crate) money: u64,
}

impl Guess {
    /// Takes what one is estimated at, as far as it is there.
    fn take(&mut self, each: Self) -> Self {
        let taken = Self { tokens: self.tokens.min(each.tokens), money: self.money.min(each.money) };
        (self.tokens, self.money) = (self.tokens - taken.tokens, self.money - taken.money);
        taken
    }
}

impl fmt::Debug for Booking {
    /// Without the labels: futures and bodies show this, and whose call it is may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Booking").field("book", &self.book).finish_non_exhaustive()
    }
}

impl Booking {
    pub(crate) fn new(book: &Book, labels: Labels) -> Self {
        Self { book: book.clone(), labels, heard: Mutex::default() }
    }

    pub(crate) fn attempted(&self, attempted: &Attempted<'_>) {
        let Attempted { usage, target, class, .. } = *attempted;
        let mut heard = self.heard();
        if heard.is_settled {
            heard.late = target.cloned();
        } else if heard.attempts.len() < MAX_ATTEMPTS {
            heard.attempts.push(Attempt { usage: *usage, route: target.cloned(), class });
        }
    }

    /// Each attempt in its row, and what is left of the sum in that of the last.
    pub(crate) fn settled(&self, total: Total, price: Option<&Price>) {
        let attempts = {
            let mut heard = self.heard();
            heard.is_settled = true;
            mem::take(&mut heard.attempts)
        };
        let last = last_of(&attempts, total.outcome);
        let (mut left, mut usage, mut guessed) = (total, Usage::default(), total.guessed);
        if last.and_then(|last| attempts.get(last)).is_none_or(|last| last.usage.is_unknown()) {
            // Its own estimate comes first.
            guessed.take(total.each);
        }
        let mut rows = self.book.lock();
        for (_, attempt) in attempts.iter().enumerate().filter(|(at, _)| Some(*at) != last) {
            let money_before = price.map_or(0, |price| price.of(&usage));
            usage += attempt.usage;
            // The differences of sums that are rounded up add up.
            let money = price.map_or(0, |price| price.of(&usage)) - money_before;
            let guess = if attempt.usage.is_unknown() { guessed.take(total.each) } else { Guess::default() };
            let money = money.saturating_add(guess.money).min(left.money);
            let tokens = attempt.usage.total().saturating_add(guess.tokens).min(left.tokens);
            (left.money, left.tokens) = (left.money - money, left.tokens - tokens);
            let (outcome, part) = match attempt.class {
                None | Some(Class::Cancelled) => (Outcome::Cancelled, Part::Overtaken),
                Some(Class::Success) => (Outcome::Success, Part::Overtaken),
                Some(class) => (class.into(), Part::Failed),
            };
            let estimated = guess.tokens;
            let amounts = Amounts { attempts: 1, tokens, estimated, money, ..told(&attempt.usage) };
            self.book.book(&mut rows, self.name(attempt.route.as_ref(), outcome, part), amounts);
        }
        let last = last.and_then(|last| attempts.get(last));
        let usage = last.map_or_else(Usage::default, |last| last.usage);
        let route = last.and_then(|last| last.route.as_ref());
        let (tokens, money) = (left.tokens, left.money);
        let estimated = tokens.saturating_sub(usage.total());
        let amounts = Amounts { calls: 1, attempts: 1, tokens, estimated, money, ..told(&usage) };
        self.book.book(&mut rows, self.name(route, total.outcome, Part::Last), amounts);
    }

    /// What came after that, less what had been estimated in its place.
    pub(crate) fn late(&self, outcome: Outcome, more: Guess, usage: &Usage) {
        let route = self.heard().late.take();
        let amounts = Amounts { tokens: more.tokens, money: more.money, ..told(usage) };
        self.book.book(&mut self.book.lock(), self.name(route.as_ref(), outcome, Part::Late), amounts);
    }

    fn name(&self, route: Option<&Arc<str>>, outcome: Outcome, part: Part) -> Name {
        let mut labels = self.labels.clone();
        if route.is_some() {
            labels.route = route.cloned();
        }
        Name { labels, outcome, part }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told(usage: &Usage) -> Amounts {
    // As what is charged is bounded: one claim of a peer's must not hide all that others used.
    let bounded = |tokens: u64| tokens.min(MAX_CALL);
    let (input, output) = (bounded(usage.total_input()), bounded(usage.total_output()));
    Amounts { input, output, ..Amounts::default() }
}

/// The attempt that the call ended with: of those that ended as it did, or did not say how, the one that ended last.
fn last_of(attempts: &[Attempt], outcome: Outcome) -> Option<usize> {
    let is_of = |attempt: &Attempt| attempt.class.map(Outcome::from) == Some(outcome);
    let did_not_say = |attempt: &Attempt| attempt.class.is_none();
    let at = attempts.iter().rposition(is_of).or_else(|| attempts.iter().rposition(did_not_say));
    at.or_else(|| attempts.len().checked_sub(1))
}
