//! [`LlmFuture`]: waits for the response, reads its body where it is one to be judged, and hands it on.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use failsoft_core::{
    BoxError, Class, Facts, Fault, Held, Hold, Insight, ReadWhole, Slot, Verdict, Whole, class_of_status,
    is_encoded, verdict_of_head,
};
use http::{HeaderMap, header, response::Parts};
use http_body::Body;
use pin_project_lite::pin_project;

use crate::{Offered, chat, layer::Config};

pin_project! {
    /// The future of an [`Llm`](crate::Llm) service. Dropping it drops the call, or the body that is being read.
    #[must_use = "futures do nothing unless polled"]
    pub struct LlmFuture<F, R: Hold> {
        #[pin]
        step: Step<F, R>,
        offered: Offered,
        config: Arc<Config>,
        // Where the call that is current adds up what its attempts used.
        slot: Option<Slot>,
    }
}

pin_project! {
    #[project = StepProj]
    enum Step<F, R: Hold> {
        Calling { #[pin] call: F },
        // The head is taken when the body is there.
        Reading { head: Option<Parts>, body: ReadWhole<R::Body> },
    }
}

impl<F, R: Hold> LlmFuture<F, R> {
    pub(crate) const fn new(call: F, offered: Offered, config: Arc<Config>, slot: Option<Slot>) -> Self {
        Self { step: Step::Calling { call }, offered, config, slot }
    }
}

impl<F, R, E> Future for LlmFuture<F, R>
where
    F: Future<Output = Result<R, E>>,
    R: Hold<Body: Unpin>,
    E: Into<BoxError>,
{
    type Output = Result<R::Out, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.step.as_mut().project() {
                StepProj::Calling { call } => {
                    let response = match ready!(call.poll(cx)) {
                        Ok(response) => response,
                        Err(error) => return Poll::Ready(Err(error.into())),
                    };
                    let decided =
                        Insight::of(response.extensions()).is_some_and(|insight| insight.verdict().is_some());
                    let (mut head, body) = response.open();
                    if !decided && is_unasked_stream(&head, this.offered) {
                        leave(&mut head, chat::unasked_stream());
                        return Poll::Ready(Ok(R::close(head, Held::unread(body))));
                    }
                    if decided || !is_judged(&head, &body, this.offered, this.config.max_body) {
                        return Poll::Ready(Ok(R::close(head, Held::unread(body))));
                    }
                    Step::Reading { head: Some(head), body: ReadWhole::new(body, this.config.max_body) }
                }
                StepProj::Reading { head, body } => {
                    let whole = ready!(Pin::new(body).poll(cx));
                    // Polled again after it was ready, it waits for ever, as a body does that was taken.
                    let Some(head) = head.take() else { return Poll::Pending };
                    return Poll::Ready(finish::<R>(
                        head,
                        whole,
                        this.offered,
                        this.config,
                        this.slot.take(),
                    ));
                }
            };
            this.step.set(next);
        }
    }
}

/// The response, judged; or why there is none.
fn finish<R: Hold>(
    mut head: Parts,
    whole: Whole<R::Body>,
    offered: &Offered,
    config: &Config,
    slot: Option<Slot>,
) -> Result<R::Out, BoxError> {
    match whole {
        Whole::Complete { bytes, trailers } => {
            let facts = config.provider.judge(head.status, &head.headers, &bytes, offered);
            if let Some(mut slot) = slot {
                slot.set(&facts.usage);
            }
            leave(&mut head, facts);
            Ok(R::close(head, Held::whole(bytes, trailers)))
        }
        Whole::TooLarge(body) => Ok(R::close(head, body)),
        Whole::Failed { error, .. } => Err(cut(&head, error, config)),
        _ => Err(Fault::new(Class::Unknown, LAYER).with_target_if(config.name.clone()).into()),
    }
}

const LAYER: &str = "llm-layer";

/// Leaves what was learnt where the layers outside look for it.
fn leave(head: &mut Parts, learnt: Facts) {
    let insight = head.extensions.get_or_insert_default::<Insight>();
    insight.learn(|facts| {
        let first_content = facts.first_content;
        *facts = learnt;
        facts.first_content = first_content;
    });
}

/// A body that broke off. The error passes as it is where it says what it is; a failed status stays what it was, though
/// its body is lost.
fn cut(head: &Parts, error: BoxError, config: &Config) -> BoxError {
    let verdict = match verdict_of_head(head.status, &head.headers) {
        Some(verdict) => verdict,
        None if Verdict::of_error(&*error).class() != Class::Unknown => return error,
        None => Verdict::of(Class::Transient),
    };
    Fault::with_verdict(verdict, LAYER)
        .with_target_if(config.name.clone())
        .with_status(head.status.as_u16())
        .with_message("the body of the response was cut")
        .with_source(error)
        .into()
}

/// Whether a body is one to hold and judge: whole, JSON or something in its place, readable, and not too long.
fn is_judged(head: &Parts, body: &impl Body, offered: &Offered, max_body: usize) -> bool {
    let too_long = body.size_hint().lower() > max_body as u64;
    if too_long || is_encoded(&head.headers) || head.status.is_informational() {
        return false;
    }
    if !class_of_status(head.status).is_success() {
        return true;
    }
    // Such a request is answered with JSON, whatever the response says that it is.
    if offered.wants_whole_chat() {
        return true;
    }
    let bodiless = matches!(head.status.as_u16(), 204 | 205);
    !bodiless
        && match kind_of(&head.headers) {
            Kind::Json | Kind::Html => true,
            // A stream whose content type was forgotten must not be held.
            Kind::Text => !offered.is_stream(),
            Kind::Stream | Kind::Other => false,
        }
}

/// Whether a stream came where one whole answer was asked for. It may have no end, so it is never held.
fn is_unasked_stream(head: &Parts, offered: &Offered) -> bool {
    offered.wants_whole_chat()
        && class_of_status(head.status).is_success()
        && matches!(kind_of(&head.headers), Kind::Stream)
}

/// What a content type says of a body.
enum Kind {
    Json,
    Html,
    /// Other text, or no word on it.
    Text,
    /// Events, or lines of JSON.
    Stream,
    /// Sound, a picture, an archive.
    Other,
}

fn kind_of(headers: &HeaderMap) -> Kind {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Kind::Text };
    let Ok(value) = value.to_str() else { return Kind::Text };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "text/json" => Kind::Json,
        "text/html" | "application/xhtml+xml" => Kind::Html,
        "text/event-stream" | "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            Kind::Stream
        }
        "" => Kind::Text,
        other if other.ends_with("+json") => Kind::Json,
        other if other.starts_with("text/") => Kind::Text,
        _ => Kind::Other,
    }
}

impl<F, R: Hold> fmt::Debug for LlmFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Calling { .. } => "calling",
            Step::Reading { .. } => "reading",
        };
        f.debug_struct("LlmFuture").field("step", &step).finish_non_exhaustive()
    }
}
