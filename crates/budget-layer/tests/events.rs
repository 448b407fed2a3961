//! What is told, and how often. Nothing of a key or a request is in it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails ends here")]

mod common;

use std::{
    fmt::{Debug, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use budget_layer::{BudgetLayer, Exchange, Grant, Leases, Store};
use common::{Answer, Model, Step, of_session, session, usage};
use failsoft_core::BoxError;
use http_body_util::BodyExt as _;
use tokio_test::{assert_pending, assert_ready_ok, task::spawn};
use tower::{Layer as _, ServiceExt as _};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps the names and the texts of all events.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Told {
    fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(told, _)| *told == name).count()
    }
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "failsoft_budget"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        self.0.lock().unwrap().push((event.metadata().name(), text));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_crossing_is_told_once_and_a_key_never() {
    let told = Told::default();
    let guard = tracing::subscriber::set_default(told.clone());
    let layer =
        BudgetLayer::builder().tokens(100).estimate_fixed(30).max_keys(1).key_fn(session).build().unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    for output in [30, 30, 25, 15] {
        let mut call = spawn(service.clone().oneshot(of_session("secret")));
        if call.poll().is_ready() {
            continue;
        }
        let asked = model.next();
        let mut slot = asked.slot();
        slot.set(&usage(0, output));
        asked.send(Ok(Answer::read(slot, [Step::Text])));
        tokio_test::block_on(assert_ready_ok!(call.poll()).into_body().collect()).unwrap();
    }
    assert_eq!(told.count("failsoft_budget_soft_line"), 1);
    assert_eq!(told.count("failsoft_budget_denied"), 1);
    assert_eq!(told.count("failsoft_budget_overrun"), 0);
    // A session that may not be forgotten takes the only place.
    let mut other = spawn(service.oneshot(of_session("other secret")));
    assert!(other.poll().is_ready());
    assert_eq!(told.count("failsoft_budget_keys_full"), 1);
    drop(guard);
    let told = told.0.lock().unwrap();
    assert!(
        told.iter().all(|(name, text)| name.starts_with("failsoft_") && !text.contains("secret")),
        "{told:?}"
    );
}

#[test]
fn usage_that_is_unknown_late_or_too_much_is_told() {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(told.clone());
    let layer = BudgetLayer::builder().tokens(100).estimate_fixed(30).build().unwrap();
    let model = Model::new();
    let mut call = spawn(layer.layer(model.clone()).oneshot(common::request()));
    assert_pending!(call.poll());
    let asked = model.next();
    drop(call);
    assert_eq!(told.count("failsoft_budget_unknown_usage"), 1);
    asked.slot().set(&usage(0, 500));
    assert_eq!((told.count("failsoft_budget_late_usage"), told.count("failsoft_budget_overrun")), (1, 1));
}

#[test]
fn a_call_that_is_denied_because_nobody_knows_its_price_is_told() {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(told.clone());
    let layer = BudgetLayer::builder().money(100).estimate_fixed(30).build().unwrap();
    let mut call = spawn(layer.layer(Model::new()).oneshot(common::request()));
    assert!(call.poll().is_ready());
    assert_eq!((told.count("failsoft_budget_unpriced"), told.count("failsoft_budget_denied")), (1, 0));
    assert_eq!(layer.budget().spend().denied(), 1);
}

#[test]
fn an_outage_of_the_store_is_told_once_and_so_is_its_end() {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(told.clone());
    let fails = Arc::new(AtomicU32::new(3));
    let leases = Leases::from(Fails(Arc::clone(&fails))).ask_again(Duration::ZERO);
    let layer = BudgetLayer::builder().store(leases).estimate_fixed(10).build().unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    for denied in [true, true, true, false] {
        assert_eq!(spawn(service.clone().oneshot(common::request())).poll().is_ready(), denied);
    }
    let count = |name| told.count(name);
    assert_eq!((count("failsoft_budget_store_failed"), count("failsoft_budget_store_recovered")), (1, 1));
    assert_eq!(count("failsoft_budget_denied"), 3);
}

/// Fails so often.
struct Fails(Arc<AtomicU32>);

impl Store for Fails {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            self.0.store(left - 1, Ordering::Relaxed);
            return Err("down".into());
        }
        Ok(Grant::new(exchange.needs, Duration::from_secs(60), exchange.limit, 0))
    }
}
