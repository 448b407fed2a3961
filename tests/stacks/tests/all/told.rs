//! Of all of our layers inside each other: each attempt that reached a target is told once, with what each layer decided about it.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use breaker_layer::BreakerLayer;
use budget_layer::BudgetLayer;
use failsoft_core::{
    Attempt, Backoff, BoxError, Call, Class, ErrorsOnly, Fault, MAX_ATTEMPTS, SoftKind, Trail,
    backoff::Jitter,
};
use fallback_layer::{BoxRoute, FallbackLayer, Route};
use retry_layer::{HedgeLayer, ReflectLayer, RetryLayer, reflect::reask_fn};
use tokio::time::sleep;
use tower::{
    Layer as _, Service, ServiceExt as _,
    timeout::{TimeoutLayer, error::Elapsed},
    util::BoxCloneSyncService,
};
use validate_layer::{Answer, ValidateLayer};

const SECOND: Duration = Duration::from_secs(1);

/// What a target does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Answer,
    /// Answers with what a validation finds wrong.
    Babble,
    /// Answers after three seconds: a hedge begins beside it, and a limit cuts it off.
    Dawdle,
    Fail(Class),
}

use Does::{Answer as A, Babble as B, Dawdle as D, Fail};

const T: Does = Fail(Class::Transient);
const Q: Does = Fail(Class::Quota);
const S: Does = Fail(Class::Soft(SoftKind::MissingField));

/// All targets of a stack: what the next of them does that is asked, and what they did.
#[derive(Clone)]
struct Targets {
    script: Arc<Mutex<VecDeque<Does>>>,
    /// What they do when the script is over.
    then: Does,
    did: Arc<Mutex<Vec<Does>>>,
    /// The failures that whoever asked has got.
    failed: Arc<Mutex<Vec<Class>>>,
}

impl Targets {
    fn new(script: &[Does], then: Does) -> Self {
        let script = Arc::new(Mutex::new(script.iter().copied().collect()));
        Self { script, then, did: Arc::default(), failed: Arc::default() }
    }
}

impl Service<&'static str> for Targets {
    type Response = &'static str;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<&'static str, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: &'static str) -> Self::Future {
        let does = self.script.lock().unwrap().pop_front().unwrap_or(self.then);
        self.did.lock().unwrap().push(does);
        let failed = Arc::clone(&self.failed);
        Box::pin(async move {
            sleep(Duration::from_millis(10)).await;
            match does {
                A => Ok(r#"{"city": 1}"#),
                B => Ok(r#"{"town": 1}"#),
                D => {
                    sleep(3 * SECOND).await;
                    Ok(r#"{"city": 2}"#)
                }
                Fail(class) => {
                    failed.lock().unwrap().push(class);
                    Err(Fault::new(class, "test").into())
                }
            }
        })
    }
}

type Stack = BoxCloneSyncService<&'static str, &'static str, BoxError>;

/// What stands around the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Around {
    /// So many more, 5 s apart.
    Retry(u32),
    Reflect,
    /// After one second.
    Hedge,
    /// Names the first route `a` and the other `b`, and inside of another one `c` and `d`, and so on.
    Fallback,
    /// A fallback that starts the other route beside the first one after a second.
    Beside,
    Validate,
    /// Opens at the third failure in a row.
    Breaker,
    /// Has tokens for three attempts.
    Budget,
    /// Two seconds: in the first wait of a retry inside.
    Timeout,
}

use Around::{Beside, Breaker, Budget, Fallback, Hedge, Reflect, Retry, Timeout, Validate};

impl Around {
    fn around(self, inner: Stack, depth: usize, targets: &Targets) -> Stack {
        match self {
            Retry(more) => {
                let backoff = Backoff::fixed(5 * SECOND).jitter(Jitter::None);
                let layer = RetryLayer::builder().classify(ErrorsOnly).backoff(backoff).max_retries(more);
                boxed(layer.without_budget().build().unwrap().layer(inner))
            }
            Reflect => {
                let layer = ReflectLayer::builder(reask_fn(|request: &'static str, _| Some(request)));
                boxed(layer.classify(ErrorsOnly).without_budget().build().unwrap().layer(inner))
            }
            Hedge => {
                let layer = HedgeLayer::builder().classify(ErrorsOnly).delay(SECOND).without_budget();
                boxed(layer.build().unwrap().layer(inner))
            }
            Fallback | Beside => {
                let (first, other) = ["ab", "cd", "ef", "gh"][depth].split_at(1);
                let route = Route::new(other, BoxRoute::new(targets.clone()));
                let layer = FallbackLayer::builder().classify(ErrorsOnly).name(first).route(route);
                let layer = if self == Beside { layer.slow_start(SECOND) } else { layer };
                boxed(layer.timeout(9_000 * SECOND).build().unwrap().layer(BoxRoute::new(inner)))
            }
            Validate => {
                let layer = ValidateLayer::values(|reply: &&'static str| Answer::new(*reply));
                boxed(layer.json_object().require("/city").build().unwrap().layer(inner))
            }
            Breaker => {
                let layer = BreakerLayer::builder().classify(ErrorsOnly).consecutive_failures(3);
                boxed(layer.build().unwrap().layer(inner))
            }
            Budget => {
                let layer = BudgetLayer::builder().tokens(300).estimate_fixed(100).classify(ErrorsOnly);
                boxed(layer.build().unwrap().layer(inner))
            }
            Timeout => boxed(TimeoutLayer::new(2 * SECOND).layer(inner)),
        }
    }
}

fn boxed<S>(service: S) -> Stack
where
    S: Service<&'static str, Response = &'static str, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    BoxCloneSyncService::new(service)
}

/// Asks once through these, the outermost first.
async fn ask(layers: &[Around], targets: &Targets) -> (Result<&'static str, BoxError>, Trail) {
    let innermost = boxed(targets.clone());
    let stack = layers.iter().enumerate().rev().fold(innermost, |inner, (depth, layer)| {
        let depth = layers[..depth].iter().filter(|layer| matches!(layer, Fallback | Beside)).count();
        layer.around(inner, depth, targets)
    });
    let call = Call::begin();
    let ended = call.scope(stack.oneshot("?")).await;
    (ended, call.trail())
}

/// Whether something was sent to a target.
fn was_sent(attempt: &&Attempt) -> bool {
    !attempt.verdict.is_unsent()
}

async fn trail(layers: &[Around], script: &[Does]) -> String {
    ask(layers, &Targets::new(script, A)).await.1.to_string()
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_told_once_with_all_that_was_decided_about_it() {
    let rows: &[(&[Around], &[Does], &str)] = &[
        // Retries inside each other: the outer one's cap is that of both.
        (&[Retry(2), Retry(1)], &[T, A], "- transient (retry) > - success (answered)"),
        (
            &[Retry(2), Retry(1)],
            &[T, T, A],
            "- transient (retry) > - transient (attempts_spent, retry) > - success (answered)",
        ),
        (&[Retry(2), Retry(1)], &[Q], "- quota (final)"),
        // A wait of the inner one that a limit between them cuts off is none.
        (&[Retry(1), Timeout, Retry(1)], &[T, A], "- transient (retry) > - success (answered)"),
        (&[Retry(1), Timeout, Retry(1)], &[D, A], "- timeout.total (retry) > - success (answered)"),
        // Around a retry and inside of one.
        (&[Reflect, Retry(1)], &[S, A], "- soft.missing_field (final, reask) > - success (answered)"),
        (
            &[Reflect, Retry(1)],
            &[S, T, A],
            "- soft.missing_field (final, reask) > - transient (retry) > - success (answered)",
        ),
        (
            &[Reflect, Retry(1)],
            &[S, S],
            "- soft.missing_field (final, reask) > - soft.missing_field (final, attempts_spent)",
        ),
        (
            &[Retry(2), Reflect],
            &[S, T, A],
            "- soft.missing_field (reask) > - transient (final, retry) > - success (answered)",
        ),
        // A good answer that a validation between them finds wrong.
        (
            &[Reflect, Validate, Retry(1)],
            &[T, B, A],
            "- transient (retry) > - soft.missing_field (reask) > - success (answered)",
        ),
        (
            &[Fallback, Validate, Retry(1)],
            &[T, B, A],
            "- transient (retry) > a soft.missing_field (next_route) > b success (answered)",
        ),
        (
            &[Reflect, Retry(1), Validate],
            &[B, T, A],
            "- soft.missing_field (final, reask) > - transient (retry) > - success (answered)",
        ),
        // A fallback around, and inside.
        (
            &[Fallback, Retry(1)],
            &[T, T, A],
            "- transient (retry) > a transient (attempts_spent, next_route) > b success (answered)",
        ),
        (&[Fallback, Timeout, Retry(1)], &[T, A], "a transient (retry, next_route) > b success (answered)"),
        (
            &[Retry(1), Fallback],
            &[T, T, A],
            "a transient (next_route) > b transient (no_route_left, retry) > a success (answered)",
        ),
        (
            &[Retry(1), Fallback],
            &[T, T, T, T],
            "a transient (next_route) > b transient (no_route_left, retry) \
             > a transient (next_route) > b transient (no_route_left, attempts_spent)",
        ),
        (
            &[Fallback, Reflect, Retry(1)],
            &[S, S, A],
            "- soft.missing_field (final, reask) > a soft.missing_field (final, attempts_spent, next_route) \
             > b success (answered)",
        ),
        (
            &[Fallback, Fallback],
            &[T, T, T],
            "c transient (next_route) > d transient (no_route_left, next_route) > b transient (no_route_left)",
        ),
        (
            &[Retry(1), Fallback, Retry(1)],
            &[T, T, T, A],
            "- transient (retry) > a transient (attempts_spent, next_route) \
             > b transient (no_route_left, attempts_spent)",
        ),
        // Attempts beside each other.
        (&[Retry(1), Hedge], &[D, T, T], "- success (answered) > - transient (overtaken)"),
        (&[Retry(2), Hedge], &[T, D, A], "- transient (retry) > - cancelled (hedge) > - success (answered)"),
        (&[Hedge, Retry(1)], &[D, A], "- cancelled (hedge) > - success (answered)"),
        (&[Hedge, Retry(1)], &[T, A], "- transient (retry, hedge) > - success (answered)"),
        (&[Fallback, Hedge], &[D, A], "- cancelled (hedge) > a success (answered)"),
        (&[Retry(1), Beside], &[D, T, A], "b transient (no_route_left) > a success (answered)"),
        (
            &[Retry(1), Timeout, Beside],
            &[D, D, A],
            "a cancelled (next_route) > - timeout.total (retry) > a success (answered)",
        ),
        // What refuses in between is no attempt, and what comes then is decided about the last one.
        (
            &[Fallback, Retry(9), Breaker],
            &[T, T, T, A],
            "- transient (retry) > - transient (retry) > a transient (final, next_route) > b success (answered)",
        ),
        (
            &[Fallback, Retry(9), Budget],
            &[T, T, T, A],
            "- transient (retry) > - transient (retry) > a transient (retry, next_route) \
             > - denied.budget (final) > b success (answered)",
        ),
        (
            &[Fallback, Budget, Retry(9)],
            &[T, T, T, A],
            "- transient (retry) > - transient (retry) > a transient (spend_denied, next_route) \
             > b success (answered)",
        ),
    ];
    let mut wrong = String::new();
    for (layers, script, expected) in rows {
        let told = trail(layers, script).await;
        if told != *expected {
            wrong += &format!("{layers:?} {script:?}\n  told     {told}\n  expected {expected}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The classes of failures that a target itself has told, and nothing between can have changed.
fn failures(classes: impl Iterator<Item = Class>) -> Vec<Class> {
    let mut classes: Vec<_> =
        classes.filter(|class| matches!(class, Class::Transient | Class::Quota)).collect();
    classes.sort_by_key(|class| class.to_string());
    classes
}

#[tokio::test(start_paused = true)]
async fn in_whatever_order_there_are_as_many_attempts_in_the_trail_as_were_made() {
    const LAYERS: [Around; 9] =
        [Retry(1), Reflect, Hedge, Fallback, Beside, Validate, Breaker, Budget, Timeout];
    let scripts: &[&[Does]] = &[
        &[T],
        &[T, T],
        &[T, T, T],
        &[T, T, T, T, T, T],
        &[Q],
        &[Q, T, Q],
        &[S],
        &[S, S],
        &[S, T, S],
        &[T, S, T, S],
        &[B],
        &[B, T],
        &[T, B, T, B],
        &[D, D],
        &[D, T, T],
        &[T, D, T, D],
        &[B, D, T],
        &[T, T, D, Q, D],
    ];
    let mut wrong = String::new();
    let orders = LAYERS.iter().flat_map(|&outer| LAYERS.map(|middle| [outer, middle]));
    for [outer, middle] in orders {
        for inner in LAYERS {
            let layers = [outer, middle, inner];
            for script in scripts {
                let targets = Targets::new(script, A);
                let (ended, trail) = ask(&layers, &targets).await;
                let made = targets.did.lock().unwrap().clone();
                let told: Vec<_> = trail.attempts().iter().filter(was_sent).collect();
                // Of a single attempt that nobody did anything about there may be nothing to tell.
                let is_untold = told.is_empty() && made.len() == 1;
                // One that runs when the whole call is cut off is nobody's to tell of.
                let tellers = layers.iter().take_while(|layer| **layer != Timeout);
                let is_cut = ended.as_ref().is_err_and(|error| error.is::<Elapsed>())
                    && !tellers.clone().any(|layer| matches!(layer, Retry(_) | Hedge | Fallback | Beside));
                let failed = failures(targets.failed.lock().unwrap().iter().copied());
                let told_failed = failures(told.iter().map(|attempt| attempt.verdict.class()));
                let missing = made.len().checked_sub(told.len());
                let is_right = missing == Some(0) || (missing == Some(1) && is_cut);
                if !(is_untold || is_right && failed == told_failed) {
                    wrong += &format!("{layers:?}\n  made {made:?}\n  told {trail}\n");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test(start_paused = true)]
async fn beyond_what_a_trail_holds_each_attempt_is_counted_once() {
    const LAYERS: [Around; 7] = [Retry(40), Retry(39), Reflect, Hedge, Fallback, Beside, Validate];
    let mut longest = 0;
    for outer in LAYERS {
        for inner in LAYERS {
            for layers in [&[outer, inner, Retry(38)], &[outer, Retry(38), inner], &[Retry(38), outer, inner]]
            {
                let targets = Targets::new(&[], T);
                let (_, trail) = ask(layers, &targets).await;
                let made = targets.did.lock().unwrap().len();
                let sent = trail.attempts().iter().filter(was_sent).count();
                assert_eq!(sent + trail.dropped(), made, "{layers:?} {trail}");
                longest = longest.max(made);
            }
        }
    }
    assert!(longest > 2 * MAX_ATTEMPTS, "{longest}");
}
