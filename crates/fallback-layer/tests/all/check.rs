//! Active checks, all in paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::support::{Does, Target, traced};
use axum::http;
use failsoft_core::{BoxError, Condition, ErrorsOnly, Health};
use fallback_layer::{
    FallbackLayer, Route, WhenAllPoor,
    check::{ActiveCheck, ActiveCheckBuilder, CheckBudget},
};
use tokio::{runtime::Handle, time::Instant};
use tower::{Layer, ServiceExt, service_fn};

const MINUTE: Duration = Duration::from_secs(60);

/// Something that works or not, and counts how often it was checked.
#[derive(Clone, Default)]
struct Checked {
    works: Arc<AtomicBool>,
    checks: Arc<AtomicU32>,
}

impl Checked {
    fn works(self, works: bool) -> Self {
        self.works.store(works, Ordering::Relaxed);
        self
    }

    fn checks(&self) -> u32 {
        self.checks.load(Ordering::Relaxed)
    }

    fn check(&self) -> ActiveCheckBuilder {
        let this = self.clone();
        ActiveCheck::new(move || {
            this.checks.fetch_add(1, Ordering::Relaxed);
            let works = this.works.load(Ordering::Relaxed);
            async move { if works { Ok(()) } else { Err("down") } }
        })
        .jitter(0.0)
    }
}

/// A little after so many minutes.
async fn minutes(minutes: u32) {
    tokio::time::sleep(MINUTE * minutes + Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_route_that_fails_its_checks_is_asked_last_and_comes_back() {
    let checked = Checked::default().works(false);
    let first = Target::new("a", Does::Answer);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a")
        .health(checked.check().start().unwrap())
        .route(Route::new("b", Target::new("b", Does::Answer)))
        .build()
        .unwrap();
    let ask = async || traced(layer.layer(first.clone()).oneshot(1_u8)).await.0.unwrap();
    assert_eq!(ask().await, "a", "nothing is known yet");
    minutes(0).await;
    assert_eq!((ask().await, checked.checks()), ("a", 1), "one failure may be chance");
    minutes(1).await;
    assert_eq!((ask().await, checked.checks()), ("b", 2));
    let checked = checked.works(true);
    minutes(1).await;
    assert_eq!((ask().await, checked.checks()), ("a", 3));
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_layer_and_its_services() {
    let checked = Checked::default().works(true);
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", Target::new("b", Does::Answer)).health(checked.check().start().unwrap()))
        .build()
        .unwrap();
    let service = layer.layer(Target::new("a", Does::Answer));
    minutes(3).await;
    assert_eq!((checked.checks(), alive()), (4, before + 1));
    drop(layer);
    minutes(1).await;
    assert_eq!(checked.checks(), 5, "a service is still there");
    drop(service);
    minutes(9).await;
    assert_eq!((checked.checks(), alive()), (5, before));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_is_under_way_is_dropped_with_it() {
    let held = Arc::new(());
    let hold = held.clone();
    let check = ActiveCheck::new(move || {
        let hold = hold.clone();
        async move {
            std::future::pending::<()>().await;
            drop(hold);
            Ok::<_, BoxError>(())
        }
    });
    let check = check.jitter(0.0).start().unwrap();
    minutes(0).await;
    assert_eq!(Arc::strong_count(&held), 3);
    drop(check);
    minutes(0).await;
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_has_failed_and_the_next_one_is_made() {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let check = ActiveCheck::new(move || {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        // At once, then on its way.
        assert!(number != 0, "the first check panics");
        async move {
            tokio::task::yield_now().await;
            assert!(number != 1, "the second check panics");
            Ok::<_, BoxError>(())
        }
    });
    let check = check.jitter(0.0).fall(2).start().unwrap();
    minutes(0).await;
    assert_eq!(check.condition(), Condition::Degraded);
    minutes(1).await;
    assert_eq!(check.condition(), Condition::Poor);
    minutes(1).await;
    assert_eq!((check.condition(), count.load(Ordering::Relaxed)), (Condition::Good, 3));
}

#[test]
fn where_the_runtime_has_ended_nobody_knows_any_more() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let check = runtime.block_on(async {
        let bad = ActiveCheck::new(|| async { Err::<(), BoxError>("down".into()) });
        let check = bad.jitter(0.0).fall(1).start().unwrap();
        minutes(0).await;
        assert_eq!(check.condition(), Condition::Poor);
        check
    });
    drop(runtime);
    assert_eq!((check.condition(), check.recovers_in()), (Condition::Good, None));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_has_failed_after_its_timeout() {
    let hang = ActiveCheck::new(std::future::pending::<Result<(), BoxError>>).jitter(0.0).fall(1);
    let check = hang.timeout(Duration::from_secs(3)).start().unwrap();
    tokio::time::sleep(Duration::from_millis(2_999)).await;
    assert_eq!(check.condition(), Condition::Good);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(check.condition(), Condition::Poor);
    // Until the next check, which a call may wait for.
    assert!(check.recovers_in().unwrap() > Duration::from_secs(59));
}

#[tokio::test(start_paused = true)]
async fn checks_that_share_a_budget_stay_within_it() {
    let budget = CheckBudget::new(4, 60 * MINUTE);
    let checked = Checked::default().works(true);
    let checks: Vec<_> = (0..3).map(|_| checked.check().budget(budget.clone()).start().unwrap()).collect();
    minutes(14).await;
    assert_eq!(checked.checks(), 4);
    minutes(60).await;
    assert_eq!(checked.checks(), 8, "four an hour");
    assert!(checks.iter().all(|check| check.condition() == Condition::Good));
}

#[tokio::test(start_paused = true)]
async fn a_service_is_checked_through_its_readiness_and_by_its_answer() {
    let does = [Does::FailReady, Does::NeverReady, Does::Fail(failsoft_core::Class::Overloaded)];
    for does in does {
        let check = ActiveCheck::of_service(Target::new("a", does), || 1_u8, ErrorsOnly);
        let check = check.jitter(0.0).fall(1).start().unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(check.condition(), Condition::Poor, "{does:?}");
    }
    let status = |status: u16| {
        let answer = move |_: http::Request<()>| async move {
            let body = http_body_util::Empty::<axum::body::Bytes>::new();
            Ok::<_, BoxError>(http::Response::builder().status(status).body(body).unwrap())
        };
        let request = || http::Request::get("/v1/models").body(()).unwrap();
        let check = ActiveCheck::of_service(service_fn(answer), request, failsoft_core::ByResponse);
        check.jitter(0.0).fall(1).start().unwrap()
    };
    let checks =
        [(200, Condition::Good), (503, Condition::Poor), (404, Condition::Good), (401, Condition::Poor)];
    let checks = checks.map(|(code, condition)| (status(code), condition, code));
    minutes(0).await;
    for (check, condition, code) in &checks {
        assert_eq!(check.condition(), *condition, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_may_wait_for_the_next_check() {
    let checked = Checked::default().works(false);
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .when_all_poor(WhenAllPoor::Wait)
        .timeout(MINUTE * 5)
        .health(checked.check().fall(1).start().unwrap())
        .route(Route::new("b", Target::new("b", Does::Answer)).health(crate::support::Fit::poor(9_999)))
        .build()
        .unwrap();
    minutes(0).await;
    let checked = checked.works(true);
    let start = Instant::now();
    assert_eq!(layer.layer(Target::new("a", Does::Answer)).oneshot(1_u8).await.unwrap(), "a");
    assert_eq!(start.elapsed().as_secs(), 59);
    assert!(checked.checks() >= 1);
}

#[tokio::test(start_paused = true)]
async fn many_processes_do_not_check_at_once() {
    let checked = Checked::default().works(true);
    let at = Arc::new(std::sync::Mutex::new(Vec::new()));
    let start = Instant::now();
    let checks: Vec<_> = (0..20)
        .map(|seed| {
            let at = at.clone();
            let note = move || {
                at.lock().unwrap().push(start.elapsed().as_millis());
                std::future::ready(Ok::<_, BoxError>(()))
            };
            ActiveCheck::new(note).seed(seed).start().unwrap()
        })
        .collect();
    minutes(2).await;
    let mut times = at.lock().unwrap().clone();
    times.sort_unstable();
    assert!(times[..20].iter().all(|at| *at < 6_000), "the first ones within a tenth of the minute");
    let (count, before) = (times.len(), times.clone());
    times.dedup();
    assert!(times.len() * 10 >= count * 9, "{before:?}");
    drop((checks, checked));
}

#[test]
fn what_has_no_meaning_is_refused_and_so_is_a_start_without_a_runtime() {
    let new = || ActiveCheck::new(|| std::future::ready(Ok::<_, BoxError>(())));
    for (builder, field) in [
        (new().every(Duration::ZERO), "every"),
        (new().jitter(f64::NAN), "jitter"),
        (new().jitter(1.1), "jitter"),
        (new().timeout(Duration::ZERO), "timeout"),
        (new().fall(0), "fall"),
        (new().rise(0), "rise"),
        (new().name(" "), "name"),
        (new(), "runtime"),
    ] {
        assert_eq!(builder.start().unwrap_err().field(), field);
    }
}
