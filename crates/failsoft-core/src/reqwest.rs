//! reqwest 0.13: its errors, and a `reqwest::Response` that can be classified, watched and held.
//!
//! The URL and the other metadata of a response survive. Watching or holding a body boxes it once: reqwest has no
//! other way.
//!
//! ```
//! use failsoft_core::{Class, Verdict};
//!
//! # let err = reqwest::Client::new().get("no url").build().unwrap_err();
//! assert_eq!(Verdict::of_error(&err).class(), Class::Invalid);
//! ```

use bytes::Bytes;
use http_body::Body;
use reqwest::ResponseBuilderExt as _;

use crate::{
    Class, Guard, Held, Hold, Judge, Limit, Rebody, Respond, Step, Verdict, Watch, Watched, http::BodyJudge,
};

/// What reqwest says of its own errors; `None` where it says nothing and the sources may.
pub(crate) fn verdict_of_error(err: &reqwest::Error) -> Option<Verdict> {
    if let Some(status) = err.status() {
        let class = crate::http::class_of_status(status);
        return (!class.is_success()).then(|| Verdict::of(class));
    }
    if err.is_builder() || err.is_redirect() {
        return Some(Verdict::of(Class::Invalid).with_unsent());
    }
    match (err.is_connect(), err.is_timeout()) {
        (true, true) => Some(Verdict::of(Class::Timeout(Limit::Connect)).with_unsent()),
        (true, false) => Some(Verdict::of(Class::Transient).with_unsent()),
        (false, true) => Some(Verdict::of(Class::Timeout(Limit::Total))),
        (false, false) => {
            (err.is_request() || err.is_body() || err.is_decode()).then(|| Verdict::of(Class::Transient))
        }
    }
}

impl Respond for reqwest::Response {
    type Judge = BodyJudge;

    fn step(&self) -> Step<BodyJudge> {
        crate::http::step(self.status(), self.headers(), self.extensions())
    }

    fn status_code(&self) -> Option<u16> {
        Some(self.status().as_u16())
    }

    fn target_headers(&self) -> Option<&http::HeaderMap> {
        crate::Degraded::of(self.extensions()).is_none().then(|| self.headers())
    }

    fn insight(&self) -> Option<&crate::Insight> {
        crate::Insight::of(self.extensions())
    }

    fn degrade(&mut self, degraded: &crate::Degraded, header: bool) {
        // Both at once cannot be borrowed of it.
        let mut headers = std::mem::take(self.headers_mut());
        degraded.clone().put(&mut headers, self.extensions_mut(), header);
        *self.headers_mut() = headers;
    }
}

impl<J: Judge> Watch<reqwest::Response> for J {
    type Out<G: Guard> = reqwest::Response;

    fn follow<G: Guard>(self, response: reqwest::Response, guard: G) -> reqwest::Response {
        let (parts, body) = open(response);
        close(parts, Watched::new(body, self, guard))
    }

    fn bare<G: Guard>(response: reqwest::Response) -> reqwest::Response {
        response
    }
}

impl Hold for reqwest::Response {
    type Body = reqwest::Body;
    type Out = Self;

    fn extensions(&self) -> &http::Extensions {
        self.extensions()
    }

    fn open(self) -> (http::response::Parts, reqwest::Body) {
        open(self)
    }

    fn close(parts: http::response::Parts, mut body: Held<reqwest::Body>) -> Self {
        if let Some(unread) = body.take_unread() {
            return http::Response::from_parts(parts, unread).into();
        }
        match body.take_whole() {
            Some(bytes) => http::Response::from_parts(parts, bytes).into(),
            None => close(parts, body),
        }
    }
}

impl<W> Rebody<W> for reqwest::Response
where
    W: Body<Data = Bytes, Error = crate::BoxError> + Send + Sync + 'static,
{
    type Rebodied = Self;

    fn rebody(parts: http::response::Parts, body: W) -> Self {
        close(parts, body)
    }
}

/// Takes a response apart; its URL goes into the extensions, where reqwest looks for it when it is put together.
fn open(response: reqwest::Response) -> (http::response::Parts, reqwest::Body) {
    let carrier =
        http::Response::builder().url(response.url().clone()).body(()).map(http::Response::into_parts);
    let (mut parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
    if let Ok((carrier, ())) = carrier {
        parts.extensions.extend(carrier.extensions);
    }
    (parts, body)
}

fn close<B>(parts: http::response::Parts, body: B) -> reqwest::Response
where
    B: Body<Data = Bytes, Error = crate::BoxError> + Send + Sync + 'static,
{
    http::Response::from_parts(parts, reqwest::Body::wrap(body)).into()
}
