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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Conversation, Job, Step};
    use crate::model::Question;
    use crate::script::Wrong;

    fn question(step: Step) -> Question {
        let job = Job::draw(9, 0, 1);
        let mut conversation = Conversation::about(&job);
        if step != Step::Plan {
            conversation.planned(&json!({"weight_kg": job.weight()}).to_string());
        }
        if step == Step::Summary {
            conversation.called(&Default::default(), &json!({"price_eur": job.price()}));
        }
        let request = conversation.request(step, &"http://127.0.0.1:1/".parse().unwrap());
        Question::read(request.body().and_then(|body| body.as_bytes()).unwrap()).unwrap()
    }

    /// What is sent, and what is billed for it.
    fn sent(acts: &[Act]) -> (String, u64) {
        let mut sent = (String::new(), 0);
        for act in acts {
            match act {
                Act::Send(event) => sent.0.push_str(event),
                Act::Tell(event, tokens) => {
                    sent.0.push_str(event);
                    sent.1 += tokens;
                }
                _ => {}
            }
        }
        sent
    }

    #[test]
    fn a_whole_stream_says_all_of_it_and_bills_what_it_says() {
        for step in [Step::Tool, Step::Summary] {
            let question = question(step);
            assert_eq!(question.stream, Some(Usage::Told));
            let whole = question.answer(1);
            let acts = acts(&whole, Usage::Told, None).unwrap();
            let (text, billed) = sent(&acts);
            assert_eq!(billed, whole.total_tokens());
            let total = format!("\"total_tokens\":{billed}");
            let events: Vec<_> = text.split_terminator("\n\n").collect();
            let [role, .., finish, usage, done] = events[..] else { panic!("{text}") };
            assert!(role.contains("\"role\":\"assistant\"") && role.contains("\"usage\":null"), "{role}");
            assert!(finish.contains("\"finish_reason\":\"") && !finish.contains("content"), "{finish}");
            assert!(usage.contains("\"choices\":[]") && usage.contains(&total), "{usage}");
            assert_eq!(done, "data: [DONE]");
            assert!(acts.contains(&Act::Ended(Ended::Told)));
        }
    }

    #[test]
    fn a_stream_that_was_not_asked_for_its_usage_does_not_tell_it() {
        let whole = question(Step::Summary).answer(1);
        let acts = acts(&whole, Usage::Untold, None).unwrap();
        let (text, billed) = sent(&acts);
        assert_eq!((billed, text.contains("usage")), (whole.total_tokens(), false));
        assert!(acts.contains(&Act::Ended(Ended::Untold)) && text.ends_with("data: [DONE]\n\n"));
    }

    #[test]
    fn each_break_comes_where_it_should() {
        let whole = question(Step::Summary).answer(1);
        for (kind, has_content, last) in [
            (Break::SlowFirst, true, None),
            (Break::Drip, false, Some(Act::Drip(": ping\n\n", PING))),
            (Break::ErrorBefore, false, None),
            (Break::Stall, true, Some(Act::Stall)),
            (Break::Cut, true, Some(Act::Cut)),
            (Break::ErrorAfter, true, None),
            (Break::NoEnd, true, Some(Act::Ended(Ended::Untold))),
        ] {
            let acts = acts(&whole, Usage::Told, Some(kind)).unwrap();
            let (text, billed) = sent(&acts);
            assert_eq!(billed > 0, has_content, "{kind:?}");
            assert_eq!(text.contains("[DONE]"), kind == Break::SlowFirst, "{kind:?}");
            assert_eq!(text.contains("server_error"), matches!(kind, Break::ErrorBefore | Break::ErrorAfter));
            assert_eq!(kind == Break::SlowFirst, acts[1] == Act::Wait(LATE));
            if let Some(last) = last {
                assert_eq!(acts.last(), Some(&last));
            }
        }
    }

    #[test]
    fn what_is_no_completion_is_not_streamed() {
        let question = question(Step::Summary);
        for wrong in
            [Wrong::NotACompletion, Wrong::ErrorInside, Wrong::NoChoices, Wrong::HtmlPage, Wrong::Null]
        {
            assert_eq!(acts(&question.wrong_answer(1, wrong), Usage::Told, None), None, "{wrong:?}");
        }
        let cut = acts(&question.wrong_answer(1, Wrong::CutAtLength), Usage::Told, None).unwrap();
        assert!(sent(&cut).0.contains("\"finish_reason\":\"length\""));
    }
}
