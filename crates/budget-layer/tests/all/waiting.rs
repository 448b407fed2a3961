//! Waiting for a turn: first come, first served, within a deadline, and nobody is forgotten.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::common::{Answer, Model, Request, Step, is_denied, of_session, refused, request, session};
use budget_layer::{Allowance, BudgetLayer, Denial, Fixed, OneForAll, Reason, Window};
use failsoft_core::{Call, ErrorsOnly};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, advance, timeout};
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer as _, Service as _, ServiceExt as _, limit::ConcurrencyLimit, service_fn};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Two calls a minute; others wait.
fn two_a_minute() -> BudgetLayer<OneForAll, Fixed> {
    let builder = BudgetLayer::builder().calls(2).within(Window::sliding(MINUTE)).estimate_fixed(1);
    builder.wait(10 * MINUTE).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn over_a_rate_callers_are_served_in_the_order_in_which_they_came() {
    let layer = two_a_minute();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let begin = Instant::now();
    let mut calls: Vec<_> = (0..6).map(|_| spawn(service.clone().oneshot(request()))).collect();
    // Each comes when it is first polled.
    for place in [0, 1, 5, 3, 4, 2] {
        assert_pending!(calls[place].poll());
    }
    assert_eq!((model.waiting(), budget.waiting()), (2, 4));
    let mut served = vec![0, 1];
    while served.len() < 6 {
        advance(SECOND).await;
        for (place, call) in calls.iter_mut().enumerate() {
            let before = model.waiting();
            if call.is_woken() {
                assert_pending!(call.poll());
            }
            if model.waiting() > before {
                served.push(place);
            }
        }
    }
    assert_eq!(served, [0, 1, 5, 3, 4, 2]);
    let took = begin.elapsed();
    assert!(took >= 2 * MINUTE && took <= 2 * MINUTE + MINUTE / 10, "{took:?}");
    assert_eq!(budget.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_who_comes_later_overtakes_although_it_would_fit() {
    let builder = BudgetLayer::builder().tokens(100).within(Window::sliding(MINUTE)).wait(5 * MINUTE);
    let layer = builder
        .estimate(|request: &Request| request.headers()["x-session"].to_str().unwrap().parse().unwrap())
        .build()
        .unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    let mut calls = ["60", "50", "10"].map(|tokens| spawn(service.clone().oneshot(of_session(tokens))));
    calls.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    assert_eq!(model.waiting(), 1, "10 would fit, and 50 came before");
    // Whoever is first goes away: the next one is woken at once.
    let [_first, second, mut third] = calls;
    drop(second);
    assert!(third.is_woken());
    assert_pending!(third.poll());
    assert_eq!((model.waiting(), layer.budget().waiting()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_place_among_the_calls_at_once_goes_to_whoever_waits_first() {
    let layer = BudgetLayer::builder().concurrent(1).wait(MINUTE).estimate_fixed(1).build().unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    let mut first = spawn(service.clone().oneshot(request()));
    assert_pending!(first.poll());
    let mut others = [(); 3].map(|()| spawn(service.clone().oneshot(request())));
    others.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    model.next().send(Ok(Answer::unread([Step::Text])));
    let body = assert_ready!(first.poll()).unwrap().into_body();
    assert!(!others[0].is_woken());
    body.collect().await.unwrap();
    assert!(others[0].is_woken() && !others[1].is_woken());
    assert_pending!(others[0].poll());
    assert_eq!(model.waiting(), 1);
    // One whose call fails, one that hangs up: each lets the next one in.
    model.next().send(Err(refused()));
    assert!(assert_ready!(others[0].poll()).is_err());
    assert_pending!(others[1].poll());
    let [_, second, mut third] = others;
    drop(second);
    assert!(third.is_woken());
    assert_pending!(third.poll());
    assert_eq!(layer.budget().reserved(), 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_in_vain_nor_longer_than_its_deadline() {
    let layer = two_a_minute();
    let service = layer.layer(Model::new());
    let mut calls = [(); 2].map(|()| spawn(service.clone().oneshot(request())));
    calls.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    // It is known that a minute is too long.
    let begin = Instant::now();
    let hasty = Call::options().timeout(5 * SECOND).begin();
    let err = hasty.scope(service.clone().oneshot(request())).await.err().unwrap();
    let denial = Denial::find(&*err).unwrap();
    assert_eq!((denial.reason(), begin.elapsed()), (Reason::UsedUp, Duration::ZERO));
    assert!(denial.renews_in().unwrap() > 59 * SECOND);
    assert_eq!((layer.budget().spend().denied(), layer.budget().waiting()), (1, 0));
    // Nobody knows when a call at once ends.
    let layer = BudgetLayer::builder().concurrent(1).wait(MINUTE).estimate_fixed(1).build().unwrap();
    let service = layer.layer(Model::new());
    let mut hung = spawn(service.clone().oneshot(request()));
    assert_pending!(hung.poll());
    let hasty = Call::options().timeout(5 * SECOND).begin();
    assert!(is_denied(&hasty.scope(service.oneshot(request())).await.err().unwrap()));
    assert_eq!((begin.elapsed(), layer.budget().waiting()), (5 * SECOND, 0));
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_and_no_more_and_a_raised_limit_lets_them_in() {
    let builder = BudgetLayer::builder().calls(1).within(Window::sliding(MINUTE)).estimate_fixed(1);
    let layer = builder.wait(10 * MINUTE).max_waiting(2).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut calls = [(); 3].map(|()| spawn(service.clone().oneshot(request())));
    calls.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    assert!(is_denied(&service.clone().oneshot(request()).await.err().unwrap()));
    budget.set_limit(3);
    for call in &mut calls[1..] {
        assert!(call.is_woken());
        assert_pending!(call.poll());
    }
    assert_eq!((model.waiting(), budget.waiting()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_back_is_not_waited_for() {
    let layer = BudgetLayer::builder().tokens(10).wait(MINUTE).estimate_fixed(20).build().unwrap();
    assert!(is_denied(&layer.layer(Model::new()).oneshot(request()).await.err().unwrap()));
    // Larger than a whole window.
    let builder = BudgetLayer::builder().tokens(10).within(Window::sliding(MINUTE)).estimate_fixed(20);
    let layer = builder.wait(MINUTE).build().unwrap();
    assert!(is_denied(&layer.layer(Model::new()).oneshot(request()).await.err().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn each_session_waits_for_itself_and_all_wait_for_what_is_common() {
    let builder = BudgetLayer::builder().concurrent(1).key_fn(session);
    let layer = builder.also(Allowance::concurrent(2)).wait(MINUTE).estimate_fixed(1).build().unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    let mut calls = ["a", "a", "b", "c"].map(|id| spawn(service.clone().oneshot(of_session(id))));
    calls.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    assert_eq!(model.waiting(), 2, "b does not wait for a");
    // a is done: c came later than the second a, but that is what the common place goes to first.
    model.next().send(Err(refused()));
    assert!(assert_ready!(calls[0].poll()).is_err());
    for call in &mut calls[1..] {
        if call.is_woken() {
            let _ = call.poll();
        }
    }
    assert_eq!(model.waiting(), 2);
    drop(calls);
    for ledger in layer.ledgers() {
        for budget in ["a", "b", "c"].into_iter().filter_map(|id| ledger.budget(id)) {
            assert_eq!((budget.reserved(), budget.waiting()), (0, 0));
        }
        assert_eq!((ledger.unkeyed().reserved(), ledger.unkeyed().waiting()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_holds_nothing_of_the_inner_service() {
    let layer = BudgetLayer::builder().concurrent(1).wait(MINUTE).estimate_fixed(1).build().unwrap();
    let model = Model::new();
    let limited = ConcurrencyLimit::new(model.clone(), 2);
    let mut service = layer.layer(limited.clone());
    let mut first = spawn(service.clone().oneshot(request()));
    assert_pending!(first.poll());
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let mut waiting = spawn(service.call(request()));
    assert_pending!(waiting.poll());
    // Another user of the inner service has the other place.
    let mut other = spawn(limited.oneshot(request()));
    assert_pending!(other.poll());
    assert_eq!(model.waiting(), 2);
    // Its turn comes while the inner service has no place: it waits for that, too, with what it has reserved.
    model.next().send(Err(refused()));
    assert!(assert_ready!(first.poll()).is_err());
    assert!(waiting.is_woken());
    assert_pending!(waiting.poll());
    assert_eq!((model.waiting(), layer.budget().reserved()), (1, 1));
    drop(first); // and with it the place
    assert!(waiting.is_woken());
    assert_pending!(waiting.poll());
    assert_eq!((model.waiting(), layer.budget().reserved()), (2, 1));
    drop(waiting);
    assert_eq!(layer.budget().reserved(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_hundreds_on_two_threads_of_whom_many_hang_up_all_others_are_served() {
    const CALLS: u64 = 600;
    let builder = BudgetLayer::builder().concurrent(3).also(Allowance::concurrent(4).named("wide"));
    let layer = builder.wait(600 * SECOND).estimate_fixed(1).classify(ErrorsOnly).build().unwrap();
    let ledgers = layer.ledgers().to_vec();
    let (running, most, served) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let service = {
        let (running, most, served) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&served));
        layer.layer(service_fn(move |(): ()| {
            let (running, most, served) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&served));
            async move {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                served.fetch_add(1, Ordering::SeqCst);
                Ok::<_, std::io::Error>(())
            }
        }))
    };
    let calls: Vec<_> = (0..CALLS)
        .map(|id| {
            let call = service.clone().oneshot(());
            tokio::spawn(async move {
                if id % 3 == 0 {
                    // Hangs up wherever it is after a few polls.
                    let mut call = Box::pin(call);
                    for _ in 0..id % 7 {
                        if poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_ready())).await {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                    return;
                }
                call.await.unwrap();
            })
        })
        .collect();
    for call in calls {
        timeout(60 * SECOND, call).await.expect("nobody waits for ever").unwrap();
    }
    assert!(served.load(Ordering::SeqCst) >= CALLS - CALLS / 3);
    for ledger in ledgers {
        assert_eq!((ledger.unkeyed().reserved(), ledger.unkeyed().waiting()), (0, 0));
    }
}
