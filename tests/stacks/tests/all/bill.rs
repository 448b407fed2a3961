//! A budget around a model's client over real HTTP: what calls count for that say what they used, that say nothing, and that are cut;
//! and what becomes of calls past the limit, where there are free routes.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::post,
};
use budget_layer::{Budget, BudgetBuilder, BudgetLayer, Denial, Outcome, Window};
use failsoft_core::{BoxError, Call, Mark};
use fallback_layer::{FallbackLayer, Route};
use futures_util::{StreamExt as _, stream};
use llm_layer::{LlmLayer, Provider};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, service_fn, util::BoxCloneSyncService};

/// What a request of [`ask`] is estimated at: its prompt, and the most that it allows.
const PROMPT: u64 = 28;
const MOST: u64 = 300;

/// Of text in an event, and the tokens that it counts for where nobody says.
const TEXT: &str = "forty bytes of text, ten tokens or so ..";
const TOKENS: u64 = 10;

const WHOLE: &str = r#"{"choices": [{"message": {"content": "Bern"}, "finish_reason": "stop"}]}"#;
const WHOLE_SAID: &str = r#"{"choices": [{"message": {"content": "Bern"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}"#;

fn event(delta: &str, more: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{{delta}}}{more}}}]}}\n\n")
}

fn text() -> String {
    event(&format!("\"content\":\"{TEXT}\""), "")
}

fn end() -> String {
    event("", ",\"finish_reason\":\"stop\"") + "data: [DONE]\n\n"
}

fn usage() -> String {
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":40}}\n\n".to_owned()
}

fn json(body: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Pieces, and then what comes after them.
fn events(pieces: Vec<String>, then: Then) -> Response {
    let pieces = stream::iter(pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece))));
    let body = match then {
        Then::End => Body::from_stream(pieces),
        Then::Break(when) => {
            let breaks = stream::once(async move {
                when.notified().await;
                Err(std::io::ErrorKind::ConnectionReset.into())
            });
            Body::from_stream(pieces.chain(breaks))
        }
        Then::Wait => Body::from_stream(pieces.chain(stream::pending())),
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

enum Then {
    End,
    /// When it is told to: what was written before must go out first.
    Break(Arc<Notify>),
    /// For ever.
    Wait,
}

/// A provider with one way to answer under each path; how often it was asked, and what it is told to break a stream by.
async fn provider() -> (String, Arc<AtomicU64>, Arc<Notify>) {
    let (asked, broken) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let when = Arc::clone(&broken);
    let counted = Arc::clone(&asked);
    let count = axum::middleware::from_fn(move |request, next: axum::middleware::Next| {
        counted.fetch_add(1, Relaxed);
        next.run(request)
    });
    let router = Router::new()
        .route("/whole", post(|| async { json(WHOLE_SAID) }))
        .route("/whole/silent", post(|| async { json(WHOLE) }))
        .route("/whole/never", post(std::future::pending::<Response>))
        .route("/stream", post(|| async { events(vec![text(), text(), usage(), end()], Then::End) }))
        .route("/stream/silent", post(|| async { events(vec![text(), text(), end()], Then::End) }))
        .route("/stream/waits", post(|| async { events(vec![text(), text()], Then::Wait) }))
        .route("/stream/breaks", post(|| async { events(vec![text(), text(), text()], Then::Break(when)) }))
        .route(
            "/tight",
            post(|| async {
                let mut headers = HeaderMap::new();
                headers.insert("x-ratelimit-remaining-tokens", 350.into());
                headers.insert("x-ratelimit-reset-tokens", "50s".parse().unwrap());
                (headers, json(WHOLE_SAID))
            }),
        )
        .layer(count);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked, broken)
}

type Client = BoxCloneSyncService<reqwest::Request, reqwest::Response, BoxError>;

/// A client of a provider, and the budget around it.
struct Stack {
    url: String,
    asked: Arc<AtomicU64>,
    broken: Arc<Notify>,
    client: Client,
    budget: Budget,
}

impl Stack {
    async fn new(builder: BudgetBuilder) -> Self {
        let (url, asked, broken) = provider().await;
        let layer = builder.build().unwrap();
        let budget = layer.budget().clone();
        let client = ServiceBuilder::new()
            .layer(layer)
            .layer(LlmLayer::new(Provider::OpenAiCompatible))
            .service(reqwest::Client::new());
        Self { url, asked, broken, client: BoxCloneSyncService::new(client), budget }
    }

    fn request(&self, path: &str) -> reqwest::Request {
        request(&format!("{}{path}", self.url))
    }

    async fn ask(&self, path: &str) -> Result<reqwest::Response, BoxError> {
        self.client.clone().oneshot(self.request(path)).await
    }

    /// What is spent, how many calls are of this outcome, and how many did not say all that they used.
    fn settled(&self, outcome: Outcome) -> (u64, u64, u64) {
        assert_eq!(self.budget.reserved(), 0);
        let spend = self.budget.spend();
        (spend.spent(), spend.of(outcome).calls, spend.unknown())
    }
}

fn request(url: &str) -> reqwest::Request {
    let stream = url.contains("stream");
    let body = format!(
        r#"{{"max_tokens": {MOST}, "stream": {stream:5}, "messages": [{{"role": "user", "content": "The capital of Switzerland?"}}]}}"#
    );
    reqwest::Client::new().post(url).body(body).build().unwrap()
}

/// Reads so many of its texts.
async fn read(response: &mut reqwest::Response, texts: usize) {
    let mut seen = String::new();
    while seen.matches(TEXT).count() < texts {
        seen.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
}

fn builder() -> BudgetBuilder {
    BudgetLayer::builder()
}

#[tokio::test]
async fn what_a_provider_says_it_used_is_what_counts_whole_and_streamed() {
    let whole = Stack::new(builder()).await;
    whole.ask("/whole").await.unwrap().text().await.unwrap();
    assert_eq!(whole.settled(Outcome::Success), (13, 1, 0));
    let streamed = Stack::new(builder()).await;
    let response = streamed.ask("/stream").await.unwrap();
    assert_eq!(streamed.budget.reserved(), PROMPT + MOST, "nothing is settled while it runs");
    assert!(response.text().await.unwrap().contains("[DONE]"));
    assert_eq!(streamed.settled(Outcome::Success), (49, 1, 0));
}

// G96, V-H6
#[tokio::test]
async fn an_answer_without_a_word_of_usage_keeps_its_estimate_flagged_whole_and_streamed() {
    for path in ["/whole/silent", "/stream/silent"] {
        let stack = Stack::new(builder()).await;
        stack.ask(path).await.unwrap().text().await.unwrap();
        assert_eq!(stack.settled(Outcome::Success), (PROMPT + MOST, 1, 1), "{path}");
    }
}

// G97, V-H4
#[tokio::test]
async fn a_stream_that_its_caller_drops_counts_the_prompt_and_what_came_of_the_answer() {
    let stack = Stack::new(builder()).await;
    let mut response = stack.ask("/stream/waits").await.unwrap();
    read(&mut response, 2).await;
    drop(response);
    assert_eq!(stack.settled(Outcome::Cancelled), (PROMPT + 2 * TOKENS, 1, 1));
    // By option it counts in full.
    let stack = Stack::new(builder().charge_cut_in_full()).await;
    let mut response = stack.ask("/stream/waits").await.unwrap();
    response.chunk().await.unwrap();
    drop(response);
    assert_eq!(stack.settled(Outcome::Cancelled), (PROMPT + MOST, 1, 1));
}

#[tokio::test]
async fn a_call_that_its_caller_drops_before_a_word_came_keeps_its_estimate() {
    let stack = Stack::new(builder()).await;
    let call = tokio::spawn({
        let (client, request) = (stack.client.clone(), stack.request("/whole/never"));
        async move { client.oneshot(request).await.map(drop) }
    });
    while stack.asked.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(stack.settled(Outcome::Cancelled), (PROMPT + MOST, 1, 1));
}

#[tokio::test]
async fn a_stream_that_breaks_counts_the_prompt_and_what_came_of_the_answer() {
    let stack = Stack::new(builder()).await;
    let mut response = stack.ask("/stream/breaks").await.unwrap();
    read(&mut response, 3).await;
    stack.broken.notify_one();
    response.text().await.unwrap_err();
    assert_eq!(stack.settled(Outcome::Transient), (PROMPT + 3 * TOKENS, 1, 1));
}

#[tokio::test]
async fn what_the_provider_says_it_has_left_tightens_the_window() {
    let minute = Window::sliding(Duration::from_secs(60));
    let stack = Stack::new(builder().within(minute).heed_quota_headers()).await;
    stack.ask("/tight").await.unwrap().text().await.unwrap();
    assert_eq!(stack.budget.server_left(), Some(350));
    stack.ask("/whole").await.unwrap().text().await.unwrap();
    assert_eq!(stack.budget.server_left(), Some(350 - PROMPT - MOST));
    let denied = stack.ask("/whole").await.unwrap_err();
    let denial = Denial::find(&*denied).unwrap();
    assert_eq!((denial.left(), stack.asked.load(Relaxed)), (350 - PROMPT - MOST, 2));
    assert!(denial.renews_in().is_some_and(|renews| renews <= Duration::from_secs(50)));
}

/// A model of one's own, in the same process.
async fn local(_: reqwest::Request) -> Result<reqwest::Response, Infallible> {
    assert!(Call::is_marked(Mark::FreeOnly));
    Ok(http::Response::new(WHOLE).into())
}

#[tokio::test]
async fn past_the_limit_a_call_goes_on_to_free_routes_where_there_are_any_and_costs_nothing() {
    let (url, asked, _) = provider().await;
    // Enough for one call, and for what it really uses.
    let limit = PROMPT + MOST + 5;
    let stack = |free_routes: bool, has_free: bool| {
        let budget = builder().tokens(limit);
        let budget = if free_routes { budget.free_routes() } else { budget }.build().unwrap();
        let account = budget.budget().clone();
        let paid = || LlmLayer::new(Provider::OpenAiCompatible).layer(reqwest::Client::new());
        let routes = FallbackLayer::builder().name("paid").route(Route::boxed("dear", paid()));
        let routes =
            if has_free { routes.route(Route::boxed("local", service_fn(local)).free()) } else { routes };
        let client = ServiceBuilder::new().layer(budget).layer(routes.build().unwrap()).service(paid());
        (BoxCloneSyncService::new(client), account)
    };
    let ask = |client: &Client, path: &str| client.clone().oneshot(request(&format!("{url}{path}")));

    let (client, budget) = stack(true, true);
    ask(&client, "/whole").await.unwrap().text().await.unwrap();
    assert_eq!((budget.spent(), asked.load(Relaxed)), (13, 1));
    for _ in 0..3 {
        let answer = ask(&client, "/stream").await.unwrap().text().await.unwrap();
        assert_eq!(answer, WHOLE, "the local model's");
    }
    assert_eq!((budget.spent(), budget.reserved(), asked.load(Relaxed)), (13, 0, 1));
    assert_eq!((budget.spend().calls(), budget.spend().denied()), (1, 0));

    // Without one, and where the budget does not know of one, nothing is sent.
    for (free_routes, has_free) in [(true, false), (false, true)] {
        let (client, budget) = stack(free_routes, has_free);
        ask(&client, "/whole").await.unwrap().text().await.unwrap();
        let before = asked.load(Relaxed);
        let refused = ask(&client, "/whole").await;
        assert!(refused.is_err());
        assert_eq!((budget.spent(), asked.load(Relaxed)), (13, before));
    }
}
