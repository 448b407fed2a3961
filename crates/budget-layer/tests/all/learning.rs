//! What calls teach of the calls after them.

use crate::common::{Answer, Model, Request, Step, usage};
use budget_layer::{Budget, BudgetBuilder, BudgetLayer, Estimator, FromRequest, Learned};
use http_body_util::BodyExt as _;
use tokio_test::{assert_pending, assert_ready, task::spawn};
use tower::{Layer as _, ServiceExt as _};

/// Enough, so that nothing is denied.
const LIMIT: u64 = 10_000_000;

fn builder() -> BudgetBuilder {
    BudgetLayer::builder().tokens(LIMIT)
}

fn of_model(model: &str) -> Request {
    let body = format!(r#"{{"model": "{model}", "messages": []}}"#);
    http::Request::builder().uri("/v1/chat/completions").body(body).unwrap()
}

/// How a call goes.
#[derive(Clone, Copy)]
enum Goes {
    /// To its end, and the reader says what it used.
    Well(u64),
    /// The caller hangs up after so much.
    Dropped(u64),
    /// It breaks off after so much.
    Cut(u64),
    /// To its end, and nobody says anything.
    Silent,
}

/// Makes a call, and says what was reserved for it.
async fn call<K, E>(layer: &BudgetLayer<K, E>, budget: &Budget, request: Request, goes: Goes) -> u64
where
    BudgetLayer<K, E>: tower::Layer<Model>,
    <BudgetLayer<K, E> as tower::Layer<Model>>::Service:
        tower::Service<Request, Response = crate::common::Charged, Error = failsoft_core::BoxError>,
{
    let model = Model::new();
    let mut future = spawn(Box::pin(layer.layer(model.clone()).oneshot(request)));
    assert_pending!(future.poll());
    let reserved = budget.reserved();
    let asked = model.next();
    let slot = asked.slot();
    let told = |output| Step::Told(usage(10, output));
    asked.send(Ok(match goes {
        Goes::Well(output) => Answer::read(slot, [told(output)]),
        Goes::Dropped(output) => Answer::read(slot, [told(output), Step::Text]),
        Goes::Cut(output) => Answer::read(slot, [told(output), Step::Cut]),
        Goes::Silent => Answer::read(slot, [Step::Text]),
    }));
    let response = assert_ready!(future.poll()).unwrap();
    if matches!(goes, Goes::Dropped(_)) {
        response.into_body().frame().await.unwrap().unwrap();
    } else {
        let _ = response.into_body().collect().await;
    }
    assert_eq!(budget.reserved(), 0);
    reserved
}

fn input(request: &Request) -> u64 {
    FromRequest::new().estimate(request).split().unwrap().0
}

#[tokio::test]
async fn an_answer_that_nothing_limits_is_reserved_by_the_answers_of_its_model_before() {
    let layer = builder().build().unwrap();
    let budget = layer.budget().clone();
    let of = |model| of_model(model);
    for _ in 0..8 {
        let reserved = call(&layer, &budget, of("small"), Goes::Well(240)).await;
        assert_eq!(reserved, input(&of("small")) + 1_000, "too few were seen");
    }
    for _ in 0..30 {
        call(&layer, &budget, of("small"), Goes::Well(240)).await;
    }
    let reserved = call(&layer, &budget, of("small"), Goes::Well(240)).await;
    assert_eq!(reserved, input(&of("small")) + 240 + 3);
    // Another is not known.
    assert_eq!(call(&layer, &budget, of("other"), Goes::Well(40)).await, input(&of("other")) + 1_000);
    // The services of one layer learn together, and another layer is told what is known.
    let learned = Learned::new();
    (0..40).for_each(|_| learned.of("small").learn(200));
    let told = builder().estimator(FromRequest::new().learned(learned)).build().unwrap();
    let budget = told.budget().clone();
    assert_eq!(call(&told, &budget, of("small"), Goes::Well(40)).await, input(&of("small")) + 200 + 3);
}

#[tokio::test]
async fn what_was_dropped_cut_off_or_not_said_teaches_nothing() {
    let layer = builder().build().unwrap();
    let budget = layer.budget().clone();
    for goes in [Goes::Dropped(3), Goes::Cut(3), Goes::Silent] {
        for _ in 0..20 {
            let reserved = call(&layer, &budget, of_model("small"), goes).await;
            assert_eq!(reserved, input(&of_model("small")) + 1_000);
        }
    }
}

#[tokio::test]
async fn a_call_that_goes_over_what_was_learnt_is_booked_in_full_and_the_next_is_reserved_for_more() {
    let layer = builder().build().unwrap();
    let budget = layer.budget().clone();
    for _ in 0..40 {
        call(&layer, &budget, of_model("small"), Goes::Well(40)).await;
    }
    let before = budget.spent();
    call(&layer, &budget, of_model("small"), Goes::Well(5_000)).await;
    assert_eq!(budget.spent() - before, 10 + 5_000);
    let reserved = call(&layer, &budget, of_model("small"), Goes::Well(40)).await;
    assert!(reserved > 5_000, "{reserved}");
}

#[tokio::test]
async fn a_key_of_ones_own_is_learnt_by_also_for_tools() {
    let by_agent = |request: &Request| {
        request.headers().get("x-agent").map_or(String::new(), |agent| agent.to_str().unwrap().to_owned())
    };
    let layer = builder().learn_by(by_agent).build().unwrap();
    let budget = layer.budget().clone();
    let of = |agent: &'static str, mut request: Request| {
        request.headers_mut().insert("x-agent", http::HeaderValue::from_static(agent));
        request
    };
    for _ in 0..40 {
        call(&layer, &budget, of("planner", of_model("m")), Goes::Well(400)).await;
        call(&layer, &budget, of("searcher", crate::common::request()), Goes::Well(40)).await;
    }
    let input = input(&of_model("m"));
    for (agent, request, expected) in [
        ("planner", of_model("m"), input + 400 + 3),
        ("writer", of_model("m"), input + 1_000),
        ("searcher", crate::common::request(), 50 + 3),
        ("fetcher", crate::common::request(), 500),
    ] {
        assert_eq!(call(&layer, &budget, of(agent, request), Goes::Silent).await, expected, "{agent}");
    }
    // What the request limits is not learnt, and not guessed.
    let limited = http::Request::new(r#"{"max_tokens": 7}"#.to_owned());
    assert_eq!(call(&layer, &budget, of("planner", limited), Goes::Well(7)).await, 5 + 7);
}
