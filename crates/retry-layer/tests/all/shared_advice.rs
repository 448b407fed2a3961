//! What one call is told, the layer's other calls to the target obey.

use std::time::Duration;

use crate::common::{Do, Request, Response, Upstream, exact, get, post, retry_after};
use failsoft_core::{BoxError, Call, Class, Fault, Next, Verdict};
use retry_layer::{Retry, RetryLayer};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};

type Outcome = Result<Response, BoxError>;

/// A call of this service whose deadline is so far away.
async fn within(deadline: Duration, service: &Retry<Upstream>, request: Request) -> (Outcome, Call) {
    let call = Call::options().timeout(deadline).begin();
    (call.scope(service.clone().oneshot(request)).await, call)
}

/// A layer one of whose calls has just been told to come back in so many seconds, and now waits.
async fn told(
    seconds: &str,
    layer: &RetryLayer,
) -> (Upstream, Retry<Upstream>, tokio::task::JoinHandle<Outcome>) {
    let upstream = Upstream::new([retry_after(seconds)], Do::Status(200));
    let service = layer.layer(upstream.clone());
    let first = tokio::spawn(service.clone().oneshot(get()));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(upstream.calls(), 1);
    (upstream, service, first)
}

// G8
#[tokio::test(start_paused = true)]
async fn a_call_that_begins_meanwhile_waits_as_the_one_does_that_was_told() {
    let layer = exact().build().unwrap();
    let (upstream, service, first) = told("30", &layer).await;
    // Another service of the same layer, too.
    let second = tokio::spawn(layer.layer(upstream.clone()).oneshot(post()));
    sleep(Duration::from_secs(10)).await;
    let third = tokio::spawn(service.clone().oneshot(get()));
    sleep(Duration::from_secs(19)).await;
    assert_eq!(upstream.calls(), 1);
    for call in [first, second, third] {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    let times = upstream.times();
    assert!(times[1..].iter().all(|time| (30_000..30_010).contains(time)), "{times:?}");
    // Then everything is as before.
    let now = Instant::now();
    service.oneshot(get()).await.unwrap();
    assert_eq!(now.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_wait_so_long_fails_at_once_with_the_advice() {
    let (upstream, service, _first) = told("30", &exact().build().unwrap()).await;
    let began = Instant::now();
    let (outcome, call) = within(Duration::from_secs(20), &service, get()).await;
    let error = outcome.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.class(), fault.target()), (Class::RateLimited, Some("models.example")));
    assert!(fault.retry_after().unwrap().abs_diff(Duration::from_secs(30)) < Duration::from_millis(5));
    assert!(fault.verdict().is_unsent());
    assert_eq!((upstream.calls(), began.elapsed()), (1, Duration::ZERO));
    assert_eq!(call.trail().attempts().last().unwrap().next, Next::DeadlineNear);
    // One that can wait does.
    assert!(within(Duration::from_secs(40), &service, get()).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_calls_fail_at_once_and_are_not_kept_from_asking_for_longer_than_that() {
    let (upstream, service, first) = told("86400", &exact().build().unwrap()).await;
    assert_eq!(first.await.unwrap().unwrap().status(), 429);
    let error = service.clone().oneshot(get()).await.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert!(fault.retry_after().unwrap() > Duration::from_secs(86_000));
    sleep(Duration::from_secs(119)).await;
    assert!(service.clone().oneshot(get()).await.is_err());
    assert_eq!(upstream.calls(), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(service.oneshot(get()).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_held_waits_for_its_turn_where_it_has_no_deadline() {
    // One place: those that come back have to wait for each other, longer than a retry waits for readiness.
    let slow = Do::After(Duration::from_secs(5), Box::new(Do::Status(200)));
    let upstream = Upstream::new([retry_after("3")], slow);
    let service = exact().max_retries(0).build().unwrap().layer(ConcurrencyLimit::new(upstream.clone(), 1));
    assert_eq!(service.clone().oneshot(get()).await.unwrap().status(), 429);
    let calls: Vec<_> = (0..3).map(|_| tokio::spawn(service.clone().oneshot(get()))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    let waits = |(time, second): (&u64, u64)| time.abs_diff(second * 1_000) <= 5;
    assert!(upstream.times()[1..].iter().zip([3, 8, 13]).all(waits), "{:?}", upstream.times());
}

#[tokio::test(start_paused = true)]
async fn another_target_is_not_held_nor_is_any_where_sharing_is_off() {
    let (_, service, _first) = told("30", &exact().build().unwrap()).await;
    let elsewhere = http::Request::get("http://other.example/v1").body(String::new()).unwrap();
    let began = Instant::now();
    service.oneshot(elsewhere).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);

    let (_, service, _first) = told("30", &exact().share_advice(false).build().unwrap()).await;
    let began = Instant::now();
    service.oneshot(get()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_name_of_the_users_is_one_target() {
    let (upstream, service, _first) = told("30", &exact().target("model-a").build().unwrap()).await;
    let elsewhere = http::Request::get("http://other.example/v1").body(String::new()).unwrap();
    service.oneshot(elsewhere).await.unwrap();
    assert!(upstream.times()[1] >= 30_000);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_another_call_obeys_too_and_keeps_what_it_had_when_it_cannot() {
    // The second call fails of its own; while it waits a second, the first is told to wait.
    for (advice, status) in [("60", Ok(200)), ("300", Err(Class::Transient))] {
        let layer = exact().build().unwrap();
        let upstream = Upstream::new(
            [Do::After(Duration::from_millis(500), Box::new(retry_after(advice))), Do::Status(500)],
            Do::Status(200),
        );
        let service = layer.layer(upstream.clone());
        let _first = tokio::spawn(service.clone().oneshot(get()));
        tokio::task::yield_now().await;
        let second = service.oneshot(get()).await;
        let seen = second.map(|response| response.status().as_u16());
        let seen =
            seen.map_err(|error| Fault::find(&*error).map(|fault| (fault.class(), fault.status())).unwrap());
        assert_eq!(seen, status.map_err(|class| (class, Some(500))), "{advice}");
        if status.is_ok() {
            let times = upstream.times();
            assert!(times[2..].iter().all(|time| *time >= 60_500), "{times:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn those_that_waited_come_back_spread() {
    let layer = RetryLayer::builder().seed(7).build().unwrap();
    let (upstream, service, first) = told("30", &layer).await;
    let calls: Vec<_> = (0..100).map(|_| tokio::spawn(service.clone().oneshot(get()))).collect();
    first.await.unwrap().unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let times = &upstream.times()[1..];
    assert!(times.iter().all(|time| (30_000..=36_010).contains(time)), "{times:?}");
    let mut tenths = [0; 6];
    times.iter().for_each(|time| tenths[((time - 30_000) / 1_000).min(5) as usize] += 1);
    assert!(tenths.iter().all(|count| *count >= 5), "{tenths:?}");
}

#[tokio::test(start_paused = true)]
async fn only_a_target_without_room_means_everybody() {
    for (what, holds) in [
        (Do::With(503, "retry-after", "30".into()), true),
        (Do::With(500, "retry-after", "30".into()), false),
        (Do::With(402, "retry-after", "30".into()), false),
        (Do::Status(429), false),
    ] {
        let upstream = Upstream::new([what.clone()], Do::Status(200));
        let service = exact().build().unwrap().layer(upstream.clone());
        let _first = tokio::spawn(service.clone().oneshot(get()));
        sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        service.oneshot(get()).await.unwrap();
        assert_eq!(began.elapsed() > Duration::from_secs(20), holds, "{what:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_holds_no_readiness_and_can_be_dropped() {
    let upstream = Upstream::new([retry_after("30")], Do::Status(200));
    let service = exact().build().unwrap().layer(ConcurrencyLimit::new(upstream.clone(), 1));
    let _first = tokio::spawn(service.clone().oneshot(get()));
    sleep(Duration::from_millis(1)).await;
    // Readied before, so that it holds the only permit; called, it lets it go.
    let mut held = service.clone();
    ServiceExt::<Request>::ready(&mut held).await.unwrap();
    let waiting = held.call(get());
    let elsewhere = http::Request::get("http://other.example/v1").body(String::new()).unwrap();
    let free = timeout(Duration::from_millis(1), service.clone().oneshot(elsewhere)).await;
    assert_eq!(free.unwrap().unwrap().status(), 200);
    drop(waiting);
    assert!(service.oneshot(get()).await.is_ok());
    assert_eq!((upstream.running(), upstream.bodies()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_is_held_again_and_again_gives_up_as_if_told_at_once() {
    // Each time the hold ends, somebody else asks first and is told to wait again.
    let upstream = Upstream::new([], retry_after("50"));
    let layer = exact().max_retries(9).build().unwrap();
    let service = layer.layer(upstream.clone());
    let _first = tokio::spawn(service.clone().oneshot(get()));
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    let outcome = service.oneshot(get()).await;
    let class = match &outcome {
        Ok(response) => Verdict::of(failsoft_core::class_of_status(response.status())).class(),
        Err(error) => Verdict::of_error(&**error).class(),
    };
    assert_eq!(class, Class::RateLimited);
    assert!(began.elapsed() < Duration::from_secs(600), "{:?}", began.elapsed());
}
