//! Streams that break off after their first content.
#![cfg(feature = "http")]

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use crate::support::fault;
use axum::{
    body::Bytes,
    http::{Request, Response},
};
use failsoft_core::{Auto, BoxError, ByResponse, Call, Class, Fault, Slot, Usage};
use fallback_layer::{
    BoxRoute, Fallback, FallbackLayer, Route,
    last_good::NoLastGood,
    restart::{Restart, RestartLayer},
};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

/// Pieces of a body; the end of a broken one is a fault.
struct Pieces {
    pieces: VecDeque<&'static str>,
    fails_of: Option<Class>,
    /// Of the tokens that it has used.
    _slot: Option<Slot>,
    /// Counts itself alive.
    alive: Arc<AtomicU32>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
        }
        Poll::Ready(self.fails_of.take().map(|class| Err(Fault::new(class, "test").into())))
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A provider that streams, and how often it was asked.
#[derive(Clone)]
struct Provider {
    pieces: &'static [&'static str],
    fails_of: Option<Class>,
    status: u16,
    content_type: &'static str,
    asked: Arc<AtomicU32>,
    alive: Arc<AtomicU32>,
}

impl Provider {
    fn good(pieces: &'static [&'static str]) -> Self {
        let content_type = "text/event-stream; charset=utf-8";
        Self {
            pieces,
            fails_of: None,
            status: 200,
            content_type,
            asked: Arc::default(),
            alive: Arc::default(),
        }
    }

    fn breaking(pieces: &'static [&'static str]) -> Self {
        Self { fails_of: Some(Class::Transient), ..Self::good(pieces) }
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    fn route(&self) -> Model {
        let this = self.clone();
        BoxRoute::new(service_fn(move |request: Request<String>| {
            assert_eq!(request.body(), "question");
            this.asked.fetch_add(1, Ordering::Relaxed);
            this.alive.fetch_add(1, Ordering::Relaxed);
            let mut slot = Call::slot();
            if let Some(slot) = &mut slot {
                slot.set(&Usage { output: Some(10), ..Usage::default() });
            }
            let pieces = this.pieces.iter().copied().collect();
            let body = Pieces { pieces, fails_of: this.fails_of, _slot: slot, alive: this.alive.clone() };
            let response =
                Response::builder().status(this.status).header("content-type", this.content_type).body(body);
            std::future::ready(Ok::<_, BoxError>(response.unwrap()))
        }))
    }
}

type Model = BoxRoute<Request<String>, Response<Pieces>>;
type Stack = Restart<Fallback<Model, Model, ByResponse, Auto, NoLastGood>, Auto>;

fn stack(restart: RestartLayer, routes: &[&Provider]) -> Stack {
    let names = ["eu", "us", "ap"];
    let layer = FallbackLayer::builder().name("eu");
    let further = names.iter().zip(routes).skip(1);
    let layer = further.fold(layer, |layer, (name, route)| layer.route(Route::new(*name, route.route())));
    ServiceBuilder::new().layer(restart).layer(layer.build().unwrap()).service(routes[0].route())
}

/// What the caller reads, and the failure at the end.
async fn read(restart: RestartLayer, routes: &[&Provider]) -> (String, Option<Class>) {
    let request = Request::new("question".to_owned());
    let response = stack(restart, routes).oneshot(request).await.unwrap();
    let mut body = Box::pin(response.into_body());
    let mut text = String::new();
    loop {
        match body.frame().await {
            Some(Ok(frame)) => text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap()),
            Some(Err(err)) => return (text, Some(fault(&err).class())),
            None => return (text, None),
        }
    }
}

const EVENT: &str = "event: failsoft.restart\ndata: {\"type\":\"failsoft.restart\",\"class\":\"transient\",\"route\":\"us\"}\n\n";

// G57
#[tokio::test]
async fn after_the_first_content_the_next_route_follows_behind_an_event_and_never_silently() {
    let eu = Provider::breaking(&["data: The an", "swer\n\n", "data: is not wh"]);
    let us = Provider::good(&["data: 42\n\n", "data: [DONE]\n\n"]);
    let call = Call::begin();
    let (text, end) = call.scope(read(RestartLayer::new(), &[&eu, &us])).await;
    // The event that was not whole is not handed on.
    assert_eq!(text, format!("data: The answer\n\n{EVENT}data: 42\n\ndata: [DONE]\n\n"));
    assert_eq!((end, eu.asked(), us.asked()), (None, 1, 1));
    assert_eq!(
        call.trail().to_string(),
        "eu transient (next_route) > eu denied.loop (skipped) > us success (answered)"
    );
    assert_eq!((call.further_attempts(), call.usage().output), (1, Some(20)), "both have used tokens");

    // Without the layer the failure is the stream's.
    let layer = FallbackLayer::builder().route(Route::new("us", us.route())).build().unwrap();
    let response = layer.layer(eu.route()).oneshot(Request::new("question".to_owned())).await.unwrap();
    let err = response.into_body().collect().await.map(|_| ()).unwrap_err();
    assert_eq!((fault(&err).class(), us.asked()), (Class::Transient, 1));
}

#[tokio::test]
async fn a_stream_that_fails_after_its_own_last_event_is_whole_and_does_not_restart() {
    let eu = Provider::breaking(&["data: 42\n\n", "data: [DONE]\r\n\r", "\n"]);
    let us = Provider::good(&["data: 42\n\n", "data: [DONE]\n\n"]);
    let (text, end) = read(RestartLayer::new(), &[&eu, &us]).await;
    assert_eq!((text.as_str(), end), ("data: 42\n\ndata: [DONE]\r\n\r\n", Some(Class::Transient)));
    assert_eq!(us.asked(), 0);
}

#[tokio::test]
async fn a_byte_order_mark_in_the_middle_would_hide_the_first_event_and_is_taken_away() {
    let eu = Provider::breaking(&["\u{feff}data: The an\n\n"]);
    let us = Provider::good(&["\u{feff}data: 42\n", "\ndata: \u{feff}\n\n"]);
    let (text, end) = read(RestartLayer::new(), &[&eu, &us]).await;
    assert_eq!((text, end), (format!("\u{feff}data: The an\n\n{EVENT}data: 42\n\ndata: \u{feff}\n\n"), None));
}

#[tokio::test]
async fn each_route_is_asked_once_and_then_the_failure_is_told() {
    let eu = Provider::breaking(&["data: a\n\n"]);
    let us = Provider::breaking(&["data: b\n\n"]);
    let ap = Provider::breaking(&["data: c\n\n", "data: d"]);
    let (text, end) = read(RestartLayer::new().max_restarts(9), &[&eu, &us, &ap]).await;
    let second = EVENT.replace("\"us\"", "\"ap\"");
    // What there is of the last event is the caller's, before the failure.
    assert_eq!(text, format!("data: a\n\n{EVENT}data: b\n\n{second}data: c\n\ndata: d"));
    assert_eq!((end, eu.asked(), us.asked(), ap.asked()), (Some(Class::Transient), 1, 1, 1));
    for provider in [eu, us, ap] {
        assert_eq!(provider.alive.load(Ordering::Relaxed), 0, "each is let go");
    }
}

#[tokio::test]
async fn where_no_other_route_answers_no_event_is_written() {
    let eu = || Provider::breaking(&["data: a\n\n"]);
    let failing = Provider { status: 503, ..Provider::good(&["busy"]) };
    let plain = Provider { content_type: "application/json", ..Provider::good(&["{}"]) };
    for other in [failing, plain] {
        let (text, end) = read(RestartLayer::new(), &[&eu(), &other]).await;
        assert_eq!((text.as_str(), end, other.asked()), ("data: a\n\n", Some(Class::Transient), 1));
    }
}

#[tokio::test]
async fn only_what_another_route_can_help_with_and_only_streams_of_events_restart() {
    let us = Provider::good(&["data: b\n\n"]);
    let refused = Provider { fails_of: Some(Class::Refused), ..Provider::good(&["data: a\n\n"]) };
    let json = Provider { content_type: "application/json", ..Provider::breaking(&["{\"a\":"]) };
    for eu in [refused, json] {
        let expected = (eu.pieces[0].to_owned(), eu.fails_of);
        assert_eq!(read(RestartLayer::new(), &[&eu, &us]).await, expected);
    }
    let eu = Provider::breaking(&["data: a\n\n"]);
    let off = RestartLayer::new().max_restarts(0);
    assert_eq!(read(off, &[&eu, &us]).await.1, Some(Class::Transient));
    assert_eq!(us.asked(), 0);
}

#[tokio::test]
async fn a_cap_on_attempts_holds_for_restarts() {
    let (eu, us) = (Provider::breaking(&["data: a\n\n"]), Provider::good(&["data: b\n\n"]));
    let call = Call::options().max_attempts(1).begin();
    let (text, end) = call.scope(read(RestartLayer::new(), &[&eu, &us])).await;
    assert_eq!((text.as_str(), end, us.asked()), ("data: a\n\n", Some(Class::Transient), 0));
}

#[tokio::test]
async fn before_the_first_content_nobody_sees_that_a_route_failed() {
    let failing = Provider { status: 503, ..Provider::good(&["busy"]) };
    let us = Provider::good(&["data: 42\n\n"]);
    assert_eq!(read(RestartLayer::new(), &[&failing, &us]).await, ("data: 42\n\n".to_owned(), None));
}

#[cfg(feature = "reqwest-013")]
#[tokio::test]
async fn it_stands_around_a_reqwest_client() {
    let (eu, us) = (Provider::breaking(&["data: a\n\n"]), Provider::good(&["data: b\n\n"]));
    let route = |provider: &Provider| {
        let route = provider.route();
        service_fn(move |_: reqwest::Request| {
            let asked = route.clone().oneshot(Request::new("question".to_owned()));
            async move {
                let (parts, body) = asked.await?.into_parts();
                let body = reqwest::Body::wrap(body);
                Ok::<_, BoxError>(reqwest::Response::from(Response::from_parts(parts, body)))
            }
        })
    };
    let layer = FallbackLayer::builder().route(Route::boxed("us", route(&us))).build().unwrap();
    let service = ServiceBuilder::new().layer(RestartLayer::new()).layer(layer).service(route(&eu));
    let request = reqwest::Client::new().post("http://a/chat").body("question").build().unwrap();
    let response: reqwest::Response = service.oneshot(request).await.unwrap();
    assert_eq!(response.text().await.unwrap(), format!("data: a\n\n{EVENT}data: b\n\n"));
}
