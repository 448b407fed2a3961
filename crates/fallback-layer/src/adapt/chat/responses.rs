//! Answers whose JSON is changed: whole ones when they are there, streamed ones as they come.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use failsoft_core::{
    BoxError, Fault, Held, Hold, ReadWhole, Rebody, Whole, is_encoded, is_sealed, verdict_of_body_error,
};
use http::{HeaderValue, header::CONTENT_LENGTH, response::Parts};
use http_body::Body as _;

use super::{
    ChatBody, Edit,
    body::{Lines, change},
    elements::Elements,
};
use crate::{
    LAYER,
    adapt::Adapt,
    answer::{is_json, is_type},
};

/// A longer answer passes as it is, in bytes.
const CAP: usize = 8 * 1024 * 1024;

/// Edits the bodies of answers, made by [`response`](super::response) and
/// [`Route::edit_response`](crate::Route::edit_response).
#[derive(Clone)]
pub struct Responses(Arc<dyn Edit>);

impl Responses {
    pub(crate) fn new(edit: impl Edit + 'static) -> Self {
        Self(Arc::new(edit))
    }
}

impl<Res> Adapt<Res> for Responses
where
    Res: Hold<Body: Unpin> + Rebody<ChatBody<<Res as Hold>::Body>>,
{
    type Out = Res::Rebodied;
    type Future = EditResponse<Res>;

    fn adapt(&self, response: Res) -> Self::Future {
        let (mut parts, body) = response.open();
        let edit = || Arc::clone(&self.0);
        let state = match Form::of(&parts, body.size_hint().lower()) {
            Form::Whole => State::Read { read: ReadWhole::new(body, CAP), parts: Some(parts), edit: edit() },
            Form::Events => {
                parts.headers.remove(CONTENT_LENGTH);
                State::Done(Some(Res::rebody(parts, ChatBody::lines(body, Lines::of_events(edit())))))
            }
            Form::Lines => {
                parts.headers.remove(CONTENT_LENGTH);
                State::Done(Some(Res::rebody(parts, ChatBody::lines(body, Lines::of_json(edit())))))
            }
            Form::Other => State::Done(Some(Res::rebody(parts, ChatBody::plain(Held::unread(body))))),
        };
        EditResponse { state }
    }
}

/// In which form an answer comes.
enum Form {
    Whole,
    Events,
    /// A JSON in each line.
    Lines,
    /// One that is not to be changed.
    Other,
}

impl Form {
    fn of(parts: &Parts, at_least: u64) -> Self {
        let headers = &parts.headers;
        if !parts.status.is_success() || is_encoded(headers) || is_sealed(headers, None) {
            return Self::Other;
        }
        let lines = ["application/x-ndjson", "application/jsonl", "application/stream+json"];
        if is_type(headers, "text/event-stream") {
            Self::Events
        } else if lines.iter().any(|name| is_type(headers, name)) {
            Self::Lines
        } else if is_json(headers) && at_least <= CAP as u64 {
            Self::Whole
        } else {
            Self::Other
        }
    }
}

/// The future of an answer that is edited: reads a whole one to its end.
#[must_use = "futures do nothing unless polled"]
pub struct EditResponse<Res>
where
    Res: Hold + Rebody<ChatBody<<Res as Hold>::Body>>,
{
    state: State<Res>,
}

#[allow(
    clippy::large_enum_variant,
    reason = "it lives in the call's future, and a box would cost an allocation"
)]
enum State<Res>
where
    Res: Hold + Rebody<ChatBody<<Res as Hold>::Body>>,
{
    Read {
        read: ReadWhole<Res::Body>,
        /// Taken when it is there.
        parts: Option<Parts>,
        edit: Arc<dyn Edit>,
    },
    /// Taken when it is handed on.
    Done(Option<Res::Rebodied>),
}

impl<Res> Unpin for EditResponse<Res> where Res: Hold + Rebody<ChatBody<<Res as Hold>::Body>> {}

impl<Res> Future for EditResponse<Res>
where
    Res: Hold<Body: Unpin> + Rebody<ChatBody<<Res as Hold>::Body>>,
{
    type Output = Result<Res::Rebodied, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (read, parts, edit) = match &mut this.state {
            State::Done(answer) => {
                return answer.take().map_or(Poll::Pending, |answer| Poll::Ready(Ok(answer)));
            }
            State::Read { read, parts, edit } => (read, parts, edit),
        };
        let polled = Pin::new(&mut *read).poll(cx);
        let is_array = read.begins_with(b'[').unwrap_or(false);
        if polled.is_pending() && is_array {
            // A stream of events in another form.
            let (Some(mut parts), Some(body)) = (parts.take(), read.stop()) else { return Poll::Pending };
            parts.headers.remove(CONTENT_LENGTH);
            let elements = Elements::new(Arc::clone(edit));
            return Poll::Ready(Ok(Res::rebody(parts, ChatBody::elements(body, elements))));
        }
        let whole = ready!(polled);
        let Some(parts) = parts.take() else { return Poll::Pending };
        Poll::Ready(match whole {
            Whole::Complete { bytes, trailers } => edited(parts, bytes, edit)
                .map(|(parts, bytes)| Res::rebody(parts, ChatBody::plain(Held::whole(bytes, trailers)))),
            Whole::TooLarge(body) => Ok(Res::rebody(parts, ChatBody::plain(body))),
            Whole::Failed { error, .. } => Err(broke_off(error)),
            // A way to end that this version does not know.
            _ => Err("the body could not be read".into()),
        })
    }
}

fn edited(mut parts: Parts, bytes: Bytes, edit: &Arc<dyn Edit>) -> Result<(Parts, Bytes), BoxError> {
    let changed = if bytes.trim_ascii_start().starts_with(b"[") {
        let (mut elements, mut out) = (Elements::new(Arc::clone(edit)), BytesMut::new());
        elements.feed(&bytes, &mut out)?;
        out.extend_from_slice(&elements.rest());
        Some(out.freeze()).filter(|out| *out != bytes)
    } else {
        change(&bytes, &**edit)?.map(Bytes::from)
    };
    let Some(changed) = changed else { return Ok((parts, bytes)) };
    if parts.headers.contains_key(CONTENT_LENGTH) {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(changed.len()));
    }
    Ok((parts, changed))
}

/// It is no answer that could not be adapted, but none at all.
fn broke_off(error: BoxError) -> BoxError {
    let verdict = verdict_of_body_error(&*error);
    Fault::with_verdict(verdict, LAYER).with_message("the answer broke off").with_source(error).into()
}

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").finish_non_exhaustive()
    }
}

impl<Res> fmt::Debug for EditResponse<Res>
where
    Res: Hold + Rebody<ChatBody<<Res as Hold>::Body>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditResponse").finish_non_exhaustive()
    }
}
