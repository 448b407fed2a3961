//! Fallbacks inside each other.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use crate::support::{Does, Target, fault, traced};
use failsoft_core::{Blame, BoxError, Call, Class, ErrorsOnly, MAX_ATTEMPTS};
use fallback_layer::{BoxRoute, Builder, Fallback, FallbackLayer, Route};
use tower::{Layer, Service, ServiceExt, service_fn};

type Answer = &'static str;
type Model = BoxRoute<u8, Answer>;

/// A registry of models that name each other as fallbacks, as a gateway's configuration does.
#[derive(Default)]
struct Registry(OnceLock<Vec<(&'static str, Model)>>);

impl Registry {
    fn by_name(self: &Arc<Self>, name: &'static str) -> Model {
        let registry = self.clone();
        BoxRoute::new(service_fn(move |request: u8| {
            let model = registry.0.get().unwrap().iter().find(|(known, _)| *known == name).unwrap().1.clone();
            model.oneshot(request)
        }))
    }
}

fn model(first: &Target, others: Vec<Route<Model>>) -> Model {
    let layer = FallbackLayer::builder().classify(ErrorsOnly).name(first.name);
    let layer = others.into_iter().fold(layer, |layer, route| layer.route(route)).build().unwrap();
    BoxRoute::new(layer.layer(first.clone()))
}

// G41
#[tokio::test]
async fn a_to_b_and_b_to_a_ends_with_a_typed_error_and_a_bounded_trail() {
    let a = Target::new("a", Does::Fail(Class::Transient));
    let b = Target::new("b", Does::Fail(Class::Overloaded));
    let registry = Arc::new(Registry::default());
    let to = |name| Route::new(name, registry.by_name(name));
    let models = vec![("a", model(&a, vec![to("b")])), ("b", model(&b, vec![to("a")]))];
    assert!(registry.0.set(models).is_ok());

    let (answer, trail) = traced(registry.by_name("a").oneshot(1)).await;
    let err = answer.unwrap_err();
    assert_eq!((fault(&err).class(), fault(&err).layer()), (Class::Transient, "fallback-layer"));
    assert_eq!((a.calls(), b.calls()), (1, 1), "each once: {trail}");
    assert_eq!(trail, "a transient (next_route) > b overloaded (no_route_left) > a denied.loop (skipped)");
    // And once more, from the other side, in the same long session of the user.
    let session = Call::begin();
    for _ in 0..2 {
        session.scope(registry.by_name("b").oneshot(1)).await.unwrap_err();
    }
    assert_eq!((a.calls(), b.calls()), (3, 3));
}

#[tokio::test]
async fn a_full_mesh_of_fallbacks_asks_each_model_once() {
    let names = ["a", "b", "c", "d"];
    let targets: Vec<_> = names.iter().map(|name| Target::new(name, Does::Fail(Class::Transient))).collect();
    let registry = Arc::new(Registry::default());
    let models = targets.iter().map(|target| {
        let others = names.iter().filter(|name| **name != target.name);
        let others = others.map(|name| Route::new(*name, registry.by_name(name))).collect();
        (target.name, model(target, others))
    });
    assert!(registry.0.set(models.collect()).is_ok());
    let call = Call::begin();
    call.scope(registry.by_name("a").oneshot(1)).await.unwrap_err();
    assert_eq!(targets.iter().map(Target::calls).collect::<Vec<_>>(), [1, 1, 1, 1]);
    let trail = call.trail();
    assert!(trail.attempts().len() <= MAX_ATTEMPTS && trail.dropped() == 0, "{trail}");
    targets[3].now(Does::Answer);
    assert_eq!(registry.by_name("a").oneshot(1).await.unwrap(), "d");
}

#[tokio::test]
async fn a_fallback_whose_first_route_is_itself_ends_too() {
    let depth = Arc::new(AtomicU32::new(0));
    let registry = Arc::new(Registry::default());
    let again = registry.by_name("x");
    let counted = depth.clone();
    let first = service_fn(move |request: u8| {
        assert!(counted.fetch_add(1, Ordering::Relaxed) < 10, "it goes round");
        again.clone().oneshot(request)
    });
    let other = Target::new("y", Does::Fail(Class::Transient));
    let layer: FallbackLayer<Target, _> =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("y", other.clone())).build().unwrap();
    assert!(registry.0.set(vec![("x", BoxRoute::new(layer.layer(first)))]).is_ok());
    let (answer, trail) = traced(registry.by_name("x").oneshot(1)).await;
    assert_eq!(fault(&answer.unwrap_err()).target(), Some("y"), "{trail}");
    assert_eq!(other.calls(), 1);
}

#[tokio::test]
async fn a_second_attempt_on_an_inner_fallback_that_has_asked_all_moves_on() {
    let inner = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a1")
        .route(Route::new("a2", Target::new("a2", Does::Fail(Class::Transient))))
        .build()
        .unwrap()
        .layer(Target::new("a1", Does::Fail(Class::Transient)));
    // A retry between two fallbacks, in short.
    let retried = service_fn(move |request: u8| {
        let inner = inner.clone();
        async move {
            let _ = inner.clone().oneshot(request).await;
            inner.oneshot(request).await
        }
    });
    let b = Target::new("b", Does::Answer);
    let outer = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .name("a")
        .route(Route::new("b", b.clone()))
        .build()
        .unwrap()
        .layer(BoxRoute::new(retried));
    let (answer, trail) = traced(outer.oneshot(1)).await;
    assert_eq!(answer.unwrap(), "b", "{trail}");
}

/// Asks the service inside three times, as a retry does, and counts with the call's cap.
#[derive(Clone)]
struct Thrice(Target);

impl Service<u8> for Thrice {
    type Response = Answer;
    type Error = BoxError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u8) -> Self::Future {
        let target = self.0.clone();
        Box::pin(async move {
            let mut last = target.clone().oneshot(request).await;
            for _ in 0..2 {
                if last.is_err() && Call::take_attempt().is_ok() {
                    last = target.clone().oneshot(request).await;
                }
            }
            last
        })
    }
}

fn layer<R>() -> Builder<R, ErrorsOnly> {
    FallbackLayer::builder().classify(ErrorsOnly)
}

#[tokio::test(start_paused = true)]
async fn fallbacks_inside_each_other_share_one_wall_clock_budget() {
    let secs = std::time::Duration::from_secs;
    // The inner one would wait for a minute, half of it for its first route.
    let nested = |answers: Does| {
        let inner = layer()
            .name("a1")
            .route(Route::new("a2", Target::new("a2", answers)))
            .build()
            .unwrap()
            .layer(Target::new("a1", Does::Hang));
        BoxRoute::new(inner)
    };
    let b = Target::new("b", Does::Answer);
    let outer = |first: Model| {
        layer().name("a").route(Route::new("b", b.clone())).timeout(secs(20)).build().unwrap().layer(first)
    };
    // Its route has 10 s in all: 5 for the first one inside, and what is left for the second.
    let start = tokio::time::Instant::now();
    let (answer, trail) = traced(outer(nested(Does::AnswerAfter(secs(3)))).oneshot(1)).await;
    assert_eq!((answer.unwrap(), start.elapsed().as_secs()), ("a2", 8), "{trail}");
    let start = tokio::time::Instant::now();
    let (answer, trail) = traced(outer(nested(Does::Hang)).oneshot(1)).await;
    assert_eq!((answer.unwrap(), start.elapsed().as_secs()), ("b", 10), "{trail}");

    // As a further route it has what that has, and nothing of the first one's limit is left.
    let hangs = BoxRoute::new(Target::new("a", Does::Hang));
    let outer =
        layer().name("a").route(Route::new("n", nested(Does::AnswerAfter(secs(3))))).timeout(secs(20));
    let start = tokio::time::Instant::now();
    let call = Call::begin();
    let answer = call.scope(outer.build().unwrap().layer(hangs).oneshot(1)).await;
    assert_eq!((answer.unwrap(), start.elapsed().as_secs()), ("a2", 10 + 5 + 3), "{}", call.trail());
}

#[tokio::test(start_paused = true)]
async fn so_do_those_whose_next_route_is_started_beside_a_slow_one() {
    let secs = std::time::Duration::from_secs;
    // Two routes, of which the first one hangs; on its own it would have half a minute.
    let nested = |first: &'static str, second: &'static str| {
        let inner = layer()
            .name(first)
            .route(Route::new(second, Target::new(second, Does::AnswerAfter(secs(1)))))
            .build()
            .unwrap()
            .layer(Target::new(first, Does::Hang));
        BoxRoute::new(inner)
    };
    let hangs = |name| BoxRoute::new(Target::new(name, Does::Hang));
    let outer = |first: Model, beside: Model| {
        let outer = layer().name("a").route(Route::new("b", beside)).timeout(secs(20)).slow_start(secs(2));
        outer.build().unwrap().layer(first)
    };
    // The first route has 10 s, of which the first one inside has half.
    let start = tokio::time::Instant::now();
    let (answer, trail) = traced(outer(nested("a1", "a2"), hangs("b")).oneshot(1)).await;
    assert_eq!((answer.unwrap(), start.elapsed().as_secs()), ("a2", 5 + 1), "{trail}");
    // One beside it has all that is left, and nothing of the first one's limit.
    let start = tokio::time::Instant::now();
    let (answer, trail) = traced(outer(hangs("a"), nested("b1", "b2")).oneshot(1)).await;
    assert_eq!((answer.unwrap(), start.elapsed().as_secs()), ("b2", 2 + 9 + 1), "{trail}");
    // Further in it is the same: what has become shorter is told once more.
    let inner = layer()
        .name("a")
        .route(Route::new("c", hangs("c")))
        .slow_start(secs(50))
        .build()
        .unwrap()
        .layer(nested("a1", "a2"));
    let start = tokio::time::Instant::now();
    let (answer, trail) = traced(outer(BoxRoute::new(inner), hangs("b")).oneshot(1)).await;
    // 10 s for the outer route, 5 for the one inside it, and half of that for the innermost.
    let took = start.elapsed();
    assert_eq!((answer.unwrap(), took.as_millis()), ("a2", 2_500 + 1_000), "{trail}");
}

#[tokio::test(start_paused = true)]
async fn the_caller_is_not_to_blame_for_the_limit_of_a_route_around() {
    let secs = std::time::Duration::from_secs;
    let blames = async |call: Call| {
        let inner = layer()
            .name("b1")
            .route(Route::new("b2", Target::new("b2", Does::Hang)))
            .build()
            .unwrap()
            .layer(Target::new("b1", Does::Hang));
        let outer = layer()
            .name("a")
            .route(Route::new("b", BoxRoute::new(inner)))
            .route(Route::new("c", BoxRoute::new(Target::new("c", Does::Fail(Class::Transient)))))
            .timeout(secs(20))
            .build()
            .unwrap()
            .layer(BoxRoute::new(Target::new("a", Does::Fail(Class::Transient))));
        call.scope(outer.oneshot(1)).await.unwrap_err();
        let trail = call.trail();
        let cut = trail.attempts().iter().filter(|attempt| attempt.verdict.class() != Class::Transient);
        cut.map(|attempt| attempt.verdict.blame()).collect::<Vec<_>>()
    };
    assert_eq!(blames(Call::begin()).await, [Blame::Target; 2], "each is told once");
    // It is where its own deadline is nearer than all limits.
    let hurried = blames(Call::options().timeout(secs(4)).begin()).await;
    assert!(hurried.contains(&Blame::Caller), "{hurried:?}");
}

#[tokio::test(start_paused = true)]
async fn an_isolated_call_inside_a_route_has_a_budget_of_its_own() {
    let secs = std::time::Duration::from_secs;
    let inner = layer()
        .route(Route::new("a2", Target::new("a2", Does::Answer)))
        .build()
        .unwrap()
        .layer(Target::new("a1", Does::AnswerAfter(secs(8))));
    let agent = service_fn(move |request: u8| {
        let call = Call::options().isolated().begin();
        call.scope(inner.clone().oneshot(request))
    });
    let outer =
        layer().route(Route::new("b", Target::new("b", Does::Answer))).timeout(secs(20)).build().unwrap();
    let call = Call::begin();
    assert_eq!(
        call.scope(outer.layer(agent).oneshot(1)).await.unwrap(),
        "a1",
        "8 s are more than its half of 10"
    );
}

// G44
#[tokio::test]
async fn attempts_of_retries_inside_routes_and_of_routes_share_one_cap() {
    let [a, b, c] = ["a", "b", "c"].map(|name| Target::new(name, Does::Fail(Class::Transient)));
    let layer: FallbackLayer<Thrice, _> = FallbackLayer::builder()
        .classify(ErrorsOnly)
        .route(Route::new("b", Thrice(b.clone())))
        .route(Route::new("c", Thrice(c.clone())))
        .build()
        .unwrap();
    let service: Fallback<_, _, _, _, _> = layer.layer(Thrice(a.clone()));
    let call = Call::options().max_attempts(5).begin();
    call.scope(service.oneshot(1)).await.unwrap_err();
    assert_eq!([a.calls(), b.calls(), c.calls()], [3, 2, 0], "five in all, not nine");
}
