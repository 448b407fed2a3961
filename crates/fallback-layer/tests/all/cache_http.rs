//! The cache over real sockets: an axum server that streams, reqwest clients.
#![cfg(all(feature = "cache", feature = "reqwest-013"))]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::IntoResponse,
    routing::post,
};
use failsoft_core::{BoxError, Degraded, StandIn};
use fallback_layer::{
    FallbackLayer, NoRoute,
    cache::{Cache, CacheLayer, CacheStatus},
};
use tokio::{net::TcpListener, sync::Semaphore};
use tower::{Layer, ServiceExt};

/// A provider that streams where it is asked to, and waits for a permit before it ends.
#[derive(Clone)]
struct Provider {
    calls: Arc<AtomicU32>,
    down: Arc<AtomicBool>,
    may_end: Arc<Semaphore>,
}

impl Provider {
    async fn start() -> (Self, SocketAddr) {
        let provider =
            Self { calls: Arc::default(), down: Arc::default(), may_end: Arc::new(Semaphore::new(0)) };
        let this = provider.clone();
        let app =
            Router::new().route("/v1/chat/completions", post(async move |body: Bytes| this.answer(&body)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        (provider, addr)
    }

    fn answer(&self, body: &[u8]) -> axum::response::Response {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) {
            return (StatusCode::SERVICE_UNAVAILABLE, "down").into_response();
        }
        if !String::from_utf8_lossy(body).contains("\"stream\":true") {
            let cookie =
                [(header::SET_COOKIE, "__cf_bm=x; path=/"), (header::CONTENT_TYPE, "application/json")];
            return (cookie, format!("{{\"number\":{number}}}")).into_response();
        }
        let may_end = Arc::clone(&self.may_end);
        let pieces = futures_util::stream::unfold(0, move |at| {
            let may_end = Arc::clone(&may_end);
            async move {
                match at {
                    0 => Some((Ok::<_, BoxError>(format!("data: {{\"number\":{number}}}\n\n")), 1)),
                    1 => {
                        may_end.acquire().await.unwrap().forget();
                        Some((Ok("data: [DONE]\n\n".to_owned()), 2))
                    }
                    _ => None,
                }
            }
        });
        let events = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        (events, Body::from_stream(pieces)).into_response()
    }
}

fn ask(client: &reqwest::Client, addr: SocketAddr, tenant: &str, body: &str) -> reqwest::Request {
    let url = format!("http://{addr}/v1/chat/completions");
    client.post(url).header("x-tenant", tenant).body(body.to_owned()).build().unwrap()
}

fn cache() -> Cache<impl fallback_layer::cache::Scope<reqwest::Request>> {
    // Nobody inside judges: a 200 is a good answer.
    Cache::builder()
        .scope(|request: &reqwest::Request| {
            Some(request.headers().get("x-tenant")?.to_str().ok()?.to_owned())
        })
        .keep_unjudged(true)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_streaming_leader_that_is_dropped_is_followed_by_one_and_all_others_have_its_answer() {
    let (provider, addr) = Provider::start().await;
    let client = reqwest::Client::new();
    let cache = cache();
    let service = CacheLayer::new(cache.clone()).layer(client.clone());
    let body = r#"{"model":"m","stream":true}"#;

    let mut leader = service.clone().oneshot(ask(&client, addr, "t", body)).await.unwrap();
    assert_eq!(leader.chunk().await.unwrap().unwrap(), "data: {\"number\":0}\n\n");
    let followers: Vec<_> =
        (0..20).map(|_| tokio::spawn(service.clone().oneshot(ask(&client, addr, "t", body)))).collect();
    tokio::task::yield_now().await;
    drop(leader);
    // Also for the stream that was dropped: its server may not have seen that yet.
    provider.may_end.add_permits(100);
    let mut shared = 0;
    for follower in followers {
        let response = follower.await.unwrap().unwrap();
        assert_eq!(response.url().path(), "/v1/chat/completions");
        shared += u32::from(CacheStatus::of(response.extensions()).is_some());
        assert_eq!(response.text().await.unwrap(), "data: {\"number\":1}\n\ndata: [DONE]\n\n");
    }
    assert_eq!((shared, provider.calls.load(Ordering::Relaxed)), (19, 2));
    // Another tenant has its own.
    let other = service.clone().oneshot(ask(&client, addr, "u", body)).await.unwrap();
    assert_eq!(other.text().await.unwrap(), "data: {\"number\":2}\n\ndata: [DONE]\n\n");
    assert_eq!((cache.len(), cache.in_flight()), (2, 0));
}

#[tokio::test]
async fn the_same_cache_bridges_an_outage_behind_the_routes() {
    let (provider, addr) = Provider::start().await;
    let client = reqwest::Client::new();
    let layer = FallbackLayer::<NoRoute<_>>::only_last_good(cache()).build().unwrap();
    let service = layer.layer(client.clone());
    let ask = |tenant: &str| ask(&client, addr, tenant, r#"{"model":"m"}"#);
    let good = service.clone().oneshot(ask("t")).await.unwrap();
    assert!(Degraded::of(good.extensions()).is_none());
    assert_eq!(good.text().await.unwrap(), "{\"number\":0}");
    provider.down.store(true, Ordering::Relaxed);
    let again = service.clone().oneshot(ask("t")).await.unwrap();
    assert_eq!(Degraded::of(again.extensions()).unwrap().stand_in, StandIn::LastGood);
    assert!(!again.headers().contains_key(header::SET_COOKIE));
    assert_eq!(again.text().await.unwrap(), "{\"number\":0}");
    let other = service.oneshot(ask("u")).await.unwrap();
    assert_eq!(other.status(), 503);
}
