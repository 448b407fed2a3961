//! What a call counts for, and when: at the end of its body, at an error, when it is dropped; once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{
    Answer, Asked, Model, Request, Response, Step, is_denied, refused, request, reset, usage,
};
use budget_layer::{Budget, BudgetLayer, Estimate, Estimator, Outcome};
use failsoft_core::{BoxError, Call, ErrorsOnly, Next, Slot, Usage};
use http_body_util::BodyExt as _;
use tokio_test::{assert_pending, assert_ready, task::Spawn, task::spawn};
use tower::{Layer as _, ServiceExt as _};

/// 10 for the prompt, 100 for the answer.
#[derive(Clone)]
struct Parts;

impl Estimator<Request> for Parts {
    fn estimate(&self, _: &Request) -> Estimate {
        Estimate::parts(10, 100)
    }
}

type Pending = Spawn<std::pin::Pin<Box<dyn Future<Output = Result<Response2, BoxError>> + Send>>>;
type Response2 =
    http::Response<failsoft_core::Watched<Answer, failsoft_core::BodyJudge, budget_layer::Charge>>;

/// One call in flight.
struct One {
    budget: Budget,
    asked: Asked,
    future: Pending,
}

fn one() -> One {
    let (layer, model) =
        (BudgetLayer::builder().tokens(1_000).estimator(Parts).build().unwrap(), Model::new());
    let budget = layer.budget().clone();
    let mut future: Pending = spawn(Box::pin(layer.layer(model.clone()).oneshot(request())));
    assert_pending!(future.poll());
    assert_eq!((budget.spent(), budget.reserved()), (0, 110));
    One { budget, asked: model.next(), future }
}

/// What is spent and reserved, and the calls of one outcome.
fn standing(budget: &Budget, outcome: Outcome) -> (u64, u64, u64) {
    (budget.spent(), budget.reserved(), budget.spend().of(outcome).calls)
}

impl One {
    /// The response to an answer.
    fn answered(self, answer: Response) -> (Budget, Response2) {
        let Self { budget, asked, mut future } = self;
        asked.send(Ok(answer));
        let response = assert_ready!(future.poll()).unwrap();
        (budget, response)
    }
}

// G91, G92, V-H1, V-H2: cumulative counts are overwritten, not added.
#[tokio::test]
async fn a_stream_read_to_its_end_counts_its_last_usage_once() {
    let call = one();
    let slot = call.asked.slot();
    let cumulative = [1, 2, 15].map(|output| Step::Told(usage(9, output)));
    let (budget, response) = call.answered(Answer::read(slot, cumulative));
    assert_eq!(budget.reserved(), 110, "nothing is settled while the body runs");
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (24, 0, 1));
    assert_eq!(budget.spend().unknown(), 0);
}

// G91: the pieces of a stream that count from 1 to 100 were added up to 5 050.
#[tokio::test]
async fn a_stream_that_counts_up_in_each_of_its_pieces_counts_its_last_figure() {
    let call = one();
    let slot = call.asked.slot();
    let (budget, response) =
        call.answered(Answer::read(slot, (1..=100).map(|output| Step::Told(usage(9, output)))));
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (109, 0, 1));
}

// G92, V-H1: of each field what was said last counts, and a later piece that does not say it takes nothing away.
#[tokio::test]
async fn a_later_piece_that_leaves_a_field_out_keeps_what_was_said_of_it() {
    let call = one();
    let slot = call.asked.slot();
    let output = |output| Step::Told(Usage { output: Some(output), ..Usage::default() });
    let steps = [Step::Told(usage(25, 1)), output(8), Step::Text, output(15)];
    let (budget, response) = call.answered(Answer::read(slot, steps));
    response.into_body().collect().await.unwrap();
    assert_eq!((standing(&budget, Outcome::Success), budget.spend().unknown()), ((40, 0, 1), 0));
}

// V-H2, G92: the first piece tells the input with what a cache served, the last one tells both apart: it was counted twice.
#[tokio::test]
async fn input_that_is_split_up_by_a_later_piece_counts_once() {
    let call = one();
    let slot = call.asked.slot();
    let split = Usage { cache_read: Some(70), ..usage(30, 15) };
    let (budget, response) =
        call.answered(Answer::read(slot, [Step::Told(usage(100, 1)), Step::Told(split)]));
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (115, 0, 1));
}

// G98, V-H7: the loser of a hedge was billed in full, or its spending to nobody: it counts for what it used, once.
#[tokio::test]
async fn the_loser_of_a_hedge_counts_for_its_input_and_what_it_wrote_until_it_was_dropped() {
    let call = one();
    let mut loser = call.asked.slot();
    loser.set(&usage(9, 4));
    drop(loser);
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(9, 20))]));
    response.into_body().collect().await.unwrap();
    assert_eq!((standing(&budget, Outcome::Success), budget.spend().unknown()), ((9 + 4 + 29, 0, 1), 0));
}

// G97, V-H4: a client that hung up before the last piece paid nothing.
#[tokio::test]
async fn a_body_dropped_half_way_counts_the_input_and_the_output_that_was_seen() {
    let call = one();
    let slot = call.asked.slot();
    let seen = |output| Step::Told(Usage { output: Some(output), ..Usage::default() });
    let (budget, response) = call.answered(Answer::read(slot, [seen(1), seen(30), seen(80)]));
    let mut body = Box::pin(response.into_body());
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(standing(&budget, Outcome::Cancelled), (10 + 30, 0, 1));
}

#[tokio::test]
async fn by_option_a_cut_call_counts_its_whole_estimate() {
    let model = Model::new();
    let layer = BudgetLayer::builder().tokens(1_000).estimator(Parts).charge_cut_in_full().build().unwrap();
    let budget = layer.budget().clone();
    let mut future = spawn(layer.layer(model.clone()).oneshot(request()));
    assert_pending!(future.poll());
    let asked = model.next();
    let slot = asked.slot();
    asked.send(Ok(Answer::read(slot, [Step::Told(usage(9, 1)), Step::Text])));
    let mut body = Box::pin(assert_ready!(future.poll()).unwrap().into_body());
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(standing(&budget, Outcome::Cancelled), (110, 0, 1));
}

// G96, V-H6: a stream without usage cost nothing.
#[tokio::test]
async fn a_body_of_which_nobody_says_anything_counts_its_estimate_flagged() {
    let (budget, response) = one().answered(Answer::unread([Step::Text]));
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (110, 0, 1));
    assert_eq!(budget.spend().unknown(), 1);

    let call = one();
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(0, 0))]));
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (0, 0, 1));
    assert_eq!(budget.spend().unknown(), 0, "an explicit zero is known");
}

// G99
#[tokio::test]
async fn a_cut_body_keeps_what_was_said_before_the_cut() {
    let call = one();
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(9, 1)), Step::Cut]));
    response.into_body().collect().await.unwrap_err();
    assert_eq!(standing(&budget, Outcome::Transient), (10, 0, 1));
}

// G98, G99, V-H7: failed attempts and the loser of a hedge cost too.
#[tokio::test]
async fn attempts_add_up_whatever_is_dropped_when() {
    let call = one();
    let mut failed = call.asked.slot();
    failed.set(&usage(9, 0));
    drop(failed);
    let mut loser = call.asked.slot();
    loser.set(&usage(9, 3));
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(9, 20))]));
    response.into_body().collect().await.unwrap();
    assert_eq!(budget.reserved(), 110, "the loser is still at work");
    loser.set(&usage(9, 4));
    drop(loser);
    assert_eq!(standing(&budget, Outcome::Success), (9 + 13 + 29, 0, 1));
}

#[tokio::test]
async fn a_silent_attempt_counts_its_estimate_beside_what_the_others_said() {
    let call = one();
    drop(call.asked.slot());
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(9, 20))]));
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (110 + 29, 0, 1));
    assert_eq!(budget.spend().unknown(), 1);
}

#[tokio::test]
async fn usage_that_comes_after_the_settling_is_booked_and_replaces_what_was_guessed() {
    // Known and settled: what comes late is added.
    let call = one();
    let scope = call.asked.call.clone().unwrap();
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(9, 20))]));
    response.into_body().collect().await.unwrap();
    late(&scope, usage(5, 6));
    assert_eq!(standing(&budget, Outcome::Success), (29 + 11, 0, 1));
    assert_eq!((budget.spend().late(), budget.spend().of(Outcome::Success).spent), (1, 40));

    // Guessed: the late usage was guessed already.
    let call = one();
    let scope = call.asked.call.clone().unwrap();
    let (budget, response) = call.answered(Answer::unread([Step::Text]));
    response.into_body().collect().await.unwrap();
    for (more, spent) in [(usage(9, 51), 110), (usage(0, 40), 110), (usage(0, 30), 130)] {
        late(&scope, more);
        assert_eq!(budget.spent(), spent);
    }
}

fn late(scope: &Call, usage: Usage) {
    let mut slot: Slot = scope.enter(Call::slot).unwrap();
    slot.set(&usage);
}

#[tokio::test]
async fn an_error_settles_at_once_by_what_it_means() {
    for (error, spent, unknown) in [(refused(), 0, 0), (reset(), 110, 1)] {
        let One { budget, asked, mut future } = one();
        asked.send(Err(error));
        assert!(assert_ready!(future.poll()).is_err());
        assert_eq!(standing(&budget, Outcome::Transient), (spent, 0, 1));
        assert_eq!(budget.spend().unknown(), unknown);
    }
}

#[tokio::test]
async fn dropped_at_any_point_a_call_settles_once() {
    // Before it is polled again, after its answer, in each place of its body.
    for reads in 0..6 {
        let call = one();
        let (budget, scope) = (call.budget.clone(), call.asked.call.clone().unwrap());
        let slot = call.asked.slot();
        if reads == 0 {
            drop(slot);
            drop(call.future);
            assert_eq!(standing(&budget, Outcome::Cancelled), (110, 0, 1));
            drop(call.asked);
        } else {
            let steps = (1..4).map(|output| Step::Told(usage(9, output)));
            let (budget, response) = call.answered(Answer::read(slot, steps));
            let mut body = Box::pin(response.into_body());
            for _ in 1..reads {
                let _ = body.frame().await;
            }
            drop(body);
            let spent = if reads == 1 { 110 } else { 9 + (reads - 1).min(3) };
            let outcome = if reads == 5 { Outcome::Success } else { Outcome::Cancelled };
            assert_eq!(standing(&budget, outcome), (spent, 0, 1), "{reads}");
        }
        drop(scope);
        assert_eq!((budget.reserved(), budget.spend().calls()), (0, 1), "{reads}");
    }
}

// G93: of what an attempt says again and again, as a stream does, the last counts, and nothing twice.
#[tokio::test]
async fn of_what_one_attempt_says_the_last_counts() {
    let call = one();
    let slot = call.asked.slot();
    let told = [usage(9, 1), usage(9, 7), usage(9, 7), usage(9, 20)];
    let (budget, response) = call.answered(Answer::read(slot, told.map(Step::Told)));
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (29, 0, 1));
}

// The guard would settle too soon if it were dropped before the body.
#[tokio::test]
async fn what_a_body_says_while_it_is_dropped_still_counts() {
    let call = one();
    let mut slot = call.asked.slot();
    slot.set(&usage(9, 7));
    let (budget, response) = call.answered(Answer::read(slot, [Step::Text]));
    drop(response);
    assert_eq!(standing(&budget, Outcome::Cancelled), (16, 0, 1));
    assert_eq!(budget.spend().late(), 0);
}

#[tokio::test]
async fn a_failed_response_whose_body_tells_usage_counts_it() {
    let call = one();
    let slot = call.asked.slot();
    let mut answer = Answer::read(slot, [Step::Told(usage(9, 0))]);
    *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
    let (budget, response) = call.answered(answer);
    assert_eq!(budget.reserved(), 110, "the reader is at work yet");
    response.into_body().collect().await.unwrap();
    assert_eq!(standing(&budget, Outcome::Transient), (9, 0, 1));
}

#[tokio::test]
async fn a_body_that_another_task_reads_settles_once() {
    let call = one();
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(9, 7))]));
    std::thread::spawn(move || tokio_test::block_on(response.into_body().collect()).unwrap()).join().unwrap();
    assert_eq!(standing(&budget, Outcome::Success), (16, 0, 1));
}

// P21
#[tokio::test]
async fn a_panic_of_the_service_is_a_panic_and_the_reservation_is_settled() {
    let layer = BudgetLayer::builder().tokens(100).estimate_fixed(40).classify(ErrorsOnly).build().unwrap();
    let in_future = layer.layer(tower::service_fn(|(): ()| async {
        tokio::task::yield_now().await;
        assert!(std::hint::black_box(false), "on purpose");
        Ok::<_, BoxError>(())
    }));
    assert!(tokio::spawn(in_future.oneshot(())).await.unwrap_err().is_panic());
    let in_call = layer.layer(tower::service_fn(|(): ()| -> std::future::Ready<Result<(), BoxError>> {
        panic!("on purpose")
    }));
    assert!(tokio::spawn(in_call.oneshot(())).await.unwrap_err().is_panic());
    assert_eq!(standing(layer.budget(), Outcome::Unknown), (80, 0, 2));
}

#[tokio::test]
async fn nested_budgets_each_settle_their_own_scope() {
    let outer = BudgetLayer::builder().name("tenant").tokens(1_000).estimate_fixed(110).build().unwrap();
    let inner = BudgetLayer::builder().name("session").tokens(300).estimate_fixed(110).build().unwrap();
    let (tenant, session, model) = (outer.budget().clone(), inner.budget().clone(), Model::new());
    let service = outer.layer(inner.layer(model.clone()));
    let mut future = spawn(service.clone().oneshot(request()));
    assert_pending!(future.poll());
    assert_eq!((tenant.reserved(), session.reserved()), (110, 110));
    let asked = model.next();
    let slot = asked.slot();
    asked.send(Ok(Answer::read(slot, [Step::Told(usage(9, 20))])));
    let response = assert_ready!(future.poll()).unwrap();
    response.into_body().collect().await.unwrap();
    for budget in [&tenant, &session] {
        assert_eq!(standing(budget, Outcome::Success), (29, 0, 1));
    }
    // A second call through the same session of the user adds to the same budgets, once.
    let mut dropped = spawn(service.oneshot(request()));
    assert_pending!(dropped.poll());
    drop(dropped);
    assert_eq!((tenant.spent(), session.spent(), tenant.reserved(), session.reserved()), (139, 139, 0, 0));
}

#[tokio::test]
async fn where_an_inner_budget_denies_the_outer_one_has_reserved_and_counted_nothing() {
    let outer = BudgetLayer::builder().name("tenant").tokens(1_000).estimate_fixed(50).build().unwrap();
    let inner = BudgetLayer::builder().name("session").tokens(10).estimate_fixed(50).build().unwrap();
    let tenant = outer.budget().clone();
    let err = outer.layer(inner.layer(Model::new())).oneshot(request()).await.err().unwrap();
    assert!(is_denied(&err));
    let target = failsoft_core::Fault::find(&*err).and_then(|fault| fault.target()).map(str::to_owned);
    assert_eq!(target.as_deref(), Some("session"));
    assert_eq!((tenant.spent(), tenant.reserved(), tenant.spend().calls()), (0, 0, 0));
}

#[tokio::test]
async fn an_isolated_agent_inside_spends_from_its_own_budget_only() {
    let call = one();
    let agent = call.asked.call.as_ref().unwrap().enter(|| Call::options().isolated().begin());
    late(&agent, usage(500, 500));
    let slot = call.asked.slot();
    let (budget, response) = call.answered(Answer::read(slot, [Step::Told(usage(9, 20))]));
    response.into_body().collect().await.unwrap();
    assert_eq!(budget.spent(), 29);
}

// Each attempt cost what one was estimated at, and only one was reserved: lost attempts spent many times what there was.
#[tokio::test]
async fn lost_attempts_are_reserved_for_before_they_are_made_and_never_overshoot() {
    let layer = BudgetLayer::builder().tokens(1_000).estimate_fixed(110).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut calls: Vec<_> = (0..3).map(|_| spawn(service.clone().oneshot(request()))).collect();
    let mut scopes = Vec::new();
    for call in &mut calls {
        assert_pending!(call.poll());
        let asked = model.next();
        scopes.push(asked.call.clone().unwrap());
        drop(asked.slot()); // the first attempt is lost, and says nothing
    }
    let mut made = 3;
    let mut refused = 0;
    while refused < 3 {
        for scope in &scopes {
            match scope.enter(Call::take_retry) {
                Ok(mut retry) => {
                    retry.sent();
                    made += 1;
                    drop(scope.enter(Call::slot).unwrap());
                }
                Err(why) => {
                    assert_eq!(why, Next::SpendDenied);
                    refused += 1;
                }
            }
            assert!(budget.spent() + budget.reserved() <= 1_000);
        }
    }
    assert_eq!((made, budget.reserved()), (9, 990));
    // A retry that was granted and not sent gives back, and another call may have it.
    budget.set_limit(1_100);
    drop(scopes[0].enter(Call::take_retry).unwrap());
    scopes[1].enter(Call::take_attempt).unwrap();
    scopes[1].enter(Call::give_attempt_back);
    assert_eq!(budget.reserved(), 990);
    drop((calls, scopes));
    assert_eq!((budget.spent(), budget.reserved(), budget.spend().calls()), (990, 0, 3));
}

#[tokio::test]
async fn a_call_that_uses_more_than_its_estimate_is_booked_in_full_and_the_next_is_denied() {
    let layer = BudgetLayer::builder().tokens(200).estimate_fixed(110).build().unwrap();
    let (budget, model) = (layer.budget().clone(), Model::new());
    let service = layer.layer(model.clone());
    let mut future = spawn(service.clone().oneshot(request()));
    assert_pending!(future.poll());
    let asked = model.next();
    let slot = asked.slot();
    asked.send(Ok(Answer::read(slot, [Step::Told(usage(9, 600))])));
    assert_ready!(future.poll()).unwrap().into_body().collect().await.unwrap();
    assert_eq!((budget.spent(), budget.remaining()), (609, 0));
    assert!(is_denied(&service.oneshot(request()).await.err().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_by_a_timeout_outside_is_settled() {
    let layer = BudgetLayer::builder().tokens(200).estimate_fixed(110).build().unwrap();
    let model = Model::new();
    let service = layer.layer(model.clone());
    assert!(tokio::time::timeout(Duration::from_secs(1), service.oneshot(request())).await.is_err());
    assert_eq!(standing(layer.budget(), Outcome::Cancelled), (110, 0, 1));
}

#[tokio::test]
async fn a_reader_finds_the_call_at_the_call_and_at_each_poll() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let layer = BudgetLayer::builder().estimate_fixed(9).classify(ErrorsOnly).build().unwrap();
    let push = Arc::clone(&seen);
    let service = layer.layer(tower::service_fn(move |(): ()| {
        let push = Arc::clone(&push);
        push.lock().unwrap().push(Call::slot().is_some());
        async move {
            for _ in 0..2 {
                push.lock().unwrap().push(Call::slot().is_some());
                tokio::task::yield_now().await;
            }
            Ok::<_, BoxError>(())
        }
    }));
    service.oneshot(()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [true; 3]);
    assert!(!Call::is_current());
}
