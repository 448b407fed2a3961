//! The trail of a fallback with other layers in its routes: each attempt once, with all that was decided about it.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use breaker_layer::BreakerLayer;
use failsoft_core::{
    Backoff, BoxError, Call, Class, ErrorsOnly, Fault, MAX_ATTEMPTS, Trail, backoff::Jitter,
};
use fallback_layer::{BoxRoute, FallbackLayer, Route};
use retry_layer::{HedgeLayer, RetryBuilder, RetryLayer};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

const SECOND: Duration = Duration::from_secs(1);

/// Fails with what is next, after a second each, and then answers.
#[derive(Clone)]
struct Target {
    fails: Arc<Mutex<VecDeque<Class>>>,
    calls: Arc<AtomicUsize>,
}

impl Target {
    fn new(fails: impl IntoIterator<Item = Class>) -> Self {
        Self { fails: Arc::new(Mutex::new(fails.into_iter().collect())), calls: Arc::default() }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Service<&'static str> for Target {
    type Response = &'static str;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<&'static str, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: &'static str) -> Self::Future {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let fails = self.fails.lock().unwrap().pop_front();
        Box::pin(async move {
            sleep(SECOND).await;
            fails.map_or(Ok("yes"), |class| Err(Fault::new(class, "test").into()))
        })
    }
}

type Stack = BoxCloneSyncService<&'static str, &'static str, BoxError>;

fn retry(max_retries: u32) -> RetryBuilder<ErrorsOnly, failsoft_core::Auto> {
    let backoff = Backoff::fixed(SECOND).jitter(Jitter::None);
    RetryLayer::builder().classify(ErrorsOnly).backoff(backoff).max_retries(max_retries).without_budget()
}

fn retried(name: &'static str, target: &Target) -> Stack {
    BoxCloneSyncService::new(retry(2).target(name).build().unwrap().layer(target.clone()))
}

fn fallback(first: Stack, others: impl IntoIterator<Item = (&'static str, Stack)>) -> Stack {
    let layer = FallbackLayer::builder().classify(ErrorsOnly).name("a");
    let layer = others.into_iter().fold(layer, |layer, (name, stack)| layer.route(Route::boxed(name, stack)));
    BoxCloneSyncService::new(layer.build().unwrap().layer(first))
}

async fn ask(stack: Stack) -> (Result<&'static str, BoxError>, Trail) {
    let call = Call::begin();
    let answer = call.scope(stack.oneshot("?")).await;
    (answer, call.trail())
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_of_a_retry_is_told_once_with_why_it_gave_up_and_what_came_then() {
    let (a, b) = (Target::new([Class::Transient; 9]), Target::new([]));
    let (answer, trail) = ask(fallback(retried("a", &a), [("b", retried("b", &b))])).await;
    assert_eq!(answer.unwrap(), "yes");
    assert_eq!(
        trail.to_string(),
        "a transient (retry) > a transient (retry) > a transient (attempts_spent, next_route) > b success (answered)"
    );
    assert_eq!(trail.attempts().len(), a.calls() + b.calls());
    // The time of the attempt itself, and not of all three.
    assert_eq!(trail.attempts()[2].took, Some(SECOND));
    assert_eq!(trail.attempts()[2].layer, "fallback-layer");
}

#[tokio::test(start_paused = true)]
async fn a_good_answer_after_a_retry_is_told_once() {
    let (a, b) = (Target::new([Class::Overloaded]), Target::new([]));
    let (_, trail) = ask(fallback(retried("a", &a), [("b", retried("b", &b))])).await;
    assert_eq!(trail.to_string(), "a overloaded (retry) > a success (answered)");
    // Also on a further route.
    let (a, b) = (Target::new([Class::Auth]), Target::new([Class::Overloaded]));
    let (_, trail) = ask(fallback(retried("a", &a), [("b", retried("b", &b))])).await;
    assert_eq!(trail.to_string(), "a auth (final, next_route) > b overloaded (retry) > b success (answered)");
}

#[tokio::test(start_paused = true)]
async fn when_all_fail_there_are_as_many_attempts_in_the_trail_as_were_made() {
    let targets = [(); 3].map(|()| Target::new([Class::Transient; 9]));
    let [a, b, c] =
        ["a", "b", "c"].map(|name| retried(name, &targets[usize::from(name.as_bytes()[0] - b'a')]));
    let (answer, trail) = ask(fallback(a, [("b", b), ("c", c)])).await;
    answer.unwrap_err();
    assert_eq!(trail.attempts().len(), targets.iter().map(Target::calls).sum::<usize>());
    assert!(trail.to_string().ends_with("c transient (attempts_spent, no_route_left)"), "{trail}");

    // Beyond what a trail holds it is cut, and says so.
    let targets = [(); 2].map(|()| Target::new([Class::Transient; 99]));
    let many = |target: &Target| BoxCloneSyncService::new(retry(30).build().unwrap().layer(target.clone()));
    let layer = FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("b", many(&targets[1])));
    let layer = layer.timeout(600 * SECOND).build().unwrap();
    let (answer, trail) = ask(BoxCloneSyncService::new(layer.layer(many(&targets[0])))).await;
    answer.unwrap_err();
    assert_eq!(trail.attempts().len(), MAX_ATTEMPTS);
    let made: usize = targets.iter().map(Target::calls).sum();
    assert_eq!((made, trail.dropped() + MAX_ATTEMPTS), (62, 62));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_the_route_s_limit_cut_off_is_one_of_its_own() {
    let a = Target::new([Class::Transient]);
    let slow = tower::service_fn(move |request| {
        let mut a = a.clone();
        async move {
            let first = a.call(request).await;
            if first.is_ok() {
                sleep(100 * SECOND).await;
            }
            first
        }
    });
    let slow = BoxCloneSyncService::new(retry(2).target("a").build().unwrap().layer(slow));
    let (_, trail) = ask(fallback(slow, [("b", retried("b", &Target::new([])))])).await;
    assert_eq!(
        trail.to_string(),
        "a transient (retry) > a timeout.total (next_route) > b success (answered)"
    );
}

#[tokio::test(start_paused = true)]
async fn that_an_attempt_opened_a_circuit_is_told_with_it() {
    let a = Target::new([Class::Transient; 9]);
    let breaker = BreakerLayer::builder().classify(ErrorsOnly).consecutive_failures(2).build().unwrap();
    let stack =
        ServiceBuilder::new().layer(retry(5).target("a").build().unwrap()).layer(breaker).service(a.clone());
    let (_, trail) =
        ask(fallback(BoxCloneSyncService::new(stack), [("b", retried("b", &Target::new([])))])).await;
    assert_eq!(
        trail.to_string(),
        "a transient (retry) > a transient (final, next_route) > b success (answered)"
    );
    let opened: Vec<_> = trail.attempts().iter().map(|attempt| attempt.opened).collect();
    assert_eq!(opened, [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn the_winner_of_a_race_is_told_once_whoever_it_is() {
    for first_wins in [true, false] {
        let count = Arc::new(AtomicUsize::new(0));
        let racing = tower::service_fn(move |_: &'static str| {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                sleep(if is_first == first_wins { 3 * SECOND } else { 60 * SECOND }).await;
                Ok::<_, BoxError>("yes")
            }
        });
        let hedge = HedgeLayer::builder().classify(ErrorsOnly).target("a").delay(SECOND).without_budget();
        let stack = BoxCloneSyncService::new(hedge.build().unwrap().layer(racing));
        let (answer, trail) = ask(fallback(stack, [("b", retried("b", &Target::new([])))])).await;
        assert_eq!(answer.unwrap(), "yes");
        let answered = trail.attempts().iter().filter(|attempt| attempt.verdict.is_success());
        assert_eq!((trail.attempts().len(), answered.count()), (2, 1), "{trail}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_routes_beside_each_other_each_has_its_own_attempts() {
    let slow = |name, fails: usize, target: &Target| {
        let target = target.clone();
        let late = tower::service_fn(move |request| {
            let mut target = target.clone();
            async move {
                sleep(3 * SECOND).await;
                target.call(request).await
            }
        });
        let retry = retry(u32::try_from(fails).unwrap()).target(name).build().unwrap();
        BoxRoute::new(retry.layer(late))
    };
    let (a, b) = (Target::new([Class::Transient; 9]), Target::new([Class::Transient; 9]));
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a")
        .route(Route::new("b", slow("b", 1, &b)))
        .slow_start(2 * SECOND)
        .build()
        .unwrap();
    let start = Instant::now();
    let (answer, trail) = ask(BoxCloneSyncService::new(layer.layer(slow("a", 1, &a)))).await;
    answer.unwrap_err();
    // Each fails 4 s after it was sent, and again 5 s later; the second begins 2 s after the first.
    assert_eq!(start.elapsed(), 11 * SECOND);
    assert_eq!(
        trail.to_string(),
        "a transient (retry) > b transient (retry) > a transient (attempts_spent, next_route) \
         > b transient (attempts_spent, no_route_left)"
    );
    assert_eq!(trail.attempts().len(), a.calls() + b.calls());
}
