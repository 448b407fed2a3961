//! Ready-made adapters for the bodies of chat models.
#![cfg(feature = "http")]

use std::{
    pin::pin,
    sync::{Arc, Mutex},
};

use crate::support::traced;
use bytes::Bytes;
use failsoft_core::{BoxError, Class, Fault, Insight, Verdict};
use fallback_layer::{
    FallbackLayer, Route,
    adapt::chat::{self, Edit},
};
use futures_util::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};

#[track_caller]
#[allow(clippy::needless_pass_by_value, reason = "made in the call")]
fn edited(edit: impl Edit, json: &str) -> String {
    edit.edit(json).unwrap().unwrap_or_else(|| "unchanged".to_owned())
}

#[test]
fn another_model_leaves_all_else_byte_for_byte() {
    let body = "{ \"seed\": 12345678901234567890123,\n \"z\":1.0, \"model\" : \"large\", \"tools\": [{\"b\":1,\"a\":{\"model\":\"x\"}}] , \"unheard\":null }";
    assert_eq!(edited(chat::model("small \"1\""), body), body.replace("\"large\"", "\"small \\\"1\\\"\""));
    assert_eq!(edited(chat::model("large"), body), "unchanged");
    assert_eq!(edited(chat::model("m"), r#" {"messages":[]}"#), r#" {"model":"m","messages":[]}"#);
    assert_eq!(edited(chat::model("m"), "{ }"), r#"{"model":"m" }"#);
    assert_eq!(edited(chat::model("m"), r#"{"model":null}"#), r#"{"model":"m"}"#);
    // Written otherwise it is another text of the same name.
    assert_eq!(edited(chat::model("m"), r#"{"mode\u006c":"x"}"#), r#"{"mode\u006c":"m"}"#);
    for bad in ["[]", "\"model\"", "", "{", r#"{"model":"a","model":"b"}"#, "{\"a\":01}"] {
        chat::model("m").edit(bad).unwrap_err();
    }
}

const CHAT: &str = r#"{"messages":[{"role":"system","content":"S"}, {"role":"user","content":"1"}, {"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}, {"role":"tool","tool_call_id":"c1","content":"r"}, {"role":"assistant","content":"2"}, {"role":"user","content":"3"}],"n":1}"#;

#[test]
fn the_last_messages_are_left_with_the_instructions_and_no_result_without_its_call() {
    let prune = |messages| edited(chat::prune().messages(messages), CHAT);
    assert_eq!(prune(5), "unchanged");
    let last = r#"{"messages":[{"role":"system","content":"S"}, {"role":"user","content":"3"}],"n":1}"#;
    for few in [4, 3, 2, 1] {
        assert_eq!(prune(few), last, "the turn with the tool is left out as a whole");
    }
    let error = chat::prune().messages(0).edit(CHAT).unwrap_err();
    assert_eq!(Fault::find(&*error).unwrap().class(), Class::ContextLength);
    // Nobody says how much: nothing is pruned.
    assert_eq!(edited(chat::prune(), CHAT), "unchanged");
    assert_eq!(edited(chat::prune().messages(1), r#"{"prompt":"x"}"#), "unchanged");
    assert_eq!(edited(chat::prune().messages(0), r#"{"messages":[]}"#), "unchanged");

    // By tokens, instructions among them.
    let long = |text: &str| {
        let turn = |role: &str| format!(r#"{{"role":"{role}","content":"{text}"}}"#);
        format!(r#"{{"messages":[{},{},{}]}}"#, turn("user"), turn("assistant"), turn("user"))
    };
    let body = long(&"word ".repeat(100));
    assert_eq!(edited(chat::prune().tokens(1_000), &body), "unchanged");
    assert_eq!(edited(chat::prune().tokens(300), &body).matches("role").count(), 1);
    chat::prune().tokens(100).edit(&body).unwrap_err();
}

#[test]
fn other_dialects_are_pruned_where_their_turns_begin() {
    let anthropic = r#"{"system":"S","messages":[{"role":"user","content":"1"},{"role":"assistant","content":[{"type":"tool_use","id":"t"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]},{"role":"assistant","content":"2"},{"role":"user","content":[{"type":"text","text":"3"}]}]}"#;
    assert_eq!(
        edited(chat::prune().messages(3), anthropic),
        r#"{"system":"S","messages":[{"role":"user","content":[{"type":"text","text":"3"}]}]}"#
    );
    let gemini = r#"{"contents":[{"parts":[{"text":"1"}]},{"role":"model","parts":[{"functionCall":{}}]},{"role":"user","parts":[{"functionResponse":{}}]},{"role":"model","parts":[]},{"role":"user","parts":[{"text":"3"}]}]}"#;
    assert_eq!(
        edited(chat::prune().messages(3), gemini),
        r#"{"contents":[{"role":"user","parts":[{"text":"3"}]}]}"#
    );
    let responses = r#"{"input":[{"role":"developer","content":"D"},{"role":"user","content":"1"},{"type":"function_call","call_id":"c"},{"type":"function_call_output","call_id":"c"},{"type":"message","role":"user","content":"3"}]}"#;
    assert_eq!(
        edited(chat::prune().messages(2), responses),
        r#"{"input":[{"role":"developer","content":"D"},{"type":"message","role":"user","content":"3"}]}"#
    );
    assert_eq!(edited(chat::prune().messages(2), r#"{"input":"text"}"#), "unchanged");
}

#[test]
fn examples_stand_before_the_conversation_in_the_words_of_its_dialect() {
    let shots = || chat::examples().shot("q", "a\n");
    let turns = r#"{"role":"user","content":"q"},{"role":"assistant","content":"a\u000a"}"#;
    for (body, wanted) in [
        (r#"{"messages":[]}"#, format!(r#"{{"messages":[{turns}]}}"#)),
        (r#"{"messages":[ {"role":"user"}]}"#, format!(r#"{{"messages":[ {turns},{{"role":"user"}}]}}"#)),
        (
            r#"{"messages":[{"role":"system"}, {"role":"user"}]}"#,
            format!(r#"{{"messages":[{{"role":"system"}}, {turns},{{"role":"user"}}]}}"#),
        ),
        (r#"{"messages":[{"role":"system"} ]}"#, format!(r#"{{"messages":[{{"role":"system"}},{turns} ]}}"#)),
        (r#"{"input":"x"}"#, format!(r#"{{"input":[{turns},{{"role":"user","content":"x"}}]}}"#)),
        (
            r#"{"contents":[{"parts":[]}]}"#,
            r#"{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":"a\u000a"}]},{"parts":[]}]}"#.to_owned(),
        ),
        (r#"{"prompt":"x"}"#, "unchanged".to_owned()),
        (r#"{"messages":7}"#, "unchanged".to_owned()),
    ] {
        assert_eq!(edited(shots(), body), wanted, "{body}");
    }
    assert_eq!(edited(chat::examples(), r#"{"messages":[]}"#), "unchanged");
}

#[test]
fn ids_of_tools_are_translated_in_calls_and_results_and_nowhere_else() {
    let other = || chat::tool_ids(|id: &str| format!("x{id}"));
    for body in [
        r#"{"messages":[{"tool_calls":[{"id":"A","type":"function","function":{"arguments":"{\"id\":\"k\"}"}}]},{"role":"tool","tool_call_id":"A","content":"call_id"}]}"#,
        r#"{"messages":[{"content":[{"type":"tool_use","id":"A","input":{"type":"tool_use","id":"k","call_id":"k"}}]},{"content":[{"type":"tool_result","tool_use_id":"A","content":[{"id":"k"}]}]}]}"#,
        r#"{"input":[{"type":"function_call","call_id":"A","id":"fc_k"},{"type":"function_call_output","call_id":"A"}]}"#,
        r#"{"contents":[{"parts":[{"functionCall":{"id":"A","args":{"id":"k"}}}]}]}"#,
        r#"{"id":"k","choices":[{"message":{"tool_calls":[{"id":"A"},{"id":"B"}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"A"}]}}]}"#,
        r#"{"id":"k","role":"assistant","content":[{"type":"tool_use","id":"A"}]}"#,
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"A"}}"#,
        r#"{"output":[{"type":"function_call","id":"k","call_id":"A"}]}"#,
        r#"{"type":"response.output_item.done","item":{"id":"k","call_id":"A"}}"#,
        r#"{"response":{"id":"k","output":[{"call_id":"A"}]}}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"id":"A"}}]}}]}"#,
    ] {
        assert_eq!(edited(other(), body), body.replace("\"A\"", "\"xA\"").replace("\"B\"", "\"xB\""));
    }
    assert_eq!(
        edited(other(), r#"{"messages":[{"tool_calls":[{"id":7}],"tool_call_id":null}]}"#),
        "unchanged"
    );
    let calls = r#"{"messages":[{"tool_calls":[{"id":"a.b"},{"id":"a:b"}]}]}"#;
    chat::tool_ids(chat::plain_tool_id).edit(calls).expect_err("two became one");
    let short = edited(chat::tool_ids(chat::short_tool_id), calls);
    assert_eq!(short, edited(chat::tool_ids(chat::short_tool_id), calls), "each time the same");
    assert_eq!(edited(chat::tool_ids(chat::short_tool_id), &short), "unchanged", "they fit already");
}

proptest! {
    #[test]
    fn short_ids_are_of_nine_letters_and_plain_ones_have_nothing_odd(a in "\\PC{0,24}", b in "\\PC{0,24}") {
        let [short, other] = [&a, &b].map(|id| chat::short_tool_id(id));
        prop_assert!(short.len() == 9 && short.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        prop_assert_eq!(short == other, a == b);
        let plain = chat::plain_tool_id(&a);
        prop_assert!(!plain.is_empty() && plain.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
    }

    #[test]
    fn no_body_makes_an_edit_panic_and_what_comes_out_is_json(
        body in r#"[{}\[\]",:a0]{0,12}|\{("(messages|input|contents|model|choices|content)":(\[(\{("(role|type|content|tool_calls|id|parts)":("user"|"tool_result"|\[\{"id":"a"\}\]|1)){0,1}\},?){0,3}\]|"x"|7|null),?){0,3}\}"#
    ) {
        let edit = (
            chat::model("m"),
            chat::prune().messages(1).tokens(40),
            chat::examples().shot("q", "a"),
            chat::tool_ids(chat::short_tool_id),
            chat::answered_model("n"),
        );
        if let Ok(Some(changed)) = edit.edit(&body) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok(), "{body}");
            prop_assert!(serde_json::from_str::<serde_json::Value>(&changed).is_ok(), "{body} became {changed}");
        }
    }
}

type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Asks a fallback whose second route renames the model, and whose third takes all as it is. What each saw, and the trail.
async fn asked(request: Request<String>) -> (Vec<(HeaderMap, String)>, Vec<(HeaderMap, String)>, String) {
    let seen: [Seen; 2] = Default::default();
    let route = |place: usize, answers: bool| {
        let seen = seen[place].clone();
        service_fn(move |request: Request<String>| {
            let (parts, body) = request.into_parts();
            seen.lock().unwrap().push((parts.headers, body));
            std::future::ready(if answers {
                Ok(Response::new("yes".to_owned()))
            } else {
                Err::<_, BoxError>("no".into())
            })
        })
    };
    let layer = FallbackLayer::builder()
        .name("a")
        .route(Route::new("b", route(0, true)).edit_request(chat::model("small")).into_boxed())
        .route(Route::new("c", route(1, true)).into_boxed())
        .build()
        .unwrap();
    let down = service_fn(|_: Request<String>| async { Err::<Response<String>, BoxError>("down".into()) });
    let (answer, trail) = traced(layer.layer(down).oneshot(request)).await;
    answer.unwrap();
    let [renamed, plain] = seen.map(|seen| seen.lock().unwrap().clone());
    (renamed, plain, trail)
}

const LARGE: &str = r#"{"model":"large"}"#;

#[tokio::test]
async fn headers_that_describe_the_body_are_put_right() {
    let request = || {
        Request::post("/v1/chat/completions").header("content-length", "17").header("idempotency-key", "k")
    };
    let (renamed, plain, _) = asked(request().body(LARGE.to_owned()).unwrap()).await;
    let (headers, body) = &renamed[0];
    assert_eq!((body.as_str(), headers["content-length"].to_str().unwrap()), (r#"{"model":"small"}"#, "17"));
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    assert!(key.starts_with("k-") && key.len() == 10, "{key}");
    assert!(plain.is_empty());
    // The same again has the same key, another one another.
    let (again, ..) = asked(request().body(LARGE.to_owned()).unwrap()).await;
    assert_eq!(again[0].0["idempotency-key"], *key);
    let other = r#"{"model":"largest","n":1}"#;
    let (other, ..) = asked(request().header("x", "y").body(other.to_owned()).unwrap()).await;
    assert_ne!(other[0].0["idempotency-key"], *key);
    assert_eq!(other[0].0["content-length"], other[0].1.len().to_string());
    // Where none was set the client sets it.
    let (bare, ..) = asked(Request::new(LARGE.to_owned())).await;
    assert!(bare[0].0.is_empty());
}

#[tokio::test]
async fn a_request_that_must_be_changed_and_cannot_be_skips_the_route() {
    let with =
        |name: &str, value: &str| Request::post("/").header(name, value).body(LARGE.to_owned()).unwrap();
    let presigned = Request::post("/?X-Amz-Signature=1").body(LARGE.to_owned()).unwrap();
    for request in [
        with("authorization", "AWS4-HMAC-SHA256 Credential=a"),
        with("content-digest", "sha-256=:47DE=:"),
        with("x-amz-content-sha256", "e3b0"),
        with("content-encoding", "gzip"),
        presigned,
        Request::new("[]".to_owned()),
        Request::new("no json".to_owned()),
        Request::new(r#"{"model":"a","model":"b"}"#.to_owned()),
    ] {
        let sent = (request.headers().clone(), request.body().clone());
        let (renamed, plain, trail) = asked(request).await;
        assert!(renamed.is_empty(), "{trail}");
        assert_eq!(plain, [sent], "the next one has it as it came");
        assert_eq!(trail, "a unknown (next_route) > b invalid (skipped) > c success (answered)");
    }
}

#[tokio::test]
async fn a_request_without_a_body_or_without_anything_to_change_passes() {
    for request in [
        Request::get("/v1/models").body(String::new()).unwrap(),
        Request::post("/")
            .header("content-digest", "sha-256=:47DE=:")
            .body(r#"{"model":"small"}"#.to_owned())
            .unwrap(),
    ] {
        let sent = (request.headers().clone(), request.body().clone());
        let (renamed, _, trail) = asked(request).await;
        assert_eq!(renamed, [sent], "{trail}");
    }
}

type Body = UnsyncBoxBody<Bytes, BoxError>;

fn answer(content_type: &str, pieces: Vec<Result<&'static str, &'static str>>) -> Response<Body> {
    let pieces = pieces.into_iter().map(|piece| {
        piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))).map_err(BoxError::from)
    });
    let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
    Response::builder().header("content-type", content_type).body(body).unwrap()
}

/// What a caller of a route sees whose answers are edited, and how the answer ends.
async fn seen(answer: Response<Body>) -> Result<(http::response::Parts, String, Option<String>), BoxError> {
    let answer = Mutex::new(Some(answer));
    let model = service_fn(move |(): ()| {
        std::future::ready(Ok::<_, BoxError>(answer.lock().unwrap().take().unwrap()))
    });
    let edit = (chat::answered_model("large"), chat::tool_ids(|id: &str| format!("call_{id}")));
    let (parts, mut body) = chat::response(edit).layer(model).oneshot(()).await?.into_parts();
    let (mut text, mut error) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => text.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(failed) => error = Some(failed.to_string()),
        }
    }
    Ok((parts, String::from_utf8(text).unwrap(), error))
}

const SMALL: &str = r#"{"model":"small","x":1.0,"choices":[{"message":{"tool_calls":[{"id":"t"}]}}]}"#;

#[tokio::test]
async fn a_whole_answer_comes_back_under_the_names_that_were_asked_for() {
    let mut whole = answer("application/json; charset=utf-8", vec![Ok(&SMALL[..20]), Ok(&SMALL[20..])]);
    whole.headers_mut().insert("content-length", SMALL.len().into());
    let insight = Insight::new();
    insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
    whole.extensions_mut().insert(insight);
    let (parts, text, error) = seen(whole).await.unwrap();
    assert_eq!(text, SMALL.replace("small", "large").replace("\"t\"", "\"call_t\""));
    assert_eq!(parts.headers["content-length"], text.len().to_string());
    assert!(error.is_none() && Insight::of(&parts.extensions).is_some());
}

#[tokio::test]
async fn a_streamed_answer_is_edited_event_by_event_as_it_comes() {
    let mut stream = answer(
        "text/event-stream",
        vec![
            Ok("data: {\"model\":\"sm"),
            Ok("all\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"t\"}]}}]}\n"),
            Ok("\nevent: message_start\ndata: {\"message\":{\"model\":\"small\"}}\n\ndata: [DONE]\n\n"),
        ],
    );
    stream.headers_mut().insert("content-length", 999.into());
    let (parts, text, error) = seen(stream).await.unwrap();
    assert_eq!(
        text,
        "data: {\"model\":\"large\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"call_t\"}]}}]}\n\n\
         event: message_start\ndata: {\"message\":{\"model\":\"large\"}}\n\ndata: [DONE]\n\n"
    );
    assert!(error.is_none() && !parts.headers.contains_key("content-length"));
    // One that breaks off does so, with all that came before.
    let cut =
        answer("text/event-stream", vec![Ok("data: {\"model\":\"small\"}\n\ndata: {\"mo"), Err("reset")]);
    let (_, text, error) = seen(cut).await.unwrap();
    assert_eq!(
        (text.as_str(), error.as_deref()),
        ("data: {\"model\":\"large\"}\n\ndata: {\"mo", Some("reset"))
    );
    let lines = answer("application/x-ndjson", vec![Ok("{\"model\":\"small\"}\n{\"model\":\"small\"}\n")]);
    assert_eq!(seen(lines).await.unwrap().1, "{\"model\":\"large\"}\n{\"model\":\"large\"}\n");
    // The last line need not have an end.
    let lines =
        answer("application/x-ndjson", vec![Ok("{\"model\":\"small\"}\n{\"model\":"), Ok("\"small\"}")]);
    assert_eq!(seen(lines).await.unwrap().1, "{\"model\":\"large\"}\n{\"model\":\"large\"}");
    let events = answer("text/event-stream", vec![Ok("data: {\"model\":\"small\"}")]);
    assert_eq!(seen(events).await.unwrap().1, "data: {\"model\":\"large\"}");
}

/// As Gemini streams where nobody asks for events.
#[tokio::test]
async fn an_answer_that_is_an_array_is_edited_element_by_element_as_it_comes() {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let pieces = futures_util::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let frames = pieces.map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::from(piece))));
    let streamed = Response::builder().header("content-type", "application/json; charset=UTF-8");
    let streamed = streamed.body(StreamBody::new(frames).boxed_unsync()).unwrap();
    let streamed = Mutex::new(Some(streamed));
    let model = service_fn(move |(): ()| {
        std::future::ready(Ok::<_, BoxError>(streamed.lock().unwrap().take().unwrap()))
    });
    let mut asked = pin!(chat::response(chat::answered_model("large")).layer(model).oneshot(()));
    send.send(" \r\n").unwrap();
    assert!(asked.as_mut().now_or_never().is_none(), "nobody knows yet what it is");
    send.send("[{\"modelVersion\":").unwrap();
    let mut body = asked.await.unwrap().into_body();
    let mut next = async || body.frame().await.map(|frame| frame.unwrap().into_data().unwrap());
    assert_eq!(next().await.unwrap(), " \r\n");
    assert_eq!(next().await.unwrap(), "[");
    send.send("\"small\", \"candidates\":[]}").unwrap();
    assert_eq!(next().await.unwrap(), "{\"modelVersion\":\"large\", \"candidates\":[]}");
    send.send(",\r\n{\"modelVersion\":\"small\"}]").unwrap();
    drop(send);
    assert_eq!(next().await.unwrap(), ",\r\n{\"modelVersion\":\"large\"}]");
    assert!(next().await.is_none());
    // One that is there at once is edited as well, and its length is put right.
    let mut whole =
        answer("application/json", vec![Ok("[{\"model\":\"small\"},"), Ok("{\"model\":\"small!\"}]")]);
    whole.headers_mut().insert("content-length", 38.into());
    let (parts, text, _) = seen(whole).await.unwrap();
    assert_eq!(text, "[{\"model\":\"large\"},{\"model\":\"large\"}]");
    assert_eq!(parts.headers["content-length"], text.len().to_string());
}

#[tokio::test]
async fn all_other_answers_pass_byte_for_byte() {
    let json = || answer("application/json", vec![Ok(SMALL)]);
    let with = |name: &'static str, value: &'static str| {
        let mut answer = json();
        answer.headers_mut().insert(name, value.parse().unwrap());
        answer
    };
    let mut failed = json();
    *failed.status_mut() = http::StatusCode::BAD_GATEWAY;
    let long: &'static str = format!("{{\"model\":\"small\",\"t\":\"{}\"}}", "t".repeat(9 << 20)).leak();
    for (answer, text) in [
        (failed, SMALL),
        (with("content-encoding", "gzip"), SMALL),
        (with("content-digest", "sha-256=:47DE=:"), SMALL),
        (answer("text/plain", vec![Ok(SMALL)]), SMALL),
        (answer("application/json", vec![Ok("{\"model\":\"small\"")]), "{\"model\":\"small\""),
        (answer("application/json", vec![Ok("[\"small\"]")]), "[\"small\"]"),
        (answer("application/json", vec![Ok(long)]), long),
        (answer("application/json", vec![]), ""),
    ] {
        let seen = seen(answer).await.unwrap();
        assert!(seen.1 == text && seen.2.is_none(), "{:.80}", seen.1);
    }
}

#[tokio::test]
async fn a_whole_answer_that_breaks_off_fails_its_route() {
    let error = seen(answer("application/json", vec![Ok("{\"model\""), Err("reset")])).await.unwrap_err();
    assert_eq!(Fault::find(&*error).unwrap().class(), Class::Transient);
}

#[cfg(feature = "reqwest-013")]
#[tokio::test]
async fn reqwests_requests_and_answers_are_edited_and_their_type_stays() {
    let client = reqwest::Client::new();
    let model = service_fn(|request: reqwest::Request| async move {
        assert_eq!(request.body().unwrap().as_bytes().unwrap(), br#"{"model":"small"}"#);
        let answer = Response::builder().header("content-type", "application/json").body(SMALL).unwrap();
        Ok::<_, BoxError>(reqwest::Response::from(answer))
    });
    let down = service_fn(|_: reqwest::Request| async { Err::<reqwest::Response, BoxError>("down".into()) });
    let route = Route::new("b", model)
        .edit_request(chat::model("small"))
        .edit_response(chat::answered_model("large"));
    let service = FallbackLayer::builder().route(route).build().unwrap().layer(down);
    let request = |body: reqwest::Body| client.post("http://a.example/").body(body).build().unwrap();
    let response = service.clone().oneshot(request(LARGE.into())).await.unwrap();
    assert_eq!(response.text().await.unwrap(), SMALL.replace("small", "large"));
}
