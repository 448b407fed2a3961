//! When there is another attempt, when it comes, and what is returned when there is none.

use std::{io, time::Duration};

use crate::common::{Do, Request, Response, Upstream, exact, get, post, retry_after};
use failsoft_core::{
    Backoff, Blame, BoxError, Call, Class, Cloned, Fault, Hint, Jitter, Limit, Next, Once, Verdict,
    classify_fn,
};
use retry_layer::{RetryBudget, RetryBuilder, RetryLayer};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

async fn send(builder: RetryBuilder, upstream: &Upstream, request: Request) -> Result<Response, BoxError> {
    builder.build().unwrap().layer(upstream.clone()).oneshot(request).await
}

/// The status, or the class of the error.
fn seen(outcome: Result<Response, BoxError>) -> Result<u16, Class> {
    match outcome {
        Ok(response) => Ok(response.status().as_u16()),
        Err(error) => Err(Verdict::of_error(&*error).class()),
    }
}

fn nexts(call: &Call) -> Vec<Next> {
    call.trail().attempts().iter().map(|attempt| attempt.next).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_is_waited_for() {
    let upstream = Upstream::new([Do::Status(500), Do::Reset, Do::Refused], Do::Status(200));
    assert_eq!(seen(send(exact(), &upstream, get()).await), Ok(200));
    assert_eq!(upstream.times(), [0, 1_000, 3_000, 7_000]);
}

#[tokio::test(start_paused = true)]
async fn three_further_attempts_are_the_default_and_the_last_outcome_is_the_upstreams_own() {
    let upstream = Upstream::new([], Do::Status(502));
    let response = send(exact(), &upstream, get()).await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.calls(), upstream.bodies()), (502, 4, 1));
    let upstream = Upstream::new([], Do::Reset);
    let error = send(exact(), &upstream, get()).await.unwrap_err();
    assert!(error.downcast_ref::<io::Error>().is_some());
    assert_eq!(upstream.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_help_is_not_tried() {
    for status in [200, 301, 400, 401, 402, 403, 404, 422] {
        let upstream = Upstream::new([], Do::Status(status));
        assert_eq!(seen(send(exact(), &upstream, get()).await), Ok(status));
        assert_eq!(upstream.calls(), 1, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_waits_are_jittered() {
    let mut waits = Vec::new();
    for seed in 0..50 {
        let upstream = Upstream::new([], Do::Status(500));
        send(RetryLayer::builder().seed(seed), &upstream, get()).await.unwrap();
        waits.push(upstream.times()[1]);
    }
    assert!(waits.iter().all(|wait| (100..=1_001).contains(wait)), "{waits:?}");
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 40, "{waits:?}");
}

// P13, G1, G8, V-I5, C57
#[tokio::test(start_paused = true)]
async fn advice_is_a_floor() {
    let upstream = Upstream::new([retry_after("7"), retry_after("0.5")], Do::Status(200));
    assert_eq!(seen(send(exact(), &upstream, get()).await), Ok(200));
    // After the shorter advice, it is our own back-off that counts.
    assert_eq!(upstream.times(), [0, 7_000, 9_000]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_were_told_the_same_come_back_spread_and_never_early() {
    let mut times = Vec::new();
    for seed in 0..100 {
        let upstream = Upstream::new([retry_after("30")], Do::Status(200));
        send(RetryLayer::builder().seed(seed), &upstream, get()).await.unwrap();
        times.push(upstream.times()[1]);
    }
    assert!(times.iter().all(|time| (30_000..=36_001).contains(time)), "{times:?}");
    assert!(times.iter().max().unwrap() - times.iter().min().unwrap() > 4_000, "{times:?}");
}

// G5, G6, C56, V-I5
#[tokio::test(start_paused = true)]
async fn advice_beyond_the_bound_is_neither_slept_nor_ignored() {
    for long in ["121", "2000", "86400", "1e400", "99999999999999999999"] {
        let upstream = Upstream::new([retry_after(long)], Do::Status(200));
        let call = Call::begin();
        let response = call.scope(send(exact(), &upstream, get())).await.unwrap();
        assert_eq!(response.headers()["retry-after"], long);
        assert_eq!((upstream.calls(), nexts(&call)), (1, vec![Next::AdviceTooLong]));
        assert!(call.trail().attempts()[0].verdict.retry_after() > Some(Duration::from_secs(120)));
    }
    let upstream = Upstream::new([retry_after("121")], Do::Status(200));
    send(exact().max_advice(Duration::from_secs(200)), &upstream, get()).await.unwrap();
    assert_eq!(upstream.times(), [0, 121_000]);
}

// G2, V-I2, C61
#[tokio::test(start_paused = true)]
async fn advice_that_says_nothing_leaves_our_own_back_off() {
    for nothing in ["0", "-5", "nan", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
        let upstream = Upstream::new([retry_after(nothing)], Do::Status(200));
        send(exact(), &upstream, get()).await.unwrap();
        assert_eq!(upstream.times(), [0, 1_000], "{nothing}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_may_forbid_it() {
    let upstream = Upstream::new([Do::With(503, "x-should-retry", "false".into())], Do::Status(200));
    assert_eq!(seen(send(exact(), &upstream, get()).await), Ok(503));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_would_end_after_the_deadline_is_not_begun() {
    let began = Instant::now();
    let upstream = Upstream::new([], Do::Status(500));
    assert_eq!(seen(send(exact().deadline(Duration::from_millis(2_900)), &upstream, get()).await), Ok(500));
    assert_eq!(upstream.times(), [0, 1_000]);
    assert_eq!(began.elapsed().as_millis(), 1_000);

    let upstream = Upstream::new([retry_after("30")], Do::Status(200));
    let call = Call::options().timeout(Duration::from_secs(10)).begin();
    let response = call.scope(send(exact(), &upstream, get())).await.unwrap();
    assert_eq!((response.status().as_u16(), nexts(&call)), (429, vec![Next::DeadlineNear]));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_running_attempt_and_blames_whose_it_was() {
    let fault = |error: &BoxError| {
        let fault = Fault::find(&**error).unwrap();
        (fault.class(), fault.verdict().blame(), fault.target().map(str::to_owned))
    };
    let name = || Some("models.example".to_owned());
    let upstream = Upstream::new([Do::Status(500)], Do::Never);
    let began = Instant::now();
    let error = send(exact().deadline(Duration::from_secs(5)), &upstream, get()).await.unwrap_err();
    assert_eq!(fault(&error), (Class::Timeout(Limit::Total), Blame::Target, name()));
    assert!(began.elapsed().abs_diff(Duration::from_secs(5)) < Duration::from_millis(5));
    assert_eq!((upstream.running(), upstream.calls()), (0, 2));

    // The nearer of the two counts.
    let upstream = Upstream::new([], Do::Never);
    let call = Call::options().timeout(Duration::from_secs(2)).begin();
    let error =
        call.scope(send(exact().deadline(Duration::from_secs(5)), &upstream, get())).await.unwrap_err();
    assert_eq!(fault(&error), (Class::Timeout(Limit::Total), Blame::Caller, name()));
    assert_eq!(nexts(&call), [Next::DeadlineNear]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_keeps_the_error_that_took_the_time() {
    let upstream = Upstream::new([Do::Reset], Do::Never);
    let error = send(exact().deadline(Duration::from_secs(5)), &upstream, get()).await.unwrap_err();
    let mut chain: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
    while let Some(link) = chain {
        if link.is::<io::Error>() {
            return;
        }
        chain = link.source();
    }
    panic!("{error:?} lost its cause");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_followed_by_another() {
    let upstream =
        Upstream::new([Do::Never], Do::After(Duration::from_millis(900), Box::new(Do::Status(200))));
    let builder = exact().attempt_timeout(Duration::from_secs(1));
    assert_eq!(seen(send(builder, &upstream, get()).await), Ok(200));
    assert_eq!((upstream.calls(), upstream.running()), (2, 0));
    assert!(upstream.times()[1].abs_diff(2_000) <= 2);

    let upstream = Upstream::new([], Do::Never);
    let builder = exact().attempt_timeout(Duration::from_secs(1)).max_retries(1);
    let error = send(builder, &upstream, get()).await.unwrap_err();
    let verdict = Fault::find(&*error).unwrap().verdict();
    assert_eq!((verdict.class(), verdict.blame()), (Class::Timeout(Limit::Total), Blame::Target));
}

// C70, aws-06
#[tokio::test(start_paused = true)]
async fn an_empty_budget_returns_the_upstreams_own_outcome_before_any_sleep() {
    let empty = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).build().unwrap();
    let upstream = Upstream::new([], Do::Reset);
    let (call, began) = (Call::begin(), Instant::now());
    let error = call.scope(send(exact().budget(empty), &upstream, get())).await.unwrap_err();
    assert!(error.is::<io::Error>());
    assert_eq!((upstream.calls(), nexts(&call)), (1, vec![Next::BudgetEmpty]));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_amplified_by_no_more_than_the_budget() {
    let upstream = Upstream::new([], Do::Status(503));
    let budget = RetryBudget::builder().min_per_sec(0.0).initial(50.0).build().unwrap();
    let backoff = Backoff::fixed(Duration::ZERO);
    let service = exact().budget(budget).backoff(backoff).build().unwrap().layer(upstream.clone());
    for _ in 0..1_000 {
        let _ = service.clone().oneshot(get()).await;
    }
    let calls = upstream.calls();
    assert!((1_249..=1_250).contains(&calls), "{calls}");
}

// G126
#[tokio::test(start_paused = true)]
async fn a_call_pays_into_the_budget_once_whatever_its_attempts() {
    let budget = RetryBudget::builder().ratio(1.0).min_per_sec(0.0).initial(3.0).build().unwrap();
    let upstream = Upstream::new([], Do::Status(503));
    send(exact().budget(budget.clone()), &upstream, get()).await.unwrap();
    assert_eq!((upstream.calls(), budget.balance()), (4, 1.0));
}

#[tokio::test(start_paused = true)]
async fn layers_may_share_a_budget_and_all_services_of_a_layer_do() {
    let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(3.0).build().unwrap();
    let layers = [exact().budget(budget.clone()).build().unwrap(), exact().budget(budget).build().unwrap()];
    let upstream = Upstream::new([], Do::Status(503));
    for layer in layers.iter().chain(&layers) {
        layer.layer(upstream.clone()).oneshot(get()).await.unwrap();
    }
    assert_eq!(upstream.calls(), 4 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_grpc_throttle_works_as_a_budget() {
    let throttle = RetryBudget::grpc_throttle(10.0, 0.1).unwrap();
    let upstream = Upstream::new([], Do::Status(503));
    let service = exact().budget(throttle.clone()).build().unwrap().layer(upstream.clone());
    // Four attempts, of which also the last is charged.
    service.clone().oneshot(get()).await.unwrap();
    assert_eq!((upstream.calls(), throttle.balance()), (4, 6.0));
    service.clone().oneshot(get()).await.unwrap();
    assert_eq!((upstream.calls(), throttle.balance()), (5, 5.0));
}

#[tokio::test(start_paused = true)]
async fn the_cap_that_a_call_carries_counts_over_nested_layers() {
    let upstream = Upstream::new([], Do::Status(500));
    let inner = exact().build().unwrap().layer(upstream.clone());
    let outer = exact().build().unwrap().layer(inner);
    let call = Call::options().max_attempts(3).begin();
    assert_eq!(seen(call.scope(outer.oneshot(get())).await), Ok(500));
    assert_eq!(upstream.calls(), 3);
    assert!(nexts(&call).contains(&Next::AttemptsSpent));
}

// P34
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_not_made_after_all_does_not_count_on_the_call() {
    let call = || Call::options().max_attempts(9).begin();
    // Refused by the budget.
    let empty = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(0.0).build().unwrap();
    let upstream = Upstream::new([], Do::Status(503));
    let refused = call();
    refused.scope(send(exact().budget(empty), &upstream, get())).await.unwrap();
    assert_eq!((upstream.calls(), refused.further_attempts()), (1, 0));
    // Refused by a circuit that opened meanwhile.
    let upstream = Upstream::new([Do::Status(503), Do::Status(503), Do::Deny], Do::Status(200));
    let opened = call();
    opened.scope(send(exact(), &upstream, get())).await.unwrap_err();
    assert_eq!(opened.further_attempts(), 1);
    // Not ready in time, and not ready at all.
    for fail in [false, true] {
        let upstream = Upstream::ready_for(2, fail, [], Do::Status(503));
        let unready = call();
        unready.scope(send(exact(), &upstream, get())).await.unwrap_err();
        assert_eq!((upstream.calls(), unready.further_attempts()), (2, 1), "{fail}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_is_repeated_only_where_that_is_harmless() {
    // Without an answer, a POST may have been acted on.
    let upstream = Upstream::new([], Do::Reset);
    let call = Call::begin();
    let error = call.scope(send(exact(), &upstream, post())).await.unwrap_err();
    assert!(error.is::<io::Error>());
    assert_eq!((upstream.calls(), nexts(&call)), (1, vec![Next::NotRepeatable]));

    let upstream = Upstream::new([], Do::Never);
    let builder = exact().attempt_timeout(Duration::from_secs(1));
    send(builder, &upstream, post()).await.unwrap_err();
    assert_eq!(upstream.calls(), 1);

    // Unless nothing was sent, or it is marked, or it carries an idempotency key. A response is a definite answer.
    let mut keyed = post();
    keyed.headers_mut().insert("idempotency-key", http::HeaderValue::from_static("7"));
    for (builder, what, request) in [
        (exact(), Do::Refused, post()),
        (exact().repeat_unanswered(true), Do::Reset, post()),
        (exact(), Do::Reset, keyed),
        (exact(), Do::Reset, get()),
        (exact(), Do::Status(503), post()),
    ] {
        let upstream = Upstream::new([what], Do::Status(200));
        assert_eq!(seen(send(builder, &upstream, request).await), Ok(200));
        assert_eq!(upstream.calls(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_replayed_is_sent_once() {
    /// Neither `Clone` nor `Repeat`.
    struct Stream;

    let upstream = Upstream::new([], Do::Status(503));
    let service = exact().replay(Once).build().unwrap().layer(upstream.clone());
    let call = Call::begin();
    let response = call.scope(service.oneshot(Stream)).await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.calls()), (503, 1));
    assert_eq!(nexts(&call), [Next::NotRepeatable]);
}

// P14, G23
#[tokio::test(start_paused = true)]
async fn our_own_denials_are_never_retried() {
    let upstream = Upstream::new([], Do::Deny);
    let error = send(exact().retry_if(|_| true), &upstream, get()).await.unwrap_err();
    assert!(Fault::find(&*error).unwrap().class().is_denied());
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_circuit_that_opens_between_attempts_ends_it_with_the_upstreams_own_outcome() {
    let upstream = Upstream::new([Do::Reset, Do::Deny], Do::Status(200));
    let call = Call::begin();
    let error = call.scope(send(exact(), &upstream, get())).await.unwrap_err();
    assert!(error.is::<io::Error>());
    assert_eq!((upstream.calls(), nexts(&call)), (2, vec![Next::Retry, Next::Final]));

    // A response had to go before the wait: a fault stands for it.
    let upstream = Upstream::new([Do::With(503, "retry-after", "9".into()), Do::Deny], Do::Status(200));
    let error = send(exact(), &upstream, post()).await.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.class(), fault.status()), (Class::Overloaded, Some(503)));
    assert_eq!((fault.retry_after(), fault.target()), (Some(Duration::from_secs(9)), Some("models.example")));
    assert_eq!(fault.trail().map(|trail| trail.attempts().len()), Some(2));
}

#[tokio::test(start_paused = true)]
async fn rows_and_a_predicate_change_what_is_tried() {
    let upstream = Upstream::new([Do::Status(429)], Do::Status(200));
    assert_eq!(seen(send(exact().retry_on(Class::RateLimited, false), &upstream, get()).await), Ok(429));
    let upstream = Upstream::new([Do::Status(404)], Do::Status(200));
    assert_eq!(seen(send(exact().retry_on(Class::Invalid, true), &upstream, get()).await), Ok(200));
    let upstream = Upstream::new([Do::Status(500), Do::Status(503)], Do::Status(200));
    let builder = exact().retry_if(|verdict| verdict.class() != Class::Overloaded);
    assert_eq!(seen(send(builder, &upstream, get()).await), Ok(503));
}

// G123
#[tokio::test(start_paused = true)]
async fn an_error_inside_a_plain_answer_is_seen() {
    let answers = std::sync::Arc::new(std::sync::Mutex::new(vec![1u8, 0, 0]));
    let service = tower::service_fn(move |_: String| {
        let answer = answers.lock().unwrap().pop().unwrap_or(9);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let classify = classify_fn(|answer: &u8| match answer {
        0 => Verdict::of(Class::Unknown).with_hint(Hint::Same),
        _ => Verdict::SUCCESS,
    });
    let layer = exact().classify(classify).replay(Cloned).build().unwrap();
    assert_eq!(layer.layer(service).oneshot("ask".to_owned()).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_trail_tells_each_step_from_the_second_on() {
    let call = Call::begin();
    let upstream = Upstream::new([Do::Status(503), Do::Status(429)], Do::Status(200));
    call.scope(send(exact().target("model-a"), &upstream, post())).await.unwrap();
    let told: Vec<_> = call
        .trail()
        .attempts()
        .iter()
        .map(|step| (step.verdict.class(), step.next, step.delay, step.target.clone()))
        .collect();
    let name = || Some("model-a".into());
    let second = Duration::from_secs(1);
    assert_eq!(
        told,
        [
            (Class::Overloaded, Next::Retry, Some(second), name()),
            (Class::RateLimited, Next::Retry, Some(second * 2), name()),
            (Class::Success, Next::Answered, None, name()),
        ]
    );
    let call = Call::begin();
    call.scope(send(exact(), &Upstream::new([], Do::Status(200)), post())).await.unwrap();
    assert!(call.trail().is_empty());
}

// V-F1
#[tokio::test(start_paused = true)]
async fn the_trail_tells_what_each_attempt_has_used() {
    let tokens = |output| failsoft_core::Usage { output: Some(output), ..failsoft_core::Usage::default() };
    let calls = std::sync::atomic::AtomicU64::new(0);
    let service = tower::service_fn(|_: Request| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let insight = failsoft_core::Insight::new();
        insight.learn(|facts| {
            facts.usage = tokens(10 * (call + 1));
            facts.verdict = (call == 2).then_some(Verdict::SUCCESS);
        });
        let facts = insight.facts();
        let soft = Verdict::of(Class::Soft(failsoft_core::SoftKind::Empty)).with_hint(Hint::Same);
        std::future::ready(match call {
            // A reader inside turned the answer down, or left it as it was.
            0 => Err(BoxError::from(Fault::with_verdict(soft, "validate-layer").with_answer(&facts))),
            _ => {
                let response = http::Response::builder().status(if call == 1 { 503 } else { 200 });
                Ok(response.extension(insight).body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap())
            }
        })
    });
    let call = Call::begin();
    call.scope(exact().build().unwrap().layer(service).oneshot(get())).await.unwrap();
    let used: Vec<_> = call.trail().attempts().iter().map(|step| step.usage).collect();
    assert_eq!(used, [Some(tokens(10)), Some(tokens(20)), Some(tokens(30))]);
}

// C46, C47, G11, P12
#[tokio::test(start_paused = true)]
async fn many_attempts_stay_capped() {
    let upstream = Upstream::new([], Do::Status(500));
    let builder = exact().max_retries(40).without_budget();
    send(builder, &upstream, get()).await.unwrap();
    let times = upstream.times();
    assert_eq!(times.len(), 41);
    assert!(times.windows(2).all(|pair| (1_000..=60_001).contains(&(pair[1] - pair[0]))), "{times:?}");
}

#[test]
fn settings_that_cannot_work_are_named() {
    let second = Duration::from_secs(1);
    for (builder, field) in [
        (exact().deadline(Duration::ZERO), "deadline"),
        (exact().attempt_timeout(Duration::ZERO), "attempt_timeout"),
        (exact().attempt_timeout(second * 2).deadline(second), "attempt_timeout"),
        (exact().advice_jitter(f64::NAN), "advice_jitter"),
        (exact().advice_jitter(-1.0), "advice_jitter"),
        (exact().target(" "), "target"),
        (exact().retry_on(Class::Success, true), "retry_on"),
        (exact().retry_on(Class::Denied(failsoft_core::Denier::Budget), true), "retry_on"),
        (exact().backoff(Backoff::default().factor(f64::NAN)), "factor"),
        (exact().backoff(Backoff::default().jitter(Jitter::Proportional(7.0))), "jitter"),
    ] {
        assert_eq!(builder.build().unwrap_err().field(), field);
    }
}
