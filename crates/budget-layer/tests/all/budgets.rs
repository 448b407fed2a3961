//! Several budgets for one call: units, windows, keys, and what each says when it denies.

use std::{future::ready, task::Poll, time::Duration};

use crate::common::{Answer, Model, Request, Step, is_denied, of_session, refused, request, session, usage};
use budget_layer::{Allowance, BudgetLayer, Denial, Estimate, Estimator, Price, Reason, Unit, Window};
use failsoft_core::{BoxError, Call, Class, Denier, ErrorsOnly, Fault, Mark, Observation};
use http_body_util::BodyExt as _;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

const MINUTE: Duration = Duration::from_secs(60);

/// 100 for the prompt, 1 000 for the answer.
#[derive(Clone)]
struct Parts;

impl Estimator<Request> for Parts {
    fn estimate(&self, _: &Request) -> Estimate {
        Estimate::parts(100, 1_000)
    }
}

#[track_caller]
fn denial(err: &BoxError) -> &Denial {
    Denial::find(&**err).expect("a budget said no")
}

fn tenant(request: &Request) -> String {
    session(request).split('/').next().unwrap_or_default().to_owned()
}

/// A call in flight that is answered, and used so much.
fn answer(model: &Model, output: u64) {
    let asked = model.next();
    let slot = asked.slot();
    asked.send(Ok(Answer::read(slot, [Step::Told(usage(0, output))])));
}

async fn call<S>(service: &S, model: &Model, request: Request, output: u64) -> Result<(), BoxError>
where
    S: Service<Request, Response = crate::common::Charged, Error = BoxError, Future: Send> + Clone,
{
    let mut future = spawn(Box::pin(service.clone().oneshot(request)));
    let response = match future.poll() {
        Poll::Ready(response) => response?,
        Poll::Pending => {
            answer(model, output);
            future.await?
        }
    };
    response.into_body().collect().await?;
    Ok(())
}

#[tokio::test]
async fn a_call_is_charged_to_every_budget_it_belongs_to_or_to_none() {
    let layer = BudgetLayer::builder()
        .tokens(1_000)
        .key_fn(session)
        .also(Allowance::tokens(1_500).named("tenant").key_fn(tenant))
        .also(Allowance::tokens(2_000).named("all"))
        .estimate_fixed(600)
        .build()
        .unwrap();
    let [sessions, tenants, all] = layer.ledgers() else { panic!("three") };
    let (sessions, tenants, all) = (sessions.clone(), tenants.clone(), all.unkeyed().clone());
    let model = Model::new();
    let service = layer.layer(model.clone());
    let standing = || {
        let spent = |ledger: &budget_layer::Ledger, key| {
            ledger.budget(key).map_or((0, 0), |budget| (budget.spent(), budget.reserved()))
        };
        [
            spent(&sessions, "a/1"),
            spent(&sessions, "a/2"),
            spent(&tenants, "a"),
            (all.spent(), all.reserved()),
        ]
    };
    call(&service, &model, of_session("a/1"), 600).await.unwrap();
    call(&service, &model, of_session("a/2"), 600).await.unwrap();
    assert_eq!(standing(), [(600, 0), (600, 0), (1_200, 0), (1_200, 0)]);
    // A session has no more, a tenant has no more, all have no more: each leaves the others as they were.
    for (id, budget) in [("a/1", "session"), ("a/3", "tenant")] {
        let err = service.clone().oneshot(of_session(id)).await.err().unwrap();
        assert_eq!(denial(&err).budget(), budget);
        assert_eq!(standing(), [(600, 0), (600, 0), (1_200, 0), (1_200, 0)]);
    }
    call(&service, &model, of_session("b/1"), 600).await.unwrap();
    let err = service.oneshot(of_session("c/1")).await.err().unwrap();
    assert_eq!((denial(&err).budget(), denial(&err).left()), ("all", 200));
    assert_eq!(tenants.budget("c").unwrap().reserved(), 0);
    assert_eq!((sessions.total().denied(), tenants.total().denied(), all.spend().denied()), (1, 1, 1));
}

#[tokio::test]
async fn money_is_reserved_at_the_most_settled_by_the_buckets_and_denied_with_402() {
    // In millionths: 1 a token of input, 5 a token of output, a tenth for what a cache served.
    let price = Price::new(1_000_000, 5_000_000).cache_read(100_000);
    let layer = BudgetLayer::builder().money(10_000).price(price).estimator(Parts).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut future = spawn(service.clone().oneshot(request()));
    assert_pending!(future.poll());
    assert_eq!((budget.unit(), budget.reserved()), (Unit::Money, 100 + 5_000));
    let asked = model.next();
    let slot = asked.slot();
    let told = failsoft_core::Usage { cache_read: Some(900), ..usage(10, 1_000) };
    asked.send(Ok(Answer::read(slot, [Step::Told(told)])));
    assert_ready!(future.poll()).unwrap().into_body().collect().await.unwrap();
    assert_eq!((budget.spent(), budget.reserved()), (10 + 90 + 5_000, 0));

    let err = service.oneshot(request()).await.err().unwrap();
    let fault = Fault::find(&*err).unwrap();
    assert_eq!(fault.class(), Class::Denied(Denier::Budget));
    let response = fault.to_response();
    assert_eq!(
        (response.status().as_u16(), response.headers()["x-should-retry"].to_str().unwrap()),
        (402, "false")
    );
    assert_eq!((denial(&err).needed(), denial(&err).left(), denial(&err).renews_in()), (5_100, 4_900, None));
}

// P30: calls whose model had no price cost nothing.
#[tokio::test]
async fn what_has_no_price_is_denied_unless_one_is_given_for_it() {
    let by_model = |request: &Request| match request.uri().path() {
        "/cheap" => Some(Price::new(1_000_000, 1_000_000)),
        _ => None,
    };
    let of = |path: &'static str| {
        let mut request = request();
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let layer = BudgetLayer::builder().money(100_000).estimator(Parts).prices(by_model).build().unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    let err = service.clone().oneshot(of("/new")).await.err().unwrap();
    assert_eq!(denial(&err).reason(), Reason::Unpriced);
    assert_pending!(spawn(service.oneshot(of("/cheap"))).poll());

    let dear = Price::new(9_000_000, 9_000_000);
    let layer =
        BudgetLayer::builder().money(100_000).estimator(Parts).prices(by_model).price(dear).build().unwrap();
    let (budget, service) = (layer.budget().clone(), layer.layer(model));
    let mut calls = [of("/new"), of("/cheap")].map(|request| spawn(service.clone().oneshot(request)));
    calls.iter_mut().for_each(|call| assert!(call.poll().is_pending()));
    assert_eq!(budget.reserved(), 9 * 1_100 + 1_100);
}

// G106
#[tokio::test(start_paused = true)]
async fn a_place_among_the_calls_at_once_is_held_to_the_end_of_the_body_and_given_back_by_a_timeout() {
    let layer = BudgetLayer::builder().concurrent(2).estimate_fixed(1).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut first = spawn(service.clone().oneshot(request()));
    assert_pending!(first.poll());
    answer(&model, 5);
    let response = assert_ready!(first.poll()).unwrap();
    let hung = tokio::time::timeout(Duration::from_secs(5), service.clone().oneshot(request()));
    let mut hung = spawn(hung);
    assert_pending!(hung.poll());
    let err = service.clone().oneshot(request()).await.err().unwrap();
    assert_eq!(
        (denial(&err).reason(), denial(&err).unit(), budget.reserved()),
        (Reason::UsedUp, Unit::Concurrent, 2)
    );
    assert!(hung.await.is_err());
    assert_eq!(budget.reserved(), 1);
    response.into_body().collect().await.unwrap();
    assert_eq!((budget.reserved(), budget.spent(), budget.spend().calls()), (0, 0, 2));
}

// G108: requests and tokens of a minute shared one counter.
#[tokio::test(start_paused = true)]
async fn requests_and_tokens_of_a_minute_are_two_counters_and_both_renew() {
    let minute = || Window::sliding(MINUTE);
    let layer = BudgetLayer::builder()
        .name("tpm")
        .tokens(1_000)
        .within(minute())
        .also(Allowance::calls(3).named("rpm").within(minute()))
        .estimate_fixed(300)
        .build()
        .unwrap();
    let [tpm, rpm] = layer.ledgers() else { panic!("two") };
    let (tpm, rpm) = (tpm.unkeyed().clone(), rpm.unkeyed().clone());
    let model = Model::new();
    let service = layer.layer(model.clone());
    for _ in 0..3 {
        call(&service, &model, request(), 100).await.unwrap();
    }
    assert_eq!((tpm.spent(), rpm.spent()), (300, 3));
    let err = call(&service, &model, request(), 0).await.unwrap_err();
    assert_eq!(denial(&err).budget(), "rpm");
    let wait = denial(&err).renews_in().unwrap();
    assert!(wait > MINUTE && wait <= MINUTE + MINUTE / 30, "{wait:?}");
    let fault = Fault::find(&*err).unwrap();
    assert_eq!((fault.status_code(), fault.retry_after()), (429, Some(wait)));
    assert!(denial(&err).observation().instruction().starts_with("make no further calls for 6"));
    advance(wait).await;
    call(&service, &model, request(), 900).await.unwrap();
    let err = call(&service, &model, request(), 0).await.unwrap_err();
    assert_eq!((denial(&err).budget(), denial(&err).left()), ("tpm", 100));
    assert_eq!((rpm.spent(), tpm.spend().spent()), (1, 1_200));
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_call_counts_to_the_end_of_its_body() {
    let layer = BudgetLayer::builder()
        .time(MINUTE)
        .time_estimate(Duration::from_secs(20))
        .estimate_fixed(1)
        .build()
        .unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut future = spawn(service.clone().oneshot(request()));
    assert_pending!(future.poll());
    assert_eq!(budget.reserved(), 20_000);
    advance(Duration::from_secs(15)).await;
    answer(&model, 5);
    let response = assert_ready!(future.poll()).unwrap();
    advance(Duration::from_millis(30_500)).await;
    response.into_body().collect().await.unwrap();
    assert_eq!((budget.spent(), budget.reserved()), (45_500, 0));
    assert!(is_denied(&service.oneshot(request()).await.err().unwrap()));
}

#[tokio::test]
async fn where_there_are_free_routes_a_call_goes_on_to_them_and_is_charged_nothing() {
    let layer = BudgetLayer::builder().tokens(100).estimate_fixed(80).free_routes().build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    for (marked, spent) in [(false, 80), (true, 80)] {
        let mut future = spawn(service.clone().oneshot(request()));
        assert_pending!(future.poll());
        let asked = model.next();
        let scope = asked.call.clone().unwrap();
        assert_eq!(scope.enter(|| Call::is_marked(Mark::FreeOnly)), marked);
        // Further attempts on free routes cost nothing, either.
        assert_eq!(scope.enter(Call::take_attempt).is_ok(), marked);
        let slot = asked.slot();
        asked.send(Ok(Answer::read(slot, [Step::Told(usage(0, 80))])));
        assert_ready!(future.poll()).unwrap().into_body().collect().await.unwrap();
        assert_eq!((budget.spent(), budget.reserved()), (spent, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_has_run_wild_is_paused_for_its_session_alone_and_a_resumed_one_goes_on() {
    let layer = BudgetLayer::builder()
        .tokens(1_000_000)
        .key_fn(session)
        .pause_above(1_000, MINUTE, 10 * MINUTE)
        .estimate_fixed(400)
        .build()
        .unwrap();
    let (ledger, model) = (layer.ledger().clone(), Model::new());
    let service = layer.layer(model.clone());
    for _ in 0..3 {
        call(&service, &model, of_session("wild"), 400).await.unwrap();
    }
    let err = call(&service, &model, of_session("wild"), 400).await.unwrap_err();
    assert_eq!((denial(&err).reason(), denial(&err).renews_in()), (Reason::Paused, Some(10 * MINUTE)));
    call(&service, &model, of_session("calm"), 400).await.unwrap();
    advance(10 * MINUTE).await;
    call(&service, &model, of_session("wild"), 1_400).await.unwrap();
    let wild = ledger.budget("wild").unwrap();
    assert_eq!(wild.paused_for(), Some(10 * MINUTE));
    wild.resume();
    call(&service, &model, of_session("wild"), 1).await.unwrap();
}

#[tokio::test]
async fn a_single_call_may_not_take_more_than_a_call_may() {
    let layer = BudgetLayer::builder().per_call(500).estimate(|_: &Request| 501).build().unwrap();
    let err = layer.layer(Model::new()).oneshot(request()).await.err().unwrap();
    assert_eq!((denial(&err).reason(), denial(&err).limit()), (Reason::TooLarge, 500));
    let layer = BudgetLayer::builder().per_call(1_000).estimate_fixed(400).build().unwrap();
    let model = Model::new();
    let mut future = spawn(layer.layer(model.clone()).oneshot(request()));
    assert_pending!(future.poll());
    let scope = model.next().call.unwrap();
    assert!(scope.enter(Call::take_attempt).is_ok());
    assert!(scope.enter(Call::take_attempt).is_err(), "three attempts are more than a call may take");
}

#[tokio::test]
async fn each_further_attempt_is_a_call_more_and_what_nobody_was_asked_for_is_none() {
    let layer = BudgetLayer::builder().calls(3).estimate_fixed(1).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut future = spawn(service.clone().oneshot(request()));
    assert_pending!(future.poll());
    let asked = model.next();
    assert!(asked.call.as_ref().unwrap().enter(Call::take_attempt).is_ok());
    asked.send(Err(refused()));
    assert!(assert_ready!(future.poll()).is_err());
    assert_eq!((budget.spent(), budget.spend().calls()), (2, 1));
    let mut future = spawn(service.oneshot(request()));
    assert_pending!(future.poll());
    model.next().send(Err(Fault::new(Class::Denied(Denier::Circuit), "breaker-layer").into()));
    assert!(assert_ready!(future.poll()).is_err());
    assert_eq!((budget.spent(), budget.reserved(), budget.spend().calls()), (2, 0, 1));
}

#[cfg(feature = "calendar")]
#[tokio::test]
async fn over_a_day_a_denial_says_when_the_next_begins() {
    let layer = BudgetLayer::builder()
        .calls(1)
        .within(Window::day("Europe/Berlin").unwrap())
        .estimate_fixed(1)
        .classify(ErrorsOnly)
        .build()
        .unwrap();
    let service = layer.layer(service_fn(|(): ()| ready(Ok::<_, BoxError>(()))));
    service.clone().oneshot(()).await.unwrap();
    let err = service.oneshot(()).await.unwrap_err();
    assert!(denial(&err).renews_in().unwrap() <= Duration::from_secs(25 * 3_600));
    assert_eq!(layer.budget().renews_in().map(|renews_in| renews_in.is_zero()), Some(false));
}

#[test]
fn the_observation_of_a_restricted_call_says_which_calls_still_pass() {
    let layer = BudgetLayer::builder()
        .tokens(10)
        .soft_line(0.0)
        .allow_restricted(|reads: &bool| *reads)
        .estimate_fixed(1)
        .classify(ErrorsOnly)
        .build()
        .unwrap();
    let mut service = layer.layer(service_fn(|_: bool| ready(Ok::<_, BoxError>(()))));
    tokio_test::block_on(service.call(true)).unwrap();
    let err = tokio_test::block_on(service.call(false)).unwrap_err();
    let observation: Observation = denial(&err).observation();
    assert_eq!(observation.code(), "EXECUTION_ABORTED_TOKEN_LIMIT");
    assert!(observation.instruction().starts_with("make only those"), "{observation}");
}

#[test]
fn what_no_budget_can_be_is_named() {
    let field = |result: Result<(), failsoft_core::ConfigError>| result.map_err(|err| err.field());
    let build = |allowance: Allowance| field(BudgetLayer::builder().also(allowance).build().map(drop));
    assert_eq!(build(Allowance::tokens(9).within(Window::sliding(Duration::ZERO))), Err("within"));
    assert_eq!(build(Allowance::concurrent(9).within(Window::sliding(MINUTE))), Err("within"));
    assert_eq!(build(Allowance::tokens(9).alert_at(1.5)), Err("alert_at"));
    assert_eq!(build(Allowance::tokens(9).per_call(0)), Err("per_call"));
    assert_eq!(build(Allowance::tokens(9).pause_above(1, MINUTE, Duration::ZERO)), Err("pause_above"));
    assert_eq!(build(Allowance::tokens(9).closing_reserve(9)), Err("closing_reserve"));
    let other = BudgetLayer::builder().build().unwrap();
    let twice = BudgetLayer::builder().ledger(other.ledger().clone());
    assert_eq!(field(twice.also(Allowance::shared(other.ledger().clone())).build().map(drop)), Err("also"));
    assert_eq!(build(Allowance::shared(other.ledger().clone()).per_call(3)), Err("per_call"));
}
