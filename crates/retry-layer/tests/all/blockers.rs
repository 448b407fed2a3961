//! What wakes a call that waits: something further in that would refuse it.

use std::{
    collections::BTreeMap,
    future::{Ready, ready},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use failsoft_core::{Attempt, Backoff, Blocker, BoxError, Call, ErrorsOnly, Jitter, Next};
use retry_layer::{RetryBudget, RetryBuilder, RetryLayer};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower::{Layer, Service, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

/// As a circuit does it: who listens is woken by each change.
#[derive(Default)]
struct Door {
    shut: AtomicBool,
    wakers: Mutex<BTreeMap<u64, Waker>>,
}

impl Door {
    fn set(&self, shut: bool) {
        self.shut.store(shut, SeqCst);
        std::mem::take(&mut *self.wakers.lock().unwrap()).into_values().for_each(Waker::wake);
    }

    fn listening(&self) -> usize {
        self.wakers.lock().unwrap().len()
    }
}

impl Blocker for Door {
    fn refuses(&self) -> bool {
        self.shut.load(SeqCst)
    }

    fn listen(&self, key: &mut Option<u64>, cx: &Context<'_>) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let key = *key.get_or_insert_with(|| NEXT.fetch_add(1, SeqCst) as u64);
        self.wakers.lock().unwrap().insert(key, cx.waker().clone());
    }

    fn forget(&self, key: u64) {
        self.wakers.lock().unwrap().remove(&key);
    }
}

/// Fails, through the door, and is ready so many times.
#[derive(Clone)]
struct Failing {
    door: Arc<Door>,
    ready: usize,
}

impl Service<u64> for Failing {
    type Response = ();
    type Error = BoxError;
    type Future = Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.ready == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, _: u64) -> Self::Future {
        self.ready -= 1;
        Call::record_blocker(|| Arc::clone(&self.door));
        ready(Err(io::Error::from(io::ErrorKind::ConnectionReset).into()))
    }
}

fn waiting() -> RetryBuilder<ErrorsOnly> {
    let backoff = Backoff::fixed(60 * SECOND).jitter(Jitter::None);
    RetryLayer::builder().classify(ErrorsOnly).backoff(backoff)
}

type Told = (Duration, Result<(), BoxError>, Call);

fn start(builder: RetryBuilder<ErrorsOnly>, service: Failing) -> JoinHandle<Told> {
    let service = builder.build().unwrap().layer(service);
    tokio::spawn(async move {
        let (call, began) = (Call::begin(), Instant::now());
        let outcome = call.scope(service.oneshot(1)).await;
        (began.elapsed(), outcome, call)
    })
}

/// What was decided about each attempt.
fn next(call: &Call) -> Vec<Vec<Next>> {
    let decided = |attempt: &Attempt| attempt.decisions().map(|decision| decision.next).collect();
    call.trail().attempts().iter().map(decided).collect()
}

#[tokio::test(start_paused = true)]
async fn who_waits_has_his_own_outcome_as_soon_as_the_next_attempt_would_be_refused() {
    let door = Arc::<Door>::default();
    let budget = RetryBudget::builder().min_per_sec(0.0).initial(5.0).ratio(0.0).build().unwrap();
    let call = start(waiting().budget(budget.clone()), Failing { door: Arc::clone(&door), ready: 9 });
    sleep(3 * SECOND).await;
    // What changes without refusing anybody wakes, and the wait goes on.
    door.set(false);
    sleep(SECOND).await;
    assert_eq!((door.listening(), budget.balance()), (1, 4.0));
    door.set(true);
    let (took, outcome, call) = call.await.unwrap();
    assert_eq!(took, 4 * SECOND);
    assert!(outcome.unwrap_err().is::<io::Error>(), "the upstream's own error");
    assert_eq!((next(&call), call.further_attempts()), (vec![vec![Next::Retry, Next::Final]], 0));
    // What the attempt had taken is there again.
    assert_eq!((door.listening(), budget.balance()), (0, 5.0));
}

#[tokio::test(start_paused = true)]
async fn so_has_who_waits_for_readiness() {
    let door = Arc::<Door>::default();
    let call = start(waiting().ready_within(90 * SECOND), Failing { door: Arc::clone(&door), ready: 1 });
    sleep(70 * SECOND).await;
    assert_eq!(door.listening(), 1);
    door.set(true);
    let (took, outcome, _) = call.await.unwrap();
    assert_eq!((took, outcome.is_err(), door.listening()), (70 * SECOND, true, 0));
}

#[tokio::test(start_paused = true)]
async fn who_is_dropped_while_he_waits_leaves_nothing() {
    let door = Arc::<Door>::default();
    let call = start(waiting(), Failing { door: Arc::clone(&door), ready: 9 });
    sleep(SECOND).await;
    assert_eq!(door.listening(), 1);
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!((door.listening(), Arc::strong_count(&door)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_door_that_opens_again_is_no_hindrance() {
    let door = Arc::<Door>::default();
    let call = start(waiting().max_retries(1), Failing { door: Arc::clone(&door), ready: 9 });
    sleep(SECOND).await;
    // Nobody looked in between.
    door.set(true);
    door.set(false);
    let (took, _, call) = call.await.unwrap();
    assert_eq!((took, next(&call)), (60 * SECOND, vec![vec![Next::Retry], vec![Next::AttemptsSpent]]));
}
