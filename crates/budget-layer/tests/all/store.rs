//! Budgets that several processes spend from: each layer here is a process of its own, and leases from one store.

use std::{task::Poll, time::Duration};

use crate::common::{Answer, Model, Request, Step, of_session, request, session, usage};
use crate::processes::{Flaky, Future, How, LASTS, Process, SECOND, denial, process, with};
use budget_layer::{BudgetLayer, Leases, Line, MemoryStore, Reason, Snapshot, StoreFailure, Window};
use failsoft_core::{Call, Fault, Mark};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer as _, ServiceExt as _};

#[tokio::test(start_paused = true)]
async fn two_processes_spend_together_what_there_is_and_mostly_without_asking_anybody() {
    let store = Flaky::new();
    let (one, other) = (process(store.leases(), 1_000), process(store.leases(), 1_000));
    let mut passed = [0, 0];
    for _ in 0..80 {
        passed[0] += one.calls(1).await;
        passed[1] += other.calls(1).await;
    }
    assert_eq!(passed[0] + passed[1], 100);
    assert!(passed.iter().all(|passed| *passed >= 40), "{passed:?}");
    assert_eq!(one.budget().spent() + other.budget().spent(), 1_000);
    assert_eq!((one.budget().remaining(), one.budget().limit(), one.budget().line()), (0, 1_000, Line::Hard));
    let err = one.call(request(), 10).await.unwrap_err();
    assert_eq!(
        (denial(&err).reason(), denial(&err).left(), denial(&err).limit(), denial(&err).renews_in()),
        (Reason::UsedUp, 0, 1_000, None)
    );
    assert!(store.asked() <= 20, "{} exchanges for 100 calls", store.asked());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fits_into_what_is_leased_is_sent_at_once() {
    let store = Flaky::new();
    let one = process(store.leases(), 1_000);
    one.call(request(), 10).await.unwrap();
    store.now(How::Hangs);
    for _ in 0..9 {
        let mut call = one.start(request());
        assert_pending!(call.poll());
        assert_eq!(one.model.waiting(), 1);
        drop((call, one.model.next()));
    }
    assert_eq!(store.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_process_held_that_died_counts_as_spent_and_nobody_spends_it_again() {
    let store = Flaky::new();
    let (dead, other) = (process(store.leases(), 1_000), process(store.leases(), 1_000));
    // It has leased 110, spent 10 that the store does not know of, and has a call in flight that the provider bills.
    dead.call(request(), 10).await.unwrap();
    let mut in_flight = dead.start(request());
    assert_pending!(in_flight.poll());
    std::mem::forget((in_flight, dead));
    assert_eq!(other.calls(1_000).await, 89);
    advance(100 * LASTS).await;
    assert_eq!(other.calls(1_000).await, 0, "nor once the lease is over");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_only_slow_says_what_it_really_spent_and_the_rest_is_there_again() {
    let store = Flaky::new();
    let (slow, other) = (process(store.leases(), 1_000), process(store.leases(), 1_000));
    slow.call(request(), 10).await.unwrap();
    assert_eq!(other.calls(1_000).await, 89);
    advance(100 * LASTS).await;
    assert!(slow.budget().remaining() > 0);
    // Its lease is over: it asks before it reserves anything, and gets what nobody has spent.
    assert_eq!(slow.calls(1_000).await, 10);
    assert_eq!(slow.budget().spent() + other.budget().spent(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_is_not_reserved_from_though_the_store_has_not_said_so() {
    let store = Flaky::new();
    let one = process(store.leases(), 1_000);
    one.call(request(), 10).await.unwrap();
    store.now(How::Fails);
    advance(LASTS - SECOND).await;
    one.call(request(), 10).await.unwrap();
    advance(SECOND).await;
    let err = one.call(request(), 10).await.unwrap_err();
    assert_eq!(denial(&err).reason(), Reason::StoreFailed);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_there_for_others_at_once_and_what_is_in_flight_stays() {
    let store = Flaky::new();
    let (one, other) = (process(store.leases(), 200), process(store.leases(), 200));
    one.call(request(), 5).await.unwrap();
    let mut in_flight = one.start(request());
    assert_pending!(in_flight.poll());
    assert_eq!(other.calls(1_000).await, 9);
    one.layer.ledger().give_back().await.unwrap();
    advance(SECOND).await;
    assert_eq!(other.calls(1_000).await, 9, "195 less 10 in flight, less 90 that it had spent");
    drop(in_flight);
    other.layer.ledger().give_back().await.unwrap();
    one.layer.ledger().give_back().await.unwrap();
    assert_eq!((one.budget().spent(), one.budget().remaining()), (15, 5));
}

#[tokio::test(start_paused = true)]
async fn what_is_written_back_is_no_longer_lost_with_its_process_and_leases_in_use_are_renewed() {
    let store = Flaky::new();
    let (one, other) = (process(store.leases(), 1_000), process(store.leases(), 1_000));
    for _ in 0..10 {
        one.call(request(), 10).await.unwrap();
        one.layer.ledger().write_back().await.unwrap();
        advance(LASTS / 2).await;
    }
    let asked = store.asked();
    one.call(request(), 10).await.unwrap();
    assert_eq!(store.asked(), asked, "the lease was renewed");
    one.layer.ledger().write_back().await.unwrap();
    // Nothing was spent since: what is idle goes back.
    one.layer.ledger().write_back().await.unwrap();
    drop(one);
    assert_eq!(other.calls(1_000).await, 89);
}

// G112: with its store down, a limiter let all of 100 pass, or none of any application.
#[tokio::test(start_paused = true)]
async fn while_the_store_fails_calls_are_denied_with_a_503_and_pass_again_when_it_answers() {
    let store = Flaky::new();
    store.now(How::Fails);
    let one = process(store.leases(), 1_000);
    for _ in 0..100 {
        let err = one.call(request(), 10).await.unwrap_err();
        let fault = Fault::find(&*err).unwrap();
        let response = fault.to_response();
        assert_eq!((denial(&err).reason(), response.status().as_u16()), (Reason::StoreFailed, 503));
        assert_eq!(
            (&response.headers()["retry-after"], &response.headers()["x-should-retry"]),
            (&"1".parse().unwrap(), &"false".parse().unwrap())
        );
    }
    assert_eq!((store.asked(), one.budget().spend().denied()), (1, 100), "it is not asked for each");
    advance(SECOND).await;
    store.now(How::Answers);
    one.call(request(), 10).await.unwrap();
}

// G112
#[tokio::test(start_paused = true)]
async fn by_option_calls_pass_for_one_grace_an_outage_and_count_afterwards() {
    let store = Flaky::new();
    let one = process(store.leases().on_failure(StoreFailure::Allow(10 * SECOND)), 300);
    assert_eq!(one.calls(10).await, 10);
    store.now(How::Fails);
    assert_eq!(
        one.calls(1).await,
        1,
        "the last of what is leased; what is asked for ahead then is not there"
    );
    for outage in 1..=2 {
        store.now(How::Fails);
        let mut passed = 0;
        for _ in 0..10 {
            passed += one.calls(3).await;
            advance(SECOND).await;
        }
        assert_eq!(passed, 30, "outage {outage}");
        advance(SECOND).await;
        for _ in 0..30 {
            let err = one.call(request(), 10).await.unwrap_err();
            assert_eq!(denial(&err).reason(), Reason::StoreFailed);
            advance(SECOND).await;
        }
        if outage == 1 {
            // Answered, but there is not enough any more: that was spent meanwhile.
            store.now(How::Answers);
            let err = one.call(request(), 10).await.unwrap_err();
            assert_eq!((denial(&err).reason(), denial(&err).left()), (Reason::UsedUp, 0));
            advance(SECOND).await;
        }
    }
    assert_eq!(one.budget().spent(), 710);
    store.now(How::Answers);
    let other = process(store.leases(), 300);
    advance(SECOND).await;
    one.layer.ledger().give_back().await.unwrap();
    assert_eq!((other.calls(1).await, other.budget().remaining()), (0, 0));
}

// G112
#[tokio::test(start_paused = true)]
async fn by_option_each_account_may_spend_so_much_beyond_its_lease_once_an_outage() {
    let store = Flaky::new();
    let one = process(store.leases().on_failure(StoreFailure::LocalCap(50)), 1_000);
    assert_eq!(one.calls(1).await, 1);
    for left in [10, 0] {
        store.now(How::Fails);
        let mut passed = 0;
        for _ in 0..40 {
            passed += one.calls(100).await;
            advance(SECOND).await;
        }
        assert_eq!(passed, left + 5);
        store.now(How::Answers);
        // The lease that it gets then is used up before the next outage.
        passed = one.calls(10).await;
        assert_eq!(passed, 10);
        if left == 10 {
            assert_eq!(one.calls(1).await, 1);
            one.layer.ledger().give_back().await.unwrap();
        }
    }
    let other = process(store.leases(), 1_000);
    one.layer.ledger().give_back().await.unwrap();
    assert_eq!(other.calls(1_000).await, (1_000 - one.budget().spent()) / 10);
}

#[tokio::test(start_paused = true)]
async fn what_was_spent_before_the_store_first_answered_counts_when_it_does() {
    let store = Flaky::new();
    store.now(How::Fails);
    let one = process(store.leases().on_failure(StoreFailure::LocalCap(50)), 1_000);
    assert_eq!(one.calls(10).await, 5);
    advance(SECOND).await;
    store.now(How::Answers);
    one.layer.ledger().give_back().await.unwrap();
    let other = process(store.leases(), 1_000);
    assert_eq!(other.calls(1_000).await, 95);
    // And what it was told of, without that anybody heard the answer, counts once.
    store.now(How::LosesAnswers);
    assert!(one.layer.ledger().give_back().await.is_err());
    store.now(How::Answers);
    one.layer.ledger().give_back().await.unwrap();
    assert_eq!((one.budget().spent(), one.budget().remaining()), (50, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_asked_again_at_once_is_gone_without_all_the_same() {
    for (policy, passed) in
        [(StoreFailure::Deny, 0), (StoreFailure::Allow(SECOND), 20), (StoreFailure::LocalCap(50), 5)]
    {
        let store = Flaky::new();
        store.now(How::Fails);
        let one = process(store.leases().ask_again(Duration::ZERO).on_failure(policy), 1_000);
        assert_eq!(one.calls(20).await, passed, "{policy:?}");
        advance(SECOND).await;
        assert_eq!(one.calls(20).await, 0, "{policy:?}");
        store.now(How::Answers);
        assert_eq!(one.calls(1).await, 1);
    }
}

#[cfg(feature = "http")]
#[tokio::test(start_paused = true)]
async fn what_the_server_says_it_has_left_holds_beside_a_lease_and_no_store_is_asked_for_it() {
    let store = Flaky::new();
    let one = with(store.leases(), |builder| {
        builder.tokens(1_000).within(Window::sliding(60 * SECOND)).heed_quota_headers()
    });
    let mut call = one.start(request());
    assert_pending!(call.poll());
    let asked = one.model.next();
    let slot = asked.slot();
    let mut answer = Answer::read(slot, [Step::Told(usage(0, 10))]);
    answer.headers_mut().insert("x-ratelimit-remaining-tokens", 5.into());
    answer.headers_mut().insert("x-ratelimit-reset-tokens", "20s".parse().unwrap());
    asked.send(Ok(answer));
    assert_ready!(call.poll()).unwrap().into_body().collect().await.unwrap();
    let err = one.call(request(), 10).await.unwrap_err();
    assert_eq!((denial(&err).left(), denial(&err).renews_in(), store.asked()), (5, Some(20 * SECOND), 1));
    advance(20 * SECOND).await;
    one.call(request(), 10).await.unwrap();
    assert_eq!(store.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_in_time_has_failed() {
    let store = Flaky::new();
    store.now(How::Hangs);
    let one = process(store.leases().timeout(SECOND), 1_000);
    let mut call = one.start(request());
    assert_pending!(call.poll());
    advance(SECOND / 2).await;
    assert_pending!(call.poll());
    advance(SECOND / 2 + Duration::from_millis(1)).await;
    let err = assert_ready!(call.poll()).err().unwrap();
    assert_eq!(denial(&err).reason(), Reason::StoreFailed);
    assert_eq!(one.model.waiting(), 0, "it was not sent");
}

#[tokio::test(start_paused = true)]
async fn an_exchange_goes_on_when_whoever_drove_it_hangs_up() {
    let store = Flaky::new();
    store.now(How::Slow);
    let one = process(store.leases(), 1_000);
    let mut first = one.start(request());
    let mut second = one.start(request());
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    drop(first);
    assert!(!second.is_woken(), "the store has said nothing yet");
    advance(SECOND).await;
    assert!(second.is_woken());
    assert_pending!(second.poll());
    assert_eq!((one.model.waiting(), store.asked()), (1, 1));
    // Nobody waits: the next call takes it up.
    let two = process(store.leases(), 1_000);
    drop(spawn(Box::pin(two.service().oneshot(request()))).poll());
    advance(10 * SECOND).await;
    store.now(How::Answers);
    two.call(request(), 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_does_no_harm() {
    let store = Flaky::new();
    let (one, other) =
        (process(store.leases().ask_again(Duration::ZERO), 1_000), process(store.leases(), 1_000));
    let mut passed = 0;
    for round in 0..200 {
        store.now(if round % 3 == 0 { How::LosesAnswers } else { How::Answers });
        passed += u64::from(one.call(request(), 10).await.is_ok());
        passed += other.calls(1).await;
    }
    store.now(How::Answers);
    one.layer.ledger().give_back().await.unwrap();
    advance(SECOND).await;
    passed += other.calls(1_000).await;
    assert_eq!(passed, 100);
}

#[tokio::test(start_paused = true)]
async fn lines_are_those_of_all_and_what_others_hold_counts_as_used() {
    let store = Flaky::new();
    let make = || {
        let layer =
            BudgetLayer::builder().tokens(1_000).soft_line(0.8).closing_reserve(20).store(store.leases());
        let layer = layer.allow_restricted(|request: &Request| request.method() == http::Method::HEAD);
        (layer.estimate_fixed(10).build().unwrap(), Model::new())
    };
    let (one, other) = (make(), make());
    let passes = async |(layer, model): &(BudgetLayer<_, _, _>, Model), method: &http::Method| {
        let mut request = request();
        request.method_mut().clone_from(method);
        let mut call = spawn(Box::pin(layer.layer(model.clone()).oneshot(request)));
        loop {
            match call.poll() {
                Poll::Ready(result) => break result.map(drop).map_err(|err| denial(&err).reason()),
                Poll::Pending if model.waiting() > 0 => {
                    let asked = model.next();
                    let slot = asked.slot();
                    asked.send(Ok(Answer::read(slot, [Step::Told(usage(0, 10))])));
                }
                Poll::Pending => tokio::task::yield_now().await,
            }
        }
    };
    // What was answered is dropped unread: 10 are estimated.
    let mut got = 0;
    while passes(&one, &http::Method::GET).await.is_ok() {
        got += 1;
    }
    assert_eq!(got, 79, "the line is at 784");
    assert_eq!(passes(&other, &http::Method::GET).await, Err(Reason::Restricted));
    assert_eq!(other.0.budget().line(), Line::Soft);
    let asked = store.asked();
    assert_eq!(passes(&other, &http::Method::GET).await, Err(Reason::Restricted));
    assert_eq!(store.asked(), asked, "it is not asked for each");
    one.0.ledger().give_back().await.unwrap();
    advance(SECOND).await;
    let mut got = 0;
    while passes(&other, &http::Method::HEAD).await.is_ok() {
        got += 1;
    }
    assert_eq!(got, 19, "980 less 790");
    let last = Call::options().mark(Mark::Final).begin();
    advance(SECOND).await;
    assert_eq!(last.scope(passes(&other, &http::Method::GET)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_one_process_sets_holds_for_all() {
    let store = Flaky::new();
    let (one, other) = (process(store.leases(), 1_000), process(store.leases(), 1_000));
    assert_eq!((one.calls(1).await, other.calls(1).await), (1, 1));
    one.budget().set_limit(300);
    assert_eq!((one.budget().limit(), other.budget().limit()), (300, 1_000));
    one.layer.ledger().write_back().await.unwrap();
    assert_eq!(other.calls(1_000).await, 18, "the other has spent 10, and holds 100");
    assert_eq!(other.budget().limit(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_window_is_one_for_all_and_a_call_waits_as_long_as_the_store_says() {
    let store = Flaky::new();
    let of_minute = || {
        with(store.leases().each(10), |builder| {
            builder.tokens(100).within(Window::sliding(60 * SECOND)).wait(120 * SECOND)
        })
    };
    let (one, other) = (of_minute(), of_minute());
    assert_eq!((one.calls(3).await, other.calls(5).await), (3, 5));
    let began = tokio::time::Instant::now();
    one.layer.ledger().give_back().await.unwrap();
    other.layer.ledger().give_back().await.unwrap();
    assert_eq!(one.calls(2).await, 2);
    one.call(request(), 10).await.unwrap();
    let waited = began.elapsed();
    assert!(waited >= 60 * SECOND && waited <= 64 * SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn of_calls_at_once_a_process_that_died_gives_its_places_back() {
    let store = Flaky::new();
    let at_once = || with(store.leases().each(1), |builder| builder.concurrent(4));
    let (dead, other) = (at_once(), at_once());
    let mut calls: Vec<_> = (0..3).map(|_| dead.start(request())).collect();
    calls.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    assert_eq!(dead.model.waiting(), 3);
    std::mem::forget((calls, dead));
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut call = other.start(request());
        if call.poll().is_pending() {
            held.push(call);
        }
    }
    let before = held.len();
    assert!(before <= 1, "{before}");
    advance(LASTS).await;
    advance(SECOND).await;
    for _ in 0..5 {
        let mut call = other.start(request());
        if call.poll().is_pending() {
            held.push(call);
        }
    }
    assert_eq!(held.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_store_remembers_may_be_forgotten_and_no_lifetime_spend_is() {
    let store = Flaky::new();
    let layer = BudgetLayer::builder()
        .tokens(100)
        .key_fn(session)
        .max_keys(2)
        .store(store.leases().each(1))
        .estimate_fixed(10)
        .build()
        .unwrap();
    let one = Process { layer, model: Model::new() };
    for id in ["a", "b"] {
        one.call(of_session(id), 10).await.unwrap();
    }
    let err = one.call(of_session("c"), 10).await.unwrap_err();
    assert_eq!(denial(&err).reason(), Reason::KeysFull);
    one.layer.ledger().give_back().await.unwrap();
    one.call(of_session("c"), 10).await.unwrap();
    assert_eq!(one.layer.ledger().len(), 2);
    one.layer.ledger().give_back().await.unwrap();
    // The one that was forgotten has what is left, and no more.
    let mut passed = 0;
    while one.call(of_session("a"), 10).await.is_ok() {
        passed += 1;
    }
    assert_eq!((passed, store.store.len()), (9, 3));
    let budget = one.layer.ledger().budget("a").unwrap();
    budget.restore(&Snapshot { limit: 200, spent: 0, reserved: 0 });
    one.call(of_session("a"), 10).await.unwrap();
    assert_eq!((budget.limit(), budget.remaining()), (200, 90));
}

#[tokio::test(start_paused = true)]
async fn what_a_call_uses_beyond_its_lease_counts_for_all() {
    let store = Flaky::new();
    let (one, other) = (process(store.leases().each(1), 1_000), process(store.leases(), 1_000));
    one.call(request(), 995).await.unwrap();
    one.layer.ledger().give_back().await.unwrap();
    let err = other.call(request(), 10).await.unwrap_err();
    assert_eq!((denial(&err).reason(), denial(&err).left()), (Reason::UsedUp, 5));
}

#[tokio::test(start_paused = true)]
async fn a_further_attempt_takes_what_is_leased_or_is_not_made() {
    let store = Flaky::new();
    let one = process(store.leases().each(15), 1_000);
    let mut call = one.start(request());
    assert_pending!(call.poll());
    let scope = one.model.next().call.unwrap();
    assert!(scope.enter(Call::take_attempt).is_ok());
    assert!(scope.enter(Call::take_attempt).is_err());
    assert_eq!(store.asked(), 1);
}

#[test]
fn the_builder_names_what_makes_no_sense() {
    let field = |leases: Leases| BudgetLayer::builder().store(leases).build().map(drop).unwrap_err().field();
    let leases = || Leases::from(MemoryStore::new());
    assert_eq!(field(leases().each(0)), "store.each");
    assert_eq!(field(leases().timeout(Duration::ZERO)), "store.timeout");
    let layer = BudgetLayer::builder().build().unwrap();
    let shared = BudgetLayer::builder().ledger(layer.ledger().clone()).store(leases()).build();
    assert_eq!(shared.map(drop).unwrap_err().field(), "store");
}

#[derive(Clone, Debug)]
enum Op {
    Start(usize),
    /// Ends the oldest call that was sent, which has used this.
    End(usize, u64),
    Drop(usize),
    /// A process dies, with all its calls, and another takes its place.
    Die(usize),
    GiveBack(usize),
    WriteBack(usize),
    Wait(u64),
    Store(How),
    /// What the store should have got long ago comes now.
    Deliver,
}

fn op() -> impl Strategy<Value = Op> {
    let how = prop_oneof![3 => Just(How::Answers), 1 => Just(How::Fails), 1 => Just(How::LosesAnswers), 1 => Just(How::Hangs), 1 => Just(How::Late)];
    prop_oneof![
        12 => (0..3_usize).prop_map(Op::Start),
        6 => (0..3_usize, 0..=10_u64).prop_map(|(at, used)| Op::End(at, used)),
        2 => (0..3_usize).prop_map(Op::Drop),
        1 => (0..3_usize).prop_map(Op::Die),
        1 => (0..3_usize).prop_map(Op::GiveBack),
        1 => (0..3_usize).prop_map(Op::WriteBack),
        3 => (1..20_u64).prop_map(Op::Wait),
        2 => how.prop_map(Op::Store),
        1 => Just(Op::Deliver),
    ]
}

const LIMIT: u64 = 400;

/// What the provider bills: each call that was sent, with what it used; one that was dropped, with its estimate.
async fn run(ops: Vec<Op>) {
    let store = Flaky::new();
    let make = || process(store.leases().each(25), LIMIT);
    let mut processes = [make(), make(), make()];
    let mut calls: [Vec<(Future, Option<crate::common::Asked>)>; 3] = Default::default();
    let mut billed = 0;
    for op in ops {
        match op {
            Op::Start(at) => calls[at].push((processes[at].start(request()), None)),
            Op::End(at, used) => {
                if let Some(place) = calls[at].iter().position(|(_, asked)| asked.is_some()) {
                    let (mut future, asked) = calls[at].remove(place);
                    let asked = asked.unwrap();
                    let slot = asked.slot();
                    asked.send(Ok(Answer::read(slot, [Step::Told(usage(0, used))])));
                    assert_ready!(future.poll()).unwrap().into_body().collect().await.unwrap();
                    billed += used;
                }
            }
            Op::Drop(at) => {
                if !calls[at].is_empty() {
                    let (future, asked) = calls[at].remove(0);
                    billed += if asked.is_some() { 10 } else { 0 };
                    drop((future, asked));
                }
            }
            Op::Die(at) => {
                let dead = std::mem::replace(&mut processes[at], make());
                for (future, asked) in std::mem::take(&mut calls[at]) {
                    billed += if asked.is_some() { 10 } else { 0 };
                    std::mem::forget((future, asked));
                }
                std::mem::forget(dead);
            }
            Op::GiveBack(at) => drop(processes[at].layer.ledger().give_back().await),
            Op::WriteBack(at) => drop(processes[at].layer.ledger().write_back().await),
            Op::Wait(seconds) => advance(u32::try_from(seconds).unwrap() * SECOND).await,
            Op::Store(how) => store.now(how),
            Op::Deliver => store.deliver().await,
        }
        // Whoever waits for the store is polled.
        for _ in 0..3 {
            for (process, calls) in processes.iter().zip(&mut calls) {
                calls.retain_mut(|(future, asked)| {
                    if asked.is_none() {
                        if future.poll().is_ready() {
                            return false;
                        }
                        if process.model.waiting() > 0 {
                            *asked = Some(process.model.next());
                        }
                    }
                    true
                });
            }
        }
        let in_flight: u64 = calls.iter().flatten().filter(|(_, asked)| asked.is_some()).count() as u64;
        assert!(billed + 10 * in_flight <= LIMIT, "{billed} and {in_flight} calls");
    }
    // Those that live end well, and give everything back: what is left is there, but for what died.
    store.now(How::Answers);
    drop(calls);
    for process in &processes {
        advance(SECOND).await;
        process.layer.ledger().give_back().await.unwrap();
        assert_eq!(process.budget().reserved(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_to_whom_all_together_never_spend_more_than_there_is(ops in prop::collection::vec(op(), 1..150)) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(run(ops));
    }
}
