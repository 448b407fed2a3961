//! The cache behind the routes of a fallback.

use failsoft_core::{Embed, EmbedWith, Embedding, HashedNgrams};
use fallback_layer::{FallbackLayer, NoRoute, cache::Similar};

use super::*;

fn down() -> Answer {
    Answer { status: 503, verdict: Some(Verdict::of(Class::Overloaded)), ..Answer::good("busy") }
}

macro_rules! behind {
    ($cache:expr, $model:expr) => {
        FallbackLayer::<NoRoute<_>>::only_last_good($cache).build().unwrap().layer($model.clone())
    };
}

fn prompt(tenant: &'static str, text: &str) -> Req {
    ask_of(tenant, &format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#))
}

#[tokio::test(start_paused = true)]
async fn when_every_route_fails_the_same_request_has_its_earlier_answer_also_as_a_stream() {
    let model = Model::new([Answer::good(WHOLE), Answer::events(&STREAM), Answer::good("2"), down()]);
    let cache = cache();
    let service = behind!(cache.clone(), model);
    assert_eq!(get(&service, ask("{}")).await, WHOLE);
    assert_eq!(get(&service, ask(r#"{"stream":true}"#)).await, STREAM.concat());
    assert_eq!(cache.len(), 2);
    // While a route answers, it is asked.
    assert_eq!(get(&service, ask("{}")).await, "2");
    tokio::time::advance(Duration::from_secs(5)).await;
    let again = service.clone().oneshot(ask("{}")).await.unwrap();
    let mark = Degraded::of(again.extensions()).unwrap();
    assert_eq!((mark.stand_in, mark.age), (StandIn::LastGood, Some(Duration::from_secs(5))));
    assert_eq!(again.headers()["x-failsoft-degraded"], "last-good");
    assert_eq!(read(again).await, "2");
    assert_eq!(get(&service, ask(r#"{"stream":true}"#)).await, STREAM.concat());
    // Never another tenant's, nor an error's body.
    for request in [ask_of("u", "{}"), ask(r#"{"n":2}"#)] {
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), 503);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_fails_its_route_and_is_not_kept() {
    let cut = Answer { pieces: vec![Ok("{".into()), Err("reset")], ..Answer::good("") };
    let model = Model::new([Answer::good("{}"), cut]);
    let service = behind!(cache(), model);
    get(&service, ask("{}")).await;
    let again = service.clone().oneshot(ask("{}")).await.unwrap();
    assert!(Degraded::of(again.extensions()).is_some());
    assert_eq!(read(again).await, "{}");
    service.oneshot(ask("{\"n\":2}")).await.unwrap_err();
}

#[tokio::test]
async fn one_cache_is_in_front_and_behind_at_once() {
    let model = Model::new([Answer::good("1"), down()]);
    let cache = cache();
    let service = CacheLayer::new(cache.clone()).layer(behind!(cache, model));
    assert_eq!(get(&service, ask("{}")).await, "1");
    assert_eq!(get(&service, ask("{}")).await, "1");
    assert_eq!(model.calls(), 1);
    let mut anew = ask("{}");
    anew.headers_mut().insert("cache-control", "no-cache".parse().unwrap());
    assert_eq!(
        service.clone().oneshot(anew).await.unwrap().status(),
        503,
        "who wants a new one gets no old one"
    );
}

#[tokio::test]
async fn a_similar_request_stands_in_with_a_mark_and_never_across_tenants_or_contexts() {
    let model = Model::new([Answer::good("Paris"), down()]);
    let cache = Cache::builder().scope(tenant).similar(Similar::new(HashedNgrams::new())).build().unwrap();
    let service = behind!(cache, model);
    assert_eq!(get(&service, prompt("a", "What is the capital of France?")).await, "Paris");
    let again = service.clone().oneshot(prompt("a", "what's the capital of France")).await;
    // Near, and not near enough.
    assert_eq!(again.unwrap().status(), 503);
    let again = service.clone().oneshot(prompt("a", " what is the Capital of france ??")).await.unwrap();
    let mark = Degraded::of(again.extensions()).unwrap();
    assert_eq!(mark.stand_in, StandIn::Similar);
    assert!(mark.similarity.unwrap() > 0.99);
    assert_eq!(Insight::of(again.extensions()).unwrap().read(|facts| facts.degraded.clone()).unwrap(), *mark);
    assert_eq!(again.headers()["x-failsoft-degraded"], "similar");
    assert_eq!(read(again).await, "Paris");

    let mut other_model = prompt("a", "What is the capital of France??");
    *other_model.body_mut() = other_model.body().replace("\"m\"", "\"n\"");
    let others = [
        prompt("b", "What is the capital of France?"),
        prompt("b", "What is the capital of France??"),
        other_model,
        prompt("a", "What is the capital of Spain?"),
        prompt("a", "Please write a poem"),
        prompt("a", "?!"),
    ];
    for other in others {
        assert_eq!(service.clone().oneshot(other).await.unwrap().status(), 503);
    }
}

#[tokio::test]
async fn in_front_what_is_similar_is_asked_for_unless_told_otherwise() {
    let model = Model::new([Answer::good("1"), Answer::good("2"), Answer::good("3")]);
    let make = || Cache::builder().scope(tenant).similar(Similar::new(HashedNgrams::new())).build().unwrap();
    let service = CacheLayer::new(make()).layer(model.clone());
    assert_eq!(get(&service, prompt("a", "the very same thing")).await, "1");
    assert_eq!(get(&service, prompt("a", "The very same thing!")).await, "2");
    let service = CacheLayer::new(make()).similar(true).layer(model.clone());
    assert_eq!(get(&service, prompt("a", "the very same thing")).await, "3");
    let again = service.clone().oneshot(prompt("a", "The very same thing!")).await.unwrap();
    assert_eq!(Degraded::of(again.extensions()).unwrap().stand_in, StandIn::Similar);
    assert!(CacheStatus::of(again.extensions()).is_some());
    assert_eq!(read(again).await, "3");
    assert_eq!(model.calls(), 3);
}

/// An embedder that takes its time, or fails.
struct Slow(Duration, bool);

impl Embed for Slow {
    type Future = Pin<Box<dyn Future<Output = Result<Embedding, BoxError>> + Send>>;

    fn embed(&self, text: &str) -> Self::Future {
        let (after, fails) = (self.0, self.1);
        let vector = HashedNgrams::new().vector(text);
        Box::pin(async move {
            tokio::time::sleep(after).await;
            if fails { Err("no embedder".into()) } else { Ok(vector?) }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_embedder_that_fails_or_is_late_is_a_miss_and_holds_nobody_up_for_long() {
    for (after, fails, found) in [(100, false, true), (100, true, false), (3_600_000, false, false)] {
        let slow = Slow(Duration::from_millis(after), fails);
        let model = Model::new([Answer::good("1"), down()]);
        let cache = Cache::builder().scope(tenant).similar(Similar::new(slow)).build().unwrap();
        let service = behind!(cache, model);
        let start = tokio::time::Instant::now();
        assert_eq!(get(&service, prompt("a", "the very same thing")).await, "1");
        assert!(start.elapsed() <= Duration::from_millis(251));
        assert_eq!(
            get(&service, prompt("a", "the very same thing")).await,
            "1",
            "the same is found all the same"
        );
        let start = tokio::time::Instant::now();
        let again = service.clone().oneshot(prompt("a", "The very same thing!")).await.unwrap();
        assert_eq!(again.status() == 200, found, "after {after} ms");
        assert!(start.elapsed() <= Duration::from_millis(251));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_vector_is_made_while_the_model_works() {
    let slow = Similar::new(Slow(Duration::from_secs(1), false)).within(Duration::from_secs(2));
    let model = Model::new([Answer { after: Duration::from_secs(3), ..Answer::good("1") }]);
    let cache = Cache::builder().scope(tenant).similar(slow).build().unwrap();
    let service = CacheLayer::new(cache).similar(true).layer(model.clone());
    let start = tokio::time::Instant::now();
    get(&service, prompt("a", "the very same thing")).await;
    assert_eq!(start.elapsed().as_secs(), 4, "the look for what is similar comes first");
    get(&service, prompt("a", "The very same thing!")).await;
    assert_eq!((start.elapsed().as_secs(), model.calls()), (5, 1));
}

#[tokio::test]
async fn an_embedder_may_be_a_service() {
    let embed = EmbedWith::new(tower::service_fn(|text: String| async move {
        Ok::<_, Infallible>(vec![text.trim().len() as f32, 1.0])
    }));
    let model = Model::new([Answer::good("1"), down()]);
    let cache = Cache::builder().scope(tenant).similar(Similar::new(embed)).build().unwrap();
    let service = behind!(cache, model);
    get(&service, prompt("a", "four")).await;
    assert_eq!(get(&service, prompt("a", " five")).await, "1");
}
