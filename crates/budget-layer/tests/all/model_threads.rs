//! Calls of several threads at once, with streams, cancels, retries and late usages: what must hold at every moment, and at the end.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::common::{Answer, Model, Request, Step, refused, request, reset, usage};
use budget_layer::{Allowance, Budget, BudgetLayer, Estimate, Estimator};
use failsoft_core::Call;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tokio_test::task::spawn;
use tower::{Layer as _, ServiceExt as _};

const TOKENS: u64 = 300;
const CALLS: u64 = 60;
const AT_ONCE: u64 = 3;

/// What becomes of one call. No attempt uses more than its estimate.
#[derive(Clone, Debug)]
struct Script {
    estimate: u64,
    /// The further attempts that a retry asks for.
    further: usize,
    /// How much of its estimate each attempt uses, in percent; `None`: it says nothing.
    shares: [Option<u64>; 3],
    end: End,
    /// What an attempt that said nothing says after the call was settled, in percent.
    late: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// All of the body is read.
    Read,
    /// So many pieces of it, and then the caller hangs up.
    HangUp(usize),
    /// The caller goes before there is an answer.
    Cancel,
    /// The call fails: sent, or not.
    Fail { sent: bool },
}

fn script() -> impl Strategy<Value = Script> {
    let share = || prop::option::weighted(0.8, 0..=100_u64);
    let end = prop_oneof![
        3 => Just(End::Read),
        2 => (0..3_usize).prop_map(End::HangUp),
        1 => Just(End::Cancel),
        1 => any::<bool>().prop_map(|sent| End::Fail { sent }),
    ];
    (1..30_u64, 0..3_usize, [share(), share(), share()], end, prop::option::of(0..=100_u64))
        .prop_map(|(estimate, further, shares, end, late)| Script { estimate, further, shares, end, late })
}

/// The estimate stands in the request.
#[derive(Clone)]
struct ByHeader;

impl Estimator<Request> for ByHeader {
    fn estimate(&self, request: &Request) -> Estimate {
        Estimate::whole(request.headers()["x-estimate"].to_str().unwrap().parse().unwrap())
    }
}

/// What was counted: tokens, attempts, and calls that were admitted.
type Sums = (u64, u64, u64);

/// Makes one call, and says what it must have cost.
fn run(
    service: impl tower::Service<Request, Response = crate::common::Charged, Error = failsoft_core::BoxError>,
    model: &Model,
    script: &Script,
) -> Sums {
    let mut request = request();
    request.headers_mut().insert("x-estimate", script.estimate.into());
    let mut future = spawn(service.oneshot(request));
    if future.poll().is_ready() {
        return (0, 0, 0);
    }
    let asked = model.next();
    let scope = asked.call.clone().unwrap();
    // Each attempt but the last has failed, and its reader closes its slot.
    let granted = (0..script.further).take_while(|_| scope.enter(Call::take_attempt).is_ok()).count();
    let used = |attempt: usize| script.shares[attempt].map(|share| script.estimate * share / 100);
    for attempt in 0..granted {
        let mut slot = asked.slot();
        if let Some(used) = used(attempt) {
            slot.set(&usage(0, used));
        }
    }
    let mut said: Vec<Option<u64>> = (0..granted).map(used).collect();
    match script.end {
        End::Read | End::HangUp(_) => {
            let last = used(granted);
            // What it used so far grows from piece to piece.
            let pieces = [3, 2, 1].map(|part| match last {
                Some(last) => Step::Told(usage(0, last / part)),
                None => Step::Text,
            });
            let slot = asked.slot();
            asked.send(Ok(Answer::read(slot, pieces)));
            let mut body = tokio_test::assert_ready_ok!(future.poll()).into_body();
            let read = if let End::HangUp(pieces) = script.end { pieces } else { 4 };
            for _ in 0..read {
                drop(tokio_test::block_on(body.frame()));
            }
            said.push(last.and_then(|last| [None, Some(last / 3), Some(last / 2), Some(last)][read.min(3)]));
        }
        End::Cancel => {
            drop(asked.slot());
            said.push(None);
            drop(future);
        }
        End::Fail { sent } => {
            drop(asked.slot());
            said.push(None);
            asked.send(Err(if sent { reset() } else { refused() }));
            assert!(tokio_test::assert_ready!(future.poll()).is_err());
        }
    }
    let unsent = script.end == End::Fail { sent: false };
    let told: u64 = said.iter().flatten().sum();
    let silent = said.iter().filter(|said| said.is_none()).count() as u64;
    let silent = silent - u64::from(unsent && said.iter().all(Option::is_none));
    if let Some(share) = script.late.filter(|_| silent > 0) {
        // It was counted with its estimate already.
        scope.enter(Call::slot).unwrap().set(&usage(0, script.estimate * share / 100));
    }
    (told + silent * script.estimate, granted as u64 + 1, 1)
}

fn within(budgets: &[Budget]) {
    for (budget, limit) in budgets.iter().zip([TOKENS, CALLS, AT_ONCE]) {
        let state = budget.snapshot();
        assert!(state.spent + state.reserved <= limit, "{state:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn threads_together_never_overspend_and_each_reservation_settles_once(
        scripts in prop::collection::vec(prop::collection::vec(script(), 1..16), 4),
    ) {
        let layer = BudgetLayer::builder()
            .tokens(TOKENS)
            .alert_at(0.5)
            .estimator(ByHeader)
            .also(Allowance::calls(CALLS))
            .also(Allowance::concurrent(AT_ONCE))
            .build()
            .unwrap();
        let budgets: Vec<Budget> = layer.ledgers().iter().map(|ledger| ledger.unkeyed().clone()).collect();
        let (start, done) = (Barrier::new(scripts.len() + 1), AtomicBool::new(false));
        let sums = thread::scope(|scope| {
            let threads: Vec<_> = scripts
                .iter()
                .map(|scripts| {
                    let (layer, start) = (&layer, &start);
                    scope.spawn(move || {
                        let model = Model::new();
                        let service = layer.layer(model.clone());
                        start.wait();
                        let each = scripts.iter().map(|script| run(service.clone(), &model, script));
                        each.fold((0, 0, 0), |sum, call| (sum.0 + call.0, sum.1 + call.1, sum.2 + call.2))
                    })
                })
                .collect();
            let watching = scope.spawn(|| {
                start.wait();
                while !done.load(Ordering::Relaxed) {
                    within(&budgets);
                    thread::yield_now();
                }
            });
            let sums: Vec<Sums> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            done.store(true, Ordering::Relaxed);
            watching.join().unwrap();
            sums
        });
        within(&budgets);
        let sum = sums.iter().fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        let [tokens, calls, at_once] = &budgets[..] else { panic!("three") };
        prop_assert_eq!((tokens.spent(), calls.spent(), at_once.spent()), (sum.0, sum.1, 0));
        for budget in &budgets {
            prop_assert_eq!((budget.reserved(), budget.spend().calls()), (0, sum.2));
        }
    }
}
