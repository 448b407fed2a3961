//! Which calls are admitted, and what a denial leaves behind.

use std::{
    future::{poll_fn, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::common::{Answer, Model, Request, Step, is_denied, of_session, request, reset, session, usage};
use budget_layer::{BudgetLayer, Budgeted, Line, Outcome, ResponseFuture, Snapshot};
use failsoft_core::{BoxError, ByResponse, Call, ErrorsOnly, Fault, Mark, Observation};
use http_body_util::BodyExt as _;
use static_assertions::assert_impl_all;
use tokio_test::{assert_pending, task::spawn};
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, buffer::Buffer, limit::ConcurrencyLimit};

assert_impl_all!(BudgetLayer: Clone, Send, Sync);
assert_impl_all!(Budgeted<Model>: Clone, Send, Sync);
assert_impl_all!(Budgeted<reqwest::Client>: Clone, Send, Sync);
assert_impl_all!(ResponseFuture<<Model as Service<Request>>::Future, ByResponse, Model, Request>: Send);

// P30, G101: check then record let all of 1 000 pass, and 35 $ were spent of 0.10 $.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_calls_at_once_exactly_the_hundred_pass_for_which_there_is_enough() {
    let layer =
        BudgetLayer::builder().tokens(100 * 35).estimate_fixed(35).classify(ErrorsOnly).build().unwrap();
    let budget = layer.budget().clone();
    let called = Arc::new(AtomicUsize::new(0));
    let service = layer.layer(tower::service_fn({
        let called = Arc::clone(&called);
        move |(): ()| {
            called.fetch_add(1, Ordering::SeqCst);
            let slot = Call::slot();
            async move {
                tokio::task::yield_now().await;
                slot.unwrap().set(&usage(10, 25));
                Ok::<_, BoxError>(())
            }
        }
    }));
    let calls: Vec<_> = (0..1_000).map(|_| tokio::spawn(service.clone().oneshot(()))).collect();
    let mut admitted = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(()) => admitted += 1,
            Err(err) => assert!(is_denied(&err)),
        }
        assert!(budget.remaining() <= budget.limit());
    }
    assert_eq!((admitted, called.load(Ordering::SeqCst)), (100, 100));
    assert_eq!((budget.spent(), budget.reserved(), budget.spend().denied()), (3_500, 0, 900));
}

// G107
#[tokio::test]
async fn a_denial_changes_nothing_and_says_what_is_left_and_to_conclude() {
    let model = Model::new();
    let layer = BudgetLayer::builder().name("tests").tokens(100).estimate_fixed(60).build().unwrap();
    let budget = layer.budget().clone();
    let service = layer.layer(model.clone());
    let mut first = spawn(service.clone().oneshot(request()));
    assert_pending!(first.poll());
    for denied in 1..4 {
        let err = service.clone().oneshot(request()).await.err().unwrap();
        let fault = Fault::find(&*err).unwrap();
        assert!(is_denied(&err));
        assert_eq!(
            (fault.status_code(), fault.target(), fault.layer()),
            (429, Some("tests"), "budget-layer")
        );
        let message = fault.message().unwrap();
        assert!(message.starts_with("60 tokens are needed and 40 of 100 are left"), "{message}");
        assert!(message.contains(Observation::of(fault).instruction()), "{message}");
        assert_eq!((budget.reserved(), budget.spent(), budget.spend().denied()), (60, 0, denied));
    }
    assert_eq!(model.waiting(), 1, "the inner service was called once");
}

#[test]
fn as_a_response_a_denial_is_a_429_that_forbids_retrying() {
    let layer = BudgetLayer::builder().tokens(0).estimate_fixed(1).classify(ErrorsOnly).build().unwrap();
    let mut service = layer.layer(tower::service_fn(|(): ()| ready(Ok::<_, BoxError>(()))));
    let err = tokio_test::block_on(service.call(())).unwrap_err();
    let fault = err.downcast::<Fault>().unwrap();
    let response = fault.to_response();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-should-retry"]),
        (429, &"false".parse().unwrap())
    );
}

#[tokio::test]
async fn each_session_has_its_own_budget() {
    let layer = BudgetLayer::builder().tokens(50).estimate_fixed(50).key_fn(session).build().unwrap();
    let (ledger, model) = (layer.ledger().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut calls: Vec<_> = ["a", "b", "a"].map(|id| spawn(service.clone().oneshot(of_session(id)))).into();
    assert_pending!(calls[0].poll());
    assert_pending!(calls[1].poll());
    assert!(is_denied(&tokio_test::assert_ready_err!(calls[2].poll())));
    drop(calls);
    let spent = |id: &str| ledger.budget(id).map(|budget| budget.spent());
    assert_eq!([spent("a"), spent("b"), spent("c")], [Some(50), Some(50), None]);
    assert_eq!(ledger.unkeyed().spent(), 0);
    let total = ledger.total();
    assert_eq!((total.spent(), total.of(Outcome::Cancelled).calls, total.denied()), (100, 2, 1));
}

// Outside tokio, whose own budget for a task would end before this does.
#[test]
fn a_session_that_spent_is_never_forgotten_and_a_new_one_that_finds_no_room_is_denied() {
    let layer =
        BudgetLayer::builder().tokens(50).estimate_fixed(50).max_keys(3).key_fn(session).build().unwrap();
    let (ledger, model) = (layer.ledger().clone(), Model::new());
    let service = layer.layer(model.clone());
    for id in ["a", "b", "free"] {
        let mut call = spawn(service.clone().oneshot(of_session(id)));
        assert_pending!(call.poll());
        if id == "free" {
            // Turned down: nothing was spent.
            model.next().send(Err(crate::common::refused()));
            assert!(tokio_test::assert_ready!(call.poll()).is_err());
        } else {
            drop(call);
            model.next();
        }
    }
    for id in 0..1_000 {
        // These cost nothing, so each makes room for the next.
        let mut call = spawn(service.clone().oneshot(of_session(&format!("passing {id}"))));
        assert_pending!(call.poll());
        model.next().send(Err(crate::common::refused()));
        assert!(tokio_test::assert_ready!(call.poll()).is_err());
    }
    drop(spawn(service.clone().oneshot(of_session("c"))).poll());
    assert_eq!(ledger.len(), 3);
    let denied =
        tokio_test::assert_ready!(spawn(service.clone().oneshot(of_session("d"))).poll()).err().unwrap();
    assert!(is_denied(&denied) && denied.to_string().contains("no room"), "{denied}");
    assert_eq!(ledger.turned_away(), 1);
    assert_eq!(ledger.close("a"), Some(Snapshot { limit: 50, spent: 50, reserved: 0 }));
    assert_pending!(spawn(service.oneshot(of_session("d"))).poll());
}

#[tokio::test]
async fn past_the_soft_line_only_the_allowed_calls_pass_and_at_the_limit_none() {
    let layer = BudgetLayer::builder()
        .tokens(100)
        .estimate_fixed(5)
        .allow_restricted(|request: &Request| request.method() == http::Method::HEAD)
        .build()
        .unwrap();
    let budget = layer.budget().clone();
    let service = layer.layer(Model::new());
    let call = |method: http::Method| {
        let mut request = request();
        *request.method_mut() = method;
        let mut call = spawn(service.clone().oneshot(request));
        let pending = call.poll().is_pending();
        std::mem::forget(call); // it stays in flight
        pending
    };
    assert!((0..17).all(|_| call(http::Method::GET)));
    assert_eq!((budget.reserved(), budget.line()), (85, Line::Soft));
    assert!(!call(http::Method::GET));
    assert!((0..3).all(|_| call(http::Method::HEAD)));
    assert_eq!((budget.remaining(), budget.line()), (0, Line::Hard));
    assert!(!call(http::Method::HEAD));
    budget.set_limit(200);
    assert!(call(http::Method::GET), "a raised limit counts from the next call on");
    budget.set_limit(10);
    assert!(!call(http::Method::HEAD));
    assert_eq!(budget.remaining(), 0);
}

#[tokio::test]
async fn the_closing_reserve_serves_the_final_call_of_a_session_and_the_outer_mark_is_seen() {
    let layer = BudgetLayer::builder()
        .tokens(100)
        .closing_reserve(20)
        .soft_line(1.0)
        .estimate_fixed(20)
        .build()
        .unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    let mut calls: Vec<_> = (0..5).map(|_| spawn(service.clone().oneshot(request()))).collect();
    let pending = calls.iter_mut().filter_map(|call| call.poll().is_pending().then_some(())).count();
    assert_eq!(pending, 4);
    let last = Call::options().mark(Mark::Final).begin();
    let mut last = spawn(last.scope(service.clone().oneshot(request())));
    assert_pending!(last.poll());
    let again = Call::options().mark(Mark::Final).begin();
    assert!(is_denied(&again.scope(service.oneshot(request())).await.err().unwrap()));
}

#[tokio::test]
async fn a_restored_session_goes_on_with_what_it_had_spent() {
    let layer = BudgetLayer::builder().tokens(100).estimate_fixed(30).key_fn(session).build().unwrap();
    layer.ledger().open("a").unwrap().restore(&Snapshot { limit: 120, spent: 80, reserved: 0 });
    let service = layer.layer(Model::new());
    let mut call = spawn(service.clone().oneshot(of_session("a")));
    assert_pending!(call.poll());
    assert!(is_denied(&service.oneshot(of_session("a")).await.err().unwrap()));
    let budget = layer.ledger().budget("a").unwrap();
    assert_eq!(budget.snapshot(), Snapshot { limit: 120, spent: 80, reserved: 30 });
    assert_eq!((budget.spend().carried(), budget.spend().calls()), (80, 0));
}

// G103: streams that failed to open kept their reservations, and the session was blocked for nothing.
#[tokio::test]
async fn calls_that_fail_before_an_answer_keep_no_reservation() {
    let layer = BudgetLayer::builder().tokens(100).estimate_fixed(100).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    for _ in 0..50 {
        let mut call = spawn(service.clone().oneshot(request()));
        assert_pending!(call.poll());
        let mut busy = Answer::unread([]);
        *busy.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        model.next().send(Ok(busy));
        assert_eq!(tokio_test::assert_ready_ok!(call.poll()).status(), 503);
    }
    assert_eq!((budget.spent(), budget.reserved()), (0, 0));
    assert_eq!(budget.spend().of(Outcome::Overloaded).calls, 50);
}

#[tokio::test(start_paused = true)]
async fn a_denial_lets_the_readiness_of_the_inner_service_go() {
    let layer = BudgetLayer::builder().tokens(10).estimate_fixed(10).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let mut denied = layer.layer(ConcurrencyLimit::new(model.clone(), 1));
    let other = denied.clone();
    poll_fn(|cx| denied.poll_ready(cx)).await.unwrap();
    budget.set_limit(0);
    assert!(is_denied(&denied.call(request()).await.err().unwrap()));
    budget.set_limit(10);
    let mut call = spawn(other.oneshot(request()));
    assert_pending!(call.poll());
    assert_eq!(model.waiting(), 1, "the only permit was given back");
    drop(denied);
}

#[tokio::test(start_paused = true)]
async fn readiness_is_passed_through_and_a_denial_is_no_readiness_error() {
    let layer = BudgetLayer::builder().tokens(0).estimate_fixed(10).build().unwrap();
    let mut service = layer.layer(Model::new());
    for _ in 0..3 {
        for _ in 0..3 {
            poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        }
        assert!(is_denied(&service.call(request()).await.err().unwrap()));
    }
    // A worker of a buffer dies of an error of readiness; it must live on.
    let mut buffered = Buffer::new(service, 4);
    layer.budget().set_limit(0);
    for _ in 0..3 {
        assert!(is_denied(&buffered.ready().await.unwrap().call(request()).await.err().unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_buffer_may_stand_inside_and_outside() {
    async fn answers(model: Model) {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            while model.waiting() > 0 {
                model.next().send(Ok(Answer::unread([Step::Text])));
            }
        }
    }
    let layer = BudgetLayer::builder().tokens(1_000).estimate_fixed(10).build().unwrap();
    let model = Model::new();
    tokio::spawn(answers(model.clone()));
    let inside = layer.layer(Buffer::new(model.clone(), 2));
    let outside = Buffer::new(layer.layer(model), 2);
    for _ in 0..5 {
        inside.clone().oneshot(request()).await.unwrap().into_body().collect().await.unwrap();
        outside.clone().oneshot(request()).await.unwrap().into_body().collect().await.unwrap();
    }
    assert_eq!((layer.budget().spent(), layer.budget().reserved()), (100, 0));
    assert_eq!(layer.budget().spend().unknown(), 10);
}

// P20: a layer that is applied again keeps its state.
#[tokio::test]
async fn services_of_one_layer_share_its_budgets() {
    let layer = BudgetLayer::builder().tokens(10).estimate_fixed(10).classify(ErrorsOnly).build().unwrap();
    let make =
        || ServiceBuilder::new().layer(layer.clone()).service_fn(|(): ()| ready(Ok::<_, BoxError>(())));
    make().oneshot(()).await.unwrap();
    assert!(is_denied(&make().oneshot(()).await.unwrap_err()));
}

#[tokio::test]
async fn a_model_and_its_tools_spend_from_one_session() {
    let model = BudgetLayer::builder().tokens(100).estimate_fixed(80).key_fn(session).build().unwrap();
    let tools = BudgetLayer::builder()
        .ledger(model.ledger().clone())
        .key_fn(|session: &&'static str| *session)
        .estimate_fixed(30)
        .classify(ErrorsOnly)
        .build()
        .unwrap();
    let tool = tools.layer(tower::service_fn(|_: &'static str| ready(Ok::<_, BoxError>(()))));
    let inner = Model::new();
    let mut call = spawn(model.layer(inner.clone()).oneshot(of_session("a")));
    assert_pending!(call.poll());
    assert!(is_denied(&tool.clone().oneshot("a").await.unwrap_err()));
    tool.oneshot("b").await.unwrap();
    let shared = BudgetLayer::builder().ledger(model.ledger().clone()).tokens(7).build();
    assert_eq!(shared.map(drop).map_err(|err| err.field()), Err("tokens"));
}

#[tokio::test]
async fn an_estimate_of_nothing_counts_as_one() {
    let layer = BudgetLayer::builder().tokens(2).estimate(|_: &Request| 0).build().unwrap();
    let service = layer.layer(Model::new());
    let mut calls: Vec<_> = (0..3).map(|_| spawn(service.clone().oneshot(request()))).collect();
    assert_eq!(calls.iter_mut().filter_map(|call| call.poll().is_pending().then_some(())).count(), 2);
}

#[test]
fn the_builder_names_what_is_out_of_range() {
    let field = |err: failsoft_core::ConfigError| err.field();
    for bad in [-0.1, 1.1, f64::NAN] {
        assert_eq!(BudgetLayer::builder().soft_line(bad).build().map(drop).map_err(field), Err("soft_line"));
    }
    assert_eq!(BudgetLayer::builder().max_keys(0).build().map(drop).map_err(field), Err("max_keys"));
    let reserve = BudgetLayer::builder().tokens(10).closing_reserve(10).build();
    assert_eq!(reserve.map(drop).map_err(field), Err("closing_reserve"));
    assert_eq!(BudgetLayer::builder().build().unwrap().budget().limit(), 50_000);
}

// V-H6 and G97 through the whole layer; more in `settling.rs`.
#[tokio::test]
async fn an_error_after_the_request_was_sent_keeps_the_estimate_and_flags_it() {
    let layer = BudgetLayer::builder().tokens(100).estimate_fixed(30).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let mut call = spawn(layer.layer(model.clone()).oneshot(request()));
    assert_pending!(call.poll());
    model.next().send(Err(reset()));
    assert!(tokio_test::assert_ready!(call.poll()).is_err());
    assert_eq!((budget.spent(), budget.reserved(), budget.spend().unknown()), (30, 0, 1));
}
