//! A call through three budgets makes one allocation at most, and a thread's next call none. In a binary of its own, whose allocator counts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail by panicking")]

use std::{
    future::{Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use allocation_counter::measure;
use budget_layer::{Allowance, BudgetLayer, Budgeted};
use failsoft_core::{BoxError, Call, ErrorsOnly, Usage};
use tower::{Layer, Service};

/// Answers at once, and tells what that used where it is asked to.
#[derive(Clone)]
struct Echo {
    tells: bool,
}

impl Service<u64> for Echo {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        if self.tells {
            let usage = Usage { input: Some(1), output: Some(1), ..Usage::default() };
            Call::slot().expect("a budget stands around").set(&usage);
        }
        ready(Ok(request))
    }
}

fn call(service: &mut impl Service<u64, Response = u64>) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    assert!(pin!(service.call(1)).poll(&mut cx).is_ready());
}

fn three()
-> BudgetLayer<impl budget_layer::Keyed<u64> + Clone, budget_layer::Fixed, budget_layer::AllPass, ErrorsOnly>
{
    let builder = BudgetLayer::builder().tokens(1 << 40).estimate_fixed(3).classify(ErrorsOnly);
    builder.also(Allowance::tokens(1 << 40)).also(Allowance::calls(1 << 40)).build().unwrap()
}

#[test]
fn three_budgets_cost_a_call_one_allocation_and_the_threads_next_none() {
    for tells in [false, true] {
        let layer = three();
        let ledgers = layer.ledgers().to_vec();
        let mut service = layer.layer(Echo { tells });
        // What a thread makes once, the meters among it.
        call(&mut service);
        let at_once = |service: &mut Budgeted<Echo, _, _, _, _>| {
            let calls: [_; 9] = std::array::from_fn(|_| service.call(1));
            for call in calls {
                assert!(pin!(call).poll(&mut Context::from_waker(Waker::noop())).is_ready());
            }
        };
        let counts = [measure(|| at_once(&mut service)), measure(|| at_once(&mut service))];
        let [first, next] = counts.map(|counted| counted.count_total);
        assert!(first <= 9 && next <= first && next < 9, "{first} {next}, {tells}");
        assert_eq!(measure(|| (0..100).for_each(|_| call(&mut service))).count_total, 0);
        let spent: Vec<u64> = ledgers.iter().map(|ledger| ledger.unkeyed().spent()).collect();
        assert_eq!(spent, if tells { [238, 238, 119] } else { [357, 357, 119] });
    }
}

#[test]
fn budgets_in_layers_around_each_other_cost_nothing_more() {
    let mut service = three().layer(three().layer(three().layer(Echo { tells: true })));
    call(&mut service);
    assert_eq!(measure(|| (0..100).for_each(|_| call(&mut service))).count_total, 0);
}
