use super::{routes::MAX_ROUTES, *};
use crate::{Attempt, Class, Next, Verdict};

fn attempt(layer: &'static str) -> Attempt {
    Attempt::new(layer, Verdict::of(Class::Transient)).then(Next::Retry)
}

#[tokio::test(start_paused = true)]
async fn the_nearest_deadline_wins_whichever_way_they_nest() {
    let (near, far) = (Duration::from_secs(1), Duration::from_secs(9));
    for (outer, inner) in [(near, far), (far, near)] {
        let call = Call::options().timeout(outer).begin();
        let seen = call.enter(|| Call::options().timeout(inner).begin().enter(Call::current_deadline));
        assert_eq!(seen, Some(Instant::now() + near));
    }
}

#[test]
fn outside_a_call_nothing_is_current_and_nothing_is_recorded() {
    Call::record(attempt("x"));
    assert!(Call::current().is_none());
    assert!(Call::take_attempt().is_ok());
    assert!(!Call::is_marked(Mark::LastResort));
}

#[test]
fn a_cap_counts_attempts_of_all_scopes_below_and_a_refused_one_counts_nowhere() {
    let outer = Call::options().max_attempts(3).begin();
    let inner = outer.enter(|| Call::options().max_attempts(9).begin());
    inner.enter(|| {
        assert!(Call::take_attempt().is_ok());
        assert!(Call::take_attempt().is_ok());
        assert!(Call::take_attempt().is_err());
    });
    assert_eq!((outer.further_attempts(), inner.further_attempts()), (2, 2));
}

#[test]
fn an_attempt_that_was_not_made_is_given_back_on_every_scope_that_counted_it() {
    let outer = Call::options().max_attempts(2).begin();
    let mut deferred = Deferred::new();
    outer.enter(|| {
        deferred.enter(|| {
            assert!(Call::take_attempt().is_ok());
            // The scope becomes real only now, and has counted nothing.
            Call::record(attempt("retry-layer"));
            assert!(Call::take_attempt().is_err());
            Call::give_attempt_back();
        });
    });
    assert_eq!(outer.further_attempts(), 0);
    deferred.enter(|| {
        assert!(Call::take_attempt().is_ok());
        assert!(Call::take_attempt().is_err());
    });
    assert_eq!(outer.further_attempts(), 1);
    Call::give_attempt_back(); // outside of any call it is nothing
}

#[test]
fn retries_inside_each_other_share_the_outer_cap() {
    let (mut outer, mut inner) = (Deferred::retrying(3), Deferred::retrying(9));
    outer.enter(|| {
        inner.enter(|| {
            for _ in 0..2 {
                Call::take_retry().unwrap().sent();
            }
        });
        Call::take_retry().unwrap().sent();
        // A scope of the outer's next attempt.
        Deferred::retrying(9).enter(|| assert!(Call::take_retry().is_err()));
        // A change of the route is no retry.
        assert!(Call::take_attempt().is_ok());
    });
    assert_eq!(outer.call().unwrap().further_attempts(), 4);
    assert_eq!(inner.call().unwrap().further_attempts(), 2);
}

#[test]
fn the_inner_cap_holds_too_and_a_cap_too_large_to_matter_is_none() {
    let mut outer = Deferred::retrying(u32::MAX);
    outer.enter(|| {
        let mut inner = Deferred::retrying(0);
        inner.enter(|| assert!(Call::take_retry().is_err()));
        for _ in 0..300 {
            Call::take_retry().unwrap().sent();
        }
    });
    assert_eq!(outer.call().unwrap().further_attempts(), 300);
}

#[test]
fn however_deep_scopes_lie_inside_each_other_each_cap_holds() {
    fn deep(depth: u32) {
        let mut scope = Deferred::retrying(depth);
        scope.enter(|| {
            if depth < 20 {
                deep(depth + 1);
            } else {
                (0..3).for_each(|_| Call::take_retry().unwrap().sent());
                assert!(Call::take_retry().is_err());
            }
        });
        assert_eq!(scope.call().map(Call::further_attempts), Some(3));
    }
    deep(3);
    assert!(Call::current().is_none() && !Call::is_current());
}

#[test]
fn a_scope_that_is_begun_ends_like_one_that_is_entered() {
    let mut scope = Deferred::retrying(1);
    let entered = scope.try_begin().unwrap();
    assert!(Call::current().is_none());
    scope.keep(entered);
    assert!(scope.call().is_none());
    let entered = scope.try_begin().unwrap();
    Call::take_retry().unwrap().sent();
    assert!(Call::take_retry().is_err());
    scope.keep(entered);
    assert!(Call::current().is_none() && !Call::is_current());
    // It is a call now, and counts on.
    assert!(scope.try_begin().is_none());
    scope.enter(|| assert!(Call::take_retry().is_err()));
    assert!(scope.renewed().call().is_none());
    drop(Deferred::routing().try_begin());
    assert!(!Call::is_routed());
}

#[test]
fn a_retry_that_is_not_sent_is_given_back_wherever_it_is_dropped() {
    let call = Call::options().max_attempts(2).begin();
    let mut deferred = Deferred::retrying(1);
    let taken = call.enter(|| deferred.enter(Call::take_retry)).unwrap();
    call.enter(|| assert!(deferred.enter(Call::take_retry).is_err()));
    assert_eq!(call.further_attempts(), 1);
    std::thread::spawn(move || drop(taken)).join().unwrap();
    assert_eq!(call.further_attempts(), 0);
    // One that was on its way counts, unless it was refused there.
    let mut taken = call.enter(|| deferred.enter(Call::take_retry)).unwrap();
    taken.sent();
    taken.give_back();
    assert_eq!(call.further_attempts(), 0);
    call.enter(|| deferred.enter(Call::take_retry)).unwrap().sent();
    assert_eq!(call.further_attempts(), 1);
}

#[test]
fn an_opening_is_seen_until_the_attempt_that_did_it_is_recorded() {
    let call = Call::begin();
    call.enter(|| {
        assert!(!Call::has_opened());
        Call::record_opening();
        assert!(Call::has_opened());
        Call::record(attempt("fallback-layer"));
        assert!(!Call::has_opened());
        // That another call's outcome did it does not make it this attempt's.
        Call::record_open_circuit();
        assert!(Call::has_opened());
        Call::record(attempt("retry-layer"));
        assert!(!Call::has_opened());
    });
    assert_eq!(call.trail().attempts().iter().map(|a| a.opened).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_circuit_that_lets_callers_wait_is_told_and_refuses_no_further_attempt() {
    let call = Call::begin();
    call.enter(|| {
        for opened in [true, false] {
            Call::record_waiting_circuit(opened);
            assert_eq!((Call::has_opened(), Call::refuses_next()), (true, false));
            Call::record(attempt("retry-layer"));
            assert_eq!((Call::has_opened(), Call::refuses_next()), (false, false));
        }
        Call::record_opening();
        assert!(Call::refuses_next());
    });
    assert_eq!(call.trail().attempts().iter().map(|a| a.opened).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn an_isolated_call_keeps_the_deadline_and_nothing_else() {
    let outer =
        Call::options().timeout(Duration::from_secs(5)).max_attempts(1).mark(Mark::LastResort).begin();
    outer.enter(|| {
        let inner = Call::options().isolated().begin();
        assert_eq!(inner.deadline(), outer.deadline());
        inner.enter(|| {
            assert!(Call::take_attempt().is_ok());
            assert!(!Call::is_marked(Mark::LastResort));
            Call::record(attempt("inner"));
        });
    });
    assert!(outer.trail().is_empty());
}

#[test]
fn marks_are_inherited() {
    Call::options().mark(Mark::FreeOnly).begin().enter(|| {
        Call::begin().enter(|| assert!(Call::is_marked(Mark::FreeOnly)));
        let mut deferred = Deferred::new();
        deferred.enter(|| {
            Call::record(attempt("x"));
            assert!(Call::is_marked(Mark::FreeOnly));
        });
    });
}

#[test]
fn a_deferred_scope_becomes_a_call_when_something_is_recorded() {
    let mut deferred = Deferred::new();
    deferred.enter(|| ());
    assert!(deferred.call().is_none());
    deferred.enter(|| Call::record(attempt("x")));
    assert_eq!(deferred.call().map(|call| call.trail().attempts().len()), Some(1));
    assert!(Call::current().is_none());
}

#[test]
fn nested_deferred_scopes_share_one_trail_at_the_outermost() {
    let (mut outer, mut inner) = (Deferred::new(), Deferred::new());
    outer.enter(|| {
        inner.enter(|| Call::record(attempt("inner")));
        Call::record(attempt("outer"));
        // A scope of the next attempt, in which nothing happens.
        Deferred::new().enter(|| ());
    });
    let trail = outer.call().unwrap().trail();
    assert_eq!(trail.attempts().iter().map(|a| a.layer).collect::<Vec<_>>(), ["inner", "outer"]);
    assert_eq!(inner.call().unwrap().trail(), trail);
    assert!(Call::current().is_none());
}

#[test]
fn a_call_begun_inside_a_deferred_scope_is_its_child() {
    let mut deferred = Deferred::new();
    deferred.enter(|| Call::begin().enter(|| Call::record(attempt("x"))));
    assert_eq!(deferred.call().unwrap().trail().attempts().len(), 1);
}

#[test]
fn a_panic_restores_what_was_current() {
    let outer = Call::begin();
    outer.enter(|| {
        let mut deferred = Deferred::new();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            deferred.enter(|| {
                Call::record(attempt("x"));
                Call::begin().enter(|| panic!("on purpose"));
            });
        }));
        assert!(caught.is_err());
        assert!(Arc::ptr_eq(&Call::current().unwrap().0, &outer.0));
        assert!(deferred.call().is_some());
    });
    assert!(Call::current().is_none());
}

#[test]
fn an_opened_circuit_is_told_with_the_next_attempt_only() {
    let call = Call::begin();
    call.enter(|| {
        Call::record_opening();
        Call::record(attempt("a"));
        Call::record(attempt("b"));
    });
    assert_eq!(call.trail().attempts().iter().map(|a| a.opened).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn fallbacks_inside_each_other_share_one_set_of_routes() {
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let mut outer = Deferred::routing();
    let mut between = Deferred::new();
    let mut inner = Deferred::routing();
    assert!(!Call::is_routed());
    outer.enter(|| {
        assert!(Call::is_routed());
        assert!(!Call::is_current(), "asking makes no call of it");
        between.enter(|| inner.enter(|| assert!(Call::visit(&a))));
        // What the inner one took is taken for the outer one, and the other way round.
        assert!(!Call::visit(&a));
        assert!(Call::visit(&b));
        between.enter(|| inner.enter(|| assert!(!Call::visit(&b))));
    });
    // A second call through the same stack begins anew, also inside one long call of the user.
    let session = Call::begin();
    for _ in 0..2 {
        session.enter(|| Deferred::routing().enter(|| assert!(Call::visit(&a))));
    }
}

#[test]
fn a_route_and_the_first_route_of_the_fallback_in_it_may_share_a_name_once() {
    let a: Arc<str> = "a".into();
    Deferred::routing().enter(|| {
        assert!(Call::visit(&a));
        Deferred::routing().enter(|| assert!(Call::visit_first(&a)));
        Deferred::routing().enter(|| assert!(!Call::visit_first(&a)));
    });
    Deferred::routing().enter(|| {
        assert!(Call::visit(&a));
        let _ = Call::visit_first(&a); // the attempt is over
        Deferred::routing().enter(|| assert!(!Call::visit_first(&a)));
    });
}

#[test]
fn the_routes_of_a_call_are_bounded_and_outside_fallbacks_nothing_is_remembered() {
    let name = |i: usize| Arc::<str>::from(i.to_string());
    Deferred::routing().enter(|| {
        assert!((0..MAX_ROUTES).all(|i| Call::visit(&name(i))));
        assert!(!Call::visit(&name(MAX_ROUTES)));
    });
    Deferred::new().enter(|| {
        assert!(Call::visit(&name(0)) && Call::visit(&name(0)));
        assert!(!Call::is_current());
    });
    Deferred::routing().enter(|| {
        assert!(Call::visit(&name(0)));
        let agent = Call::options().isolated().begin();
        agent.enter(|| assert!(!Call::is_routed(), "a nested agent begins anew"));
    });
}

#[tokio::test]
async fn a_scope_is_current_at_each_poll_and_not_between() {
    let call = Call::begin();
    let future = call.scope(async {
        assert!(Call::is_current());
        tokio::task::yield_now().await;
        assert!(Call::is_current());
    });
    let mut future = tokio_test::task::spawn(future);
    assert!(future.poll().is_pending());
    assert!(!Call::is_current());
    assert!(future.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_nearest_limit_of_the_routes_around_counts_and_only_inside_of_them() {
    let at = |secs| Instant::now() + Duration::from_secs(secs);
    assert_eq!(Call::route_limit(), None);
    let (mut outer, mut inner) = (Deferred::routing(), Deferred::routing());
    let record = || Call::record(Attempt::new("x", Verdict::SUCCESS));
    outer.enter(|| inner.enter(record));
    inner.call().unwrap().set_route_limit(Some(at(9)));
    outer.call().unwrap().set_route_limit(Some(at(4)));
    outer.enter(|| {
        assert_eq!(inner.enter(Call::route_limit), Some(at(4)));
        assert_eq!(Call::options().isolated().begin().enter(Call::route_limit), None);
    });
    outer.call().unwrap().set_route_limit(None);
    outer.enter(|| assert_eq!(inner.enter(Call::route_limit), Some(at(9))));
    assert_eq!(outer.enter(Call::route_limit), None);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_fallbacks_first_route_is_not_that_of_those_beside_it() {
    let at = |secs| Instant::now() + Duration::from_secs(secs);
    let (mut outer, mut inner) = (Deferred::routing(), Deferred::routing());
    outer.enter(|| inner.enter(|| Call::record(attempt("x"))));
    outer.call().unwrap().set_route_limit(Some(at(9)));
    inner.call().unwrap().set_route_limit(Some(at(4)));
    let beside = outer.enter(|| inner.enter(|| Call::options().route(false).begin()));
    assert_eq!(beside.enter(Call::route_limit), Some(at(9)));
    assert_eq!(beside.enter(|| Call::begin().enter(Call::route_limit)), Some(at(9)));
    beside.set_route_limit(Some(at(6)));
    assert_eq!(beside.enter(Call::route_limit), Some(at(6)));
    assert_eq!(inner.enter(Call::route_limit), Some(at(4)));
}

#[tokio::test(start_paused = true)]
async fn whose_deadline_it_is_is_known_however_deep() {
    let secs = Duration::from_secs;
    let within = |outer: Duration, hurried| {
        let call = Call::options().timeout(outer).begin();
        let route = call.enter(|| Call::options().timeout(secs(5)).route(hurried).begin());
        route.enter(|| Call::begin().enter(Call::is_deadline_of_route))
    };
    assert!(within(secs(9), false));
    assert!(!within(secs(9), true));
    assert!(!within(secs(3), false), "the caller's is nearer");
    assert!(!Call::is_deadline_of_route());
    assert!(!Call::options().route(false).begin().enter(Call::is_deadline_of_route), "there is none");
}
