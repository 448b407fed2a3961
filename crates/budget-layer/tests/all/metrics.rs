//! What the crate `metrics` is told.
#![cfg(feature = "metrics")]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use crate::common::{Answer, Asked, Charged, Model, Request, Step, of_session, request, session, usage};
use budget_layer::{
    Allowance, BudgetLayer, Exchange, Grant, Leases, Store, Window,
    metrics::{
        ATTEMPTS_DENIED, CALLS, DENIED, FREE_ONLY, IN_FLIGHT, KEYS, LATE_USAGE, LINES_CROSSED, NAMES,
        OVERRUNS, OVERSHOOT, PAUSES, RESERVED, SPENT, STORE_FAILING, STORE_FAILURES, UNKNOWN_USAGE, WAITED,
    },
};
use failsoft_core::{BoxError, Call};
use http_body_util::BodyExt as _;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer as _, Service, ServiceExt as _};

const MINUTE: Duration = Duration::from_secs(60);

/// Runs with a recorder of its own and paused time.
fn recorded(test: impl AsyncFnOnce(&Snapshotter)) {
    let recorder = DebuggingRecorder::new();
    let seen = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(test(&seen));
    });
}

/// Every name with its labels, but for the target, which is the same in all.
fn all(seen: &Snapshotter) -> BTreeMap<String, u64> {
    let named = seen.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        assert!(NAMES.contains(&key.key().name()), "{} is not documented", key.key().name());
        let mut name = key.key().name().to_owned();
        for label in key.key().labels() {
            if label.key() == "target" {
                assert_eq!(label.value(), "it");
            } else {
                name = format!("{name} {}={}", label.key(), label.value());
            }
        }
        let value = match value {
            DebugValue::Counter(value) => value,
            DebugValue::Gauge(value) => value.into_inner() as u64,
            DebugValue::Histogram(_) => panic!("there is none"),
        };
        (name, value)
    });
    named.collect()
}

#[track_caller]
fn assert_seen(seen: &Snapshotter, expected: &[(&str, &str, u64)]) {
    let name = |(name, label, _): &(&str, &str, u64)| format!("{name} {label}").trim_end().to_owned();
    let expected: BTreeMap<_, _> = expected.iter().map(|of| (name(of), of.2)).collect();
    assert_eq!(all(seen), expected);
}

/// A call that is sent, and answered with so much usage; `None`: without a word of it.
async fn call<S>(service: &S, model: &Model, request: Request, output: Option<u64>) -> Result<(), BoxError>
where
    S: Service<Request, Response = Charged, Error = BoxError, Future: Send> + Clone,
{
    let mut future = spawn(Box::pin(service.clone().oneshot(request)));
    let response = match future.poll() {
        Poll::Ready(response) => response?,
        Poll::Pending => {
            answer(model.next(), output);
            assert_ready!(future.poll())?
        }
    };
    response.into_body().collect().await?;
    Ok(())
}

fn answer(asked: Asked, output: Option<u64>) {
    let slot = asked.slot();
    let told = output.map_or(Step::Text, |output| Step::Told(usage(0, output)));
    asked.send(Ok(Answer::read(slot, [told])));
}

#[test]
fn what_is_reserved_and_spent_is_counted_by_outcome_and_what_lies_beyond_is_overshoot() {
    recorded(async |seen| {
        let layer = BudgetLayer::builder()
            .name("it")
            .tokens(1_000)
            .soft_line(1.0)
            .estimate_fixed(100)
            .build()
            .unwrap();
        let model = Model::new();
        let service = layer.layer(model.clone());
        call(&service, &model, request(), Some(60)).await.unwrap();
        call(&service, &model, request(), Some(130)).await.unwrap();
        call(&service, &model, request(), None).await.unwrap();
        // Dropped; what comes after that is late.
        let mut dropped = spawn(service.clone().oneshot(request()));
        assert_pending!(dropped.poll());
        let asked = model.next();
        let mut attempt = asked.slot();
        attempt.set(&usage(5, 0));
        drop(attempt);
        let scope = asked.call.clone().unwrap();
        drop((dropped, asked));
        scope.enter(Call::slot).unwrap().set(&usage(0, 7));
        assert_seen(
            seen,
            &[
                (CALLS, "outcome=success", 3),
                (CALLS, "outcome=cancelled", 1),
                (SPENT, "outcome=success", 60 + 130 + 100),
                (SPENT, "outcome=cancelled", 5 + 7),
                (RESERVED, "", 400),
                (OVERSHOOT, "", 30 + 7),
                (UNKNOWN_USAGE, "", 1),
                (LATE_USAGE, "", 1),
            ],
        );
        assert_eq!(layer.budget().spent(), 290 + 12);
    });
}

#[test]
fn denials_have_their_reasons() {
    recorded(async |seen| {
        let layer = BudgetLayer::builder()
            .name("it")
            .tokens(100)
            .per_call(90)
            .max_keys(2)
            .key_fn(session)
            .soft_line(0.5)
            .allow_restricted(|request: &Request| request.uri().path() == "/free")
            .estimate(|request: &Request| if request.uri().path() == "/large" { 91 } else { 60 })
            .build()
            .unwrap();
        let service = layer.layer(Model::new());
        let to = |path: &'static str, id| {
            let mut request = of_session(id);
            *request.uri_mut() = path.parse().unwrap();
            spawn(Box::pin(service.clone().oneshot(request))).poll().is_pending()
        };
        assert!(!to("/large", "a"));
        assert!(to("/", "a") && to("/", "b"));
        for denied in [("/", "a"), ("/free", "a"), ("/free", "a"), ("/", "c")] {
            assert!(!to(denied.0, denied.1));
        }
        let denied: Vec<_> = all(seen).into_iter().filter(|(name, _)| name.starts_with(DENIED)).collect();
        let of = |reason: &str, count| (format!("{DENIED} reason={reason}"), count);
        assert_eq!(denied, [of("keys_full", 1), of("restricted", 1), of("too_large", 1), of("used_up", 2)]);

        layer.ledger().publish();
        let all = all(seen);
        assert_eq!((all[KEYS], all[IN_FLIGHT]), (2, 0));
    });
}

#[test]
fn a_call_of_which_nobody_knows_the_price_is_counted_as_denied() {
    recorded(async |seen| {
        let layer = BudgetLayer::builder().name("it").money(100).estimate_fixed(1).build().unwrap();
        assert!(layer.layer(Model::new()).oneshot(request()).await.is_err());
        assert_seen(seen, &[(DENIED, "reason=unpriced", 1)]);
        assert_eq!(layer.budget().spend().denied(), 1);
    });
}

#[test]
fn lines_overruns_pauses_and_refused_attempts_are_counted() {
    recorded(async |seen| {
        let layer = BudgetLayer::builder()
            .name("it")
            .tokens(100)
            .alert_at(0.125)
            .pause_above(99, MINUTE, MINUTE)
            .estimate_fixed(60)
            .build()
            .unwrap();
        let model = Model::new();
        let mut future = spawn(layer.layer(model.clone()).oneshot(request()));
        assert_pending!(future.poll());
        let asked = model.next();
        assert!(asked.call.as_ref().unwrap().enter(Call::take_attempt).is_err());
        layer.ledger().publish();
        answer(asked, Some(101));
        assert_ready!(future.poll()).unwrap().into_body().collect().await.unwrap();
        assert_seen(
            seen,
            &[
                (ATTEMPTS_DENIED, "", 1),
                (CALLS, "outcome=success", 1),
                (SPENT, "outcome=success", 101),
                (RESERVED, "", 60),
                (OVERSHOOT, "", 41),
                (LINES_CROSSED, "line=12.5", 1),
                (LINES_CROSSED, "line=soft", 1),
                (OVERRUNS, "", 1),
                (PAUSES, "", 1),
                (IN_FLIGHT, "", 60),
                (KEYS, "", 0),
            ],
        );
    });
}

#[test]
fn calls_that_wait_and_calls_that_go_on_for_free_are_counted() {
    recorded(async |seen| {
        let rate = Allowance::calls(1).named("it").within(Window::sliding(MINUTE));
        let layer = BudgetLayer::builder().name("it").also(rate).wait(2 * MINUTE).estimate_fixed(1).build();
        let (layer, model) = (layer.unwrap(), Model::new());
        let service = layer.layer(model.clone());
        call(&service, &model, request(), Some(1)).await.unwrap();
        assert_pending!(spawn(service.oneshot(request())).poll());
        assert_eq!(all(seen)[WAITED], 1);

        let layer =
            BudgetLayer::builder().name("it").tokens(0).estimate_fixed(1).free_routes().build().unwrap();
        assert_pending!(spawn(layer.layer(model.clone()).oneshot(request())).poll());
        assert_eq!(all(seen)[&format!("{FREE_ONLY} reason=used_up")], 1);
    });
}

#[test]
fn a_handle_is_made_when_it_is_first_used_so_a_recorder_may_come_late() {
    let layer = BudgetLayer::builder().name("it").estimate_fixed(1).build().unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    recorded(async |seen| {
        drop(spawn(service.oneshot(request())).poll());
        assert_eq!(all(seen)[&format!("{CALLS} outcome=cancelled")], 1);
    });
}

/// Fails, and then answers.
struct FailsOnce(AtomicBool);

impl Store for FailsOnce {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        if self.0.swap(false, Ordering::Relaxed) {
            return Err("down".into());
        }
        Ok(Grant::new(exchange.needs, MINUTE, exchange.limit, 0))
    }
}

// G112: nobody saw that the store was down.
#[test]
fn a_store_that_fails_is_seen() {
    recorded(async |seen| {
        let leases = Leases::from(FailsOnce(true.into())).ask_again(Duration::ZERO);
        let layer = BudgetLayer::builder().name("it").store(leases).estimate_fixed(10).build().unwrap();
        let model = Model::new();
        let service = layer.layer(model.clone());
        assert!(call(&service, &model, request(), Some(1)).await.is_err());
        assert_seen(
            seen,
            &[(STORE_FAILURES, "", 1), (STORE_FAILING, "", 1), (DENIED, "reason=store_failed", 1)],
        );
        call(&service, &model, request(), Some(1)).await.unwrap();
        assert_eq!(all(seen)[STORE_FAILING], 0);
    });
}
