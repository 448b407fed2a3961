//! Holding a whole body before the response is handed on, so that an answer can be judged first.
//!
//! [`Hold`] takes a response apart and puts it together again with a [`Held`] body; [`ReadWhole`] reads a body up
//! to a cap. What was read reaches the caller byte for byte.
//!
//! ```
//! use failsoft_core::{Held, Hold, ReadWhole, Whole};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let response = http::Response::new(http_body_util::Full::<bytes::Bytes>::from("hello"));
//! let (parts, body) = response.open();
//! let Whole::Complete { bytes, trailers } = ReadWhole::new(body, 1 << 20).await else { panic!("small") };
//! assert_eq!(bytes, "hello");
//! let response = http::Response::<http_body_util::Full<bytes::Bytes>>::close(parts, Held::whole(bytes, trailers));
//! # });
//! ```

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::BoxError;

/// A response whose body can be taken out, read, and put back.
#[diagnostic::on_unimplemented(
    message = "the body of `{Self}` cannot be held",
    note = "`http::Response<B>` can, where `B: http_body::Body` with an error that converts into `BoxError`; \
            `reqwest::Response` can with the feature `reqwest-013`"
)]
pub trait Hold: Sized {
    /// The body as it comes.
    type Body: Body<Error: Into<BoxError>>;
    /// The response with a [`Held`] body.
    type Out;

    /// Its extensions, where an [`Insight`](crate::Insight) may lie.
    fn extensions(&self) -> &http::Extensions;

    /// Takes the response apart.
    fn open(self) -> (http::response::Parts, Self::Body);

    /// Puts it together again.
    fn close(parts: http::response::Parts, body: Held<Self::Body>) -> Self::Out;
}

#[diagnostic::do_not_recommend]
impl<B: Body<Error: Into<BoxError>>> Hold for http::Response<B> {
    type Body = B;
    type Out = http::Response<Held<B>>;

    fn extensions(&self) -> &http::Extensions {
        self.extensions()
    }

    fn open(self) -> (http::response::Parts, B) {
        self.into_parts()
    }

    fn close(parts: http::response::Parts, body: Held<B>) -> Self::Out {
        http::Response::from_parts(parts, body)
    }
}

/// A response that can be put together again with another body of a layer's own, `W`, in place of the one that
/// [`Hold::open`] gave.
///
/// `reqwest::Response` asks that `W` be `Send + Sync + 'static` with `Bytes` for data and [`BoxError`] for errors,
/// and boxes it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot take the body `{W}`",
    note = "`http::Response<B>` takes any; `reqwest::Response` (feature `reqwest-013`) takes one that is \
            `Body<Data = Bytes, Error = BoxError> + Send + Sync + 'static`"
)]
pub trait Rebody<W>: Hold {
    /// The response with the other body.
    type Rebodied;

    /// Puts it together.
    fn rebody(parts: http::response::Parts, body: W) -> Self::Rebodied;
}

impl<B: Body<Error: Into<BoxError>>, W> Rebody<W> for http::Response<B> {
    type Rebodied = http::Response<W>;

    fn rebody(parts: http::response::Parts, body: W) -> http::Response<W> {
        http::Response::from_parts(parts, body)
    }
}

/// What reading a body up to a cap gave.
#[derive(Debug)]
#[non_exhaustive]
pub enum Whole<B> {
    /// All of it.
    Complete {
        /// The whole body.
        bytes: Bytes,
        /// Its trailers.
        trailers: Option<HeaderMap>,
    },
    /// It is longer than the cap; nothing is lost.
    TooLarge(Held<B>),
    /// It failed on the way.
    Failed {
        /// What came before.
        bytes: Bytes,
        /// Why it failed.
        error: BoxError,
    },
}

/// Reads a body up to a cap. One that came in one piece is not copied, small pieces are joined as they come: whatever
/// the pieces, no more than about twice the bytes of the body is held. Must not be polled again once it is ready.
#[must_use = "futures do nothing unless polled"]
pub struct ReadWhole<B> {
    /// Taken when the cap is passed and the body is handed on.
    body: Option<B>,
    read: VecDeque<Bytes>,
    /// Small pieces, which come after those in `read`.
    small: BytesMut,
    length: usize,
    cap: usize,
    trailers: Option<HeaderMap>,
}

/// A shorter piece is copied: kept as it is, it costs more than its bytes, and keeps alive a larger buffer that it may
/// be a part of.
const SMALL: usize = 1024;

impl<B> ReadWhole<B> {
    /// Reads `body`, and stops when it is longer than `cap` bytes.
    pub fn new(body: B, cap: usize) -> Self {
        let (read, small) = (VecDeque::new(), BytesMut::new());
        Self { body: Some(body), read, small, length: 0, cap, trailers: None }
    }

    /// Whether the first byte of the body that is no JSON white space is this one; `None` while it has not come.
    pub fn begins_with(&self, byte: u8) -> Option<bool> {
        let pieces = self.read.iter().map(|bytes| &bytes[..]).chain([&self.small[..]]);
        let first = |piece: &[u8]| piece.iter().copied().find(|byte| !b" \t\r\n".contains(byte));
        pieces.filter_map(first).next().map(|first| first == byte)
    }

    /// Reads no further: what was read, and the rest as it comes. `None` where the body was handed on already.
    pub fn stop(&mut self) -> Option<Held<B>> {
        let rest = Some(self.body.take()?);
        Some(Held { read: self.pieces(), rest, trailers: self.trailers.take(), gate: None })
    }

    fn push(&mut self, bytes: Bytes) {
        self.length = self.length.saturating_add(bytes.len());
        // Nothing is kept of a piece that is empty: there is no end to those.
        if bytes.is_empty() {
            return;
        }
        if bytes.len() < SMALL && self.length > bytes.len() {
            self.small.extend_from_slice(&bytes);
        } else {
            self.end_small();
            self.read.push_back(bytes);
        }
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.read.push_back(self.small.split().freeze());
        }
    }

    fn pieces(&mut self) -> VecDeque<Bytes> {
        self.end_small();
        std::mem::take(&mut self.read)
    }

    fn joined(&mut self) -> Bytes {
        join(self.pieces(), self.length)
    }
}

impl<B> Future for ReadWhole<B>
where
    B: Body<Error: Into<BoxError>> + Unpin,
{
    type Output = Whole<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Whole<B>> {
        let this = self.get_mut();
        while let Some(body) = &mut this.body {
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(mut data) => {
                        let rest = data.remaining();
                        this.push(data.copy_to_bytes(rest));
                        if this.length > this.cap {
                            let (read, rest) = (this.pieces(), this.body.take());
                            return Poll::Ready(Whole::TooLarge(Held {
                                read,
                                rest,
                                trailers: None,
                                gate: None,
                            }));
                        }
                    }
                    Err(frame) => this.trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => {
                    return Poll::Ready(Whole::Failed { bytes: this.joined(), error: error.into() });
                }
                None => {
                    return Poll::Ready(Whole::Complete {
                        bytes: this.joined(),
                        trailers: this.trailers.take(),
                    });
                }
            }
        }
        Poll::Pending
    }
}

fn join(mut read: VecDeque<Bytes>, length: usize) -> Bytes {
    if read.len() <= 1 {
        return read.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(length);
    read.iter().for_each(|bytes| whole.extend_from_slice(bytes));
    whole.freeze()
}

impl<B> fmt::Debug for ReadWhole<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWhole")
            .field("length", &self.length)
            .field("cap", &self.cap)
            .finish_non_exhaustive()
    }
}

/// Is asked about each piece of a body before it is handed on, and about its end; see [`Held::gated`].
pub trait Gate: Send + Sync {
    /// Whether this piece may be handed on; `None` is the end, trailers included. An error takes its place and ends the body, and what
    /// was not handed on by then never is. After the end, or an error, it is not asked again.
    ///
    /// While it is pending it is asked about the same piece.
    fn poll_pass(&mut self, piece: Option<&Bytes>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>>;
}

pin_project! {
    /// A body of which a part, or all, was read already: gives that first, then the rest as it comes.
    pub struct Held<B> {
        read: VecDeque<Bytes>,
        #[pin]
        rest: Option<B>,
        trailers: Option<HeaderMap>,
        gate: Option<Gated>,
    }
}

/// A gate, and what waits before it. Boxed as a whole: few bodies have one.
type Gated = Box<Waiting>;

struct Waiting {
    gate: Box<dyn Gate>,
    /// What it is asked about.
    next: Option<Option<Frame<Bytes>>>,
    /// It has let the piece pass, and is asked about the end: whoever knows the length may never poll again.
    passed: bool,
}

impl Waiting {
    /// Asks about what waits; whether it was the end.
    fn poll(&mut self, is_last: bool, cx: &mut Context<'_>) -> Poll<Result<bool, BoxError>> {
        let piece = self.next.as_ref().and_then(Option::as_ref).and_then(Frame::data_ref);
        if let Some(piece) = piece {
            if !self.passed {
                ready!(self.gate.poll_pass(Some(piece), cx))?;
                self.passed = true;
            }
            if !is_last {
                return Poll::Ready(Ok(false));
            }
        }
        ready!(self.gate.poll_pass(None, cx))?;
        Poll::Ready(Ok(true))
    }
}

/// An empty body, for layers outside that answer in place of the service, such as tower-http's timeout.
impl<B> Default for Held<B> {
    fn default() -> Self {
        Self { read: VecDeque::new(), rest: None, trailers: None, gate: None }
    }
}

impl<B> Held<B> {
    /// A body that was read to its end.
    #[must_use]
    pub fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        let read = if bytes.is_empty() { VecDeque::new() } else { VecDeque::from([bytes]) };
        Self { read, rest: None, trailers, gate: None }
    }

    /// A body of which nothing was read.
    #[must_use]
    pub const fn unread(body: B) -> Self {
        Self { read: VecDeque::new(), rest: Some(body), trailers: None, gate: None }
    }

    /// The same, and each piece of it is shown to `gate` before it is handed on.
    #[must_use]
    pub fn gated(mut self, gate: impl Gate + 'static) -> Self {
        self.gate = Some(Box::new(Waiting { gate: Box::new(gate), next: None, passed: false }));
        self
    }

    /// The bytes, where the body was read to its end in one piece and has no trailers.
    #[cfg(feature = "reqwest-013")]
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        let whole =
            self.gate.is_none() && self.rest.is_none() && self.trailers.is_none() && self.read.len() <= 1;
        whole.then(|| self.read.pop_front().unwrap_or_default())
    }

    /// The body itself, where nothing of it was read.
    #[cfg(feature = "reqwest-013")]
    pub(crate) fn take_unread(&mut self) -> Option<B> {
        if self.gate.is_none() && self.read.is_empty() && self.trailers.is_none() {
            self.rest.take()
        } else {
            None
        }
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for Held<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.gate.is_some() {
            return self.poll_gated(cx);
        }
        let this = self.project();
        if let Some(bytes) = this.read.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(rest) = this.rest.as_pin_mut() {
            let frame = ready!(rest.poll_frame(cx));
            return Poll::Ready(frame.map(|frame| {
                frame
                    .map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
                    .map_err(Into::into)
            }));
        }
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.gate.is_none()
            && self.read.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.iter().map(|bytes| bytes.len() as u64).fold(0, u64::saturating_add);
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(read.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B: Body<Error: Into<BoxError>>> Held<B> {
    /// The next frame, once its gate has let it pass.
    fn poll_gated(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(mut waiting) = self.as_mut().project().gate.take() else { return Poll::Ready(None) };
        if waiting.next.is_none() {
            // Without its gate it gives the frame itself.
            match self.as_mut().poll_frame(cx) {
                Poll::Pending => {
                    *self.project().gate = Some(waiting);
                    return Poll::Pending;
                }
                // Its own error says more than that it did not come to its end.
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => waiting.next = Some(Some(frame)),
                Poll::Ready(None) => waiting.next = Some(None),
            }
        }
        let is_last = self.is_end_stream();
        let passed = waiting.poll(is_last, cx);
        let mut this = self.project();
        match passed {
            Poll::Pending => {
                *this.gate = Some(waiting);
                Poll::Pending
            }
            Poll::Ready(Ok(is_over)) => {
                let next = waiting.next.take().flatten();
                if !is_over {
                    waiting.passed = false;
                    *this.gate = Some(waiting);
                }
                Poll::Ready(next.map(Ok))
            }
            Poll::Ready(Err(error)) => {
                // The connection is closed at once.
                this.rest.set(None);
                this.read.clear();
                *this.trailers = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl<B> fmt::Debug for Held<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("read", &self.read.iter().map(Bytes::len).sum::<usize>())
            .field("whole", &self.rest.is_none())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full, StreamBody};

    use super::*;

    type Frames = Vec<Result<Frame<Bytes>, BoxError>>;

    fn body(frames: Frames) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
        StreamBody::new(Iter(frames.into_iter()))
    }

    struct Iter(std::vec::IntoIter<Result<Frame<Bytes>, BoxError>>);

    impl futures_core::Stream for Iter {
        type Item = Result<Frame<Bytes>, BoxError>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.next())
        }
    }

    fn data(text: &'static str) -> Result<Frame<Bytes>, BoxError> {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_joined_and_its_trailers_survive() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("1"));
        let body = body(vec![data("hel"), data("lo"), Ok(Frame::trailers(trailers.clone()))]);
        let Whole::Complete { bytes, trailers: seen } = ReadWhole::new(body, 5).await else { panic!("fits") };
        assert_eq!((&bytes[..], seen.as_ref()), (&b"hello"[..], Some(&trailers)));

        let held = Held::<Full<Bytes>>::whole(bytes, seen);
        assert_eq!(held.size_hint().exact(), Some(5));
        let collected = held.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "hello");
    }

    #[tokio::test]
    async fn tiny_and_empty_pieces_cost_no_more_than_their_bytes() {
        let tiny = || (0..1000).flat_map(|_| [data("x"), data("")]);
        let large = Frame::data(Bytes::from(vec![b'y'; SMALL]));
        let frames = tiny().chain([Ok(large)]).chain(tiny()).collect();
        let Whole::Complete { bytes, .. } = ReadWhole::new(body(frames), usize::MAX).await else {
            panic!("it fits")
        };
        let all = ["x".repeat(1000), "y".repeat(SMALL), "x".repeat(1000)].concat();
        assert!(bytes == all.as_bytes());

        // What is held of them while it is read.
        let frames: Frames = (0..1000).flat_map(|_| [data(""), data("x")]).collect();
        let Whole::TooLarge(mut held) = ReadWhole::new(body(frames), 999).await else { panic!("too large") };
        assert!(held.read.len() <= 2, "{} pieces", held.read.len());
        let first = Pin::new(&mut held).frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "x");
        assert_eq!(held.collect().await.unwrap().to_bytes().len(), 999);
    }

    #[tokio::test]
    async fn a_body_beyond_the_cap_loses_nothing() {
        let body = body(vec![data("hel"), data("lo "), data("world")]);
        let Whole::TooLarge(held) = ReadWhole::new(body, 5).await else { panic!("too large") };
        assert_eq!(held.size_hint().lower(), 6);
        assert_eq!(held.collect().await.unwrap().to_bytes(), "hello world");
    }

    #[tokio::test]
    async fn a_body_that_fails_gives_what_came_before_and_the_error_itself() {
        let body = body(vec![data("he"), Err(fmt::Error.into())]);
        let Whole::Failed { bytes, error } = ReadWhole::new(body, 5).await else { panic!("fails") };
        assert_eq!(bytes, "he");
        assert!(error.is::<fmt::Error>());
    }

    /// Lets pieces pass but for those that begin with `!`, and waits once before each.
    #[derive(Default)]
    struct Strict {
        seen: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
        waited: bool,
    }

    impl Gate for Strict {
        fn poll_pass(&mut self, piece: Option<&Bytes>, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            self.waited = !self.waited;
            if self.waited {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let piece = piece.map_or("end", |piece| std::str::from_utf8(piece).unwrap());
            self.seen.lock().unwrap().push(piece.to_owned());
            Poll::Ready(if piece.starts_with('!') { Err("no".into()) } else { Ok(()) })
        }
    }

    #[tokio::test]
    async fn a_gate_sees_each_piece_and_the_end_once_before_they_are_handed_on() {
        let gate = || {
            let gate = Strict::default();
            (std::sync::Arc::clone(&gate.seen), gate)
        };
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("1"));
        let all = body(vec![data("a"), data("b"), Ok(Frame::trailers(trailers.clone()))]);
        let (seen, strict) = gate();
        let collected = Held::unread(all).gated(strict).collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "ab");
        assert_eq!(*seen.lock().unwrap(), ["a", "b", "end"]);

        // One that knows its length is not polled again after its last piece.
        let (seen, strict) = gate();
        let mut known = Held::<Full<Bytes>>::whole("x".into(), None).gated(strict);
        assert_eq!(known.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
        assert!(known.is_end_stream());
        assert_eq!(*seen.lock().unwrap(), ["x", "end"]);

        let (seen, strict) = gate();
        let mut empty = Held::unread(Full::<Bytes>::default()).gated(strict);
        assert!(!empty.is_end_stream() && empty.frame().await.is_none() && empty.is_end_stream());
        assert_eq!(*seen.lock().unwrap(), ["end"]);
    }

    #[tokio::test]
    async fn what_a_gate_refuses_is_an_error_in_its_place_and_the_end() {
        let mut held = Held::unread(body(vec![data("a"), data("!"), data("b")])).gated(Strict::default());
        assert_eq!(held.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert_eq!(held.frame().await.unwrap().unwrap_err().to_string(), "no");
        assert!(held.is_end_stream() && held.frame().await.is_none());
        // An error of the body itself stays what it is.
        let mut held = Held::unread(body(vec![Err(fmt::Error.into())])).gated(Strict::default());
        assert!(held.frame().await.unwrap().unwrap_err().is::<fmt::Error>());
    }

    #[test]
    fn an_empty_whole_body_is_at_its_end() {
        assert!(Held::<Full<Bytes>>::whole(Bytes::new(), None).is_end_stream());
        assert!(!Held::unread(Full::<Bytes>::from("x")).is_end_stream());
    }
}
