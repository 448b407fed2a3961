//! Calls that wait for a lease: first come, first served, in a number of steps that grows with theirs, and no longer than the store takes.

use std::{
    collections::VecDeque,
    future::{pending, poll_fn},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use crate::common::{Answer, Model, Step, of_session, request, session, usage};
use crate::processes::{Flaky, Future, How, LASTS, Process, SECOND, denial, process, with};
use budget_layer::{Allowance, BudgetLayer, Exchange, Grant, Leases, Reason, Store, StoreFailure, Window};
use failsoft_core::BoxError;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tokio::{sync::oneshot, time::advance};
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer as _, ServiceExt as _};

/// A store that answers when the test says so.
#[derive(Clone, Default)]
struct Steered(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    exchanges: VecDeque<(Exchange, oneshot::Sender<Result<Grant, BoxError>>)>,
    /// Of whoever polls it.
    waker: Option<Waker>,
}

impl Store for Steered {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        let (answer, mut answered) = oneshot::channel();
        self.0.lock().unwrap().exchanges.push_back((exchange, answer));
        poll_fn(|cx| {
            self.0.lock().unwrap().waker = Some(cx.waker().clone());
            std::pin::Pin::new(&mut answered).poll(cx)
        })
        .await?
    }
}

impl Steered {
    fn leases(&self, each: u64) -> Leases {
        Leases::from(self.clone()).each(each)
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().exchanges.len()
    }

    /// Wakes whoever polls it, and has nothing to say.
    fn speaks(&self) {
        self.0.lock().unwrap().waker.as_ref().unwrap().wake_by_ref();
    }

    /// Leases so much beyond what is reserved, or as much as is wanted.
    fn gives(&self, most: u64, limit: u64) -> Exchange {
        let (exchange, answer) = self.0.lock().unwrap().exchanges.pop_front().expect("it was asked");
        let leased = exchange.reserved + most.min(exchange.wants);
        let grant = Grant::new(leased, LASTS, limit, exchange.spent);
        // Whoever asked may be gone.
        let _ = answer.send(Ok(grant.renewing_in(Some(5 * SECOND))));
        exchange
    }
}

/// Polls each call once: they wait.
#[track_caller]
fn all_wait(calls: &mut [Future]) {
    calls.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
}

/// Polls whoever was woken until nobody is; which ones reached the model, in that order, and how many polls that took.
fn run(process: &Process, calls: &mut [Future]) -> (Vec<usize>, usize) {
    let (mut sent, mut polls) = (Vec::new(), 0);
    loop {
        let before = polls;
        for (at, call) in calls.iter_mut().enumerate() {
            if call.is_woken() {
                polls += 1;
                let waiting = process.model.waiting();
                // One that the model has answered is over.
                let _ = call.poll();
                if process.model.waiting() > waiting {
                    sent.push(at);
                }
            }
        }
        if polls == before {
            return (sent, polls);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_thousand_that_wait_for_one_lease_each_is_polled_twice_however_often_the_store_speaks() {
    const CALLS: usize = 2_000;
    let store = Steered::default();
    let one = process(store.leases(1), 1_000_000);
    let mut calls: Vec<_> = (0..CALLS).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    assert_eq!(store.gives(10, 1_000_000).needs, 10, "the first one's");
    // All others come into the next exchange.
    let (sent, first) = run(&one, &mut calls);
    assert_eq!(sent, [0]);
    let mut heard = 0;
    for _ in 0..100 {
        store.speaks();
        heard += run(&one, &mut calls).1;
    }
    assert_eq!(store.gives(u64::MAX, 1_000_000).needs, 10 * (CALLS as u64 - 1));
    let (sent, last) = run(&one, &mut calls);
    assert_eq!(sent, (1..CALLS).collect::<Vec<_>>(), "in the order in which they came");
    assert!(first + last <= 2 * CALLS + 100, "{first} and {last} polls");
    assert!(heard <= 100 * 20, "{heard} polls for 100 wake-ups");
    assert_eq!((one.budget().reserved(), store.asked()), (10 * CALLS as u64, 0));
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_while_the_store_has_nothing_to_say_wakes_nobody_and_is_not_asked_for() {
    let store = Steered::default();
    let one = process(store.leases(1), 100_000);
    let mut calls: Vec<_> = (0..1_000).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    let mut polls = 0;
    while calls.len() > 3 {
        calls.pop();
        polls += run(&one, &mut calls).1;
    }
    assert_eq!(polls, 0);
    assert_eq!(store.gives(10, 100_000).needs, 10);
    run(&one, &mut calls);
    assert_eq!(store.gives(u64::MAX, 100_000).needs, 20, "of those that are left");
    run(&one, &mut calls);
    assert_eq!((store.asked(), one.budget().reserved()), (0, 30));
}

#[tokio::test(start_paused = true)]
async fn what_was_leased_for_those_who_wait_nobody_takes_who_comes_then() {
    let store = Steered::default();
    let one = process(store.leases(1), 1_000);
    let mut calls: Vec<_> = (0..3).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    store.gives(10, 1_000);
    assert_pending!(calls[0].poll());
    assert_pending!(calls[1].poll());
    assert_eq!((one.model.waiting(), store.gives(20, 1_000).needs), (1, 20));
    // Whoever is polled hears it for both.
    assert_pending!(calls[2].poll());
    let mut newcomer = one.start(request());
    assert_pending!(newcomer.poll());
    assert_eq!((one.model.waiting(), store.asked()), (2, 1), "it is asked for");
    assert!(calls[1].is_woken());
    assert_pending!(calls[1].poll());
    assert_eq!(one.model.waiting(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_has_come_while_a_store_was_asked_that_had_not_enough_is_answered_with_that() {
    let store = Steered::default();
    let one = process(store.leases(1), 1_000);
    let mut calls: Vec<_> = (0..5).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    store.gives(0, 1_000);
    for call in calls.iter_mut().rev() {
        let err = assert_ready!(call.poll()).err().unwrap();
        assert_eq!(denial(&err).renews_in(), Some(5 * SECOND));
    }
    assert_eq!(store.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_there_is_not_enough_for_all_those_have_it_who_came_first_whoever_is_polled_first() {
    let store = Steered::default();
    let one = process(store.leases(1), 1_000);
    let mut first = one.start(request());
    assert_pending!(first.poll());
    let mut calls: Vec<_> = (0..6).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    store.gives(10, 1_000);
    assert_pending!(first.poll());
    assert_pending!(calls[5].poll());
    assert_eq!(store.gives(35, 1_000).needs, 60);
    let mut sent = Vec::new();
    for at in [5, 4, 3, 2, 1, 0] {
        assert!(calls[at].is_woken());
        match calls[at].poll() {
            Poll::Pending => sent.push(at),
            Poll::Ready(result) => {
                assert_eq!(denial(&result.err().unwrap()).renews_in(), Some(5 * SECOND));
            }
        }
    }
    assert_eq!((sent, one.model.waiting()), (vec![2, 1, 0], 4));
}

#[tokio::test(start_paused = true)]
async fn who_was_woken_to_hear_the_store_and_hangs_up_or_is_busy_keeps_nobody_waiting() {
    let store = Steered::default();
    let one = process(store.leases(1), 10_000);
    let mut calls: Vec<_> = (0..61).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    store.gives(10, 10_000);
    run(&one, &mut calls);
    assert_eq!((one.model.waiting(), store.asked()), (1, 1));
    let woken = |calls: &[Future]| calls.iter().filter(|call| call.is_woken()).count();
    store.speaks();
    let heard = woken(&calls);
    assert!((1..=20).contains(&heard), "{heard}");
    // All of them go.
    calls.drain(1..=heard);
    assert!((1..=20).contains(&woken(&calls)), "others hear it then");
    // These are busy with something else; when the store speaks again, all are woken.
    store.gives(u64::MAX, 10_000);
    let waiting = calls.len() - 1;
    assert_eq!(woken(&calls), waiting);
    assert_pending!(calls[waiting].poll());
    assert_eq!(one.model.waiting(), 2, "the last one hears it, for all, and waits for nobody");
}

#[tokio::test(start_paused = true)]
async fn an_exchange_for_which_nobody_waits_any_more_goes_when_its_time_is_over() {
    struct Held(Arc<AtomicU64>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    /// It holds a connection, and hangs.
    struct Hangs(Arc<AtomicU64>);
    impl Store for Hangs {
        async fn exchange(&self, _: Exchange) -> Result<Grant, BoxError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let _held = Held(Arc::clone(&self.0));
            pending().await
        }
    }
    let held = Arc::new(AtomicU64::new(0));
    let layer = BudgetLayer::builder()
        .key_fn(session)
        .store(Leases::from(Hangs(Arc::clone(&held))))
        .estimate_fixed(10)
        .build()
        .unwrap();
    let one = Process { layer, model: Model::new() };
    for id in 0..100 {
        assert_pending!(one.start(of_session(&id.to_string())).poll());
    }
    assert_eq!(held.load(Ordering::Relaxed), 100);
    advance(SECOND / 2).await;
    assert_eq!(held.load(Ordering::Relaxed), 100, "somebody may come yet");
    advance(SECOND).await;
    assert_eq!(held.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_keys_with_a_dead_store_wait_as_long_as_one_does_and_leave_nothing_behind() {
    let store = Flaky::new();
    store.now(How::Hangs);
    let layer = BudgetLayer::builder()
        .key_fn(session)
        .max_keys(100)
        .store(store.leases().timeout(SECOND))
        .estimate_fixed(10)
        .build()
        .unwrap();
    let one = Process { layer, model: Model::new() };
    let mut calls: Vec<_> = (0..1_000).map(|id| one.start(of_session(&id.to_string()))).collect();
    let mut denied = 0;
    for call in &mut calls {
        if let Poll::Ready(result) = call.poll() {
            // There is room for a hundred that wait.
            assert_eq!(denial(&result.err().unwrap()).reason(), Reason::KeysFull);
            denied += 1;
        }
    }
    assert_eq!((denied, store.asked()), (900, 100));
    advance(SECOND + Duration::from_millis(1)).await;
    for call in calls.iter_mut().take(100) {
        let err = assert_ready!(call.poll()).err().unwrap();
        assert_eq!(denial(&err).reason(), Reason::StoreFailed);
    }
    drop(calls);
    let before = store.asked();
    // Their places are free for others.
    store.now(How::Fails);
    for id in 1_000..2_000 {
        let err = one.call(of_session(&id.to_string()), 1).await.unwrap_err();
        assert_eq!(denial(&err).reason(), Reason::StoreFailed);
    }
    assert_eq!((store.asked() - before, one.layer.ledger().len()), (1_000, 100));
}

#[tokio::test(start_paused = true)]
async fn what_a_store_has_not_enough_of_in_one_budget_says_nothing_of_another() {
    let store = Flaky::new();
    let layer = BudgetLayer::builder()
        .name("small")
        .tokens(35)
        .store(store.leases().each(1))
        .also(Allowance::tokens(1_000).named("large").store(store.leases().each(1)))
        .estimate_fixed(10)
        .build()
        .unwrap();
    let one = Process { layer, model: Model::new() };
    // Those that wait for the first one's lease want more than there is of the small one. Two of them fit, and the large one has to be
    // asked for the last of them.
    let mut calls = [(); 4].map(|()| one.start(request()));
    let mut ready = 0;
    store.now(How::Slow);
    for round in 0..40 {
        for call in &mut calls {
            if round == 0 || call.is_woken() {
                ready += u64::from(call.poll().is_ready());
            }
        }
        advance(SECOND / 10).await;
    }
    assert_eq!((ready, one.model.waiting()), (1, 3));
    let small = one.layer.ledger().unkeyed();
    assert_eq!((small.reserved(), one.layer.ledgers()[1].unkeyed().reserved()), (30, 30));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_another_budget_denies_gives_back_what_came_for_it() {
    let store = Steered::default();
    let layer = BudgetLayer::builder()
        .tokens(1_000)
        .store(store.leases(1))
        .also(Allowance::calls(1).named("one").within(Window::sliding(60 * SECOND)))
        .estimate_fixed(10)
        .build()
        .unwrap();
    let one = Process { layer, model: Model::new() };
    let mut calls = [(); 3].map(|()| one.start(request()));
    all_wait(&mut calls);
    store.gives(10, 1_000);
    assert_pending!(calls[0].poll());
    assert_pending!(calls[1].poll());
    store.gives(u64::MAX, 1_000);
    let [_first, mut second, third] = calls;
    assert_eq!(denial(&assert_ready!(second.poll()).err().unwrap()).budget(), "one");
    // This one hangs up before it looks.
    assert_eq!(one.layer.ledger().unkeyed().reserved(), 20);
    drop(third);
    assert_eq!((one.layer.ledger().unkeyed().reserved(), one.model.waiting()), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn over_a_window_that_is_leased_callers_are_served_in_the_order_in_which_they_came() {
    let store = Flaky::new();
    let one = with(store.leases().each(1), |builder| {
        builder.tokens(30).within(Window::sliding(60 * SECOND)).wait(600 * SECOND)
    });
    let mut calls: Vec<_> = (0..10).map(|_| one.start(request())).collect();
    // Together they want far more than a window ever has.
    all_wait(&mut calls);
    let (mut sent, mut polls) = run(&one, &mut calls);
    sent.splice(0..0, 0..one.model.waiting() - sent.len());
    assert_eq!(sent, [0, 1, 2]);
    let mut newcomer = None;
    for second in 0..300 {
        advance(SECOND).await;
        if second == 10 {
            let mut call = one.start(request());
            assert_pending!(call.poll());
            newcomer = Some(call);
        }
        let (more, took) = run(&one, &mut calls);
        sent.extend(more);
        polls += took;
        if let Some(call) = newcomer.as_mut().filter(|call| call.is_woken()) {
            let waiting = one.model.waiting();
            let _ = call.poll();
            if one.model.waiting() > waiting {
                sent.push(99);
            }
        }
        while one.model.waiting() > 0 {
            drop(one.model.next());
        }
    }
    assert_eq!(sent, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99]);
    assert!(polls < 100, "{polls}");
    assert!(store.asked() < 60, "{}", store.asked());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_places_that_another_process_holds_is_served_when_it_gives_them_back() {
    let store = Flaky::new();
    let at_once = || with(store.leases().each(1), |builder| builder.concurrent(2).wait(60 * SECOND));
    let (one, other) = (at_once(), at_once());
    let mut held = [(); 2].map(|()| other.start(request()));
    all_wait(&mut held);
    let mut calls: Vec<_> = (0..3).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    advance(3 * SECOND).await;
    assert_eq!(run(&one, &mut calls).0, [] as [usize; 0]);
    drop(held);
    other.layer.ledger().give_back().await.unwrap();
    let mut sent = Vec::new();
    for _ in 0..20 {
        advance(SECOND).await;
        sent.extend(run(&one, &mut calls).0);
        if sent == [0, 1] {
            // The first hangs up, and the last one has its place.
            drop(calls.remove(0));
            sent.push(7);
        }
    }
    assert_eq!(sent, [0, 1, 7, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_the_closing_reserve_keeps_is_asked_for_once_and_not_by_each_call() {
    let store = Flaky::new();
    let one = with(store.leases(), |builder| builder.tokens(1_000).soft_line(1.0).closing_reserve(100));
    assert_eq!(one.calls(1_000).await, 90);
    let asked = store.asked();
    for _ in 0..50 {
        assert_eq!(denial(&one.call(request(), 1).await.unwrap_err()).reason(), Reason::UsedUp);
    }
    assert!(store.asked() <= asked + 1, "{asked} and then {}", store.asked());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_over_when_it_came_is_a_failure_and_is_not_asked_for_again_and_again() {
    struct Late(AtomicU64);
    impl Store for Late {
        async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Grant::new(exchange.reserved + exchange.wants, Duration::ZERO, exchange.limit, exchange.spent))
        }
    }
    for (policy, passed) in [(StoreFailure::Deny, 0), (StoreFailure::LocalCap(30), 3)] {
        let store = Arc::new(Late(AtomicU64::new(0)));
        let one = process(Leases::from(Shared(Arc::clone(&store))).on_failure(policy), 1_000);
        assert_eq!(one.calls(10).await, passed);
        let err = one.call(request(), 1).await.unwrap_err();
        assert_eq!(denial(&err).reason(), Reason::StoreFailed);
        assert_eq!(store.0.load(Ordering::Relaxed), 1);
    }
    struct Shared(Arc<Late>);
    impl Store for Shared {
        async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
            self.0.exchange(exchange).await
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_has_failed_for_all_that_wait() {
    #[derive(Clone)]
    struct Panics(Arc<AtomicU64>, Arc<Mutex<Option<oneshot::Receiver<()>>>>);
    impl Store for Panics {
        async fn exchange(&self, _: Exchange) -> Result<Grant, BoxError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let waits = self.1.lock().unwrap().take();
            let _ = waits.unwrap().await;
            panic!("a bug of the store's");
        }
    }
    let (go, waits) = oneshot::channel();
    let asked = Arc::new(AtomicU64::new(0));
    let one = process(Leases::from(Panics(Arc::clone(&asked), Arc::new(Mutex::new(Some(waits))))), 1_000);
    let mut calls = [(); 3].map(|()| one.start(request()));
    all_wait(&mut calls);
    go.send(()).unwrap();
    let [mut first, mut second, mut third] = calls;
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.poll().is_ready()));
    assert!(polled.is_err());
    for call in [&mut second, &mut third] {
        assert!(call.is_woken());
        let err = assert_ready!(call.poll()).err().unwrap();
        assert_eq!(denial(&err).reason(), Reason::StoreFailed);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    drop(first);
    assert_eq!(one.budget().reserved(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_whole_body_settles_what_was_reserved_while_it_waited() {
    let store = Steered::default();
    let one = process(store.leases(1), 1_000);
    let mut call = spawn(one.layer.layer(one.model.clone()).oneshot(request()));
    assert_pending!(call.poll());
    store.gives(u64::MAX, 1_000);
    assert_pending!(call.poll());
    let asked = one.model.next();
    let slot = asked.slot();
    asked.send(Ok(Answer::read(slot, [Step::Told(usage(1, 3))])));
    assert_ready!(call.poll()).unwrap().into_body().collect().await.unwrap();
    assert_eq!((one.budget().spent(), one.budget().reserved()), (4, 0));
}

/// Asks for one attempt more, as a retry further in does.
fn takes_attempt(call: &failsoft_core::Call) -> bool {
    call.enter(failsoft_core::Call::take_attempt).is_ok()
}

#[tokio::test(start_paused = true)]
async fn what_further_attempts_may_need_is_asked_for_ahead_and_each_finds_it_there() {
    let store = Flaky::new();
    let one = process(store.leases().each(1), 1_000);
    let mut call = one.start(request());
    assert_pending!(call.poll());
    let asked = one.model.next();
    let scope = asked.call.clone().unwrap();
    for attempt in 1..=5 {
        assert!(takes_attempt(&scope), "{attempt}");
        assert!(!takes_attempt(&scope), "it cannot wait, and the call was not polled since");
        // While that attempt is at work.
        assert_pending!(call.poll());
    }
    assert_eq!((one.budget().reserved(), store.asked()), (60, 6));
    drop((call, scope, asked));
    assert_eq!(one.budget().reserved(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_many_calls_that_fail_at_once_a_fifth_may_be_made_again() {
    let store = Flaky::new();
    let one = process(store.leases().each(1), 10_000);
    let mut calls: Vec<_> = (0..100).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    // What is asked for ahead has come.
    all_wait(&mut calls);
    let asked: Vec<_> = (0..100).map(|_| one.model.next()).collect();
    let again = || asked.iter().filter(|asked| takes_attempt(asked.call.as_ref().unwrap())).count();
    let first = again();
    assert!((20..=24).contains(&first), "{first}");
    all_wait(&mut calls);
    let second = again();
    assert!(second >= 20, "{second}");
}

#[tokio::test(start_paused = true)]
async fn who_asks_ahead_hears_the_store_though_nobody_else_waits_and_hangs_up_without_harm() {
    let store = Steered::default();
    let one = process(store.leases(1), 1_000);
    let mut call = one.start(request());
    assert_pending!(call.poll());
    assert_eq!(store.gives(u64::MAX, 1_000).wants, 20, "and as much for an attempt more");
    assert_pending!(call.poll());
    let asked = one.model.next();
    let scope = asked.call.clone().unwrap();
    assert!(takes_attempt(&scope));
    assert_pending!(call.poll());
    let ahead = store.gives(u64::MAX, 1_000);
    assert_eq!((ahead.reserved, ahead.needs, ahead.wants), (20, 0, 10));
    assert!(call.is_woken());
    assert!(!takes_attempt(&scope), "nobody has heard it");
    assert_pending!(call.poll());
    assert!(takes_attempt(&scope));
    // The next is asked for when the call is over.
    assert_pending!(call.poll());
    drop((call, scope, asked));
    store.gives(u64::MAX, 1_000);
    let mut other = one.start(request());
    assert_pending!(other.poll());
    assert_eq!((one.model.waiting(), one.budget().reserved()), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_ahead_that_is_not_there_or_was_given_back_nor_of_a_store_that_fails() {
    // All that there is.
    let store = Flaky::new();
    let (one, other) = (process(store.leases().each(1), 60), process(store.leases().each(20), 60));
    let mut theirs = other.start(request());
    assert_pending!(theirs.poll());
    let mut calls: Vec<_> = (0..3).map(|_| one.start(request())).collect();
    all_wait(&mut calls);
    let asked = store.asked();
    for _ in 0..20 {
        all_wait(&mut calls);
    }
    assert!(store.asked() <= asked + 1, "{} and {asked}", store.asked());
    advance(SECOND).await;
    all_wait(&mut calls);
    all_wait(&mut calls);
    assert!(store.asked() <= asked + 2, "{} and {asked}", store.asked());

    // Given back, before a process ends.
    let store = Flaky::new();
    let one = process(store.leases().each(1), 1_000);
    let mut call = one.start(request());
    assert_pending!(call.poll());
    one.layer.ledger().give_back().await.unwrap();
    let asked = store.asked();
    assert_pending!(call.poll());
    assert_eq!(store.asked(), asked);

    // A store that fails.
    let mut next = one.start(request());
    assert_pending!(next.poll());
    let asked_model = [one.model.next(), one.model.next()];
    let scopes = [0, 1].map(|at: usize| asked_model[at].call.clone().unwrap());
    store.now(How::Fails);
    assert!(takes_attempt(&scopes[0]));
    let asked = store.asked();
    for _ in 0..20 {
        assert_pending!(next.poll());
        assert_pending!(call.poll());
    }
    assert_eq!(store.asked(), asked + 1);
    store.now(How::Answers);
    advance(SECOND).await;
    assert_pending!(next.poll());
    assert!(takes_attempt(&scopes[1]));
}

/// A store that may say anything.
#[derive(Clone)]
struct Hostile(Arc<Mutex<(VecDeque<Said>, u64)>>);

#[derive(Clone, Copy, Debug)]
struct Said {
    leased: u64,
    lasts: Duration,
    limit: u64,
    committed: u64,
    renews_in: Option<Duration>,
    after: Duration,
    fails: bool,
}

impl Store for Hostile {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        let said = {
            let mut said = self.0.lock().unwrap();
            said.1 += 1;
            let next = said.0.pop_front().unwrap();
            said.0.push_back(next);
            next
        };
        assert!(exchange.told <= exchange.spent);
        if !said.after.is_zero() {
            tokio::time::sleep(said.after).await;
        }
        if said.fails {
            return Err("down".into());
        }
        Ok(Grant::new(said.leased, said.lasts, said.limit, said.committed).renewing_in(said.renews_in))
    }
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX / 2), 1..200_u64]
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), Just(Duration::MAX), (0..3_000_u64).prop_map(Duration::from_millis)]
}

fn said() -> impl Strategy<Value = Said> {
    let after = prop_oneof![3 => Just(Duration::ZERO), 1 => (0..2_000_u64).prop_map(Duration::from_millis)];
    let rest = (proptest::option::of(span()), after, prop::bool::weighted(0.2));
    (amount(), span(), amount(), amount(), rest).prop_map(
        |(leased, lasts, limit, committed, (renews_in, after, fails))| Said {
            leased,
            lasts,
            limit,
            committed,
            renews_in,
            after,
            fails,
        },
    )
}

/// What calls there are end all the same, after so many exchanges and no more, and nothing is left reserved.
async fn survives(said: Vec<Said>, waits: bool, ask_again: Duration, window: bool) {
    let store = Hostile(Arc::new(Mutex::new((said.into(), 0))));
    let leases =
        Leases::from(store.clone()).each(5).ask_again(ask_again).on_failure(StoreFailure::LocalCap(7));
    let one = with(leases, |builder| {
        let builder = builder.tokens(100).closing_reserve(5);
        let builder = if window { builder.within(Window::sliding(2 * SECOND)) } else { builder };
        if waits { builder.wait(5 * SECOND) } else { builder }
    });
    let began = tokio::time::Instant::now();
    let mut calls: Vec<_> = (0..12).map(|_| one.start(request())).collect();
    for round in 0..700 {
        calls.retain_mut(|call| !((round == 0 || call.is_woken()) && call.poll().is_ready()));
        while one.model.waiting() > 0 {
            let asked = one.model.next();
            // It may have an attempt more or not; then its connection is lost.
            let _ = takes_attempt(asked.call.as_ref().unwrap());
        }
        if calls.is_empty() {
            break;
        }
        advance(Duration::from_millis(10)).await;
    }
    assert!(calls.is_empty(), "{} after {:?}", calls.len(), began.elapsed());
    // Each of 12 calls asks 16 times at most for what it needs, or again each time that it may; a wait of 5 s is 5 000 ms.
    let asked = store.0.lock().unwrap().1;
    assert!(asked <= 12 * 16 + 5_000, "{asked}");
    assert_eq!((one.budget().reserved(), one.budget().waiting()), (0, 0));
    let _ = one.layer.ledger().give_back().await;
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_store_says_all_calls_end_and_nothing_is_left_reserved(
        said in prop::collection::vec(said(), 1..6),
        waits: bool,
        window: bool,
        ask_again in prop_oneof![Just(Duration::ZERO), Just(SECOND), Just(Duration::MAX)],
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(survives(said, waits, ask_again, window));
    }
}
