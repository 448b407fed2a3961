//! The contract of fallback-layer's cache in front.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
};

use fallback_layer::cache::{Address, Cache, CacheLayer, CacheRequest};
use http::{HeaderMap, Method};
use tower_layer::Layer;
use tower_service::Service;

/// Requests of each kind, as a cache sees them: with a body that lies in memory.
struct Seen<R>(R);

/// What the cache asks of a request, of the kinds that the contract uses.
trait See {
    fn head(&self) -> (&Method, &HeaderMap);
    fn path(&self) -> &str;
}

impl<B> See for http::Request<B> {
    fn head(&self) -> (&Method, &HeaderMap) {
        (self.method(), self.headers())
    }

    fn path(&self) -> &str {
        self.uri().path()
    }
}

impl See for reqwest::Request {
    fn head(&self) -> (&Method, &HeaderMap) {
        (self.method(), self.headers())
    }

    fn path(&self) -> &str {
        self.url().path()
    }
}

impl<R: See> CacheRequest for Seen<R> {
    fn method(&self) -> &Method {
        self.0.head().0
    }

    fn address(&self) -> Address<'_> {
        Address::new(self.0.path())
    }

    fn headers(&self) -> &HeaderMap {
        self.0.head().1
    }

    /// Of one path the contract asks one thing.
    fn body(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(b"{}"))
    }
}

/// A layer that takes [`Seen`] requests, around and inside of those that do not.
#[derive(Clone)]
struct Seeing<L>(L);

#[derive(Clone, Debug)]
struct Outside<S>(S);

#[derive(Clone, Debug)]
struct Inside<S>(S);

impl<S, L: Layer<Inside<S>>> Layer<S> for Seeing<L> {
    type Service = Outside<L::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        Outside(self.0.layer(Inside(inner)))
    }
}

impl<S: Service<Seen<R>>, R> Service<R> for Outside<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(Seen(request))
    }
}

impl<S: Service<R>, R> Service<Seen<R>> for Inside<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, Seen(request): Seen<R>) -> S::Future {
        self.0.call(request)
    }
}

/// A scope of its own for each request, so that each is asked for.
fn anew<R>(_: &Seen<R>) -> Option<String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    Some(COUNT.fetch_add(1, Ordering::Relaxed).to_string())
}

contract::contract! {
    // All ask the same, and nobody judges the answers: each call leads, and none is kept.
    cache_that_keeps_nothing => |_inner| Seeing(CacheLayer::new(Cache::builder().shared_by_all().build().unwrap()))
}

contract::contract! {
    // Each call leads, and its answer is kept.
    cache_that_keeps_all => |_inner| Seeing(CacheLayer::new(
        Cache::builder().scope(anew).keep_unjudged(true).build().unwrap()
    ))
}

contract::contract! {
    // What is not to be looked up passes by.
    cache_passed_by => |_inner| Seeing(CacheLayer::new(
        Cache::builder().scope(|_: &Seen<_>| None::<String>).build().unwrap()
    ))
}
