use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::BoxBody};
use proptest::prelude::*;
use tokio_test::{assert_pending, assert_ready, task};

use super::*;

type Boxed = BoxBody<Bytes, BoxError>;

/// A body that its sender fills while it is read, and that counts how much was taken.
#[derive(Clone, Default)]
struct Source(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    frames: VecDeque<Result<Frame<Bytes>, BoxError>>,
    closed: bool,
    taken: usize,
    lower: u64,
    waker: Option<Waker>,
}

impl Source {
    fn of(pieces: &[&'static str]) -> Self {
        let source = Self::default();
        pieces.iter().for_each(|piece| source.send(piece));
        source
    }

    fn ended(self) -> Self {
        self.0.lock().unwrap().closed = true;
        self
    }

    fn push(&self, frame: Result<Frame<Bytes>, BoxError>) {
        let mut state = self.0.lock().unwrap();
        state.frames.push_back(frame);
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
    }

    fn send(&self, data: &'static str) {
        self.push(Ok(Frame::data(Bytes::from_static(data.as_bytes()))));
    }

    fn taken(&self) -> usize {
        self.0.lock().unwrap().taken
    }

    fn boxed(&self) -> Boxed {
        self.clone().map_err(|error| error).boxed()
    }
}

impl Body for Source {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut state = self.0.lock().unwrap();
        match state.frames.pop_front() {
            Some(frame) => {
                state.taken += 1;
                Poll::Ready(Some(frame))
            }
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.lock().unwrap();
        let waits: usize = state.frames.iter().flatten().filter_map(Frame::data_ref).map(Bytes::len).sum();
        let mut hint = SizeHint::new();
        hint.set_lower(state.lower.max(waits as u64));
        hint
    }
}

fn buffered(cap: usize) -> Buffered<fn(ReplayBody<Boxed>) -> Boxed> {
    Buffered::new(cap, |body| body.boxed())
}

fn post(source: &Source) -> http::Request<Boxed> {
    http::Request::post("http://a.example/").header("x-a", "1").body(source.boxed()).unwrap()
}

/// The text of a body, and whether there were trailers.
async fn read(request: http::Request<Boxed>) -> Result<(String, bool), BoxError> {
    let body = request.into_body().collect().await?;
    let trailers = body.trailers().is_some();
    Ok((String::from_utf8(body.to_bytes().to_vec()).unwrap(), trailers))
}

fn next(body: &mut Boxed) -> Option<String> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()),
        Poll::Ready(None) => Some("end".to_owned()),
        Poll::Ready(Some(Err(error))) => Some(error.to_string()),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_body_is_sent_as_it_comes_and_then_again_with_its_trailers() {
    let source = Source::of(&["he", "", "llo"]);
    source.push(Ok(Frame::trailers(HeaderMap::from_iter([(
        http::HeaderName::from_static("x-sum"),
        HeaderValue::from_static("7"),
    )]))));
    let source = source.ended();
    let replay = buffered(100);
    let (first, mut kept) = replay.keep(post(&source));
    assert_eq!(source.taken(), 0);
    let hello = ("hello".to_owned(), true);
    assert_eq!(read(first).await.unwrap(), hello);
    let second = replay.again(&mut kept, false).unwrap();
    assert_eq!(
        (second.method().as_str(), &second.headers()["x-a"]),
        ("POST", &HeaderValue::from_static("1"))
    );
    assert_eq!(read(second).await.unwrap(), hello);
    assert_eq!(read(replay.again(&mut kept, true).unwrap()).await.unwrap(), hello);
    assert!(kept.is_none() && replay.again(&mut kept, true).is_none());
    assert_eq!(source.taken(), 4);
}

#[tokio::test]
async fn what_the_first_attempt_has_not_read_the_second_reads_from_the_source() {
    let source = Source::of(&["a", "b", "c", "d"]).ended();
    let replay = buffered(100);
    let (first, mut kept) = replay.keep(post(&source));
    let mut first = first.into_body();
    assert_eq!((next(&mut first).as_deref(), next(&mut first).as_deref()), (Some("a"), Some("b")));
    drop(first);
    assert_eq!(read(replay.again(&mut kept, false).unwrap()).await.unwrap().0, "abcd");
    assert_eq!(source.taken(), 4);
}

#[tokio::test]
async fn nothing_is_copied() {
    let data = Bytes::from(vec![7u8; 16 * 1024]);
    let (source, at) = (Source::default(), data.as_ptr());
    source.push(Ok(Frame::data(data)));
    let replay = buffered(64 * 1024);
    let (first, mut kept) = replay.keep(post(&source.ended()));
    for request in [first, replay.again(&mut kept, true).unwrap()] {
        let frame = request.into_body().frame().await.unwrap().unwrap();
        assert_eq!(frame.data_ref().unwrap().as_ptr(), at);
    }
}

#[tokio::test]
async fn beyond_the_cap_a_body_is_sent_once_and_nothing_of_it_is_held() {
    let data = Bytes::from(vec![7u8; 60]);
    let source = Source::default();
    for _ in 0..3 {
        source.push(Ok(Frame::data(data.clone())));
    }
    let replay = buffered(100);
    // It does not say how long it is.
    let request = post(&source.clone().ended()).map(|body| StreamOf(body).boxed());
    let (first, mut kept) = replay.keep(request);
    let mut first = first.into_body();
    assert!(first.frame().await.is_some());
    drop(replay.again(&mut kept, false).unwrap());
    assert!(first.frame().await.is_some());
    assert!(replay.again(&mut kept, false).is_none());
    assert!(first.frame().await.is_some());
    assert!(first.frame().await.is_none());
    assert!(data.is_unique());

    // One that says it before it begins is not touched.
    let source = Source::of(&["x"]).ended();
    source.0.lock().unwrap().lower = 101;
    assert!(replay.keep(post(&source)).1.is_none());
}

/// Hides how long a body is.
struct StreamOf(Boxed);

impl Body for StreamOf {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

#[tokio::test]
async fn many_tiny_pieces_take_no_more_memory_than_the_cap_allows() {
    let source = Source::default();
    (0..1_000).for_each(|_| source.send("x"));
    let (first, mut kept) = buffered(64 * 100).keep(post(&source.ended()).map(|body| StreamOf(body).boxed()));
    assert_eq!(read(first).await.unwrap().0.len(), 1_000);
    assert!(buffered(100).again(&mut kept, false).is_none());
}

#[tokio::test]
async fn the_recording_goes_with_what_is_kept_and_the_last_attempt_lets_go_as_it_reads() {
    let data = Bytes::from(vec![7u8; 60]);
    let source = Source::default();
    source.push(Ok(Frame::data(data.clone())));
    let replay = buffered(1_000);
    // A request that is still read when its answer comes.
    let (first, kept) = replay.keep(post(&source));
    let mut first = first.into_body();
    drop(first.frame().await);
    assert!(!data.is_unique());
    drop(kept);
    assert!(data.is_unique());
    source.push(Ok(Frame::data(data.clone())));
    drop(first.frame().await);
    assert!(data.is_unique());

    let source = Source::default();
    source.push(Ok(Frame::data(data.clone())));
    let (first, mut kept) = replay.keep(post(&source.ended()));
    read(first).await.unwrap();
    let mut last = replay.again(&mut kept, true).unwrap().into_body();
    assert!(!data.is_unique());
    drop(last.frame().await);
    assert!(data.is_unique());
}

#[tokio::test]
async fn a_body_that_failed_is_not_sent_again() {
    let source = Source::of(&["a"]);
    source.push(Err("gone".into()));
    let replay = buffered(100);
    let (first, mut kept) = replay.keep(post(&source));
    assert_eq!(read(first).await.unwrap_err().to_string(), "gone");
    assert!(replay.again(&mut kept, false).is_none());
}

#[test]
fn two_attempts_side_by_side_read_the_same_whoever_is_woken_or_dropped() {
    let source = Source::default();
    let replay = buffered(100);
    let (first, mut kept) = replay.keep(post(&source));
    let second = replay.again(&mut kept, false).unwrap();
    let (mut first, mut second) = (first.into_body(), second.into_body());
    {
        let mut one = task::spawn(first.frame());
        let mut two = task::spawn(second.frame());
        assert_pending!(one.poll());
        assert_pending!(two.poll());
        source.send("a");
        assert!(one.is_woken() && two.is_woken());
        assert_ready!(one.poll());
        assert_ready!(two.poll());
    }
    // The last that asked the source goes away.
    let mut one = task::spawn(first.frame());
    assert_pending!(one.poll());
    assert_pending!(task::spawn(second.frame()).poll());
    drop(second);
    source.send("b");
    assert!(one.is_woken());
    assert!(assert_ready!(one.poll()).is_some());
}

#[tokio::test]
async fn the_newest_attempt_never_waits_for_one_before_it() {
    let source = Source::default();
    (0..5).for_each(|_| source.send("0123456789"));
    let replay = buffered(25);
    let (first, mut kept) = replay.keep(post(&source.ended()).map(|body| StreamOf(body).boxed()));
    let mut first = first.into_body();
    assert!(next(&mut first).is_some());
    let second = replay.again(&mut kept, true).unwrap();
    assert_eq!(read(second).await.unwrap().0.len(), 50);
    assert_eq!(next(&mut first).as_deref(), Some("a later attempt has left this one behind"));
}

#[test]
fn an_older_attempt_waits_for_the_newest_rather_than_hold_more_than_the_cap() {
    let source = Source::default();
    (0..5).for_each(|_| source.send("0123456789"));
    let replay = buffered(25);
    let (first, mut kept) = replay.keep(post(&source.ended()).map(|body| StreamOf(body).boxed()));
    let (mut first, mut second) = (first.into_body(), replay.again(&mut kept, false).unwrap().into_body());
    assert_eq!((0..5).map_while(|_| next(&mut first)).count(), 3);
    let mut waits = task::spawn(first.frame());
    assert_pending!(waits.poll());
    assert!(next(&mut second).is_some());
    assert!(waits.is_woken());
    assert!(assert_ready!(waits.poll()).is_some());
}

#[test]
fn the_length_is_known_to_each_attempt() {
    let full = http_body_util::Full::<Bytes>::from("hello").map_err(|never| match never {}).boxed();
    let replay = buffered(100);
    let (first, mut kept) = replay.keep(http::Request::new(full));
    let mut first = first.into_body();
    assert_eq!((first.size_hint().exact(), first.is_end_stream()), (Some(5), false));
    assert_eq!(next(&mut first).as_deref(), Some("hello"));
    assert!(first.is_end_stream());
    let mut second = replay.again(&mut kept, false).unwrap().into_body();
    assert_eq!((second.size_hint().exact(), second.is_end_stream()), (Some(5), false));
    assert_eq!(next(&mut second).as_deref(), Some("hello"));
    assert_eq!((second.size_hint().exact(), second.is_end_stream()), (Some(0), true));
}

#[cfg(feature = "tonic-014")]
#[tokio::test]
async fn tonics_own_body_is_sent_again() {
    let replay = Buffered::new(100, tonic::body::Body::new);
    let body = tonic::body::Body::new(Source::of(&["hel", "lo"]).ended());
    let (first, mut kept) = replay.keep(http::Request::new(body));
    for request in [first, replay.again(&mut kept, true).unwrap()] {
        assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
}

#[test]
fn a_body_is_sent_between_threads_and_shared() {
    fn check<T: Send + Sync + Unpin>() {}
    check::<ReplayBody<Boxed>>();
    check::<ReplayBody<http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>>>();
}

proptest! {
    // Beside it the obvious thing: a vector of all pieces.
    #[test]
    fn whatever_the_order_each_attempt_reads_the_body_from_its_beginning(
        lengths in proptest::collection::vec(0usize..40, 0..12),
        cap in 0usize..200,
        steps in proptest::collection::vec((0usize..4, 0u8..8), 0..60),
    ) {
        let whole: Vec<String> = lengths.iter().enumerate().map(|(i, n)| str::repeat(&char::from(b'a' + i as u8).to_string(), *n)).collect();
        let source = Source::default();
        for piece in &whole {
            source.push(Ok(Frame::data(Bytes::from(piece.clone()))));
        }
        let total: String = whole.concat();
        let replay = buffered(cap);
        let (first, mut kept) = replay.keep(post(&source.ended()).map(|body| StreamOf(body).boxed()));
        let mut readers = vec![Some((first.into_body(), String::new()))];
        for (which, what) in steps {
            match what {
                0 => {
                    if let Some(request) = replay.again(&mut kept, false) {
                        readers.push(Some((request.into_body(), String::new())));
                    }
                }
                1 => kept = kept.take().filter(|_| which != 0),
                2 => {
                    if let Some(reader) = readers.get_mut(which) {
                        *reader = None;
                    }
                }
                _ => {
                    let (made, newest) = (readers.len(), readers.iter().rposition(Option::is_some));
                    let Some(Some((body, seen))) = readers.get_mut(which) else { continue };
                    match next(body).as_deref() {
                        Some("end") => prop_assert_eq!(&*seen, &total),
                        // Also by one that is gone by now.
                        Some("a later attempt has left this one behind") => prop_assert!(which + 1 < made),
                        Some(piece) => seen.push_str(piece),
                        None => prop_assert!(newest != Some(which)),
                    }
                    prop_assert!(total.starts_with(seen.as_str()));
                }
            }
        }
    }
}
