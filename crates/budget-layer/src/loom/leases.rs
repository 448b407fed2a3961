//! The same of calls that lease from a store: asking, arriving, expiring and settling at once.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use ::loom::{
    sync::{Mutex, Notify},
    thread,
};
use failsoft_core::BoxError;
use tokio::time::Instant;

use super::{ASK, Woken, model, parts, rules, settle, standing};
use crate::{
    Budget, Exchange, Grant, Leases, Ledger, Store, Unit,
    account::{Ask, Why, queue::Turn},
    leasing::{Need, Refusal, Shared, Sparing, Ticket},
    parts::{Parts, Place},
    window::Now,
};

const LASTS: Duration = Duration::from_secs(3_600);

/// One holder's store: it answers when it is polled again, and wakes whoever polls it first.
#[derive(Clone)]
struct One(Arc<Mutex<Kept>>);

#[derive(Clone, Copy, Debug)]
struct Kept {
    limit: u64,
    spent: u64,
    leased: u64,
    asked: u64,
    /// The next exchange fails, though it was heard.
    loses: bool,
}

impl Store for One {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        Yield(false).await;
        let mut kept = self.0.lock().unwrap();
        kept.asked += 1;
        assert!(exchange.number == kept.asked, "{} in its turn", exchange.number);
        assert!(exchange.spent >= kept.spent, "sums");
        kept.spent = exchange.spent;
        assert!(kept.spent + exchange.reserved <= kept.limit, "{exchange:?}");
        kept.leased =
            exchange.reserved.max((exchange.reserved + exchange.wants).min(kept.limit - kept.spent));
        if std::mem::take(&mut kept.loses) {
            return Err("lost".into());
        }
        Ok(Grant::new(kept.leased, LASTS, kept.limit, kept.spent))
    }
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl One {
    fn new(limit: u64) -> Self {
        Self(Arc::new(Mutex::new(Kept { limit, spent: 0, leased: 0, asked: 0, loses: false })))
    }

    fn budget(&self) -> Budget {
        let limit = self.kept().limit;
        let (mut rules, keys) = rules(Unit::Tokens, limit, 1_000_000);
        let leases = Leases::from(self.clone()).each(1).ask_again(Duration::ZERO);
        rules.shared = Some(Shared::new(leases, limit));
        Ledger::together(vec![(rules, keys)])[0].unkeyed().clone()
    }

    fn kept(&self) -> Kept {
        *self.0.lock().unwrap()
    }
}

/// A call as a [`Line`](crate::line::Line) makes it, up to where it is sent or denied.
struct Call {
    budget: Budget,
    parts: Parts,
    ticket: Ticket,
    woken: Arc<Woken>,
    refusal: Option<Refusal>,
}

impl Call {
    fn new(budget: &Budget, needs: u64) -> Self {
        let woken = Arc::new(Woken(Notify::new()));
        Self {
            budget: budget.clone(),
            parts: parts([budget], needs),
            ticket: Ticket::default(),
            woken,
            refusal: None,
        }
    }

    fn poll(&mut self) -> Poll<bool> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let (leasing, shared) = self.budget.leasing().unwrap();
        loop {
            if let Some((share, crossed)) = leasing.take(&mut self.ticket) {
                assert!(self.parts.take(&self.budget, share, crossed).is_none());
            }
            if !self.ticket.is_waiting() && self.parts.reserve(ASK, now()).is_ok() {
                return Poll::Ready(true);
            }
            let need = Need { why: Why::Hard, amount: self.parts.needed(&self.budget), ask: ASK };
            let cx = Context::from_waker(&waker);
            match leasing.poll((&self.budget, shared), need, &mut self.ticket, &cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {}
                Poll::Ready(Some(refusal)) => {
                    self.refusal = Some(refusal);
                    leasing.leave(&self.budget, &mut self.ticket);
                    return Poll::Ready(false);
                }
            }
        }
    }

    /// Whether it is sent. A model in which nobody wakes it ends here, and loom says so.
    fn wait(&mut self) -> bool {
        loop {
            if let Poll::Ready(sent) = self.poll() {
                return sent;
            }
            self.woken.0.wait();
        }
    }

    fn is_sent(mut self) {
        assert!(self.wait(), "{:?}, {:?}", self.refusal, self.budget);
    }

    fn hang_up(mut self) {
        let (leasing, _) = self.budget.leasing().unwrap();
        leasing.leave(&self.budget, &mut self.ticket);
        self.parts.release_all(now());
    }
}

fn now() -> Now {
    Now { at: Some(Instant::now()), ..Now::default() }
}

/// Tells the store what was spent.
fn tell(budget: &Budget, sparing: Sparing) {
    let woken = Arc::new(Woken(Notify::new()));
    let waker = Waker::from(Arc::clone(&woken));
    let (leasing, shared) = budget.leasing().unwrap();
    let mut telling = leasing.telling(sparing);
    while telling.poll(budget, shared, &Context::from_waker(&waker)).is_pending() {
        woken.0.wait();
    }
}

#[test]
fn loom_two_that_ask_at_once_are_both_served_and_the_store_is_asked_twice_at_most() {
    model(|| {
        let store = One::new(10);
        let budget = store.budget();
        let other = {
            let budget = budget.clone();
            thread::spawn(move || Call::new(&budget, 5).is_sent())
        };
        Call::new(&budget, 5).is_sent();
        other.join().unwrap();
        assert_eq!(standing(&budget), (0, 10));
        assert!(store.kept().leased == 10 && store.kept().asked <= 2, "{:?}", store.kept());
    });
}

#[test]
fn loom_where_there_is_enough_for_one_exactly_one_is_served_and_the_other_is_told() {
    model(|| {
        let store = One::new(7);
        let budget = store.budget();
        let other = {
            let budget = budget.clone();
            thread::spawn(move || Call::new(&budget, 5).wait())
        };
        let mine = Call::new(&budget, 5).wait();
        assert!(mine != other.join().unwrap(), "exactly one");
        assert_eq!(standing(&budget), (0, 5));
    });
}

#[test]
fn loom_who_hangs_up_while_it_hears_the_store_leaves_that_to_another() {
    model(|| {
        let store = One::new(20);
        let budget = store.budget();
        let other = {
            let budget = budget.clone();
            thread::spawn(move || Call::new(&budget, 5).is_sent())
        };
        let mut mine = Call::new(&budget, 5);
        let _ = mine.poll();
        mine.hang_up();
        other.join().unwrap();
        assert_eq!(standing(&budget), (0, 5), "what came for the one that has gone is given back");
    });
}

#[test]
fn loom_what_is_spent_while_a_lease_arrives_and_another_is_over_is_neither_lost_nor_spent_twice() {
    model(|| {
        let store = One::new(11);
        let budget = store.budget();
        let mut first = Call::new(&budget, 5);
        assert!(first.wait());
        let other = {
            let budget = budget.clone();
            thread::spawn(move || {
                let mut call = Call::new(&budget, 5);
                let sent = call.wait();
                if sent {
                    settle(&mut call.parts, 5);
                }
                sent
            })
        };
        let expiring = {
            let budget = budget.clone();
            thread::spawn(move || {
                let over = Instant::now() + 2 * LASTS;
                budget.lock().advance(budget.rules(), Now { at: Some(over), ..Now::default() });
            })
        };
        settle(&mut first.parts, 3);
        expiring.join().unwrap();
        assert!(other.join().unwrap(), "3 and 5 of 11");
        tell(&budget, Sparing::All);
        let kept = store.kept();
        assert_eq!((standing(&budget), kept.spent, kept.leased), ((8, 0), 8, 0));
    });
}

#[test]
fn loom_what_is_given_back_while_a_call_asks_is_not_lost_and_the_call_is_served() {
    model(|| {
        let store = One::new(10);
        let budget = store.budget();
        let giving = {
            let budget = budget.clone();
            thread::spawn(move || tell(&budget, Sparing::All))
        };
        let mut call = Call::new(&budget, 5);
        assert!(call.wait());
        giving.join().unwrap();
        settle(&mut call.parts, 4);
        tell(&budget, Sparing::All);
        let kept = store.kept();
        assert_eq!((standing(&budget), kept.spent, kept.leased), ((4, 0), 4, 0));
    });
}

#[test]
fn loom_an_answer_that_is_lost_ends_all_waits_and_no_more_is_spent_than_was_leased() {
    model(|| {
        let store = One::new(10);
        store.0.lock().unwrap().loses = true;
        let budget = store.budget();
        let other = {
            let budget = budget.clone();
            thread::spawn(move || Call::new(&budget, 5).wait())
        };
        let mine = Call::new(&budget, 5).wait();
        let sent = u64::from(mine) + u64::from(other.join().unwrap());
        assert_eq!(standing(&budget), (0, 5 * sent));
        tell(&budget, Sparing::All);
        assert_eq!(store.kept().leased, 5 * sent);
    });
}

#[test]
fn loom_who_stands_in_line_for_a_lease_has_it_before_whoever_comes_as_it_arrives() {
    model(|| {
        let store = One::new(5);
        let budget = store.budget();
        let mut first = parts([&budget], 5);
        let ask = Ask { turn: Turn(1), ..ASK };
        let place = Place { waker: Waker::noop(), most: 2, of_leases: true };
        assert!(first.reserve_or_wait(ask, now(), Some(place)).is_err_and(|(_, denied)| denied.waits));
        let later = {
            let budget = budget.clone();
            thread::spawn(move || {
                let mut later = parts([&budget], 5);
                later.reserve(ASK, now()).is_ok()
            })
        };
        let mut mine = Call::new(&budget, 5);
        let woken = Waker::from(Arc::clone(&mine.woken));
        let (leasing, shared) = budget.leasing().unwrap();
        let need = Need { why: Why::Hard, amount: 5, ask };
        let given = loop {
            if let Some(given) = leasing.take(&mut mine.ticket) {
                break given;
            }
            let cx = Context::from_waker(&woken);
            if leasing.poll((&budget, shared), need, &mut mine.ticket, &cx).is_pending() {
                mine.woken.0.wait();
            }
        };
        assert!(first.take(&budget, given.0, given.1).is_none());
        assert!(!later.join().unwrap());
        assert_eq!(standing(&budget), (0, 5));
    });
}
