use super::*;
use crate::{Deferred, Denier, Limit, MAX_ATTEMPTS, SoftKind, Verdict};

fn of(layer: &'static str, next: Next) -> Attempt {
    Attempt::new(layer, Verdict::of(Class::Transient)).then(next)
}

fn good(layer: &'static str, next: Next) -> Attempt {
    Attempt::new(layer, Verdict::SUCCESS).then(next)
}

/// What a layer tells of its attempts, in a scope of its own, and what one around it then decides.
fn told(inner: &[Attempt], outer: Attempt) -> String {
    let call = Call::begin();
    let (mut around, mut own) = (Deferred::new(), Deferred::retrying(9));
    let decide = |attempt: &Attempt| drop(Call::decide(attempt.clone()));
    call.enter(|| around.enter(|| own.enter(|| inner.iter().for_each(decide))));
    call.enter(|| around.enter(|| drop(Call::decide(outer))));
    call.trail().to_string()
}

#[test]
fn an_attempt_that_a_layer_further_in_has_told_is_told_once_with_both_decisions() {
    let next = of("outer", Next::NextRoute);
    assert_eq!(told(&[], next.clone()), "- transient (next_route)");
    let retried = [of("inner", Next::Retry), of("inner", Next::AttemptsSpent)];
    assert_eq!(
        told(&retried, next.clone()),
        "- transient (retry) > - transient (attempts_spent, next_route)"
    );
    // Also by one of the same kind.
    assert_eq!(told(&[of("a", Next::Final)], of("a", Next::Retry)), "- transient (final, retry)");
    // One that was going on when it was cut off is another attempt.
    assert_eq!(told(&retried[..1], next), "- transient (retry) > - transient (next_route)");
    // A loser that is told last is no outcome.
    let race = [good("inner", Next::Answered), of("inner", Next::Overtaken)];
    assert_eq!(told(&race, good("outer", Next::Answered)), "- success (answered) > - transient (overtaken)");
}

#[test]
fn what_another_makes_of_an_outcome_is_told_of_the_same_attempt() {
    let soft = |next| Attempt::new("outer", Verdict::soft(SoftKind::Empty)).then(next);
    // A good answer that was found bad.
    assert_eq!(told(&[good("inner", Next::Answered)], soft(Next::Reask)), "- soft.empty (reask)");
    // Of a failure whoever saw it first knows most.
    let quota = Attempt::new("inner", Verdict::of(Class::Quota));
    assert_eq!(told(&[quota], of("outer", Next::NextRoute)), "- quota (final, next_route)");
    // What a cache has answered is no attempt, nor is it one afterwards.
    let cached = Attempt::new("inner", Verdict::SUCCESS.with_unsent()).then(Next::Cached);
    assert_eq!(told(std::slice::from_ref(&cached), good("outer", Next::Answered)), "- success (cached)");
    assert_eq!(told(&[cached], soft(Next::Reask)), "- soft.empty (cached, reask)");
    assert_eq!(told(&[of("inner", Next::Cached)], good("outer", Next::Answered)), "- transient (cached)");
}

#[test]
fn what_something_between_has_answered_by_itself_is_another_outcome() {
    let failed = [of("inner", Next::Final)];
    assert_eq!(told(&failed, good("outer", Next::Answered)), "- transient (final) > - success (answered)");
    let denied = Attempt::new("outer", Verdict::of(Class::Denied(Denier::Circuit)));
    assert_eq!(told(&failed, denied), "- transient (final) > - denied.circuit (final)");
}

#[test]
fn what_is_decided_about_goes_no_further_unless_it_is_handed_on() {
    let (mut outer, mut middle, mut inner) = (Deferred::new(), Deferred::retrying(9), Deferred::retrying(9));
    outer.enter(|| {
        middle.enter(|| {
            inner.enter(|| drop(Call::decide(of("inner", Next::Final))));
            drop(Call::decide(of("middle", Next::Retry)));
        });
        // The middle one's second attempt is cut off.
        drop(Call::decide(of("outer", Next::NextRoute)));
    });
    let trail = outer.call().unwrap().trail();
    assert_eq!(trail.to_string(), "- transient (final, retry) > - transient (next_route)");
    let decisions: Vec<_> = trail.attempts()[0].earlier.iter().map(|by| (by.layer, by.next)).collect();
    assert_eq!((decisions, trail.attempts()[0].layer), (vec![("inner", Next::Final)], "middle"));
}

#[test]
fn a_decision_that_came_to_nothing_is_told_of_the_same_attempt() {
    let mut outer = Deferred::new();
    outer.enter(|| {
        let mut retry = Deferred::retrying(9);
        let told = retry.enter(|| Call::decide(of("retry", Next::Retry)));
        told.then(Next::NotReady);
        drop(Call::decide(of("outer", Next::NextRoute)));
    });
    let trail = outer.call().unwrap().trail();
    assert_eq!(trail.to_string(), "- transient (retry, not_ready, next_route)");
}

#[test]
fn an_outcome_that_is_withheld_is_not_what_is_handed_on() {
    let mut outer = Deferred::new();
    outer.enter(|| {
        Deferred::routing().enter(|| Call::decide(of("fallback", Next::NoRouteLeft)).withhold());
        drop(Call::decide(of("outer", Next::Retry)));
    });
    let trail = outer.call().unwrap().trail();
    assert_eq!(trail.to_string(), "- transient (no_route_left) > - transient (retry)");
}

#[test]
fn a_refusal_that_is_told_between_is_not_what_is_handed_on() {
    let mut outer = Deferred::new();
    outer.enter(|| {
        let mut retry = Deferred::retrying(9);
        let told = retry.enter(|| {
            let told = Call::decide(of("retry", Next::Retry));
            drop(Call::decide(Attempt::new("retry", Verdict::of(Class::Denied(Denier::Circuit)))));
            told
        });
        told.hand_on();
        drop(Call::decide(of("outer", Next::NextRoute)));
    });
    let trail = outer.call().unwrap().trail();
    assert_eq!(trail.to_string(), "- transient (retry, next_route) > - denied.circuit (final)");
}

#[test]
fn a_retry_that_is_dropped_before_it_was_sent_leaves_its_attempt_to_whoever_decides_next() {
    for sent in [false, true] {
        let mut outer = Deferred::new();
        outer.enter(|| {
            let mut retry = Deferred::retrying(9);
            let mut taken = retry.enter(|| {
                let told = Call::decide(of("retry", Next::Retry));
                let mut taken = Call::take_retry().unwrap();
                taken.after(&told);
                taken
            });
            if sent {
                taken.sent();
            }
            drop(taken);
            let cut = Attempt::new("outer", Verdict::of(Class::Timeout(Limit::Total)));
            drop(Call::decide(cut.then(Next::NextRoute)));
        });
        let expected = if sent {
            "- transient (retry) > - timeout.total (next_route)"
        } else {
            "- transient (retry, next_route)"
        };
        assert_eq!(outer.call().unwrap().trail().to_string(), expected);
    }
}

#[test]
fn beyond_what_a_trail_holds_each_attempt_is_counted_once() {
    const MORE: usize = 9;
    let (mut outer, mut inner) = (Deferred::new(), Deferred::retrying(u32::MAX));
    outer.enter(|| {
        for _ in 0..MAX_ATTEMPTS + MORE {
            inner.enter(|| drop(Call::decide(of("inner", Next::Final))));
            Call::decide(of("outer", Next::Retry)).then(Next::NotReady);
        }
    });
    let trail = outer.call().unwrap().trail();
    assert_eq!((trail.attempts().len(), trail.dropped()), (MAX_ATTEMPTS, MORE));
    assert!(trail.attempts().iter().all(|attempt| attempt.earlier.len() == 2));
}

#[test]
fn a_target_has_the_name_that_its_route_has() {
    let named = |layer, name: &str| of(layer, Next::Final).on(Some(name.into()));
    let mut outer = Deferred::retrying(9);
    outer.enter(|| {
        let mut routing = Deferred::routing();
        routing.enter(|| {
            let mut nested = Deferred::routing();
            nested.enter(|| {
                Deferred::retrying(9).enter(|| drop(Call::decide(named("retry", "authority"))));
                drop(Call::decide(named("fallback", "route")));
            });
            drop(Call::decide(named("fallback", "region")));
        });
        drop(Call::decide(named("retry", "all of them")));
    });
    let trail = outer.call().unwrap().trail();
    assert_eq!(trail.to_string(), "route transient (final)");
}

#[test]
fn what_is_told_in_the_scope_of_another_route_is_not_decided_about() {
    let call = Call::begin();
    let mut own = Deferred::routing();
    let beside = call.enter(|| own.enter(|| Call::options().route(false).begin()));
    call.enter(|| own.enter(|| Call::record(of("inner", Next::Final))));
    beside.enter(|| Call::begin().enter(|| Call::record(of("inner", Next::BudgetEmpty))));
    call.enter(|| own.enter(|| drop(Call::decide(of("outer", Next::NextRoute)))));
    beside.enter(|| drop(Call::decide(of("outer", Next::NoRouteLeft))));
    assert_eq!(
        call.trail().to_string(),
        "- transient (final, next_route) > - transient (budget_empty, no_route_left)"
    );
    // What is decided is an attempt of the calls around, too.
    assert_eq!(call.trail().attempts().len(), 2);
}
