//! How long an answer is good by what it says itself.

use fallback_layer::{FallbackLayer, NoRoute};

use super::*;

/// After how many seconds each of the answers is asked for anew: `None` where it is good for the minute that the cache keeps it, and
/// nothing where it is not kept at all.
async fn good_for(
    cache: Cache<impl fallback_layer::cache::Scope<Req>>,
    headers: &[(&'static str, &'static str)],
) -> Option<u64> {
    let answer = headers.iter().fold(Answer::good("{}"), |answer, (name, value)| answer.with(name, value));
    let model = Model::new([answer]);
    let service = CacheLayer::new(cache).layer(model.clone());
    get(&service, ask("{}")).await;
    for second in 0..59 {
        get(&service, ask("{}")).await;
        if model.calls() > 1 {
            return Some(second);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    None
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_shorter_life_than_ours_wins_as_the_rfc_counts_it() {
    let shared = || Cache::builder().scope(tenant).ttl(MINUTE).build().unwrap();
    let private = || Cache::builder().scope(tenant).ttl(MINUTE).keep_private(true).build().unwrap();
    let control = |value| [("cache-control", value)];
    for (value, of_several, of_one) in [
        ("max-age=10", Some(10), Some(10)),
        ("max-age=3600", None, None),
        ("no-cache", None, None),
        ("max-age=0", Some(0), Some(0)),
        // Only for those whose answers several may get, and then above the other.
        ("max-age=20, s-maxage=10", Some(10), Some(20)),
        ("s-maxage=10", Some(10), None),
        ("private, max-age=10", Some(0), Some(10)),
    ] {
        assert_eq!(good_for(shared(), &control(value)).await, of_several, "{value}");
        assert_eq!(good_for(private(), &control(value)).await, of_one, "{value}");
    }
    // As old as it was when it came.
    assert_eq!(good_for(shared(), &[("cache-control", "max-age=30"), ("age", "25")]).await, Some(5));
    assert_eq!(good_for(shared(), &[("cache-control", "max-age=30"), ("age", "30")]).await, Some(0));
    assert_eq!(good_for(shared(), &[("age", "50")]).await, Some(10), "of our own minute");
    let dates = [("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("expires", "Sun, 06 Nov 1994 08:49:44 GMT")];
    assert_eq!(good_for(shared(), &dates).await, Some(7));
    let ignoring = Cache::builder().scope(tenant).ttl(MINUTE).ignore_lifetime(true).build().unwrap();
    assert_eq!(good_for(ignoring, &control("max-age=0")).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_tells_the_age_that_it_came_with_and_a_request_may_mind_it() {
    let model = Model::new([Answer::good("1").with("age", "100"), Answer::good("2")]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    get(&service, ask("{}")).await;
    tokio::time::advance(Duration::from_secs(7)).await;
    let again = service.clone().oneshot(ask("{}")).await.unwrap();
    assert_eq!(again.headers()[header::AGE], "107");
    assert_eq!(CacheStatus::of(again.extensions()).unwrap().age().as_secs(), 107);
    let mut young = ask("{}");
    young.headers_mut().insert("cache-control", "max-age=60".parse().unwrap());
    assert_eq!(get(&service, young).await, "2");
}

/// The time counts from when the head came, which is what the server speaks of.
#[tokio::test(start_paused = true)]
async fn a_stream_that_takes_longer_than_it_is_good_for_is_not_kept() {
    let answer = Answer::events(&["data: 1\n\n", "data: [DONE]\n\n"]).with("cache-control", "max-age=5");
    let model = Model::new([answer]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    for (seconds, calls) in [(4, 1), (5, 2)] {
        let mut body =
            service.clone().oneshot(ask(&format!("{{\"n\":{seconds}}}"))).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        while body.frame().await.is_some() {}
        let before = model.calls();
        get(&service, ask(&format!("{{\"n\":{seconds}}}"))).await;
        assert_eq!(model.calls() - before + 1, calls, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_at_once_share_what_is_good_for_a_while_and_not_what_is_stale_at_once() {
    for (control, calls) in [("max-age=1", 1), ("max-age=0", 20)] {
        let answer = Answer { after: Duration::from_secs(2), ..Answer::good("{}") };
        let model = Model::new([answer.with("cache-control", control)]);
        let service = CacheLayer::new(cache()).layer(model.clone());
        futures_util::future::join_all((0..20).map(|_| get(&service, ask("{}")))).await;
        assert_eq!(model.calls(), calls, "{control}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_nobody_else_can_answer_a_stale_one_stands_in_unless_it_says_that_it_must_not() {
    let down = Answer { status: 503, verdict: Some(Verdict::of(Class::Overloaded)), ..Answer::good("busy") };
    for (control, stands_in) in [
        ("max-age=5", true),
        ("max-age=0", true),
        ("max-age=5, must-revalidate", false),
        ("s-maxage=5", false),
    ] {
        let model = Model::new([Answer::good("{}").with("cache-control", control), down.clone()]);
        let layer = FallbackLayer::<NoRoute<_>>::only_last_good(cache()).build().unwrap();
        let service = layer.layer(model);
        get(&service, ask("{}")).await;
        tokio::time::advance(Duration::from_secs(9)).await;
        let answer = service.clone().oneshot(ask("{}")).await.unwrap();
        assert_eq!(answer.status() == 200, stands_in, "{control}");
    }
}
