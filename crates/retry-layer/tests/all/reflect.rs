//! When a wrong answer is answered by a changed request, of what that is made, and what is returned when it does not help.

use std::{
    collections::VecDeque,
    future::{pending, poll_fn},
    io,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use crate::common::{Do, Request, Upstream, get};
use failsoft_core::{
    Auto, BoxError, ByResponse, Call, Class, Denier, ErrorsOnly, Facts, Fault, Finding, Hint, Insight, Mark,
    Next, Once, Report, SoftKind, Verdict,
};
use retry_layer::{
    Reflect, ReflectBuilder, ReflectLayer, RetryBudget,
    reflect::{BadAnswer, Reask, ReaskFn, ResponseFuture, reask_fn},
};
use static_assertions::assert_impl_all;
use tokio::time::{Instant, timeout};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};

type Fn = ReaskFn<fn(Request, &BadAnswer) -> Option<Request>>;
assert_impl_all!(ReflectLayer<Fn>: Clone, Send, Sync);
assert_impl_all!(Reflect<Upstream, Fn>: Clone, Send, Sync);
assert_impl_all!(ResponseFuture<Upstream, Request, Fn, ByResponse, Auto>: Send);

const SECOND: Duration = Duration::from_secs(1);

/// What a model says to one question.
#[derive(Clone)]
enum Say {
    Good,
    Wrong(Verdict, &'static str),
    Fail(Class),
}

const SCHEMA: Verdict = Verdict::soft(SoftKind::Schema);

/// Answers by a script, the last of it for ever, and remembers what it was asked and whether a cache might have answered.
#[derive(Clone)]
struct Model {
    script: Arc<Mutex<VecDeque<Say>>>,
    asked: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Model {
    fn new(script: impl IntoIterator<Item = Say>) -> Self {
        Self { script: Arc::new(Mutex::new(script.into_iter().collect())), asked: Arc::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(question, _)| question.clone()).collect()
    }

    fn service(
        &self,
    ) -> impl Service<String, Response = &'static str, Error = BoxError, Future: Send> + Clone + use<> {
        let this = self.clone();
        tower::service_fn(move |question: String| {
            this.asked.lock().unwrap().push((question, Call::is_marked(Mark::NoCache)));
            let mut script = this.script.lock().unwrap();
            let say = if script.len() > 1 { script.pop_front() } else { script.front().cloned() };
            std::future::ready(match say.unwrap() {
                Say::Good => Ok("good"),
                Say::Fail(class) => Err(Fault::new(class, "x").into()),
                Say::Wrong(verdict, text) => {
                    let mut facts = Facts::default();
                    facts.text = Some(text.into());
                    let finding = Finding::new(SoftKind::Schema, "x", "wrong");
                    let fault = Fault::with_verdict(verdict, "validate-layer");
                    Err(fault.with_report(Report::from(finding)).with_answer(&facts).into())
                }
            })
        })
    }
}

fn told() -> ReflectBuilder<impl Reask<String>, ErrorsOnly> {
    ReflectLayer::builder(reask_fn(|question: String, bad: &BadAnswer| {
        let text = bad.text().unwrap_or("-");
        Some(format!("{question} {}: {text} is {}", bad.number(), bad.errors().next()?.message()))
    }))
    .classify(ErrorsOnly)
}

async fn ask<A: Reask<String>>(
    builder: ReflectBuilder<A, ErrorsOnly>,
    model: &Model,
) -> Result<&'static str, Class> {
    let service = builder.build().unwrap().layer(model.service());
    service.oneshot("q".to_owned()).await.map_err(|error| Verdict::of_error(&*error).class())
}

fn nexts(call: &Call) -> Vec<Next> {
    call.trail().attempts().iter().map(|attempt| attempt.next).collect()
}

#[tokio::test(start_paused = true)]
async fn a_wrong_answer_is_cured_by_a_request_that_says_what_was_wrong_and_that_no_cache_may_answer() {
    let model = Model::new([Say::Wrong(SCHEMA, "a"), Say::Good]);
    let call = Call::begin();
    assert_eq!(call.scope(ask(told(), &model)).await, Ok("good"));
    let asked = model.asked.lock().unwrap().clone();
    assert_eq!(asked, [("q".to_owned(), false), ("q 1: a is wrong".to_owned(), true)]);
    assert_eq!((nexts(&call), call.further_attempts()), (vec![Next::Reask, Next::Answered], 1));
}

// V-F2
#[tokio::test(start_paused = true)]
async fn each_changed_request_is_made_of_the_first_and_the_last_wrong_answer_alone() {
    let model = Model::new([Say::Wrong(SCHEMA, "a"), Say::Wrong(SCHEMA, "b"), Say::Good]);
    assert_eq!(ask(told().max_reasks(2), &model).await, Ok("good"));
    assert_eq!(model.asked(), ["q", "q 1: a is wrong", "q 2: b is wrong"]);
}

#[tokio::test(start_paused = true)]
async fn one_changed_request_is_the_default_and_the_last_outcome_is_returned_as_it_is() {
    let model = Model::new([Say::Wrong(SCHEMA, "a"), Say::Wrong(SCHEMA, "b")]);
    let service = told().build().unwrap().layer(model.service());
    let call = Call::begin();
    let error = call.scope(service.oneshot("q".to_owned())).await.unwrap_err();
    let fault = Fault::find(&*error).unwrap();
    assert_eq!(
        (fault.class(), fault.answer().unwrap().text.as_deref()),
        (Class::Soft(SoftKind::Schema), Some("b"))
    );
    assert_eq!((model.asked().len(), nexts(&call)), (2, vec![Next::Reask, Next::AttemptsSpent]));
}

#[tokio::test(start_paused = true)]
async fn only_soft_answers_that_want_a_change_are_answered_by_one() {
    let same = SCHEMA.with_hint(Hint::Same);
    for say in [
        Say::Wrong(same, "a"),
        Say::Wrong(SCHEMA.with_hint(Hint::Fallback), "a"),
        Say::Fail(Class::Transient),
        Say::Fail(Class::ContextLength),
        Say::Fail(Class::Denied(Denier::Circuit)),
    ] {
        let model = Model::new([say, Say::Good]);
        let call = Call::begin();
        assert!(call.scope(ask(told(), &model)).await.is_err());
        assert_eq!((model.asked().len(), nexts(&call).len()), (1, 0));
    }
    // Unless it is said otherwise.
    let model = Model::new([Say::Wrong(same, "a"), Say::Good]);
    assert_eq!(ask(told().reask_on(Class::Soft(SoftKind::Schema), true), &model).await, Ok("good"));
    let model = Model::new([Say::Wrong(SCHEMA, "a"), Say::Good]);
    assert!(ask(told().reask_if(|verdict| verdict.retry_after().is_some()), &model).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn where_no_change_can_help_the_outcome_is_returned() {
    let model = Model::new([Say::Wrong(SCHEMA, "a"), Say::Good]);
    let builder = ReflectLayer::builder(reask_fn(|_: String, _: &BadAnswer| None)).classify(ErrorsOnly);
    assert_eq!(ask(builder, &model).await, Err(Class::Soft(SoftKind::Schema)));
    let builder = told().replay(Once).build().unwrap().layer(model.service());
    assert!(builder.oneshot("q".to_owned()).await.is_ok(), "sent once, and good");
    assert_eq!(model.asked(), ["q", "q"]);
}

#[tokio::test(start_paused = true)]
async fn the_calls_cap_its_deadline_and_the_budget_hold() {
    let model = || Model::new([Say::Wrong(SCHEMA, "a"), Say::Good]);
    let soft = Err(Class::Soft(SoftKind::Schema));
    let call = Call::options().max_attempts(1).begin();
    assert_eq!(call.scope(ask(told(), &model())).await, soft);
    assert_eq!(nexts(&call), [Next::AttemptsSpent]);

    let call = Call::options().deadline(Instant::now()).begin();
    assert_eq!(call.scope(ask(told(), &model())).await, soft);
    assert_eq!(nexts(&call), [Next::DeadlineNear]);

    let budget = RetryBudget::builder().ratio(0.5).min_per_sec(0.0).initial(0.0).cap(9.0).build().unwrap();
    let call = Call::begin();
    assert_eq!(call.scope(ask(told().shared_budget(budget.clone()), &model())).await, soft);
    assert_eq!((nexts(&call), call.further_attempts()), (vec![Next::BudgetEmpty], 0));
    assert_eq!(ask(told().budget(budget.clone()), &model()).await, soft);
    assert_eq!(ask(told().budget(budget.clone()), &model()).await, Ok("good"));
    assert_eq!(budget.balance(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_ours_does_not_stand_for_the_wrong_answer() {
    let model = Model::new([Say::Wrong(SCHEMA, "a"), Say::Fail(Class::Denied(Denier::Circuit))]);
    let call = Call::begin();
    assert_eq!(call.scope(ask(told(), &model)).await, Err(Class::Soft(SoftKind::Schema)));
    assert_eq!((nexts(&call), call.further_attempts()), (vec![Next::Reask, Next::Final], 0));
    // Another failure of the target is the later word.
    let model = Model::new([Say::Wrong(SCHEMA, "a"), Say::Fail(Class::Overloaded)]);
    assert_eq!(ask(told(), &model).await, Err(Class::Overloaded));
}

/// Upstream's answers are all judged as wrong by their insight.
#[derive(Clone)]
struct Judging<S>(S);

impl<S: Service<Request, Response = crate::common::Response, Error = BoxError, Future: Send + 'static>>
    Service<Request> for Judging<S>
{
    type Response = crate::common::Response;
    type Error = BoxError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<crate::common::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let wrong = !request.headers().contains_key("x-told");
        let future = self.0.call(request);
        Box::pin(async move {
            let mut response = future.await?;
            let insight = Insight::new();
            insight.learn(|facts| {
                facts.verdict = Some(if wrong { SCHEMA } else { Verdict::SUCCESS });
                facts.text = Some("said".into());
            });
            response.extensions_mut().insert(insight);
            Ok(response)
        })
    }
}

fn by_header() -> ReflectBuilder<impl Reask<Request>> {
    ReflectLayer::builder(reask_fn(|mut request: Request, bad: &BadAnswer| {
        request.headers_mut().insert("x-told", bad.text()?.parse().ok()?);
        Some(request)
    }))
}

#[tokio::test(start_paused = true)]
async fn a_wrong_response_is_let_go_before_the_service_is_asked_to_be_ready_again() {
    let upstream = Upstream::new([], Do::Status(200));
    let service = by_header().build().unwrap().layer(Judging(upstream.clone()));
    let response = service.oneshot(get()).await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.calls(), upstream.bodies()), (200, 2, 1));

    for fails in [false, true] {
        let upstream = Upstream::ready_for(1, fails, [], Do::Status(200));
        let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(2.0).build().unwrap();
        let builder = by_header().budget(budget.clone());
        let service = builder.build().unwrap().layer(Judging(upstream.clone()));
        let (call, began) = (Call::begin(), Instant::now());
        let error = call.scope(service.oneshot(get())).await.unwrap_err();
        let fault = Fault::find(&*error).unwrap();
        assert_eq!((fault.class(), fault.status()), (Class::Soft(SoftKind::Schema), Some(200)));
        assert_eq!((upstream.calls(), upstream.bodies(), call.further_attempts()), (1, 0, 0));
        assert_eq!(budget.balance(), 2.0);
        assert_eq!(began.elapsed().as_secs(), u64::from(!fails));
        let trail = call.trail();
        let [attempt] = trail.attempts() else { panic!("{trail}") };
        let decided: Vec<_> = attempt.decisions().map(|decision| decision.next).collect();
        assert_eq!(decided, [Next::Reask, Next::NotReady]);
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_at_any_point_it_leaves_nothing_behind() {
    for polls in 1..8 {
        let slow = || Do::After(SECOND, Box::new(Do::Status(200)));
        let upstream = Upstream::new([], slow());
        let limited = ConcurrencyLimit::new(upstream.clone(), 1);
        let service = by_header().build().unwrap().layer(Judging(limited));
        let call = Call::begin();
        {
            let mut sent = pin!(call.scope(service.clone().oneshot(get())));
            for _ in 0..polls {
                if poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx))).await.is_ready() {
                    break;
                }
                tokio::time::advance(SECOND).await;
            }
        }
        assert_eq!((upstream.running(), upstream.bodies()), (0, 0), "{polls}");
        assert!(timeout(60 * SECOND, service.oneshot(get())).await.is_ok(), "{polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_may_be_asked_often_and_a_clone_carries_none() {
    let upstream = Upstream::new([], Do::Status(200));
    let mut service = by_header().build().unwrap().layer(Judging(upstream.clone()));
    for _ in 0..3 {
        poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    }
    let clone = service.clone();
    service.call(get()).await.unwrap();
    clone.oneshot(get()).await.unwrap();
    assert_eq!(upstream.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_is_left_to_the_limits_around() {
    let service = tower::service_fn(|_: String| pending::<Result<(), io::Error>>());
    let service = told().build().unwrap().layer(service);
    assert!(timeout(SECOND, service.oneshot("q".to_owned())).await.is_err());
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for reasks in [0, 3] {
        assert_eq!(told().max_reasks(reasks).build().unwrap_err().field(), "max_reasks");
    }
    assert_eq!(told().target("").build().unwrap_err().field(), "target");
    for class in [Class::Success, Class::Cancelled, Class::Denied(Denier::Budget)] {
        assert_eq!(told().reask_on(class, true).build().unwrap_err().field(), "reask_on");
    }
}
