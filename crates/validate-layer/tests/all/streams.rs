//! Streams, judged while they pass or held until their end.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use failsoft_core::{BoxError, Class, Fault, Finding, Finish, Insight, Report, Severity, SoftKind, Verdict};
use http::Response;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tower::{Layer as _, ServiceExt as _, service_fn};
use validate_layer::{Answer, Beyond, Judge, StreamMode, ValidateBuilder, ValidateLayer};

/// A stream whose reader says at its last piece what the answer was.
struct Stream {
    pieces: VecDeque<&'static str>,
    insight: Insight,
    learns: Option<(Verdict, &'static str)>,
    /// Nothing comes after the last piece, not even the end.
    hangs: bool,
    waited: bool,
    content_type: &'static str,
}

impl Stream {
    fn new(answer: &'static str) -> Self {
        let pieces = VecDeque::from(["data: a\n\n", "data: b\n\n", "data: [DONE]\n\n"]);
        let learns = Some((Verdict::SUCCESS, answer));
        Self {
            pieces,
            insight: Insight::new(),
            learns,
            hangs: false,
            waited: false,
            content_type: "text/event-stream",
        }
    }

    /// It comes as one JSON array.
    fn array(self) -> Self {
        Self { content_type: "application/json", ..self }
    }

    fn response(self) -> Response<Self> {
        let insight = self.insight.clone();
        let response = Response::builder().header("content-type", self.content_type).extension(insight);
        response.body(self).unwrap()
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.waited = !self.waited;
        if self.waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = self.pieces.pop_front();
        if self.pieces.is_empty() {
            if let Some((verdict, text)) = self.learns.take() {
                self.insight.learn(|facts| {
                    facts.verdict = Some(verdict);
                    facts.text = Some(text.into());
                    facts.finish = Some(Finish::Stop);
                });
            }
        }
        match piece {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
            None if self.hangs => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

const WHOLE: &str = "data: a\n\ndata: b\n\ndata: [DONE]\n\n";

type Passed = (String, Option<BoxError>, Insight);

/// What the caller gets: what came, and the error at its end.
async fn through(builder: ValidateBuilder, stream: Stream) -> Result<Passed, BoxError> {
    let mut response = Some(stream.response());
    let client = service_fn(move |()| std::future::ready(Ok::<_, Infallible>(response.take().unwrap())));
    let response = builder.build()?.layer(client).oneshot(()).await?;
    let insight = Insight::of(response.extensions()).cloned().unwrap_or_default();
    let mut body = response.into_body();
    let mut came = String::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => came.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
            Err(error) => {
                assert!(body.frame().await.is_none(), "nothing comes after an error");
                return Ok((came, Some(error), insight));
            }
        }
    }
    Ok((came, None, insight))
}

fn asks_for_city() -> ValidateBuilder {
    ValidateLayer::builder().name("m").require("/city")
}

fn class(error: &BoxError) -> Class {
    Fault::find(&**error).expect("a fault").class()
}

#[tokio::test]
async fn a_good_stream_passes_byte_for_byte() {
    for mode in [StreamMode::Pass, StreamMode::Hold, StreamMode::Unread] {
        let stream = Stream::new(r#"{"city": "Oslo"}"#);
        let (came, error, insight) = through(asks_for_city().streams(mode), stream).await.unwrap();
        assert_eq!((&*came, error.is_none()), (WHOLE, true), "{mode:?}");
        assert_eq!(insight.verdict(), Some(Verdict::SUCCESS));
    }
}

#[tokio::test]
async fn a_wrong_stream_that_passes_ends_with_an_error_in_place_of_its_good_end() {
    let (came, error, insight) = through(asks_for_city(), Stream::new("{}")).await.unwrap();
    assert_eq!(came, "data: a\n\ndata: b\n\n", "it does not end well");
    let error = error.unwrap();
    assert_eq!(class(&error), Class::Soft(SoftKind::MissingField));
    let fault = Fault::find(&*error).unwrap();
    assert_eq!((fault.target(), fault.answer().unwrap().text.as_deref()), (Some("m"), Some("{}")));
    assert_eq!(insight.verdict().unwrap().class(), Class::Soft(SoftKind::MissingField));
    // Also where the socket stays open after the protocol's end.
    let stream = Stream { hangs: true, ..Stream::new("{}") };
    assert!(through(asks_for_city(), stream).await.unwrap().1.is_some());
}

#[tokio::test]
async fn a_wrong_stream_that_is_held_is_a_failure_of_the_call() {
    let error = through(asks_for_city().streams(StreamMode::Hold), Stream::new("{}")).await.unwrap_err();
    assert_eq!(class(&error), Class::Soft(SoftKind::MissingField));
}

#[tokio::test]
async fn what_a_streams_reader_found_is_a_failure_in_both_modes() {
    let cut = || Stream { learns: Some((Verdict::soft(SoftKind::Truncated), "The")), ..Stream::new("") };
    let (came, error, _) = through(ValidateLayer::builder(), cut()).await.unwrap();
    assert_eq!(
        (&*came, class(&error.unwrap())),
        ("data: a\n\ndata: b\n\n", Class::Soft(SoftKind::Truncated))
    );
    let held = ValidateLayer::builder().streams(StreamMode::Hold);
    assert_eq!(class(&through(held, cut()).await.unwrap_err()), Class::Soft(SoftKind::Truncated));
    // Unread is unread.
    let unread = ValidateLayer::builder().streams(StreamMode::Unread);
    assert_eq!(through(unread, cut()).await.unwrap().0, WHOLE);
}

#[tokio::test]
async fn a_stream_that_nobody_reads_passes_in_every_mode() {
    for mode in [StreamMode::Pass, StreamMode::Hold, StreamMode::Unread] {
        let stream = Stream { learns: None, ..Stream::new("") };
        let (came, error, insight) = through(asks_for_city().streams(mode), stream).await.unwrap();
        assert_eq!((&*came, error.is_none(), insight.verdict()), (WHOLE, true, None), "{mode:?}");
    }
}

#[tokio::test]
async fn beyond_the_cap_of_what_is_held_the_policy_decides() {
    let held = |beyond| asks_for_city().streams(StreamMode::Hold).max_body(10).beyond(beyond);
    let error = through(held(Beyond::Fail), Stream::new(r#"{"city": 1}"#)).await.unwrap_err();
    assert_eq!(Fault::find(&*error).unwrap().report().unwrap().leading().unwrap().code(), "body.too_large");

    let (came, error, insight) = through(held(Beyond::Pass), Stream::new("{}")).await.unwrap();
    assert_eq!((&*came, error.is_none()), (WHOLE, true));
    assert_eq!(insight.facts().report.worst(), Some(Severity::Warning));

    let (came, error, _) = through(held(Beyond::AtEnd), Stream::new("{}")).await.unwrap();
    assert_eq!(
        (&*came, class(&error.unwrap())),
        ("data: a\n\ndata: b\n\n", Class::Soft(SoftKind::MissingField))
    );
    let (came, error, _) = through(held(Beyond::AtEnd), Stream::new(r#"{"city": 1}"#)).await.unwrap();
    assert_eq!((&*came, error.is_none()), (WHOLE, true));
}

#[tokio::test]
async fn a_judge_is_asked_before_the_end_is_handed_on() {
    let judge = Judge::new(service_fn(|answer: Answer| async move {
        tokio::task::yield_now().await;
        let mut report = Report::new();
        if answer.text() == Some("HI") {
            report.push(Finding::new(SoftKind::Schema, "polite", "it shouts"));
        }
        Ok::<_, Infallible>(report)
    }));
    let builder = |mode| ValidateLayer::builder().judge(judge.clone()).streams(mode);
    let (came, error, _) = through(builder(StreamMode::Pass), Stream::new("HI")).await.unwrap();
    assert_eq!((&*came, class(&error.unwrap())), ("data: a\n\ndata: b\n\n", Class::Soft(SoftKind::Schema)));
    assert!(through(builder(StreamMode::Hold), Stream::new("HI")).await.is_err());
    for mode in [StreamMode::Pass, StreamMode::Hold] {
        assert_eq!(through(builder(mode), Stream::new("hi")).await.unwrap().0, WHOLE);
    }
}

#[tokio::test]
async fn a_stream_that_does_not_say_so_is_held_and_judged_by_what_its_reader_made_of_it() {
    // Gemini's, as one JSON array: its bytes were taken for the answer, so that each good one failed.
    for mode in [StreamMode::Pass, StreamMode::Hold] {
        let builder = || asks_for_city().streams(mode);
        let (came, error, insight) =
            through(builder(), Stream::new(r#"{"city": "Oslo"}"#).array()).await.unwrap();
        assert!(came == WHOLE && error.is_none() && insight.verdict() == Some(Verdict::SUCCESS));
        let error = through(builder(), Stream::new(r#"{"town": "Oslo"}"#).array()).await.unwrap_err();
        assert_eq!(class(&error), Class::Soft(SoftKind::MissingField));
    }
    // A reader that finds a failure in it is believed.
    let mut failed = Stream::new("").array();
    failed.learns = Some((Verdict::of(Class::Overloaded), ""));
    assert_eq!(class(&through(ValidateLayer::builder(), failed).await.unwrap_err()), Class::Overloaded);
    // Where nobody has read it, it is looked at as it is.
    let unread = Stream { learns: None, ..Stream::new("").array() };
    assert_eq!(class(&through(asks_for_city(), unread).await.unwrap_err()), Class::Soft(SoftKind::Malformed));
}
