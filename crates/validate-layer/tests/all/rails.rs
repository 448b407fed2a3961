//! Requests that are not sent, and results of tools that are none.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use failsoft_core::{BoxError, Class, Denier, Fault, FaultDetails, Hint, Observation, SoftKind, ToolCall};
use tower::{Layer as _, Service, ServiceExt as _, limit::ConcurrencyLimit, service_fn};
use validate_layer::{Answer, Asked, InspectFn, Rails, ValidateBuilder, ValidateLayer, Values};

type Tools = ValidateBuilder<Values<fn(&String) -> Answer>, InspectFn<fn(&ToolCall) -> Asked>>;

fn builder(rails: Rails) -> Tools {
    let answer: fn(&String) -> Answer = |result| Answer::new(result.as_str());
    let asked: fn(&ToolCall) -> Asked = |call| Asked::new().with_bytes(100).with_call(call.clone());
    ValidateLayer::values(answer).asked_fn(asked).rails(rails)
}

/// What becomes of a call of a tool that answers with this, and how often the tool was called.
async fn call(builder: Tools, call: ToolCall, result: &'static str) -> (Result<String, BoxError>, usize) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let tool = service_fn(move |_: ToolCall| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok::<_, Infallible>(result.to_owned()))
    });
    let outcome = builder.build().unwrap().layer(tool).oneshot(call).await;
    (outcome, calls.load(Ordering::SeqCst))
}

fn fault(err: &BoxError) -> &FaultDetails {
    Fault::find(&**err).expect("a fault")
}

fn code(err: &BoxError) -> &'static str {
    fault(err).report().unwrap().leading().unwrap().code()
}

#[tokio::test]
async fn what_breaks_a_rule_is_not_sent_and_is_a_denial_of_ours() {
    let rails = || Rails::new().forbid(["rm"]).max_arguments(20);
    for (arguments, name, wanted) in [
        ("{}", "rm", "rail.forbidden_tool"),
        ("{\"path\": \"/a/very/long/one\"}", "ls", "rail.request_size"),
        ("{\"path\": ", "ls", "rail.arguments"),
        ("[]", "ls", "rail.arguments"),
    ] {
        let (outcome, calls) =
            call(builder(rails()).name("shell"), ToolCall::new(name, arguments), "x").await;
        let err = outcome.unwrap_err();
        assert_eq!((fault(&err).class(), code(&err)), (Class::Denied(Denier::Rail), wanted));
        assert_eq!((calls, fault(&err).target()), (0, Some("shell")));
        assert!(fault(&err).verdict().is_unsent());
        assert_eq!(fault(&err).verdict().hint(), Hint::Never);
        assert_eq!(fault(&err).status_code(), 403);
    }
    for arguments in ["{}", "", "{\"path\": \"/a\"}"] {
        let (outcome, calls) = call(builder(rails()), ToolCall::new("ls", arguments), "x").await;
        assert_eq!((outcome.unwrap(), calls), ("x".to_owned(), 1));
    }
    let (outcome, _) = call(builder(Rails::new().allow_only(["ls"])), ToolCall::new("cat", "{}"), "x").await;
    assert_eq!(code(&outcome.unwrap_err()), "rail.forbidden_tool");
    let (outcome, _) = call(builder(Rails::new().max_request(99)), ToolCall::new("ls", "{}"), "x").await;
    assert_eq!(code(&outcome.unwrap_err()), "rail.request_size");
}

#[tokio::test]
async fn a_model_is_told_which_rule_it_broke() {
    let (outcome, _) = call(builder(Rails::new().forbid(["rm"])), ToolCall::new("rm", "{}"), "x").await;
    let observation = Observation::of_error(&outcome.unwrap_err());
    assert_eq!(observation.code(), "REQUEST_BLOCKED");
    assert!(observation.message().contains("the tool `rm` is not allowed"), "{}", observation.message());
}

#[cfg(feature = "schema")]
#[tokio::test]
async fn arguments_must_fit_the_schema_before_the_tool_sees_them() {
    use validate_layer::checks::Schema;
    let schema = serde_json::json!({"required": ["id"], "properties": {"id": {"type": "integer"}}});
    let rails = || Rails::new().tool("pay", Schema::new(&schema).unwrap());
    let (outcome, calls) = call(builder(rails()), ToolCall::new("pay", r#"{"id": "7"}"#), "x").await;
    let err = outcome.unwrap_err();
    assert_eq!((code(&err), calls), ("rail.arguments", 0));
    let path = fault(&err).report().unwrap().leading().unwrap().path().map(ToOwned::to_owned);
    assert_eq!(path.as_deref(), Some("/tool_calls/0/arguments/id"));
    let (outcome, calls) = call(builder(rails()), ToolCall::new("pay", ""), "x").await;
    assert_eq!((code(&outcome.unwrap_err()), calls), ("rail.arguments", 0));
    assert_eq!(call(builder(rails()), ToolCall::new("pay", r#"{"id": 7}"#), "x").await.1, 1);
    // The whole call over again in place of its arguments: no schema was held against it.
    let again = ToolCall::new("pay", r#"{"name": "pay", "arguments": {"id": 7}}"#);
    let (outcome, calls) = call(builder(rails()), again, "x").await;
    assert_eq!((code(&outcome.unwrap_err()), calls), ("rail.arguments", 0));
}

#[tokio::test]
async fn v_d9_a_change_that_answers_with_nothing_is_a_failure_that_is_not_repeated() {
    let rails = || Rails::new().mutations(["write"]);
    for nothing in ["", " \n", "null", "{}", "[ ]", "\"\"", "{\n}"] {
        let (outcome, _) = call(builder(rails()).allow_empty(), ToolCall::new("write", "{}"), nothing).await;
        let err = outcome.unwrap_err();
        assert_eq!(code(&err), "rail.empty_mutation", "{nothing:?}");
        let verdict = fault(&err).verdict();
        assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::Empty), Hint::Never));
        // Of one that only reads, nothing may be right.
        call(builder(rails()).allow_empty(), ToolCall::new("read", "{}"), nothing).await.0.unwrap();
    }
    for something in ["ok", "{\"written\": 0}", "[0]", "false"] {
        call(builder(rails()), ToolCall::new("write", "{}"), something).await.0.unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_calls_a_forbidden_tool_fails_before_anybody_makes_the_call() {
    let answer: fn(&String) -> Answer =
        |name| Answer::without_text().with_tool_calls([ToolCall::new(name.as_str(), "{}")]);
    let layer = ValidateLayer::values(answer).rails(Rails::new().forbid(["rm"])).build().unwrap();
    let model = service_fn(|name: &'static str| std::future::ready(Ok::<_, Infallible>(name.to_owned())));
    let service = layer.layer(model);
    service.clone().oneshot("ls").await.unwrap();
    let err = service.oneshot("rm").await.unwrap_err();
    assert_eq!(
        (fault(&err).class(), code(&err)),
        (Class::Soft(SoftKind::UnknownTool), "rail.forbidden_tool")
    );
}

#[tokio::test]
async fn a_denied_call_gives_its_readiness_back() {
    let tool = service_fn(|_: ToolCall| std::future::ready(Ok::<_, Infallible>("x".to_owned())));
    let layer = builder(Rails::new().forbid(["rm"])).build().unwrap();
    let mut one = layer.layer(ConcurrencyLimit::new(tool, 1));
    let mut other = one.clone();
    let denied = one.ready().await.unwrap().call(ToolCall::new("rm", "{}"));
    assert!(denied.await.is_err());
    // It still stands there with `one` in hand.
    let mut ready = tokio_test::task::spawn(other.ready());
    assert!(ready.poll().is_ready());
    drop(ready);
    other.call(ToolCall::new("ls", "{}")).await.unwrap();
    drop(one);
}

#[cfg(feature = "schema")]
mod offered {
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::{Value, json};

    use super::*;

    /// Judges a call with these arguments by the schema that a request has offered in its dialect.
    async fn answer(request: &impl ToString, arguments: &'static str) -> Result<Vec<String>, BoxError> {
        let layer = ValidateLayer::builder().chat_requests().build().unwrap();
        let model = service_fn(move |_: Request<String>| {
            let insight = failsoft_core::Insight::new();
            insight.learn(|facts| facts.tool_calls = vec![ToolCall::new("pay", arguments)]);
            let mut response = Response::new(Full::<Bytes>::from("{}"));
            response.extensions_mut().insert(insight);
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let response = layer.layer(model).oneshot(Request::new(request.to_string())).await?;
        let report = failsoft_core::Insight::of(response.extensions()).unwrap().facts().report;
        Ok(report.findings().iter().map(|finding| finding.code().to_owned()).collect())
    }

    fn dialects(schema: &Value) -> [Value; 7] {
        let function = json!({"name": "pay", "parameters": schema});
        [
            json!({"messages": [], "tools": [{"type": "function", "function": function}]}),
            json!({"messages": [], "functions": [function]}),
            json!({"input": "?", "tools": [{"type": "function", "name": "pay", "parameters": schema}]}),
            json!({"messages": [], "tools": [{"name": "pay", "input_schema": schema}]}),
            json!({"contents": [], "tools": [{"functionDeclarations": [{"name": "pay", "parametersJsonSchema": schema}]}]}),
            json!({"messages": [], "toolConfig": {"tools": [{"toolSpec": {"name": "pay", "inputSchema": {"json": schema}}}]}}),
            json!({"contents": [], "tools": [{"function_declarations": [function]}]}),
        ]
    }

    #[tokio::test]
    async fn the_schemas_that_a_request_offers_hold_for_the_calls_in_its_answer() {
        let schema =
            json!({"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}});
        for request in dialects(&schema) {
            assert_eq!(answer(&request, r#"{"sum": 7}"#).await.unwrap(), Vec::<String>::new());
            let err = answer(&request, r#"{"sum": "7"}"#).await.unwrap_err();
            let leading = fault(&err).report().unwrap().leading().unwrap();
            assert_eq!(
                (leading.code(), leading.path()),
                ("tool.schema", Some("/tool_calls/0/arguments/sum"))
            );
        }
        let gemini = json!({"contents": [], "tools": [{"functionDeclarations": [{"name": "pay", "parameters":
            {"type": "OBJECT", "properties": {"sum": {"type": "INTEGER", "nullable": true}, "type": {"type": "STRING"}}}}]}]});
        answer(&gemini, r#"{"sum": null, "type": "x"}"#).await.unwrap();
        assert!(answer(&gemini, r#"{"sum": 1, "type": 2}"#).await.is_err());
    }

    #[tokio::test]
    async fn a_schema_that_could_do_harm_is_not_used_and_the_report_says_so() {
        let mut doubling = serde_json::Map::new();
        for i in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            doubling.insert(format!("d{i}"), json!({"anyOf": [next, next]}));
        }
        doubling.insert("d40".into(), json!({"type": "string"}));
        for schema in [
            json!({"$defs": doubling, "$ref": "#/$defs/d0"}),
            json!({"properties": {"sum": {"$ref": "#"}}}),
            json!({"$ref": "https://evil.example/schema"}),
            json!({"$id": "https://evil.example/", "$ref": "x"}),
            json!({"type": "what"}),
            json!({"description": "x".repeat(70_000)}),
            // Each would be 1 MiB large.
            json!({"properties": (0..300).map(|i| (format!("a{i}"), json!({"pattern": r"\p{L}{40}"}))).collect::<serde_json::Map<_, _>>()}),
        ] {
            let request = &dialects(&schema)[0];
            assert_eq!(
                answer(request, r#"{"sum": 7}"#).await.unwrap(),
                ["tool.schema_unusable"],
                "{schema:.80}"
            );
        }
    }

    #[cfg(feature = "http-body-util-01")]
    #[tokio::test]
    async fn a_full_body_is_looked_at() {
        let layer =
            ValidateLayer::builder().chat_requests().rails(Rails::new().forbid(["pay"])).build().unwrap();
        let service = layer.layer(service_fn(|_: Request<Full<Bytes>>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))))
        }));
        let body = dialects(&json!({}))[0].to_string();
        let err = service.clone().oneshot(Request::new(Full::from(body))).await.err().unwrap();
        assert_eq!(code(&err), "rail.forbidden_tool");
        service.oneshot(Request::new(Full::default())).await.unwrap();
    }

    #[tokio::test]
    async fn a_request_of_any_shape_is_looked_at_without_harm() {
        let strange = [
            json!(null),
            json!("x"),
            json!(7),
            json!([]),
            json!([[]]),
            json!({}),
            json!({"tools": "x"}),
            json!([{"function": 1}]),
            json!([{"function": {"name": 1}}]),
            json!([{"functionDeclarations": [1, {"parameters": [1]}]}]),
            json!([{"toolSpec": "x"}]),
        ];
        for value in &strange {
            for key in ["tools", "functions", "toolConfig"] {
                answer(&json!({key: value}), r#"{"sum": 7}"#).await.unwrap();
            }
            answer(value, r#"{"sum": 7}"#).await.unwrap();
        }
        let deep = format!("{{\"tools\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        answer(&deep, "{}").await.unwrap();
    }

    #[tokio::test]
    async fn rails_know_the_tools_that_a_chat_request_offers() {
        let rails = Rails::new().forbid(["pay"]).max_request(1_000);
        let layer = ValidateLayer::builder().chat_requests().rails(rails).build().unwrap();
        let service = layer.layer(service_fn(|_: Request<String>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))))
        }));
        let request = |body: String| service.clone().oneshot(Request::new(body));
        let err = request(dialects(&json!({}))[0].to_string()).await.err().unwrap();
        assert_eq!((fault(&err).class(), code(&err)), (Class::Denied(Denier::Rail), "rail.forbidden_tool"));
        let err = request("x".repeat(1_001)).await.err().unwrap();
        assert_eq!(code(&err), "rail.request_size");
        request("no chat".into()).await.unwrap();
    }

    #[tokio::test]
    async fn a_forbidden_tool_is_not_hidden_by_many_others_or_by_a_second_list() {
        let layer =
            ValidateLayer::builder().chat_requests().rails(Rails::new().forbid(["pay"])).build().unwrap();
        let service = layer.layer(service_fn(|_: Request<String>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))))
        }));
        let tool = |name: &str| format!(r#"{{"type": "function", "function": {{"name": "{name}"}}}}"#);
        let many: String = (0..2_000).map(|i| tool(&format!("look{i}")) + ", ").collect();
        let (look, pay) = (tool("look"), tool("pay"));
        for body in [
            format!(r#"{{"tools": [{many}{pay}]}}"#),
            format!(r#"{{"tools": [{look}], "tools": [{pay}]}}"#),
            format!(r#"{{"tools": [{pay}], "model": "m", "\u0074ools": [{look}]}}"#),
        ] {
            let err = service.clone().oneshot(Request::new(body)).await.err().unwrap();
            assert_eq!(code(&err), "rail.forbidden_tool");
        }
        service.oneshot(Request::new(format!(r#"{{"tools": [{look}], "tools": [{look}]}}"#))).await.unwrap();
    }

    /// Why a chat request is not sent, if it is not.
    async fn denied(rails: Rails, request: Request<String>) -> Option<String> {
        let layer = ValidateLayer::builder().chat_requests().rails(rails).build().unwrap();
        let service = layer.layer(service_fn(|_: Request<String>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))))
        }));
        let err = service.oneshot(request).await.err()?;
        assert_eq!(code(&err), "rail.forbidden_tool");
        Some(fault(&err).report().unwrap().leading().unwrap().message().to_owned())
    }

    const PAY: &str = r#"{"type": "function", "function": {"name": "pay"}}"#;

    #[tokio::test]
    async fn a_forbidden_tool_is_not_hidden_by_what_only_some_readers_take() {
        let look = |inside: &str| {
            format!(
                r#"{{"tools": [{{"type": "function", "function": {{"name": "look", {inside}}}}}, {PAY}]}}"#
            )
        };
        let deep = ["[".repeat(300), "]".repeat(300)].concat();
        for body in [
            look(&format!(r#""parameters": {{"x": {deep}}}"#)),
            look(r#""description": "\ud800""#),
            look(r#""parameters": {"maximum": 1e999}"#),
            r#"{"tools": [{"type": "function", "function": {"name": "pay", "name": "look"}}]}"#.into(),
            format!(r#"{{"temperature": NaN, "tools": [{PAY}]}}"#),
            format!(r#"{{"tools": [{PAY}]}} and more"#),
            r#"{"tools": [{"type": "function", "function": {"name": "pay"}, "function": {"name": "look"}}]}"#
                .into(),
            format!(r#"{{"toolConfig": {{"tools": [{PAY}], "tools": []}}}}"#),
            // UTF-16, as some readers find out by themselves.
            format!(r#"{{"tools": [{PAY}]}}"#).chars().flat_map(|c| [c, '\0']).collect(),
        ] {
            let told = denied(Rails::new().forbid(["pay"]), Request::new(body.clone())).await;
            assert_eq!(
                told.as_deref(),
                Some("which tools it offers cannot be read for certain"),
                "{body:.80}"
            );
            assert_eq!(denied(Rails::new(), Request::new(body)).await, None, "nobody has asked for names");
        }
        let compressed = Request::builder().header("content-encoding", "gzip").body("x".to_owned()).unwrap();
        assert!(denied(Rails::new().allow_only(["look"]), compressed).await.is_some());
        for other in ["no chat", "[1, 2]", "", "--boundary\r\n{\"tools\": NaN}"] {
            assert_eq!(denied(Rails::new().forbid(["pay"]), Request::new(other.to_owned())).await, None);
        }
    }

    #[tokio::test]
    async fn a_forbidden_tool_is_found_under_every_name_and_in_every_place_that_readers_know() {
        for body in [
            format!("\u{feff}{{\"tools\": [{PAY}]}}"),
            format!(r#"{{"Tools": [{PAY}]}}"#),
            format!(r#"{{"tool\u017f": [{PAY}]}}"#),
            r#"{"tools": [{"type": "function", "Function": {"NAME": "pay"}}]}"#.into(),
            r#"{"tools": [{"type": "custom", "custom": {"name": "pay"}}]}"#.into(),
            r#"{"tools": [{"type": "function", "function": {"name": "look"}, "name": "pay"}]}"#.into(),
            r#"{"tools": [{"functionDeclarations": [{"name": "look"}], "function_declarations": [{"name": "pay"}]}]}"#.into(),
            r#"{"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "pay"}]}]}"#.into(),
            r#"{"tools": {"functionDeclarations": {"name": "pay"}}}"#.into(),
            r#"{"toolConfig": {"tools": [{"systemTool": {"name": "pay"}}]}}"#.into(),
            r#"{"tool_config": {"tools": [{"toolSpec": {"name": "pay"}}]}}"#.into(),
            // Run by the provider, and without a name.
            r#"{"tools": [{"type": "pay", "container": {"type": "auto"}}]}"#.into(),
            r#"{"tools": [{"functionDeclarations": [{"name": "look"}], "pay": {}}]}"#.into(),
        ] {
            let told = denied(Rails::new().forbid(["pay"]), Request::new(body.clone())).await;
            assert_eq!(told.as_deref(), Some("the tool `pay` is not allowed"), "{body}");
            let only = Rails::new().allow_only(["look", "n"]);
            assert!(denied(only, Request::new(body)).await.is_some());
        }
        let good = r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}},
            {"cachePoint": {"type": "default"}}]}, "tools": [{"name": "look", "input_schema": {"properties": {"tools": {"items":
            {"type": "pay", "name": "pay"}}}}, "cache_control": {"type": "ephemeral"}}], "messages": [{"tools": "pay"}]}"#;
        assert_eq!(denied(Rails::new().allow_only(["look"]), Request::new(good.to_owned())).await, None);
    }
}
