//! How a provider streams an answer: server-sent events with a role, pieces of text or of a tool call's arguments, a finish
//! reason, what it cost, and `[DONE]`; or less than that, where the script says so.

use crate::books::{Ended, Tab};
use crate::clock::Day;
use crate::model::{Completion, Usage, tokens};
use crate::script::Break;
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Into so many pieces the text of an answer is cut.
const PIECES: usize = 8;
/// Between two of them, in the day's time.
const GAP: Duration = Duration::from_millis(80);
/// Longer than anybody here waits for a first word.
const LATE: Duration = Duration::from_secs(60);
/// Between two keepalives.
const PING: Duration = Duration::from_secs(1);

/// What a provider does next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    Send(String),
    /// Sends content, for so many tokens.
    Tell(String, u64),
    Wait(Duration),
    /// The same again and again.
    Drip(&'static str, Duration),
    /// Nothing any more, and no end.
    Stall,
    Cut,
    Ended(Ended),
}

/// The body of a streamed answer.
pub(crate) fn body(acts: Vec<Act>, day: Day, tab: Tab) -> Body {
    let frames = stream::unfold((VecDeque::from(acts), tab), move |(mut acts, mut tab)| async move {
        loop {
            let frame = match acts.pop_front()? {
                Act::Send(event) => Ok(Bytes::from(event)),
                Act::Tell(event, tokens) => {
                    tab.add(tokens);
                    Ok(Bytes::from(event))
                }
                Act::Wait(time) => {
                    day.sleep(time).await;
                    continue;
                }
                Act::Drip(event, every) => {
                    day.sleep(every).await;
                    acts.push_front(Act::Drip(event, every));
                    Ok(Bytes::from_static(event.as_bytes()))
                }
                Act::Stall => std::future::pending().await,
                Act::Cut => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
                Act::Ended(ended) => {
                    tab.end(ended);
                    continue;
                }
            };
            return Some((frame, (acts, tab)));
        }
    });
    Body::from_stream(frames)
}

/// What there is to do for an answer. `None` for what is no completion: a page, an error, a list.
pub(crate) fn acts(completion: &Completion, usage: Usage, fault: Option<Break>) -> Option<Vec<Act>> {
    let whole: Value = serde_json::from_str(&completion.body).ok()?;
    let choice = whole.pointer("/choices/0")?;
    let message = choice.get("message")?;
    let chunk = |choices: Value, spent: Value| {
        let mut chunk = json!({
            "id": whole["id"], "object": "chat.completion.chunk", "created": whole["created"],
            "model": whole["model"], "choices": choices,
        });
        if usage == Usage::Told {
            chunk["usage"] = spent;
        }
        event(&chunk)
    };
    let delta = |delta: Value, finish: Value| {
        let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        chunk(choice, Value::Null)
    };

    let mut acts = vec![Act::Send(delta(json!({"role": "assistant", "content": ""}), Value::Null))];
    // The prompt is on the bill from the first content on.
    let mut due = completion.prompt_tokens;
    let mut left = completion.completion_tokens;
    let mut tell = |delta: String, bytes: usize| {
        let produced = tokens(bytes).min(left);
        left -= produced;
        Act::Tell(delta, produced + std::mem::take(&mut due))
    };
    let mut content = Vec::new();
    match message.pointer("/tool_calls/0") {
        Some(call) => {
            let name = &call["function"]["name"];
            let function = json!({"name": name, "arguments": ""});
            let head = json!([{"index": 0, "id": call["id"], "type": "function", "function": function}]);
            let bytes = name.as_str().unwrap_or_default().len();
            content.push(tell(delta(json!({"tool_calls": head}), Value::Null), bytes));
            for piece in pieces(call.pointer("/function/arguments")) {
                let part = json!([{"index": 0, "function": {"arguments": piece}}]);
                content.push(tell(delta(json!({"tool_calls": part}), Value::Null), piece.len()));
            }
        }
        None => {
            for piece in pieces(message.get("content")) {
                content.push(tell(delta(json!({"content": piece}), Value::Null), piece.len()));
            }
        }
    }

    let middle = content.len().div_ceil(2);
    let told = match fault {
        Some(Break::Drip | Break::ErrorBefore) => 0,
        Some(Break::Stall | Break::Cut | Break::ErrorAfter | Break::NoEnd) => middle,
        Some(Break::SlowFirst) | None => content.len(),
    };
    if fault == Some(Break::SlowFirst) {
        acts.push(Act::Wait(LATE));
    }
    for tell in content.into_iter().take(told) {
        acts.push(tell);
        acts.push(Act::Wait(GAP));
    }
    let error = || {
        let message = "The server had an error while processing your request. Sorry about that!";
        event(&json!({"error": {"message": message, "type": "server_error", "param": null, "code": null}}))
    };
    match fault {
        Some(Break::Drip) => acts.push(Act::Drip(": ping\n\n", PING)),
        Some(Break::Stall) => acts.push(Act::Stall),
        Some(Break::Cut) => acts.push(Act::Cut),
        Some(Break::ErrorBefore | Break::ErrorAfter) => {
            acts.extend([Act::Ended(Ended::Untold), Act::Send(error())]);
        }
        Some(Break::NoEnd) => acts.push(Act::Ended(Ended::Untold)),
        Some(Break::SlowFirst) | None => {
            acts.push(Act::Send(delta(json!({}), choice["finish_reason"].clone())));
            // What was rounded off piece by piece, and all of it where nothing was said.
            acts.push(Act::Tell(String::new(), left + due));
            match usage {
                Usage::Told => {
                    acts.push(Act::Ended(Ended::Told));
                    acts.push(Act::Send(chunk(json!([]), whole["usage"].clone())));
                }
                Usage::Untold => acts.push(Act::Ended(Ended::Untold)),
            }
            acts.push(Act::Send("data: [DONE]\n\n".into()));
        }
    }
    Some(acts)
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// All that this model says is ASCII.
fn pieces(text: Option<&Value>) -> Vec<&str> {
    let text = text.and_then(Value::as_str).unwrap_or_default();
    let length = text.len().div_ceil(PIECES).max(1);
    (0..text.len()).step_by(length).filter_map(|at| text.get(at..text.len().min(at + length))).collect()
}
