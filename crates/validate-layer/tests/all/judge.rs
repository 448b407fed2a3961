//! Checks that take time.

use std::{
    convert::Infallible,
    future::{pending, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use failsoft_core::{
    Blame, BoxError, Call, Class, Fault, FaultDetails, Finding, Hint, Insight, Mark, Report, Severity,
    SoftKind, Usage,
};
use http_body_util::{BodyExt as _, Full};
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use validate_layer::{Answer, Judge, JudgeFailure, ValidateBuilder, ValidateLayer};

fn finds(finding: Option<Finding>) -> Judge {
    Judge::new(service_fn(move |_: Answer| {
        ready(Ok::<_, Infallible>(finding.clone().map_or_else(Report::new, Report::from)))
    }))
}

fn impolite() -> Finding {
    Finding::new(SoftKind::Schema, "polite", "it shouts")
}

fn fault(err: &BoxError) -> &FaultDetails {
    Fault::find(&**err).expect("a fault")
}

async fn through(builder: ValidateBuilder, body: &'static str) -> Result<Report, BoxError> {
    let client = service_fn(move |()| {
        ready(Ok::<_, Infallible>(http::Response::new(Full::<bytes::Bytes>::from(body))))
    });
    let response = builder.build()?.layer(client).oneshot(()).await?;
    let report = Insight::of(response.extensions()).unwrap().facts().report;
    assert_eq!(response.into_body().collect().await?.to_bytes(), body);
    Ok(report)
}

#[tokio::test]
async fn what_a_judge_finds_fails_the_answer_or_is_told_with_it() {
    let builder = ValidateLayer::builder;
    assert!(through(builder().judge(finds(None)), "hi").await.unwrap().is_empty());
    let warned =
        through(builder().judge(finds(Some(impolite().with_severity(Severity::Warning)))), "hi").await;
    assert_eq!(warned.unwrap().leading().unwrap().code(), "polite");
    let err = through(builder().judge(finds(Some(impolite()))), "HI").await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Soft(SoftKind::Schema));
    assert_eq!(fault(&err).answer().unwrap().text.as_deref(), Some("HI"));
}

#[tokio::test]
async fn a_judge_is_asked_only_about_what_passes_all_other_checks() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let judge = Judge::new(service_fn(move |_: Answer| {
        count.fetch_add(1, Ordering::SeqCst);
        ready(Ok::<_, Infallible>(Report::from(impolite())))
    }));
    let second = judge.clone();
    let builder = || ValidateLayer::builder().json().judge(judge.clone()).judge(second.clone());
    assert!(through(builder(), "no json").await.is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert!(through(builder(), "1").await.is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "after a failure no other judge is asked");
}

#[tokio::test]
async fn a_judge_that_fails_is_a_warning_or_a_failure_that_blames_nobody() {
    let broken =
        || Judge::new(service_fn(|_: Answer| ready(Err::<Report, BoxError>("key sk-1 refused".into()))));
    let report = through(ValidateLayer::builder().judge(broken()), "hi").await.unwrap();
    let told = report.leading().unwrap();
    assert_eq!((told.code(), told.severity()), ("judge.failed", Severity::Warning));
    assert!(!told.message().contains("sk-1"));
    let strict = broken().on_failure(JudgeFailure::Fail);
    let err = through(ValidateLayer::builder().judge(strict), "hi").await.unwrap_err();
    let verdict = fault(&err).verdict();
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::LowConfidence), Hint::Never));
    assert_eq!(verdict.blame(), Blame::Nobody);
}

#[tokio::test(start_paused = true)]
async fn a_judge_has_a_time_of_its_own_and_never_more_than_the_call() {
    let slow = || Judge::new(service_fn(|_: Answer| pending::<Result<Report, Infallible>>()));
    let started = Instant::now();
    let report =
        through(ValidateLayer::builder().judge(slow().timeout(Duration::from_secs(2))), "hi").await.unwrap();
    assert_eq!((report.leading().unwrap().code(), started.elapsed().as_secs()), ("judge.failed", 2));
    assert!(report.to_string().contains("timeout.total"), "{report}");
    let started = Instant::now();
    let call = Call::options().timeout(Duration::from_secs(1)).begin();
    call.scope(through(ValidateLayer::builder().judge(slow()), "hi")).await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 1);
    assert!(ValidateLayer::builder().judge(slow().timeout(Duration::ZERO)).build().is_err());
}

/// Panics when it is called without having been ready. A clone is not ready.
struct Strict {
    ready: bool,
    waits: usize,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, waits: 2 }
    }
}

impl Service<Answer> for Strict {
    type Response = Report;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Report, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.waits > 0 {
            self.waits -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Answer) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        ready(Ok(Report::new()))
    }
}

#[tokio::test]
async fn a_judge_is_called_when_it_is_ready() {
    let judge = Judge::new(Strict { ready: true, waits: 0 });
    for _ in 0..2 {
        through(ValidateLayer::builder().judge(judge.clone()), "hi").await.unwrap();
    }
}

#[tokio::test]
async fn the_judge_of_a_judge_is_not_asked() {
    // A judge whose own model is behind a layer that has the same judge, as one client for all models would be.
    #[derive(Clone)]
    struct Recursive(Arc<AtomicUsize>);
    impl Service<Answer> for Recursive {
        type Response = Report;
        type Error = BoxError;
        type Future = std::pin::Pin<Box<dyn Future<Output = Result<Report, BoxError>> + Send>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Answer) -> Self::Future {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) < 3, "it does not end");
            assert!(Call::is_marked(Mark::Judging));
            let judge = Judge::new(self.clone());
            Box::pin(async move {
                tokio::task::yield_now().await;
                through(ValidateLayer::builder().judge(judge), "fine").await
            })
        }
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let judge = Judge::new(Recursive(Arc::clone(&asked)));
    through(ValidateLayer::builder().judge(judge), "hi").await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_a_judge_costs_is_the_calls() {
    let judge = Judge::new(service_fn(|_: Answer| {
        let mut slot = Call::slot().unwrap();
        slot.set(&Usage { input: Some(5), output: Some(1), ..Usage::default() });
        ready(Ok::<_, Infallible>(Report::new()))
    }));
    let call = Call::begin();
    call.scope(through(ValidateLayer::builder().judge(judge), "hi")).await.unwrap();
    assert_eq!((call.usage().input, call.usage().output), (Some(5), Some(1)));
}

#[tokio::test]
async fn what_a_judge_has_cost_is_the_calls_also_where_nobody_waits_for_what_it_says() {
    // The first of its own calls has ended, the next never does.
    let judge = || {
        Judge::new(service_fn(|_: Answer| async {
            let mut slot = Call::slot().unwrap();
            slot.set(&Usage { input: Some(5), output: Some(1), ..Usage::default() });
            drop(slot);
            pending::<Result<Report, Infallible>>().await
        }))
    };
    let call = Call::begin();
    let layer = ValidateLayer::values(|text: &String| Answer::new(text.as_str())).judge(judge());
    let layer = layer.build().unwrap();
    let service = layer.layer(service_fn(|text: &'static str| ready(Ok::<_, Infallible>(text.to_owned()))));
    let mut waiting = tokio_test::task::spawn(call.scope(service.oneshot("hi")));
    assert!(waiting.poll().is_pending());
    drop(waiting);
    assert_eq!((call.usage().input, call.usage().output), (Some(5), Some(1)));
}

#[tokio::test]
async fn plain_values_have_judges_too_and_a_dropped_call_drops_its_judge() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let judge = Judge::new(service_fn(move |_: Answer| {
        let held = Arc::clone(&held);
        async move {
            pending::<()>().await;
            drop(held);
            Ok::<_, Infallible>(Report::new())
        }
    }));
    let layer =
        ValidateLayer::values(|text: &String| Answer::new(text.as_str())).judge(judge).build().unwrap();
    let service = layer.layer(service_fn(|text: &'static str| ready(Ok::<_, Infallible>(text.to_owned()))));
    let mut call = tokio_test::task::spawn(service.oneshot("hi"));
    let before = Arc::strong_count(&alive);
    assert!(call.poll().is_pending());
    assert!(Arc::strong_count(&alive) > before);
    drop(call);
    assert_eq!(Arc::strong_count(&alive), before);
}

#[tokio::test]
async fn doubts_about_other_choices_are_not_added_up_because_there_is_a_judge() {
    let doubts = |word: &'static str| {
        move |answer: &Answer| match answer.text() {
            Some(text) if text == word => {
                Err(Finding::new(SoftKind::Schema, word, "odd").with_severity(Severity::Warning))
            }
            _ => Ok(()),
        }
    };
    let layer = ValidateLayer::values(Answer::clone)
        .check_fn("a", doubts("a"))
        .check_fn("b", doubts("b"))
        .check_fn("c", doubts("c"));
    let choices = Answer::new("a").with_alternative(Answer::new("b")).with_alternative(Answer::new("c"));
    let layer = layer.judge(finds(None)).build().unwrap();
    assert!(layer.validator().judge(&choices).0.is_success());
    let service = layer.layer(service_fn(|answer: Answer| ready(Ok::<_, Infallible>(answer))));
    assert!(service.oneshot(choices).await.is_ok());
}

#[tokio::test]
async fn each_judge_is_asked_about_what_is_good_by_the_layers_own_severities() {
    let found =
        |code, severity| finds(Some(Finding::new(SoftKind::Schema, code, "").with_severity(severity)));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let last = || {
        let asked = Arc::clone(&counted);
        Judge::new(service_fn(move |_: Answer| {
            asked.fetch_add(1, Ordering::Relaxed);
            ready(Ok::<_, Infallible>(Report::from(impolite())))
        }))
    };
    // An error that is none here does not keep the next from being asked,
    let builder = || ValidateLayer::builder().judge(found("tone", Severity::Error)).judge(last());
    let err = through(builder().severity("tone", Severity::Info), "hello").await.unwrap_err();
    assert_eq!(fault(&err).report().unwrap().leading().unwrap().code(), "polite");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // and what fails here does, if only because too little trust is left: nobody pays for another opinion.
    through(builder(), "hello").await.unwrap_err();
    let builder = || ValidateLayer::builder().judge(found("tone", Severity::Warning)).judge(last());
    through(builder().severity("tone", Severity::Error), "hello").await.unwrap_err();
    let err = through(builder().weight("tone", 0.7), "hello").await.unwrap_err();
    assert_eq!(fault(&err).class(), Class::Soft(SoftKind::LowConfidence));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
