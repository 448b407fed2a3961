//! Real sockets: axum as the provider, reqwest as the client, and clients that hang up.

#![cfg(feature = "reqwest-013")]

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, extract::State, routing::post};
use budget_layer::{BudgetLayer, Estimate, Estimator, OneForAll, Outcome};
use bytes::Bytes;
use failsoft_core::{Call, End, Guard, Judge, Seen, Slot, Usage, Verdict, Watch};
use futures_util::stream;
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Each prompt has so many tokens.
const PROMPT: u64 = 7;

/// What the provider bills for each call: the prompt, and each token that it wrote.
type Bill = Arc<Mutex<HashMap<u64, u64>>>;

/// A provider that writes as many tokens as it is asked for, one at a time, and the usage at the end.
async fn provider() -> (String, Bill) {
    let bill = Bill::default();
    let router = Router::new().route("/", post(answer)).with_state(Arc::clone(&bill));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, bill)
}

async fn answer(State(bill): State<Bill>, asked: String) -> Body {
    let (id, tokens) = asked.split_once(' ').unwrap();
    let (id, tokens): (u64, u64) = (id.parse().unwrap(), tokens.parse().unwrap());
    bill.lock().unwrap().insert(id, PROMPT);
    Body::from_stream(stream::unfold(0, move |written| {
        let bill = Arc::clone(&bill);
        async move {
            if written > tokens {
                return None;
            }
            if written == tokens {
                return Some((Ok::<_, Infallible>(format!("usage {PROMPT} {tokens}\n")), written + 1));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            *bill.lock().unwrap().get_mut(&id).unwrap() += 1;
            Some((Ok("token\n".to_owned()), written + 1))
        }
    }))
}

/// What an llm-layer does: counts what it sees, and believes the provider's own usage when it comes.
struct ReadUsage {
    slot: Option<Slot>,
    line: Vec<u8>,
    seen: u64,
}

impl ReadUsage {
    fn line(&mut self) {
        let line = String::from_utf8(std::mem::take(&mut self.line)).unwrap();
        let usage = match line.split(' ').collect::<Vec<_>>()[..] {
            ["usage", input, output] => {
                Usage { input: input.parse().ok(), output: output.parse().ok(), ..Usage::default() }
            }
            _ => {
                self.seen += 1;
                Usage { output: Some(self.seen), ..Usage::default() }
            }
        };
        if let Some(slot) = &mut self.slot {
            slot.set(&usage);
        }
    }
}

impl Judge for ReadUsage {
    fn data(&mut self, bytes: &[u8]) -> Seen {
        for &byte in bytes {
            if byte == b'\n' { self.line() } else { self.line.push(byte) }
        }
        Seen::Content
    }

    fn end(self, _: End<'_>) -> Verdict {
        Verdict::SUCCESS
    }
}

struct NoGuard;

impl Guard for NoGuard {
    fn settle(&mut self, _: Verdict) {}
}

/// The estimate is what the provider will write: `id tokens`.
#[derive(Clone)]
struct Exact;

impl Estimator<reqwest::Request> for Exact {
    fn estimate(&self, request: &reqwest::Request) -> Estimate {
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap();
        let tokens = std::str::from_utf8(body).unwrap().split_once(' ').unwrap().1.parse().unwrap();
        Estimate::parts(PROMPT, tokens)
    }
}

fn post_to(client: &reqwest::Client, url: &str, id: u64, tokens: u64) -> reqwest::Request {
    client.post(url).body(format!("{id} {tokens}")).build().unwrap()
}

macro_rules! service {
    ($layer:expr, $client:expr) => {{
        let client = $client.clone();
        $layer.layer(service_fn(move |request: reqwest::Request| {
            let (client, slot) = (client.clone(), Call::slot());
            async move {
                let response = client.execute(request).await?;
                let reader = ReadUsage { slot, line: Vec::new(), seen: 0 };
                Ok::<_, reqwest::Error>(Watch::<reqwest::Response>::follow(reader, response, NoGuard))
            }
        }))
    }};
}

/// So many calls at once, against a limit for so many.
const CALLS: u64 = 1_000;
const ENOUGH_FOR: u64 = 100;

/// Each answer has so many tokens.
const ANSWER: u64 = 12;
const LIMIT: u64 = ENOUGH_FOR * (PROMPT + ANSWER);

/// Makes all calls at once; of each third, whoever calls hangs up. How many were admitted.
async fn at_once(layer: BudgetLayer<OneForAll, Exact>, url: String, third: u64) -> u64 {
    let client = reqwest::Client::new();
    let service = service!(layer, client);
    let calls: Vec<_> = (0..CALLS)
        .map(|id| {
            let call = service.clone().oneshot(post_to(&client, &url, id, ANSWER));
            tokio::spawn(async move {
                let Ok(mut response) = call.await else { return false };
                if id % 3 == third {
                    // Before the last of its tokens.
                    for _ in 0..id % 5 {
                        response.chunk().await.unwrap();
                    }
                    return true;
                }
                assert!(response.text().await.unwrap().contains("usage"));
                true
            })
        })
        .collect();
    let mut admitted = 0;
    for call in calls {
        admitted += u64::from(call.await.unwrap());
    }
    admitted
}

// P30, G97, V-H4: of a thousand streams at once there was enough for a hundred; a third hung up and paid nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_third_of_the_clients_hanging_up_the_ledger_is_the_bill_and_at_least_the_bill_of_what_was_cut()
{
    let (url, bill) = provider().await;
    let layer = BudgetLayer::builder().tokens(LIMIT).estimator(Exact).charge_cut_in_full().build().unwrap();
    let budget = layer.budget().clone();
    let admitted = at_once(layer, url, 0).await;
    let spend = budget.spend();
    assert_eq!((admitted, spend.calls(), spend.denied()), (ENOUGH_FOR, ENOUGH_FOR, CALLS - ENOUGH_FOR));
    assert_eq!(
        (budget.reserved(), budget.spent()),
        (0, LIMIT),
        "each settled once, and none above its estimate"
    );
    let bill = bill.lock().unwrap();
    let billed = |cut: bool| {
        bill.iter().filter(|(id, _)| (*id % 3 == 0) == cut).map(|(_, tokens)| tokens).sum::<u64>()
    };
    // One that hangs up when all has come already is complete.
    let (complete, cut) = (spend.of(Outcome::Success), spend.of(Outcome::Cancelled));
    assert_eq!(complete.calls + cut.calls, ENOUGH_FOR);
    assert!(
        cut.calls > 0
            && cut.spent >= billed(true)
            && complete.spent + cut.spent >= billed(true) + billed(false)
    );
    assert_eq!(complete.spent, complete.calls * (PROMPT + ANSWER));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_streams_at_once_exactly_those_are_admitted_for_which_there_is_enough() {
    let (url, bill) = provider().await;
    let layer = BudgetLayer::builder().tokens(LIMIT).estimator(Exact).build().unwrap();
    let budget = layer.budget().clone();
    let admitted = at_once(layer, url, 3).await;
    assert_eq!((admitted, budget.remaining(), budget.reserved()), (ENOUGH_FOR, 0, 0));
    assert_eq!(budget.spent(), bill.lock().unwrap().values().sum::<u64>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_option_a_client_that_hangs_up_pays_for_what_it_saw() {
    let (url, _) = provider().await;
    let client = reqwest::Client::new();
    let layer = BudgetLayer::builder().estimator(Exact).build().unwrap();
    let budget = layer.budget().clone();
    let mut response = service!(layer, client).oneshot(post_to(&client, &url, 1, 5_000)).await.unwrap();
    assert_eq!(response.url().as_str(), url);
    let mut seen = Vec::new();
    while seen.len() < 3 * "token\n".len() {
        seen.extend_from_slice(&response.chunk().await.unwrap().unwrap_or_else(Bytes::new));
    }
    drop(response);
    let tokens = (seen.len() / "token\n".len()) as u64;
    assert!(budget.spent() >= PROMPT + tokens && budget.spent() < PROMPT + 5_000, "{}", budget.spent());
    assert_eq!(budget.reserved(), 0);
}
