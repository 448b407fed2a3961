//! What a call through retries, hedges and routes spent on whom, as a book has it.

use std::{
    future::pending,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use budget_layer::{Book, BudgetLayer, Filter, Labels, Outcome, book::Part};
use bytes::Bytes;
use failsoft_core::{Backoff, BoxError, Jitter};
use fallback_layer::{FallbackLayer, Route};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use llm_layer::{LlmLayer, Provider};
use retry_layer::{HedgeLayer, RetryLayer};
use tower::{Layer as _, ServiceBuilder, ServiceExt as _, service_fn};

type Asked = Request<Full<Bytes>>;

const GOOD: &str = r#"{"choices":[{"message":{"content":"Paris"},"finish_reason":"stop"}],
    "usage":{"prompt_tokens":9,"completion_tokens":3}}"#;

fn ask() -> Asked {
    Request::new(Full::from(r#"{"model":"large","max_tokens":40,"messages":[]}"#))
}

fn response(status: u16, body: &'static str) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::from(body))
        .unwrap()
}

fn llm(name: &'static str) -> LlmLayer {
    LlmLayer::builder().provider(Provider::OpenAiCompatible).name(name).build().unwrap()
}

/// Route, outcome, part, attempts, tokens.
fn rows(book: &Book) -> Vec<(String, Outcome, Part, u64, u64)> {
    let rows = book.rows(&Filter::all()).into_iter();
    rows.map(|row| {
        let route = row.labels.route.map_or_else(String::new, |route| route.to_string());
        (route, row.outcome, row.part, row.amounts.attempts, row.amounts.tokens)
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_stand_on_their_route_and_the_answer_on_its_own() {
    let book = Book::new();
    let budget =
        BudgetLayer::builder().book(book.clone(), |_: &Asked| Labels::new().model("large")).build().unwrap();
    let account = budget.budget().clone();
    let busy = r#"{"error":{"type":"overloaded_error","message":"busy"},"usage":{"prompt_tokens":9,"completion_tokens":0}}"#;
    let first = service_fn(move |_: Asked| async move { Ok::<_, BoxError>(response(503, busy)) });
    let second = service_fn(|_: Asked| async { Ok::<_, BoxError>(response(200, GOOD)) });
    let retry = RetryLayer::builder()
        .repeat_unanswered(true)
        .backoff(Backoff::fixed(Duration::from_millis(1)).jitter(Jitter::None))
        .without_budget()
        .max_retries(2)
        .build()
        .unwrap();
    let routes = FallbackLayer::builder().route(Route::new("b", llm("b").layer(second))).build().unwrap();
    let service =
        ServiceBuilder::new().layer(budget).layer(routes).layer(retry).layer(llm("a")).service(first);
    let answer = service.oneshot(ask()).await.unwrap();
    answer.into_body().collect().await.unwrap();
    assert_eq!(
        rows(&book),
        [
            ("a".to_owned(), Outcome::Overloaded, Part::Failed, 3, 27),
            ("b".to_owned(), Outcome::Success, Part::Last, 1, 12),
        ]
    );
    assert_eq!((account.spent(), book.sum(&Filter::all()).calls), (39, 1));
}

// G98, V-H7: the loser of a hedge counts, once, on its own route, and with what may have been spent there.
#[tokio::test(start_paused = true)]
async fn the_loser_of_a_hedge_stands_as_overtaken() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let book = Book::new();
    let budget = BudgetLayer::builder().book(book.clone(), |_: &Asked| Labels::new()).build().unwrap();
    let account = budget.budget().clone();
    let model = service_fn(|_: Asked| async {
        if ASKED.fetch_add(1, Ordering::Relaxed) == 0 {
            pending::<()>().await;
        }
        Ok::<_, BoxError>(response(200, GOOD))
    });
    let hedge = HedgeLayer::builder()
        .delay(Duration::from_secs(1))
        .repeat_unanswered(true)
        .without_budget()
        .build()
        .unwrap();
    let service = ServiceBuilder::new().layer(budget).layer(hedge).layer(llm("a")).service(model);
    let answer = service.oneshot(ask()).await.unwrap();
    answer.into_body().collect().await.unwrap();
    let rows = rows(&book);
    let estimate = account.spent() - 12;
    assert!(estimate > 40, "the prompt, and 40 of the answer");
    assert_eq!(
        rows,
        [
            ("a".to_owned(), Outcome::Success, Part::Last, 1, 12),
            ("a".to_owned(), Outcome::Cancelled, Part::Overtaken, 1, estimate),
        ]
    );
}
