//! What the attempts of retries and further routes cost, within one budget.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budget_layer::{BudgetLayer, Outcome};
use failsoft_core::{Backoff, BoxError, Call, ErrorsOnly, Jitter, Next};
use fallback_layer::{FallbackLayer, Route};
use futures_util::future::join_all;
use retry_layer::RetryLayer;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, service_fn};

const EACH: u64 = 100;

/// Ten calls at once, each of which may make eight attempts that all get lost: of 80 attempts, 25 are paid for.
#[tokio::test(start_paused = true)]
async fn lost_attempts_of_retries_and_routes_never_overshoot() {
    const LIMIT: u64 = 25 * EACH;
    let budget =
        BudgetLayer::builder().tokens(LIMIT).estimate_fixed(EACH).classify(ErrorsOnly).build().unwrap();
    let account = budget.budget().clone();
    let billed = Arc::new(AtomicU64::new(0));
    let lost = || {
        let (billed, account) = (Arc::clone(&billed), account.clone());
        let model = service_fn(move |_: String| {
            // A reader opens its slot, and the connection is lost before a word came: the provider has worked for it.
            let slot = Call::slot();
            billed.fetch_add(EACH, Ordering::Relaxed);
            assert!(account.spent() + account.reserved() <= LIMIT);
            async move {
                tokio::task::yield_now().await;
                drop(slot);
                Err::<(), BoxError>(io::Error::from(io::ErrorKind::ConnectionReset).into())
            }
        });
        let retry = RetryLayer::builder()
            .classify(ErrorsOnly)
            .repeat_unanswered(true)
            .backoff(Backoff::fixed(Duration::from_millis(1)).jitter(Jitter::None))
            .without_budget()
            .build()
            .unwrap();
        retry.layer(model)
    };
    let routes =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", lost())).build().unwrap();
    let service = ServiceBuilder::new().layer(budget).layer(routes).service(lost());
    let calls = (0..10).map(|_| {
        let call = Call::begin();
        let future = call.scope(service.clone().oneshot(String::new()));
        async move {
            future.await.unwrap_err();
            call.trail().attempts().iter().any(|attempt| attempt.next == Next::SpendDenied)
        }
    });
    let denied = join_all(calls).await.into_iter().filter(|denied| *denied).count();
    assert!(denied > 0);
    assert_eq!((billed.load(Ordering::Relaxed), account.spent(), account.reserved()), (LIMIT, LIMIT, 0));
    assert_eq!(account.spend().of(Outcome::Transient).calls, 10);
}
