//! The last tiers, and the mark on what stands in.

use std::{convert::Infallible, time::Duration};

use crate::support::{Does, Fit, Target, fault, traced};
use failsoft_core::{
    Call, Class, Condition, DEGRADED_HEADER, Degraded, Denier, ErrorsOnly, Insight, Mark, StandIn, Verdict,
};
use fallback_layer::{
    BoxRoute, FallbackLayer, Order, Return, Route, Row, WhenAllPoor,
    last_good::{self, Key},
    tier::{self, Ticket},
};
use http::{Request, Response, StatusCode, header};
use tower::{Layer, ServiceExt, service_fn};

type Res = &'static str;

fn queue(does: Does) -> Route<BoxRoute<u8, Res>> {
    let target = Target::new("q1", does);
    let queue = service_fn(move |ask: u8| {
        let target = target.clone();
        async move { target.oneshot(ask).await.map(str::to_owned) }
    });
    let deferred =
        tier::deferred_with(queue, |ticket: Ticket| if &*ticket.id == "q1" { "later" } else { "?" });
    Route::boxed("queue", deferred).last_tier(StandIn::Deferred)
}

fn computed() -> Route<BoxRoute<u8, Res>> {
    Route::boxed("computed", tier::computed(|ask: &u8| (*ask == 1).then_some("one")))
        .last_tier(StandIn::Computed)
}

macro_rules! tiers {
    ($first:expr $(, $more:ident($($arg:expr),*))*) => {
        FallbackLayer::builder().classify(ErrorsOnly).replay(failsoft_core::Cloned).name("a")$(.$more($($arg),*))*
            .build().unwrap().layer($first.clone())
    };
}

#[tokio::test]
async fn the_tiers_are_asked_in_their_order_when_every_route_has_failed() {
    let (a, b) =
        (Target::new("a", Does::Fail(Class::Overloaded)), Target::new("b", Does::Fail(Class::Transient)));
    // Where they stand among the routes does not matter.
    let service =
        tiers!(a, route(computed()), route(queue(Does::Answer)), route(Route::boxed("b", b.clone())));
    let (answer, trail) = traced(service.clone().oneshot(1)).await;
    assert_eq!(answer.unwrap(), "one");
    assert_eq!(trail, "a overloaded (next_route) > b transient (next_route) > computed success (answered)");
    let (answer, trail) = traced(service.clone().oneshot(2)).await;
    assert_eq!(answer.unwrap(), "later");
    assert!(trail.ends_with("computed invalid (skipped) > queue success (answered)"), "{trail}");
    b.now(Does::Answer);
    assert_eq!(service.oneshot(1).await.unwrap(), "b");
}

#[tokio::test]
async fn a_last_good_answer_comes_before_the_tiers() {
    let a = Target::new("a", Does::Answer);
    let keep = last_good::cloned(|ask: &u8| Some(Key::new("t", [*ask])));
    let service = tiers!(a, route(computed()), keep_last_good(keep));
    assert_eq!(service.clone().oneshot(1).await.unwrap(), "a");
    a.now(Does::Fail(Class::Overloaded));
    assert_eq!(service.clone().oneshot(1).await.unwrap(), "a");
    let fresh = tiers!(a, route(computed()));
    assert_eq!(fresh.oneshot(1).await.unwrap(), "one");
}

#[tokio::test]
async fn a_tier_stands_in_only_for_failures_that_allow_it() {
    for (class, expected) in [
        (Class::Transient, true),
        (Class::Quota, true),
        (Class::Denied(Denier::Circuit), true),
        (Class::Invalid, false),
        (Class::Auth, false),
        (Class::Refused, false),
        (Class::Denied(Denier::Budget), false),
    ] {
        let a = Target::new("a", Does::Fail(class));
        let service = tiers!(a, route(computed()));
        assert_eq!(service.oneshot(1).await.is_ok(), expected, "{class}");
    }
    let a = Target::new("a", Does::Fail(Class::Invalid));
    assert!(tiers!(a, route(computed()), stand_in(Row::Invalid, true)).oneshot(1).await.is_ok());
}

#[tokio::test]
async fn neither_the_number_of_routes_nor_of_attempts_nor_free_only_keeps_a_tier_away() {
    let (a, b) = (Target::new("a", Does::Fail(Class::Overloaded)), Target::new("b", Does::Answer));
    let service = tiers!(a, route(Route::boxed("b", b.clone())), route(computed()), max_routes(1));
    assert_eq!(service.oneshot(1).await.unwrap(), "one");

    let service = tiers!(a, route(Route::boxed("b", b.clone())), route(computed()));
    let call = Call::options().max_attempts(1).begin();
    assert_eq!(call.scope(service.clone().oneshot(1)).await.unwrap(), "one");
    let call = Call::options().mark(Mark::FreeOnly).begin();
    // What is refused by a budget has no stand-in by default.
    call.scope(service.oneshot(1)).await.unwrap_err();
    let service = tiers!(a, route(computed()), stand_in(Row::DeniedOtherwise, true));
    let call = Call::options().mark(Mark::FreeOnly).begin();
    assert_eq!(call.scope(service.oneshot(1)).await.unwrap(), "one");
    assert_eq!(b.calls(), 0);
}

#[tokio::test]
async fn all_routes_poor_and_failing_fast_has_its_tier_and_when_that_fails_the_same_error() {
    let a = Target::new("a", Does::Answer);
    let poor = || Fit::new(Condition::Poor, Some(7));
    let service = tiers!(a, health(poor()), route(computed()), when_all_poor(WhenAllPoor::FailFast));
    let (answer, trail) = traced(service.clone().oneshot(1)).await;
    assert_eq!(answer.unwrap(), "one");
    assert_eq!(trail, "a denied.circuit (skipped) > computed success (answered)");
    let err = service.oneshot(2).await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Denied(Denier::Circuit));
    assert_eq!(fault(&err).retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(a.calls(), 0);
}

#[tokio::test]
async fn a_queue_that_fails_is_a_typed_error_beside_what_the_routes_failed_of() {
    let a = Target::new("a", Does::Fail(Class::Overloaded));
    let service = tiers!(a, route(queue(Does::Fail(Class::Transient))));
    let (answer, trail) = traced(service.oneshot(2)).await;
    let err = answer.unwrap_err();
    // What the call has failed of is what its route has failed of.
    assert_eq!((fault(&err).class(), fault(&err).target()), (Class::Overloaded, Some("a")));
    assert_eq!(trail, "a overloaded (next_route) > queue transient (no_route_left)");

    let service = tiers!(a, route(queue(Does::Fail(Class::Transient))), returns(Return::Last));
    let err = service.oneshot(2).await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Transient);
    assert!(err.to_string().contains("could not be queued"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn where_the_time_is_used_up_a_tier_has_two_seconds_more() {
    let a = Target::new("a", Does::Hang);
    let service = tiers!(
        a,
        route(queue(Does::AnswerAfter(Duration::from_millis(1_999)))),
        timeout(Duration::from_secs(20))
    );
    let start = tokio::time::Instant::now();
    assert_eq!(service.oneshot(2).await.unwrap(), "later");
    assert_eq!(start.elapsed(), Duration::from_millis(21_999), "the last route has all the time there is");

    let service = tiers!(a, route(queue(Does::Hang)), timeout(Duration::from_secs(20)));
    let start = tokio::time::Instant::now();
    let err = service.oneshot(2).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(22));
    assert_eq!(fault(&err).target(), Some("a"));
}

#[tokio::test]
async fn a_request_that_cannot_be_repeated_has_no_tier() {
    let a = Target::new("a", Does::Fail(Class::Overloaded));
    let layer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .replay(failsoft_core::Once)
        .route(computed())
        .build()
        .unwrap();
    layer.layer(a).oneshot(1).await.unwrap_err();
}

#[test]
fn the_first_route_is_no_last_tier() {
    let first = Route::first("a").last_tier(StandIn::Computed);
    let layer = FallbackLayer::builder().first(first).route(computed()).build();
    assert_eq!(layer.unwrap_err().field(), "first");
}

fn answers(
    status: u16,
) -> impl Fn(Request<String>) -> std::future::Ready<Result<Response<String>, Infallible>> + Clone {
    move |_| {
        let mut response = Response::new("{}".to_owned());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        let insight = Insight::new();
        insight.learn(|facts| {
            facts.verdict =
                Some(if status == 200 { Verdict::SUCCESS } else { Verdict::of(Class::Overloaded) });
        });
        response.extensions_mut().insert(insight);
        std::future::ready(Ok(response))
    }
}

fn ask() -> Request<String> {
    Request::post("/").body("{}".to_owned()).unwrap()
}

#[tokio::test]
async fn answers_of_further_routes_and_tiers_carry_a_mark_and_those_of_the_first_none() {
    let second = || Route::new("second", service_fn(answers(200)));
    let layer = FallbackLayer::builder().route(second()).build().unwrap();
    let first = layer.layer(service_fn(answers(200))).oneshot(ask()).await.unwrap();
    assert!(Degraded::of(first.extensions()).is_none() && !first.headers().contains_key(DEGRADED_HEADER));

    let second_answer = layer.layer(service_fn(answers(503))).oneshot(ask()).await.unwrap();
    let mark = Degraded::of(second_answer.extensions()).unwrap();
    assert_eq!((mark.stand_in, mark.route.as_deref()), (StandIn::Route, Some("second")));
    let in_insight = Insight::of(second_answer.extensions()).unwrap().read(|facts| facts.degraded.clone());
    assert_eq!(in_insight.as_ref(), Some(mark));
    assert_eq!(second_answer.headers()[DEGRADED_HEADER], "route");

    let quiet = FallbackLayer::builder().route(second()).degraded_header(false).build().unwrap();
    let quiet = quiet.layer(service_fn(answers(503))).oneshot(ask()).await.unwrap();
    assert!(Degraded::of(quiet.extensions()).is_some() && !quiet.headers().contains_key(DEGRADED_HEADER));

    // Where the order is by turns, a further route is as good as the first one; after a failure it stands in.
    let turns = FallbackLayer::builder().route(second()).order(Order::Weighted).build().unwrap();
    let turns = turns.layer(service_fn(answers(200)));
    for _ in 0..4 {
        let answer = turns.clone().oneshot(ask()).await.unwrap();
        assert!(Degraded::of(answer.extensions()).is_none());
    }
}

// P19
#[tokio::test]
async fn a_deferred_request_is_a_202_with_its_id_and_never_a_good_answer() {
    let queue = |ticket: Ticket| {
        tier::deferred(service_fn(move |_| std::future::ready(Ok::<_, Infallible>(ticket.clone()))))
    };
    for (ticket, location) in [
        (Ticket::new("a\"b\n").at("/jobs/1"), Some("/jobs/1")),
        (Ticket::new("plain"), None),
        (Ticket::new("bad").at("/a\nset-cookie: x"), None),
    ] {
        let id = ticket.id.clone();
        let layer = FallbackLayer::builder()
            .route(Route::new("queue", queue(ticket)).last_tier(StandIn::Deferred))
            .build()
            .unwrap();
        let response = layer.layer(service_fn(answers(503))).oneshot(ask()).await.unwrap();
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert_eq!(response.headers().get(header::LOCATION).map(|value| value.to_str().unwrap()), location);
        assert_eq!(response.headers()[DEGRADED_HEADER], "deferred");
        assert_eq!(Degraded::of(response.extensions()).unwrap().stand_in, StandIn::Deferred);
        let body: serde_json::Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!(body, serde_json::json!({"status": "deferred", "id": id}));
    }
}

#[tokio::test]
async fn a_queue_that_is_never_ready_is_left() {
    let a = Target::new("a", Does::Fail(Class::Overloaded));
    let service = tiers!(a, route(queue(Does::FailReady)), route(computed()));
    assert_eq!(service.oneshot(1).await.unwrap(), "one");
}
