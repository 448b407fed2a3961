//! What is kept of requests that callers make up.
#![cfg(all(feature = "http", feature = "schema"))]

use std::{convert::Infallible, future::ready};

use allocation_counter::measure;
use failsoft_core::{BoxError, HashedNgrams, Held, Insight, ToolCall, Verdict};
use http::{Request, Response};
use http_body_util::Full;
use serde_json::json;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use validate_layer::{Answer, Asked, Drift, ValidateLayer};

const MIB: i64 = 1024 * 1024;

fn run<S: Service<Req> + Clone, Req>(service: &S, request: Req) -> Result<S::Response, S::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(service.clone().oneshot(request))
}

#[test]
fn keys_of_drift_take_bounded_memory_however_long_callers_make_them() {
    let layer = ValidateLayer::values(|text: &String| Answer::new(text.as_str()))
        .asked_fn(|key: &String| Asked::new().with_key(key.as_str()))
        .drift(Drift::new(HashedNgrams::new()))
        .build()
        .unwrap();
    let text = "The weather is sunny today, with a temperature of twenty degrees in the shade.";
    let service = layer.layer(service_fn(|_: String| ready(Ok::<_, Infallible>(text.to_owned()))));
    let kept = measure(|| {
        for key in 0..100 {
            run(&service, format!("{}{key}", "k".repeat(100_000))).unwrap();
        }
    });
    assert!(kept.bytes_current < MIB, "{kept:?}");
}

/// A model that answers each request with the same call.
fn pays()
-> impl Service<Request<String>, Response = Response<Held<Full<bytes::Bytes>>>, Error = BoxError> + Clone {
    let layer = ValidateLayer::builder().chat_requests().build().unwrap();
    layer.layer(service_fn(|_: Request<String>| {
        let mut response = Response::new(Full::<bytes::Bytes>::default());
        let insight = Insight::new();
        insight.learn(|facts| {
            facts.verdict = Some(Verdict::SUCCESS);
            facts.tool_calls = vec![ToolCall::new("pay", "{}")];
        });
        response.extensions_mut().insert(insight);
        ready(Ok::<_, Infallible>(response))
    }))
}

#[test]
fn what_the_patterns_of_a_schema_take_is_bounded_for_all_of_them_together() {
    // 6 KiB of request were 100 MiB of regular expressions, kept for as long as it is one of the last 256.
    let service = pays();
    let asked = |pattern: String, count: usize| {
        let fields = (0..count).map(|i| (format!("a{i}"), json!({"pattern": format!("{pattern}{i}")})));
        let schema = json!({"properties": fields.collect::<serde_json::Map<_, _>>()});
        let function = json!({"name": "pay", "parameters": schema});
        json!({"tools": [{"type": "function", "function": function}]}).to_string()
    };
    let report = |request| {
        let response = run(&service, Request::new(request)).unwrap();
        Insight::of(response.extensions()).unwrap().facts().report.to_string()
    };
    for repeats in [1, 20, 800] {
        let kept = measure(|| {
            report(asked(format!(r"(?i)[a-zé]{{{repeats}}}(x|y)*\p{{L}}{{9}}"), 100));
        });
        assert!(kept.bytes_max < 16 * MIB as u64 && kept.bytes_current < 4 * MIB, "{repeats} {kept:?}");
    }
    assert_eq!(report(asked(r"^[a-z]+-\d{4}-\d{2}$".into(), 20)), "", "usual ones are used");
}

#[test]
fn schemas_that_are_too_long_to_be_used_are_not_kept() {
    let service = pays();
    let kept = measure(|| {
        for number in 0..100 {
            let schema = json!({"description": "x".repeat(100_000), "maxProperties": number + 1});
            let function = json!({"name": "pay", "parameters": schema});
            let request = json!({"tools": [{"type": "function", "function": function}]}).to_string();
            run(&service, Request::new(request)).unwrap();
        }
    });
    assert!(kept.bytes_current < MIB, "{kept:?}");
}
