//! A process ends, and another goes on where it was.

use std::time::Duration;

use crate::common::{Answer, Model, Request, Step, of_session, session, usage};
use budget_layer::{BudgetLayer, Fixed, KeyFn, LoadError, Outcome, Saved, State, Unit};
use http_body_util::BodyExt as _;
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer as _, ServiceExt as _};

const MINUTE: Duration = Duration::from_secs(60);

type Sessions = BudgetLayer<KeyFn<fn(&Request) -> String, String>, Fixed>;

fn process() -> Sessions {
    let session: fn(&Request) -> String = session;
    let builder = BudgetLayer::builder().tokens(100).estimate_fixed(30).pause_above(60, MINUTE, 10 * MINUTE);
    builder.key_fn(session).build().unwrap()
}

/// One call; whether it was sent.
fn call(layer: &Sessions, id: &str, used: u64) -> bool {
    let model = Model::new();
    let mut call = spawn(layer.layer(model.clone()).oneshot(of_session(id)));
    if call.poll().is_ready() {
        return false;
    }
    let asked = model.next();
    let slot = asked.slot();
    asked.send(Ok(Answer::read(slot, [Step::Told(usage(0, used))])));
    let response = assert_ready!(call.poll()).unwrap();
    assert_ready!(spawn(response.into_body().collect()).poll()).unwrap();
    true
}

fn written(saved: &Saved) -> Saved {
    #[cfg(feature = "serde")]
    return serde_json::from_str(&serde_json::to_string(saved).unwrap()).unwrap();
    #[cfg(not(feature = "serde"))]
    saved.clone()
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_on_with_what_it_had_spent_on_what_and_with_its_limit_and_its_pause() {
    let before = process();
    for id in ["a", "b"] {
        assert!(call(&before, id, 25));
    }
    before.ledger().open("a").unwrap().set_limit(200);
    assert!(call(&before, "a", 40));
    assert!(!call(&before, "a", 1), "paused");
    // Its connection is lost: it counts for its estimate.
    assert!(spawn(before.layer(Model::new()).oneshot(of_session("b"))).poll().is_ready());
    // In flight when the process is gone: what it cost nobody knows.
    let model = Model::new();
    let mut in_flight = spawn(before.layer(model.clone()).oneshot(of_session("b")));
    assert_pending!(in_flight.poll());
    let saved = written(&before.ledger().save());
    drop(before);

    let after = process();
    after.ledger().load(&saved).unwrap();
    let (a, b) = (after.ledger().budget("a").unwrap(), after.ledger().budget("b").unwrap());
    assert_eq!((a.limit(), a.spent(), a.paused_for()), (200, 65, Some(10 * MINUTE)));
    assert_eq!(
        (a.spend().of(Outcome::Success).calls, a.spend().of(Outcome::Success).spent, a.spend().denied()),
        (2, 65, 1)
    );
    let spent_before = 25 + 30;
    assert_eq!((b.limit(), b.spent(), b.reserved()), (100, spent_before + 30, 0));
    assert_eq!((b.spend().spent(), b.spend().carried()), (spent_before + 30, 30));
    assert!(!call(&after, "a", 1) && !call(&after, "b", 1), "one is paused, the other has 15 left");
    assert!(call(&after, "c", 1));
    tokio::time::advance(10 * MINUTE).await;
    assert!(call(&after, "a", 1));
}

#[tokio::test(start_paused = true)]
async fn no_lifetime_spend_is_forgotten_and_what_has_no_room_is_said() {
    let before = process();
    assert!((0..50).all(|id| call(&before, &id.to_string(), 10)));
    before.ledger().open("untouched").unwrap();
    let saved = written(&before.ledger().save());
    assert_eq!(saved.keyed.len(), 50, "what is as new is not saved");
    let session: fn(&Request) -> String = session;
    let small = BudgetLayer::builder().tokens(100).key_fn(session).max_keys(20).build().unwrap();
    assert_eq!(small.ledger().load(&saved), Err(LoadError::KeysFull { left_out: 30 }));
    assert_eq!((small.ledger().len(), small.ledger().total().spent()), (20, 200));
    let after = process();
    after.ledger().load(&saved).unwrap();
    assert_eq!(after.ledger().total().spent(), 500);

    let calls = BudgetLayer::builder().calls(5).build().unwrap();
    let err = calls.ledger().load(&saved).unwrap_err();
    assert_eq!(err, LoadError::Unit { saved: Unit::Tokens, own: Unit::Calls });
}

#[tokio::test(start_paused = true)]
async fn what_was_spent_in_a_window_counts_from_the_restart_on_and_then_its_key_may_go() {
    let window = || budget_layer::Window::sliding(MINUTE);
    let session: fn(&Request) -> String = session;
    let layer = || {
        let builder = BudgetLayer::builder().tokens(100).within(window()).estimate_fixed(30).max_keys(1);
        builder.key_fn(session).build().unwrap()
    };
    let before = layer();
    assert!(call(&before, "a", 90));
    let after = layer();
    after.ledger().load(&written(&before.ledger().save())).unwrap();
    assert!(!call(&after, "a", 1) && !call(&after, "b", 1));
    tokio::time::advance(2 * MINUTE).await;
    assert!(call(&after, "b", 1), "nothing keeps the place of the other any more");
}

#[cfg(feature = "calendar")]
#[test]
fn of_a_day_that_is_over_nothing_is_spent_and_of_the_present_one_all_is() {
    let day = || budget_layer::Window::day("UTC").unwrap();
    let layer = || BudgetLayer::builder().tokens(100).within(day()).estimate_fixed(30).build().unwrap();
    let mut state = State::new(100, 60);
    state.period_ends_ms = Some(1_700_000_000_000);
    let over = layer();
    over.budget().load(&state);
    assert_eq!((over.budget().spent(), over.budget().spend().spent()), (0, 60));
    state.period_ends_ms = Some(i64::MAX);
    let present = layer();
    present.budget().load(&state);
    assert_eq!(present.budget().spent(), 60);
    assert!(present.budget().save().period_ends_ms.is_some_and(|ends| ends > 1_700_000_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_was_set_is_loaded_and_one_of_the_configuration_follows_it() {
    let of = |tokens| {
        let session: fn(&Request) -> String = session;
        BudgetLayer::builder().tokens(tokens).estimate_fixed(30).key_fn(session).max_keys(3).build().unwrap()
    };
    let before = of(100);
    for id in ["plain", "raised", "same"] {
        assert!(call(&before, id, 25));
    }
    for (id, limit) in [("raised", 500), ("same", 100)] {
        before.ledger().budget(id).unwrap().set_limit(limit);
    }
    let mut saved = written(&before.ledger().save());
    // The configuration changes once, and once more: what was set stays so.
    for configured in [200, 60] {
        let after = of(configured);
        after.ledger().load(&saved).unwrap();
        let standing = |id: &str| {
            let budget = after.ledger().budget(id).unwrap();
            (budget.limit(), budget.spent())
        };
        assert_eq!(
            ["plain", "raised", "same"].map(standing),
            [(configured, 25), (500, 25), (100, 25)],
            "{configured}"
        );
        assert_eq!(after.ledger().unkeyed().limit(), configured);
        saved = written(&after.ledger().save());
    }
    // The lines are where the new limit has them.
    let after = of(30);
    after.ledger().load(&saved).unwrap();
    let plain = after.ledger().budget("plain").unwrap();
    assert_eq!((plain.limit(), plain.remaining(), plain.line()), (30, 5, budget_layer::Line::Soft));
    assert!(!call(&after, "plain", 1));
    // A limit that was set here already is not undone by one of another configuration.
    let after = of(100);
    after.ledger().open("plain").unwrap().set_limit(77);
    after.ledger().load(&saved).unwrap();
    assert_eq!(after.ledger().budget("plain").unwrap().limit(), 77);
}

#[test]
fn a_state_that_does_not_say_whose_its_limit_was_is_loaded_with_it() {
    let layer = BudgetLayer::builder().tokens(100).build().unwrap();
    layer.budget().load(&State::new(40, 10));
    assert_eq!((layer.budget().limit(), layer.budget().save().limit_is_set), (40, Some(true)));
    let layer = BudgetLayer::builder().tokens(100).build().unwrap();
    layer.budget().load(&State::new(100, 10));
    assert_eq!((layer.budget().limit(), layer.budget().save().limit_is_set), (100, Some(false)));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_no_store_was_told_of_yet_is_told_after_a_restart_and_no_other() {
    let store = budget_layer::MemoryStore::new();
    let layer = || {
        let builder = BudgetLayer::builder().tokens(100).estimate_fixed(30);
        builder.store(budget_layer::Leases::from(store.clone())).build().unwrap()
    };
    let (before, other) = (layer(), layer());
    before.budget().set_limit(40);
    let saved = written(&before.ledger().save());
    let after = layer();
    after.ledger().load(&saved).unwrap();
    assert_eq!(after.budget().limit(), 40);
    let model = Model::new();
    let mut sent = spawn(after.layer(model.clone()).oneshot(crate::common::request()));
    assert_pending!(sent.poll());
    assert_eq!(after.budget().save().limit_is_set, Some(false), "the store knows it");
    // Another has set it since: what was saved of it undoes nothing.
    let saved = written(&after.ledger().save());
    let mut theirs = spawn(other.layer(model.clone()).oneshot(crate::common::request()));
    assert!(theirs.poll().is_ready(), "40 less 30");
    other.budget().set_limit(300);
    let mut theirs = spawn(other.layer(model.clone()).oneshot(crate::common::request()));
    assert_pending!(theirs.poll());
    let last = layer();
    last.ledger().load(&saved).unwrap();
    let mut mine = spawn(last.layer(model.clone()).oneshot(crate::common::request()));
    assert_pending!(mine.poll());
    assert_eq!((last.budget().limit(), model.waiting()), (300, 3));
}

#[test]
fn the_largest_numbers_are_loaded_without_harm() {
    let layer = BudgetLayer::builder().build().unwrap();
    let mut state = State::new(u64::MAX, u64::MAX);
    (state.reserved, state.paused_ms) = (u64::MAX, Some(u64::MAX));
    layer.budget().load(&state);
    assert_eq!((layer.budget().limit(), layer.budget().remaining()), (u64::MAX, 1));
    layer.budget().load(&State::default());
    assert_eq!((layer.budget().limit(), layer.budget().spent()), (0, 0));
}

#[cfg(feature = "serde")]
#[test]
fn what_is_written_names_the_outcomes_and_a_later_version_is_read_too() {
    let layer = process();
    assert!(call(&layer, "a", 25));
    let json = serde_json::to_value(layer.ledger().save()).unwrap();
    let spend = serde_json::json!({
        "spent": 25, "denied": 0, "unknown": 0, "late": 0,
        "outcomes": {"success": {"calls": 1, "spent": 25}},
    });
    assert_eq!(json["keyed"][0][1]["spend"], spend);
    let later = r#"{"spent": 40, "outcomes": {"success": {"calls": 1, "spent": 25}, "unheard_of": {"calls": 1, "spent": 15}}}"#;
    let later: budget_layer::Spend = serde_json::from_str(later).unwrap();
    assert_eq!((later.spent(), later.calls(), later.carried()), (40, 1, 15));
    let state: State = serde_json::from_str(r#"{"limit": 100, "spent": 7}"#).unwrap();
    assert_eq!(state, State::new(100, 7));
    let snapshot = layer.ledger().budget("a").unwrap().snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(text, r#"{"limit":100,"spent":25,"reserved":0}"#);
    assert_eq!(serde_json::from_str::<budget_layer::Snapshot>(&text).unwrap(), snapshot);
    for outcome in Outcome::ALL {
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(text, format!("{:?}", outcome.as_str()));
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}
