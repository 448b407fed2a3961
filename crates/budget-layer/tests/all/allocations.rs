//! A call through three budgets allocates nothing unless something is recorded in it; then it makes one allocation at most, and a thread's
//! next call none. The allocator of the binary counts, for each thread alone.

use std::{
    future::{Ready, ready},
    io,
    pin::pin,
    task::{Context, Poll, Waker},
};

use allocation_counter::measure;
use budget_layer::{Allowance, BudgetLayer, Budgeted, Denial, Reason};
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
fn three_budgets_cost_a_call_one_allocation_if_something_is_recorded_and_the_threads_next_none() {
    for tells in [false, true] {
        let most = if tells { 9 } else { 0 };
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
        assert!(first <= most && next <= first && next < 9, "{first} {next}, {tells}");
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

/// Every 50 000th session spends something; the others' calls are turned down before that.
const fn spends(session: u32) -> bool {
    session % 50_000 == 0
}

#[derive(Clone)]
struct Sessions;

impl Service<u32> for Sessions {
    type Response = ();
    type Error = BoxError;
    type Future = Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, session: u32) -> Self::Future {
        ready(if spends(session) {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::ConnectionRefused).into())
        })
    }
}

// A thousand new names a millisecond must not grow the process, nor make anybody forget what a session has spent.
#[test]
fn a_million_sessions_take_bounded_memory_and_what_one_spent_is_never_forgotten() {
    const KEYS: u32 = 10;
    /// From here on each place is taken by a session that has spent something.
    const FULL: u32 = 50_000 * (KEYS - 1);
    let layer = BudgetLayer::builder()
        .tokens(10)
        .max_keys(KEYS as usize)
        .key_fn(|session: &u32| session.to_string())
        .estimate_fixed(6)
        .classify(ErrorsOnly)
        .build()
        .unwrap();
    let mut service = layer.layer(Sessions);
    let mut ask = |session: u32| {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(service.call(session)).poll(&mut cx) {
            Poll::Ready(Ok(())) => None,
            Poll::Ready(Err(error)) => Some(Denial::find(&*error).map(Denial::reason)),
            Poll::Pending => panic!("it answers at once"),
        }
    };
    let counted = measure(|| {
        for session in 0..1_000_000 {
            let answer = ask(session);
            let expected = match session {
                _ if session > FULL => Some(Some(Reason::KeysFull)),
                _ if spends(session) => None,
                _ => Some(None),
            };
            assert_eq!(answer, expected, "{session}");
        }
    });
    assert!(counted.bytes_max < 1 << 18, "{counted:?}");
    let ledger = layer.ledger();
    assert_eq!((ledger.len(), ledger.turned_away()), (KEYS as usize, 1_000_000 - 1 - u64::from(FULL)));
    assert_eq!(ledger.total().spent(), 6 * u64::from(KEYS));
    for session in (0..=FULL).step_by(50_000) {
        assert_eq!(ask(session), Some(Some(Reason::UsedUp)), "4 of its 10 are left");
    }
}
