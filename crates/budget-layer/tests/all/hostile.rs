//! What callers, peers, stores and those who save states may do to a budget, and must not get by it.

use std::{
    cell::Cell,
    future::{pending, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use budget_layer::{
    Allowance, Book, BudgetLayer, Denial, Exchange, Filter, FromRequest, Grant, Labels, Learned, Leases,
    MemoryStore, Price, Store, StoreFailure, Window,
};
use failsoft_core::{BoxError, Call, ErrorsOnly, Usage};
use tokio::time::{advance, sleep};
use tokio_test::task::spawn;
use tower::{Layer as _, Service as _, ServiceExt as _};

thread_local! {
    static DOWN: Cell<bool> = const { Cell::new(false) };
}

const SECOND: Duration = Duration::from_secs(1);

/// Calls through a layer, each of which counts for its estimate.
macro_rules! call {
    ($layer:expr, $request:expr) => {
        $layer.layer(tower::service_fn(|_: &'static str| async { Ok::<_, BoxError>(()) })).oneshot($request)
    };
}

/// A store that fails for some keys, or for all, and remembers what it was asked.
#[derive(Clone)]
struct Odd {
    store: MemoryStore,
    fails: fn(Option<&str>) -> bool,
    asked: Arc<Mutex<Vec<Exchange>>>,
}

impl Odd {
    fn new(fails: fn(Option<&str>) -> bool) -> Self {
        Self { store: MemoryStore::new(), fails, asked: Arc::default() }
    }
}

impl Store for Odd {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        self.asked.lock().unwrap().push(exchange.clone());
        if (self.fails)(exchange.key.as_deref()) {
            Err("down".into())
        } else {
            self.store.exchange(exchange).await
        }
    }
}

// Each answer to one key ended the outage of all, and the next failure began another, with all that the policy allows.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_one_key_only_gives_that_one_no_second_grace() {
    for policy in [StoreFailure::LocalCap(50), StoreFailure::Allow(5 * SECOND)] {
        let store = Odd::new(|key| key == Some("bad"));
        let layer = BudgetLayer::builder()
            .tokens(100_000)
            .key_fn(|session: &&'static str| (*session).to_owned())
            .store(Leases::from(store).each(10).on_failure(policy))
            .estimate_fixed(10)
            .classify(ErrorsOnly)
            .build()
            .unwrap();
        let mut passed = 0;
        for _ in 0..50 {
            for _ in 0..2 {
                call!(layer, "good").await.unwrap();
            }
            passed += u64::from(call!(layer, "bad").await.is_ok());
            advance(SECOND).await;
        }
        assert_eq!(passed, 5, "{policy:?}");
    }
}

// What the policy allowed counted as leased and not used, and was asked for again: all that there is, which nobody else could have then.
#[tokio::test(start_paused = true)]
async fn after_an_outage_nobody_leases_what_the_policy_let_pass() {
    for policy in [StoreFailure::LocalCap(50_000), StoreFailure::Allow(60 * SECOND)] {
        let store = Odd::new(|_| false);
        let process = |fails| {
            let leases = Leases::from(Odd { fails, ..store.clone() }).each(100).on_failure(policy);
            let builder = BudgetLayer::builder().tokens(100_000).store(leases).estimate_fixed(10);
            builder.classify(ErrorsOnly).build().unwrap()
        };
        // The first exchange fails, and those that follow do not.
        let (one, other) = (process(|_| DOWN.with(Cell::take)), process(|_| false));
        DOWN.set(true);
        call!(one, "x").await.unwrap();
        one.ledger().write_back().await.unwrap();
        let asked = store.asked.lock().unwrap().last().map(|exchange| (exchange.spent, exchange.wants));
        assert_eq!(asked, Some((10, 100)), "{policy:?}");
        call!(other, "x").await.unwrap();
    }
}

// They counted as spent, for ever: a budget of two calls at once let nobody through after a restart.
#[tokio::test(start_paused = true)]
async fn calls_that_ran_when_the_state_was_saved_hold_no_place_among_the_calls_at_once_after_a_restart() {
    let process = || {
        let builder = BudgetLayer::builder().concurrent(2).also(Allowance::tokens(100));
        builder.estimate_fixed(10).classify(ErrorsOnly).build().unwrap()
    };
    let (before, after) = (process(), process());
    let mut running = [before.clone(), before.clone()].map(|layer| {
        spawn(layer.layer(tower::service_fn(|_: &str| pending::<Result<(), BoxError>>())).oneshot("x"))
    });
    running.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    for (before, after) in before.ledgers().iter().zip(after.ledgers()) {
        after.load(&before.save()).unwrap();
    }
    let left: Vec<_> = after.ledgers().iter().map(|ledger| ledger.unkeyed().remaining()).collect();
    assert_eq!(left, [2, 80]);
}

// The budgets before it were charged the estimate of a call that was never sent.
#[test]
fn a_key_function_that_panics_charges_nobody() {
    let layer = BudgetLayer::builder()
        .tokens(1_000)
        .also(Allowance::calls(10).key_fn(|request: &&'static str| {
            assert_ne!(*request, "bad", "no key");
            (*request).to_owned()
        }))
        .estimate_fixed(10)
        .classify(ErrorsOnly)
        .build()
        .unwrap();
    for _ in 0..3 {
        let mut called = spawn(call!(layer, "bad"));
        assert!(catch_unwind(AssertUnwindSafe(|| called.poll())).is_err());
    }
    let budget = layer.ledger().unkeyed();
    assert_eq!((budget.spent(), budget.reserved(), budget.spend().calls()), (0, 0, 0));
    assert!(spawn(call!(layer, "good")).poll().is_ready());
    assert_eq!((budget.spent(), budget.spend().calls()), (10, 1));
}

// The budget was charged what a call may count for at most, and the book and the metrics what was claimed: no sum of the book told anything
// any more, and counters went backwards.
#[test]
fn what_a_peer_claims_to_have_used_is_bounded_in_the_book_as_in_the_budget() {
    let book = Book::new();
    let layer = BudgetLayer::builder()
        .tokens(u64::MAX)
        .price(Price::new(1_000_000, 1_000_000))
        .also(Allowance::money(u64::MAX))
        .estimate_fixed(10)
        .book(book.clone(), |_: &u64| Labels::new())
        .classify(ErrorsOnly)
        .build()
        .unwrap();
    let calls = Arc::<Mutex<Option<Call>>>::default();
    let usage = |used| Usage { input: Some(used), output: Some(used), ..Usage::default() };
    let model = {
        let calls = Arc::clone(&calls);
        tower::service_fn(move |used: u64| {
            Call::slot().unwrap().set(&usage(used));
            *calls.lock().unwrap() = Call::current();
            ready(Ok::<_, BoxError>(()))
        })
    };
    for used in [u64::MAX, u64::MAX / 2, 5] {
        assert!(spawn(layer.layer(model.clone()).oneshot(used)).poll().is_ready());
        let call = calls.lock().unwrap().take().unwrap();
        // And late.
        call.enter(|| Call::slot().unwrap().set(&usage(used)));
    }
    let sum = book.sum(&Filter::all());
    let [tokens, money] = [0, 1].map(|at: usize| layer.ledgers()[at].unkeyed().spent());
    assert_eq!((sum.tokens, sum.money), (tokens, money));
    assert!(sum.tokens < 1 << 50 && sum.input < 1 << 50 && sum.output < 1 << 50, "{sum:?}");
}

// The scope that a thread keeps for its next call kept the budget of the last one, and with it the store, its connections and all.
#[tokio::test(start_paused = true)]
async fn a_store_goes_with_its_layers_though_the_threads_that_called_them_live_on() {
    let store = Odd::new(|_| false);
    let asked = Arc::downgrade(&store.asked);
    let leases = Leases::from(store);
    let builder = BudgetLayer::builder().store(leases).also(Allowance::calls(10)).estimate_fixed(10);
    let layer = builder.classify(ErrorsOnly).build().unwrap();
    call!(layer, "x").await.unwrap();
    drop(layer);
    assert!(asked.upgrade().is_none());
}

// Rows were bounded, and their names were not: ten thousand made-up models of a megabyte each stayed for ever.
#[test]
fn a_name_that_a_caller_makes_up_is_kept_no_longer_than_a_name_is_and_found_by_the_whole_of_it() {
    let book = Book::new();
    let model = |request: &&'static str| request.repeat(100_000);
    let builder = BudgetLayer::builder()
        .estimate_fixed(10)
        .book(book.clone(), move |request| Labels::new().model(model(request)));
    let layer = builder.classify(ErrorsOnly).build().unwrap();
    for name in ["long", "€a", "€a", "long"] {
        assert!(spawn(call!(layer, name)).poll().is_ready());
    }
    let rows = book.rows(&Filter::all());
    let long = rows.iter().map(|row| row.labels.model.as_ref().map_or(0, |model| model.len()));
    assert_eq!(long.collect::<Vec<_>>(), [256, 255]);
    assert_eq!(book.sum(&Filter::all().model(model(&"€a"))).calls, 2);
    assert_eq!(book.take(&Filter::all().model(model(&"long"))).len(), 1);
    book.add(&rows[0]);
    assert_eq!(book.rows(&Filter::all()), rows);
    // Two that begin alike stay two.
    let token = |end| book.sum(&Filter::all().model(model(&"long") + end)).calls;
    assert_eq!([token(""), token("x")], [2, 0]);
}

// A denial added a second to the longest time there is, which panicked; and a lease without an end was none.
#[tokio::test(start_paused = true)]
async fn times_without_an_end_are_long_and_nothing_else() {
    let layer = |leases: Leases| {
        let builder = BudgetLayer::builder().tokens(100).store(leases.each(10)).estimate_fixed(10);
        builder.classify(ErrorsOnly).build().unwrap()
    };
    for lasts in [Duration::MAX, Duration::from_secs(u64::MAX / 4)] {
        let own = layer(Leases::from(For(lasts)));
        call!(own, "x").await.unwrap();
        call!(layer(Leases::from(MemoryStore::lasting(lasts))), "x").await.unwrap();
        let denied = call!(layer(Leases::from(Never(lasts))), "x").await.unwrap_err();
        assert_eq!(Denial::find(&*denied).unwrap().renews_in(), Some(lasts));
        let fails = layer(Leases::from(Odd::new(|_| true)).ask_again(lasts));
        for _ in 0..2 {
            assert!(call!(fails, "x").await.unwrap_err().to_string().contains("store"));
        }
    }
}

/// Leases a little, for so long.
struct For(Duration);

impl Store for For {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        Ok(Grant::new(exchange.reserved + exchange.needs, self.0, exchange.limit, 0))
    }
}

/// Leases nothing, and says when there may be something.
struct Never(Duration);

impl Store for Never {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        Ok(Grant::new(0, SECOND, exchange.limit, exchange.limit).renewing_in(Some(self.0)))
    }
}

// The steps of a short window did not fit any more after a day and a half: its denials were for good, and nobody waited.
#[tokio::test(start_paused = true)]
async fn a_short_window_renews_and_is_waited_for_after_however_many_steps() {
    let window = Window::sliding(Duration::from_millis(1));
    let builder = BudgetLayer::builder().tokens(10).within(window).wait(SECOND).estimate_fixed(10);
    let layer = builder.classify(ErrorsOnly).build().unwrap();
    call!(layer, "x").await.unwrap();
    for days in [2, 10_000] {
        advance(days * 24 * 3_600 * SECOND).await;
        for _ in 0..3 {
            call!(layer, "x").await.unwrap();
        }
        assert!(layer.budget().renews_in().is_some_and(|renews_in| renews_in < SECOND), "{days}");
    }
}

// A write-back that came while an exchange ran took the place of giving all back: a process ended with what it had leased.
#[tokio::test(start_paused = true)]
async fn a_process_that_ends_gives_all_back_though_something_else_writes_back_now_and_then() {
    let store = Slow(MemoryStore::new());
    let process = || {
        let leases = Leases::from(store.clone()).each(90);
        let builder = BudgetLayer::builder().tokens(100).store(leases).estimate_fixed(10);
        builder.classify(ErrorsOnly).build().unwrap()
    };
    let (one, other) = (process(), process());
    call!(one, "x").await.unwrap();
    let mut running = spawn(one.ledger().write_back());
    assert!(running.poll().is_pending());
    call!(one, "x").await.unwrap();
    let (given_back, written_back) = tokio::join!(one.ledger().give_back(), one.ledger().write_back());
    given_back.and(written_back).unwrap();
    for _ in 0..8 {
        call!(other, "x").await.unwrap();
    }
}

/// Takes half a second.
#[derive(Clone)]
struct Slow(MemoryStore);

impl Store for Slow {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        sleep(SECOND / 2).await;
        self.0.exchange(exchange).await
    }
}

// The tokens of one counted as calls of the other, or each call twice: two allowances of tokens are both called so, unless they are named.
#[tokio::test(start_paused = true)]
async fn two_budgets_of_one_name_do_not_spend_from_one_in_the_store() {
    let store = MemoryStore::new();
    let leases = || Leases::from(store.clone()).each(10);
    let within = |days: u32| {
        Allowance::tokens(100).within(Window::sliding(days * 24 * 3_600 * SECOND)).store(leases())
    };
    let err = BudgetLayer::builder().also(within(1)).also(within(30)).build().unwrap_err();
    assert!(err.to_string().contains("tokens") && err.to_string().contains("name"), "{err}");
    BudgetLayer::builder().also(within(1)).also(within(30).named("month")).build().unwrap();
    // In layers apart.
    let layer = |allowance: Allowance| {
        let builder = BudgetLayer::builder().also(allowance.named("all").store(leases())).estimate_fixed(100);
        builder.classify(ErrorsOnly).build().unwrap()
    };
    let (tokens, calls) = (layer(Allowance::tokens(1_000)), layer(Allowance::calls(10)));
    for _ in 0..10 {
        call!(tokens, "x").await.unwrap();
        call!(calls, "x").await.unwrap();
    }
    assert_eq!(store.len(), 2);
}

// A pause that was over held its key for ever: once there were as many such keys as there is room for, no other was let in.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_paused_once_makes_room_when_the_pause_and_all_that_was_spent_lately_are_over() {
    let minute = 60 * SECOND;
    let builder = BudgetLayer::builder().tokens(1_000).within(Window::sliding(minute)).max_keys(1);
    let builder =
        builder.pause_above(15, 30 * minute, 10 * minute).key_fn(|key: &&'static str| (*key).to_owned());
    let layer = builder.estimate_fixed(10).classify(ErrorsOnly).build().unwrap();
    for _ in 0..2 {
        call!(layer, "a").await.unwrap();
    }
    for (wait, why) in [(0, "paused"), (9, "paused"), (20, "it was spent lately")] {
        advance(wait * minute).await;
        assert!(call!(layer, "b").await.is_err(), "{why}");
    }
    advance(3 * minute).await;
    call!(layer, "b").await.unwrap();
    assert!(layer.ledger().budget("a").is_none());
}

// After some answers of a single token, calls were admitted as if they could cost no more, a thousand times what there was.
#[test]
fn who_teaches_that_answers_are_short_gets_no_more_calls_in_at_once_than_ten_times_as_many() {
    let body = r#"{"model": "m"}"#;
    let admitted = |answers: u64| {
        let learned = Learned::new();
        (0..answers).for_each(|_| learned.of("m").learn(1));
        let layer = BudgetLayer::builder()
            .tokens(100_000)
            .estimator(FromRequest::new().learned(learned))
            .classify(ErrorsOnly)
            .build()
            .unwrap();
        let model = tower::service_fn(|_: http::Request<String>| pending::<Result<(), BoxError>>());
        let mut calls: Vec<_> = (0..2_000)
            .map(|_| spawn(layer.layer(model).oneshot(http::Request::new(body.to_owned()))))
            .collect();
        calls.iter_mut().map(|call| call.poll().is_pending()).filter(|is_admitted| *is_admitted).count()
    };
    let (before, after) = (admitted(0), admitted(100));
    assert_eq!(before, 99);
    assert!((before..=10 * before).contains(&after), "{after}");
}

// A future and a body told the session of their call to whoever looked, where there is a book; and what a store is told did.
#[tokio::test(start_paused = true)]
async fn what_a_call_is_shows_nothing_of_whose_it_is() {
    let book = Book::new();
    let secret = "sk-of-somebody";
    let builder = BudgetLayer::builder().key_fn(|key: &&'static str| (*key).to_owned());
    let builder = builder.book(book.clone(), |_: &&'static str| Labels::new()).estimate_fixed(10);
    let layer = builder.classify(ErrorsOnly).build().unwrap();
    let mut service = layer.layer(tower::service_fn(|_: &'static str| ready(Ok::<_, BoxError>(()))));
    let call = service.call(secret);
    let shown = format!("{call:?} {service:?} {layer:?} {book:?} {:?}", layer.ledger().budget(secret));
    assert!(shown.contains("bill: Bill") && !shown.contains(secret), "{shown}");
    let store = Odd::new(|_| false);
    let builder = BudgetLayer::builder().key_fn(|key: &&'static str| (*key).to_owned());
    let builder = builder.store(Leases::from(store.clone())).estimate_fixed(10);
    call!(builder.classify(ErrorsOnly).build().unwrap(), secret).await.unwrap();
    let shown = format!("{:?}", store.asked.lock().unwrap());
    assert!(shown.contains("is_keyed: true") && !shown.contains(secret), "{shown}");
}

// Ten thousand keys are bounded memory only if each of them is.
#[tokio::test(start_paused = true)]
async fn a_key_of_any_length_is_none_that_is_kept() {
    let builder = BudgetLayer::builder().key_fn(|key: &&'static str| (*key).to_owned()).estimate_fixed(10);
    let layer = builder.classify(ErrorsOnly).build().unwrap();
    let key = |length: usize| -> &'static str { "x".repeat(length).leak() };
    let denied = call!(layer, key(4 * 1024 + 1)).await.err().unwrap();
    assert!(denied.to_string().contains("no room"), "{denied}");
    assert_eq!((layer.ledger().len(), layer.ledger().turned_away()), (0, 1));
    call!(layer, key(4 * 1024)).await.unwrap();
    assert_eq!(layer.ledger().len(), 1);
}
