//! Most calls through a budget have no scope until something is recorded in it. Whatever layers stand around and inside, tower's buffer
//! among them, each is charged as one whose scope is there from the beginning, as it is where there is a book.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use budget_layer::{Allowance, Book, BudgetLayer, Labels, Ledger};
use failsoft_core::{
    Backoff, BoxError, Call, CarryLayer, Class, ErrorsOnly, Fault, Jitter, UncarryLayer, Usage, Verdict,
};
use fallback_layer::{FallbackLayer, Route};
use retry_layer::RetryLayer;
use tokio::time::{sleep, timeout};
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, service_fn, util::BoxCloneSyncService};

type Stack = BoxCloneSyncService<String, u64, BoxError>;

/// Draws the same from each seed.
struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Self {
        let mut draw = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // Neighbouring seeds begin alike.
        for _ in 0..5 {
            draw.below(2);
        }
        draw
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A target whose calls wait, say what they used, and fail, as it was drawn for each.
fn target(calls: Arc<AtomicUsize>, drawn: Arc<[u64]>) -> Stack {
    BoxCloneSyncService::new(service_fn(move |_: String| {
        let which = calls.fetch_add(1, Ordering::Relaxed);
        let drawn = drawn[which % drawn.len()];
        async move {
            let (waits, tells, is_long) = (drawn & 1 != 0, drawn & 2 != 0, drawn & 4 != 0);
            if waits {
                tokio::task::yield_now().await;
            }
            let mut slot = if tells { Call::slot() } else { None };
            if let Some(slot) = &mut slot {
                slot.set(&Usage { input: Some(1), output: Some(drawn), ..Usage::default() });
            }
            if is_long {
                sleep(Duration::from_secs(1)).await;
            }
            match drawn / 8 {
                0 => Ok(drawn),
                1 => Err(Fault::with_verdict(Verdict::of(Class::Overloaded), "test").into()),
                _ => Err(BoxError::from("lost")),
            }
        }
    }))
}

/// A stack of up to six layers, with its budgets.
fn stack(draw: &mut Draw, in_full: bool) -> (Stack, Vec<Ledger>) {
    let (calls, drawn) = (Arc::default(), (0..40).map(|_| draw.below(24)).collect());
    let mut ledgers = Vec::new();
    let mut stack = target(Arc::clone(&calls), Arc::clone(&drawn));
    for _ in 0..=draw.below(6) {
        stack = match draw.below(6) {
            0..=2 => {
                let builder = BudgetLayer::builder()
                    .tokens(40 + draw.below(150))
                    .estimate_fixed(10)
                    .classify(ErrorsOnly)
                    .also(Allowance::calls(30))
                    .also(Allowance::concurrent(2));
                if in_full {
                    let layer = builder.book(Book::new(), |_: &String| Labels::new()).build().unwrap();
                    ledgers.extend_from_slice(layer.ledgers());
                    BoxCloneSyncService::new(layer.layer(stack))
                } else {
                    let layer = builder.build().unwrap();
                    ledgers.extend_from_slice(layer.ledgers());
                    BoxCloneSyncService::new(layer.layer(stack))
                }
            }
            3 => {
                let backoff = Backoff::fixed(Duration::from_millis(10)).jitter(Jitter::None);
                let retries = 1 + draw.below(3) as u32;
                let retry = RetryLayer::builder().backoff(backoff).max_retries(retries).classify(ErrorsOnly);
                BoxCloneSyncService::new(retry.build().unwrap().layer(stack))
            }
            4 => {
                let second = Route::boxed("second", target(Arc::clone(&calls), Arc::clone(&drawn)));
                let fallback = FallbackLayer::builder().route(second).classify(ErrorsOnly);
                BoxCloneSyncService::new(fallback.build().unwrap().layer(stack))
            }
            _ => {
                let builder = ServiceBuilder::new().layer(CarryLayer).buffer(8).layer(UncarryLayer);
                BoxCloneSyncService::new(builder.service(stack))
            }
        };
    }
    (stack, ledgers)
}

/// What becomes of six calls, some in a call of their own, some dropped before their end; and of the budgets.
async fn seen(seed: u64, in_full: bool) -> Vec<String> {
    let mut draw = Draw::new(seed);
    let (stack, ledgers) = stack(&mut draw, in_full);
    let mut seen = Vec::new();
    let mut tell = |told: &dyn Debug| seen.push(format!("{told:?}"));
    for _ in 0..6 {
        let (in_call, is_cut) = (draw.below(3) == 0, draw.below(4) == 0);
        let limit = Duration::from_millis(if is_cut { 500 } else { 60_000 });
        let future = timeout(limit, stack.clone().oneshot(String::new()));
        let result = if in_call {
            let call = Call::options().max_attempts(5).begin();
            let result = call.scope(future).await;
            tell(&(call.usage(), call.further_attempts()));
            result
        } else {
            future.await
        };
        tell(&result.map(|result| result.map_err(|err| err.to_string())));
        assert!(!Call::is_current(), "nothing is left on the thread");
    }
    drop(stack);
    // Until what buffers hold is over too.
    sleep(Duration::from_secs(10)).await;
    for ledger in &ledgers {
        let budget = ledger.unkeyed();
        assert_eq!(budget.reserved(), 0);
        tell(&(budget.spent(), budget.spend()));
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn whatever_layers_stand_around_and_inside_a_budget_charges_as_if_its_scope_had_been_there_from_the_beginning()
 {
    for seed in 0..500 {
        assert_eq!(seen(seed, false).await, seen(seed, true).await, "{seed}");
    }
}
