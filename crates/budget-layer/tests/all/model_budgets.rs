//! Several budgets under random calls, attempts, ends, drops and pauses: what must hold whatever happens.

use std::time::Duration;

use crate::common::{Answer, Asked, Model, Request, Step, request, usage};
use budget_layer::{Allowance, Budget, BudgetLayer, Estimate, Estimator, Price, Window};
use failsoft_core::{Call, Mark};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tokio::time::{Instant, advance};
use tokio_test::task::spawn;
use tower::{Layer as _, ServiceExt as _};

const LIFETIME: u64 = 3_000;
const PER_MINUTE: u64 = 700;
const AT_ONCE: u64 = 4;
const MONEY: u64 = 8_000;
const RESERVE: u64 = 200;
const MINUTE: Duration = Duration::from_secs(60);

/// Three for a token: a price that the sums can be checked with.
const PRICE: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A call with an estimate, marked final or not.
    Start(u64, bool),
    /// One attempt more, if there is enough for it.
    Again(usize),
    /// One that is not made after all.
    Back(usize),
    /// It ends; each attempt has used so many hundredths of its estimate.
    End(usize, u64),
    /// Whoever called hangs up, and each attempt has used so much.
    Drop(usize, u64),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let call = 0..4_usize;
    prop_oneof![
        6 => (1..250_u64, prop::bool::weighted(0.1)).prop_map(|(estimate, last)| Op::Start(estimate, last)),
        3 => call.clone().prop_map(Op::Again),
        1 => call.clone().prop_map(Op::Back),
        4 => (call.clone(), 0..=100_u64).prop_map(|(call, share)| Op::End(call, share)),
        2 => (call, 0..=100_u64).prop_map(|(call, share)| Op::Drop(call, share)),
        3 => (0..30_000_u64).prop_map(Op::Pass),
    ]
}

#[derive(Clone)]
struct ByHeader;

impl Estimator<Request> for ByHeader {
    fn estimate(&self, request: &Request) -> Estimate {
        Estimate::parts(0, request.headers()["x-estimate"].to_str().unwrap().parse().unwrap())
    }
}

type Future = tokio_test::task::Spawn<
    std::pin::Pin<
        Box<dyn std::future::Future<Output = Result<crate::common::Charged, failsoft_core::BoxError>>>,
    >,
>;

struct Live {
    future: Future,
    asked: Asked,
    scope: Call,
    estimate: u64,
    /// When each attempt began.
    attempts: Vec<Instant>,
}

async fn run(ops: Vec<Op>) {
    let layer = BudgetLayer::builder()
        .tokens(LIFETIME)
        .closing_reserve(RESERVE)
        .estimator(ByHeader)
        .price(Price::new(PRICE * 1_000_000, PRICE * 1_000_000))
        .also(Allowance::tokens(PER_MINUTE).named("tpm").within(Window::sliding(MINUTE)))
        .also(Allowance::concurrent(AT_ONCE))
        .also(Allowance::money(MONEY))
        .build()
        .unwrap();
    let budgets: Vec<Budget> = layer.ledgers().iter().map(|ledger| ledger.unkeyed().clone()).collect();
    let model = Model::new();
    let service = layer.layer(model.clone());
    let mut live: Vec<Live> = Vec::new();
    // When each attempt began, and what it used.
    let mut used: Vec<(Instant, u64)> = Vec::new();
    for op in ops {
        match op {
            Op::Start(estimate, last) => {
                let mut request = request();
                request.headers_mut().insert("x-estimate", estimate.into());
                let before: Vec<_> = budgets.iter().map(Budget::snapshot).collect();
                let options = if last { Call::options().mark(Mark::Final) } else { Call::options() };
                let mut future: Future =
                    spawn(Box::pin(options.begin().scope(service.clone().oneshot(request))));
                if future.poll().is_pending() {
                    let asked = model.next();
                    let scope = asked.call.clone().unwrap();
                    live.push(Live { future, asked, scope, estimate, attempts: vec![Instant::now()] });
                } else {
                    let after: Vec<_> = budgets.iter().map(Budget::snapshot).collect();
                    assert_eq!(before, after, "a denial changes nothing");
                }
            }
            Op::Again(at) => {
                if let Some(call) = live.get_mut(at) {
                    if call.scope.enter(Call::take_attempt).is_ok() {
                        call.attempts.push(Instant::now());
                    }
                }
            }
            Op::Back(at) => {
                if let Some(call) = live.get_mut(at).filter(|call| call.attempts.len() > 1) {
                    call.scope.enter(Call::give_attempt_back);
                    call.attempts.pop();
                }
            }
            Op::End(at, share) | Op::Drop(at, share) if at < live.len() => {
                let call = live.remove(at);
                let each = call.estimate * share / 100;
                let mut slots: Vec<_> = call.attempts.iter().map(|_| call.asked.slot()).collect();
                slots.iter_mut().for_each(|slot| slot.set(&usage(0, each)));
                if matches!(op, Op::End(..)) {
                    call.asked.send(Ok(Answer::unread([Step::Text])));
                    drop(slots);
                    call.future.await.unwrap().into_body().collect().await.unwrap();
                } else {
                    drop(call.future);
                    drop(slots);
                }
                used.extend(call.attempts.iter().map(|&began| (began, each)));
            }
            Op::End(..) | Op::Drop(..) => {}
            Op::Pass(millis) => advance(Duration::from_millis(millis)).await,
        }
        let [lifetime, minute, at_once, money] = &budgets[..] else { panic!("four") };
        let sum: u64 = used.iter().map(|(_, used)| used).sum();
        let reserved: u64 = live.iter().map(|call| call.estimate * call.attempts.len() as u64).sum();
        assert_eq!((lifetime.spent(), lifetime.reserved()), (sum, reserved));
        assert_eq!((money.spent(), money.reserved()), (PRICE * sum, PRICE * reserved));
        assert_eq!((at_once.spent(), at_once.reserved()), (0, live.len() as u64));
        // No call passes its estimate here: nothing is ever overspent.
        for (budget, limit) in budgets.iter().zip([LIFETIME, PER_MINUTE, AT_ONCE, MONEY]) {
            assert!(budget.spent() + budget.reserved() <= limit, "{budget:?}");
        }
        let now = Instant::now();
        let lately = |began: Instant| now.duration_since(began) < MINUTE;
        let of_minute: u64 = used.iter().filter(|(began, _)| lately(*began)).map(|(_, used)| used).sum();
        let of_attempts =
            live.iter().flat_map(|call| call.attempts.iter().map(|&began| (began, call.estimate)));
        let flying: u64 = of_attempts.filter(|(began, _)| lately(*began)).map(|(_, estimate)| estimate).sum();
        assert!(of_minute <= minute.spent(), "{of_minute} {minute:?}");
        assert!(flying <= minute.reserved(), "{flying} {minute:?}");
    }
    drop(live);
    for budget in &budgets {
        assert_eq!(budget.reserved(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_budget_is_overspent_and_none_leaks_whatever_happens(ops in prop::collection::vec(op(), 1..100)) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(run(ops));
    }
}
