//! A service of your own types: plain structs in and out, no HTTP. What an outcome means is said once, by the response
//! itself ([`Respond`]); then retry, breaker and fallback need no further word.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use breaker_layer::BreakerLayer;
use failsoft_core::{BoxError, Call, Class, Cloned, NoBody, Respond, Step, Verdict};
use fallback_layer::{FallbackLayer, Route};
use retry_layer::RetryLayer;
use tower::{Service, ServiceBuilder, ServiceExt};

#[derive(Clone, Debug)]
struct Question(&'static str);

#[derive(Debug, PartialEq)]
enum Answer {
    Found(String),
    Busy { come_back: Duration },
    BadQuestion,
}

impl Respond for Answer {
    type Judge = NoBody;

    fn step(&self) -> Step<NoBody> {
        Step::Now(match self {
            Self::Found(_) => Verdict::SUCCESS,
            Self::Busy { come_back } => Verdict::of(Class::Overloaded).with_retry_after(*come_back),
            // The caller's own mistake: no breaker counts it, nobody asks again.
            Self::BadQuestion => Verdict::of(Class::Invalid),
        })
    }
}

/// Answers "busy" for a while.
#[derive(Clone)]
struct Library {
    busy: Arc<AtomicU32>,
}

impl Library {
    fn new(busy: u32) -> Self {
        Self { busy: Arc::new(AtomicU32::new(busy)) }
    }
}

impl Service<Question> for Library {
    type Response = Answer;
    type Error = Infallible;
    type Future = Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, question: Question) -> Self::Future {
        // Each question takes one of the times that it is busy.
        let was_busy = self.busy.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        ready(Ok(match question.0 {
            "" => Answer::BadQuestion,
            _ if was_busy => Answer::Busy { come_back: Duration::from_millis(50) },
            question => Answer::Found(format!("three books on {question}")),
        }))
    }
}

/// Asks once, through retries, a circuit, and a second library.
async fn ask(first: Library, second: Library, question: &'static str) -> Result<(Answer, Call), BoxError> {
    let breaker = BreakerLayer::builder().name("first").build()?;
    let fallback = FallbackLayer::builder()
        .name("first")
        .health(breaker.circuit().clone())
        .route(Route::new("second", second.map_err(BoxError::from)))
        .replay(Cloned) // how a request of your own is kept for another attempt
        .build()?;
    let service = ServiceBuilder::new()
        .layer(fallback)
        .layer(RetryLayer::builder().target("first").replay(Cloned).repeat_unanswered(true).build()?)
        .layer(breaker)
        .map_err(BoxError::from)
        .service(first);
    let call = Call::begin();
    let answer = call.scope(service.oneshot(Question(question))).await?;
    Ok((answer, call))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    for (busy, question) in [(0, "Bern"), (2, "Bern"), (9, "Bern"), (0, "")] {
        let (answer, call) = ask(Library::new(busy), Library::new(0), question).await?;
        println!("busy {busy} times, asked for {question:?}: {answer:?}\n{}", call.trail());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_busy_library_is_asked_again_and_then_another_one() {
        for (busy, left, who) in [(0, 0, "first"), (2, 0, "first"), (9, 5, "second")] {
            let first = Library::new(busy);
            let (answer, call) = ask(first.clone(), Library::new(0), "Bern").await.expect("one answers");
            assert_eq!(answer, Answer::Found("three books on Bern".to_owned()));
            assert_eq!(first.busy.load(Relaxed), left);
            assert_eq!(call.trail().attempts().last().and_then(|last| last.target.as_deref()), Some(who));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bad_question_is_asked_once() {
        let first = Library::new(2);
        let (answer, _) = ask(first.clone(), Library::new(0), "").await.expect("it is an answer");
        assert_eq!((answer, first.busy.load(Relaxed)), (Answer::BadQuestion, 1));
    }
}
