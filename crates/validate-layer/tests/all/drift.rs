//! Answers that are unlike those before them, and vectors that can be used.

use std::{
    convert::Infallible,
    future::{pending, ready},
    time::Duration,
};

use failsoft_core::{
    BoxError, Call, Class, EmbedWith, Fault, Finding, HashedNgrams, Report, Severity, SoftKind, Verdict,
};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _, service_fn};
use validate_layer::{Answer, Asked, Check, Drift, Judge, ValidateBuilder, ValidateLayer, checks::Embedding};

/// What a layer says of a text as the answer to a request with this key: the report of what failed, or nothing.
struct Endpoint(Box<dyn Fn(&'static str, String) -> Result<(), BoxError>>);

fn endpoint(drift: Drift) -> Endpoint {
    let layer = ValidateLayer::values(|text: &String| Answer::new(text.as_str()))
        .asked_fn(|(key, _): &(&'static str, String)| Asked::new().with_key(*key))
        .drift(drift.fails())
        .build()
        .unwrap();
    let service =
        layer.layer(service_fn(|(_, text): (&'static str, String)| ready(Ok::<_, Infallible>(text))));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    Endpoint(Box::new(move |key, text| runtime.block_on(service.clone().oneshot((key, text))).map(drop)))
}

fn weather(i: usize) -> String {
    const SKY: [&str; 4] = ["sunny", "cloudy", "rainy", "windy"];
    let sky = SKY[i % 4];
    format!("The weather in city number {i} is {sky} today, with a temperature of {} degrees.", 10 + i % 15)
}

#[tokio::test(start_paused = true)]
async fn an_embedding_takes_no_longer_than_the_call_has() {
    let slow = EmbedWith::new(service_fn(|_: String| pending::<Result<Vec<f32>, Infallible>>()));
    let layer = ValidateLayer::values(|text: &String| Answer::new(text.as_str())).drift(Drift::new(slow));
    let service = layer.build().unwrap().layer(service_fn(|text: String| ready(Ok::<_, Infallible>(text))));
    let start = Instant::now();
    let call = Call::options().timeout(Duration::from_secs(1)).begin();
    call.scope(service.oneshot(weather(1))).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

const OTHER: &str =
    "SELECT id, name FROM customers WHERE balance < 0 ORDER BY name LIMIT 50; -- overdrawn accounts";

#[test]
fn an_answer_unlike_the_good_ones_before_is_suspicious_after_the_warm_up() {
    let Endpoint(ask) = endpoint(Drift::new(HashedNgrams::new()).warm_up(20));
    // Before it, nothing is.
    ask("sql", OTHER.into()).unwrap();
    for i in 0..60 {
        ask("weather", weather(i)).unwrap();
    }
    let err = ask("weather", OTHER.into()).unwrap_err();
    let fault = Fault::find(&*err).unwrap();
    assert_eq!(fault.class(), Class::Soft(SoftKind::Drift));
    assert!(!fault.report().unwrap().to_string().contains("SELECT"));
    // It was not learnt from, and each key has its own.
    assert!(ask("weather", OTHER.into()).is_err());
    ask("sql", OTHER.into()).unwrap();
    ask("weather", weather(61)).unwrap();
}

#[test]
fn v_j4_what_is_too_short_to_say_anything_is_not_compared() {
    let Endpoint(ask) = endpoint(Drift::new(HashedNgrams::new()).warm_up(2));
    for i in 0..30 {
        ask("weather", weather(i)).unwrap();
    }
    ask("weather", "Yes.".into()).unwrap();
    // The limit is the caller's to choose.
    let Endpoint(ask) = endpoint(Drift::new(HashedNgrams::new()).warm_up(2).below(-1.0));
    for i in 0..5 {
        ask("weather", weather(i)).unwrap();
    }
    ask("weather", OTHER.into()).unwrap();
}

#[test]
fn what_is_forgotten_is_learnt_anew() {
    let drift = Drift::new(HashedNgrams::new()).warm_up(5);
    let Endpoint(ask) = endpoint(drift.clone());
    for i in 0..40 {
        ask("weather", weather(i)).unwrap();
    }
    assert!(ask("weather", OTHER.into()).is_err());
    drift.forget("weather");
    ask("weather", OTHER.into()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn by_itself_a_suspicion_is_a_warning_and_an_embedder_that_fails_is_no_finding() {
    let layer = |drift: Drift| ValidateLayer::builder().drift(drift).build().unwrap();
    let pass = async |layer: &ValidateLayer, text: String| -> Result<Report, BoxError> {
        let client = service_fn(move |()| {
            let body = http_body_util::Full::<bytes::Bytes>::from(text.clone());
            ready(Ok::<_, Infallible>(http::Response::new(body)))
        });
        let response = layer.layer(client).oneshot(()).await?;
        Ok(failsoft_core::Insight::of(response.extensions()).unwrap().facts().report)
    };
    let built_in = layer(Drift::new(HashedNgrams::new()));
    for i in 0..30 {
        assert!(pass(&built_in, weather(i)).await.unwrap().is_empty());
    }
    let report = pass(&built_in, OTHER.into()).await.unwrap();
    let told = report.leading().unwrap();
    assert_eq!(
        (told.code(), told.severity(), told.kind()),
        ("drift", Severity::Warning, Some(SoftKind::Drift))
    );

    let broken = EmbedWith::new(service_fn(|_: String| ready(Err::<Vec<f32>, BoxError>("down".into()))));
    let slow = EmbedWith::new(service_fn(|_: String| pending::<Result<Vec<f32>, BoxError>>()));
    let broken = layer(Drift::new(broken).warm_up(2));
    let slow = layer(Drift::new(slow).warm_up(2).timeout(Duration::from_secs(1)));
    for i in 0..4 {
        assert!(pass(&broken, weather(i)).await.unwrap().is_empty());
        assert!(pass(&slow, weather(i)).await.unwrap().is_empty());
    }
    // A model that changed its dimensions begins anew.
    let dimensions = std::sync::atomic::AtomicUsize::new(2);
    let changing = EmbedWith::new(service_fn({
        let dimensions = std::sync::Arc::new(dimensions);
        move |_: String| {
            let n = dimensions.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            ready(Ok::<_, BoxError>(vec![1.0; n]))
        }
    }));
    let changing = layer(Drift::new(changing).warm_up(2));
    for i in 0..4 {
        assert!(pass(&changing, weather(i)).await.unwrap().is_empty());
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let build = |drift: Drift| ValidateLayer::builder().drift(drift).build();
    let drift = || Drift::new(HashedNgrams::new());
    assert!(build(drift().warm_up(1)).is_err());
    assert!(build(drift().deviations(0.0)).is_err());
    assert!(build(drift().below(f32::NAN)).is_err());
    assert!(build(drift().timeout(Duration::ZERO)).is_err());
    assert!(build(drift().max_keys(0)).is_err());
    assert!(build(drift()).is_ok());
}

fn codes(report: &Report) -> Vec<(&str, Option<&str>)> {
    report.findings().iter().map(|finding| (finding.code(), finding.path())).collect()
}

#[test]
fn vectors_are_found_in_each_apis_shape() {
    let check = Embedding::any().dimension(2).unwrap();
    for good in [
        r#"{"data": [{"embedding": [1, 0.5]}, {"embedding": [0, -1e-3]}], "usage": {"total_tokens": 3}}"#,
        r#"{"data": [{"embedding": "AACAPwAAAEA="}]}"#,
        r#"{"embeddings": [[1, 2], [3, 4]]}"#,
        r#"{"embeddings": {"float": [[1, 2]]}}"#,
        r#"{"embedding": [1, 2], "inputTextTokenCount": 2}"#,
        r#"{"embedding": {"values": [1, 2]}}"#,
        r#"{"embeddings": [{"values": [1, 2]}]}"#,
        "[[1, 2], [3, 4]]",
        "[1, 2]",
    ] {
        assert!(check.on_text(good).is_empty(), "{good}: {}", check.on_text(good));
    }
    for (bad, wanted) in [
        (
            r#"{"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}"#,
            ("embedding.dimension", Some("/data/1/embedding")),
        ),
        (r#"{"data": [{"embedding": []}]}"#, ("embedding.dimension", Some("/data/0/embedding"))),
        (r#"{"data": [{"embedding": "AAAAAAAAAAA="}]}"#, ("embedding.zero", Some("/data/0/embedding"))),
        (r#"{"data": [{"embedding": "AADAfwAAAEA="}]}"#, ("embedding.not_finite", Some("/data/0/embedding"))),
        (r#"{"data": [{"embedding": "!"}]}"#, ("embedding.not_finite", Some("/data/0/embedding"))),
        (r#"{"embedding": [1, "x"]}"#, ("embedding.not_finite", Some("/embedding"))),
        (r#"{"embedding": [1, 1e39]}"#, ("embedding.not_finite", Some("/embedding"))),
        (r#"{"embeddings": [[0, 0]]}"#, ("embedding.zero", Some("/embeddings/0"))),
        ("{}", ("embedding.none", None)),
        ("", ("json.empty", None)),
        ("NaN", ("json.non-object", None)),
    ] {
        let report = check.on_text(bad);
        assert_eq!(report.findings().len(), 1, "{bad}: {report}");
        assert_eq!(codes(&report)[0].0, wanted.0, "{bad}");
        assert_eq!(codes(&report)[0].1, wanted.1, "{bad}");
    }
    // A place among vectors that has none.
    for (bad, path) in [
        (r#"{"data": [{"embedding": [1, 2]}, {"embedding": null}]}"#, "/data/1"),
        (r#"{"data": [{"embedding": [1, 2]}, {"index": 1}]}"#, "/data/1"),
        (r#"{"data": [{"index": 0}, {"embedding": [1, 2]}]}"#, "/data/0"),
        (r#"{"embeddings": [[1, 2], null]}"#, "/embeddings/1"),
        (r#"{"embeddings": [[1, 2], []]}"#, "/embeddings/1"),
        (r#"{"embeddings": [{"values": [1, 2]}, {"values": null}]}"#, "/embeddings/1"),
    ] {
        assert_eq!(codes(&check.on_text(bad)), [("embedding.none", Some(path))], "{bad}");
    }
    assert_eq!(check.on_text(r#"{"data": [{}, {}]}"#).leading().unwrap().kind(), Some(SoftKind::Empty));
    let report = Embedding::any().count(2).unwrap().on_text("[[1, 2], [3]]");
    assert_eq!(codes(&report), [("embedding.dimension", Some("/1"))]);
    assert_eq!(codes(&Embedding::any().count(3).unwrap().on_text("[1]")), [("embedding.count", None)]);
    assert!(Embedding::any().dimension(0).is_err() && Embedding::any().count(0).is_err());
}

fn judge(builder: ValidateBuilder, answer: &Answer) -> Verdict {
    builder.build().unwrap().validator().judge(answer).0
}

#[test]
fn presets_hold_each_kind_of_endpoint_to_its_own() {
    let prose = Answer::new("The bridge was built in 1932, and widened in 1970.");
    let error = Answer::new("upstream request timeout");
    assert!(judge(ValidateLayer::chat(), &prose).is_success());
    assert!(!judge(ValidateLayer::chat(), &error).is_success());
    assert!(judge(ValidateLayer::reasoning(), &prose).is_success());
    let nothing = judge(ValidateLayer::reasoning(), &Answer::new(""));
    assert_eq!(nothing.hint(), failsoft_core::Hint::Modify);
    let calls = Answer::without_text().with_tool_calls([failsoft_core::ToolCall::new("pay", "{}")]);
    assert!(judge(ValidateLayer::tool_calls(["pay"]), &calls).is_success());
    assert!(judge(ValidateLayer::tool_calls(["pay"]), &prose).is_success());
    assert!(!judge(ValidateLayer::tool_calls(["look"]), &calls).is_success());
    assert!(judge(ValidateLayer::embeddings(2).unwrap(), &Answer::new("[1, 2]")).is_success());
    assert!(ValidateLayer::embeddings(0).is_err());
    // 8 words of 50: below 0.2, above 0.15.
    let caption = Answer::new("A red bridge over a river at night.");
    let about = || validate_layer::checks::Length::words(50);
    assert!(judge(ValidateLayer::multimodal().expected_length(about()), &caption).is_success());
    assert!(!judge(ValidateLayer::chat().expected_length(about()), &caption).is_success());
    assert!(!judge(ValidateLayer::multimodal().expected_length(about().below(0.5)), &caption).is_success());
    // What is said of one length is not the layer's to change, whatever it is: also the default's own number.
    assert!(!judge(ValidateLayer::multimodal().expected_length(about().below(0.2)), &caption).is_success());
    assert!(ValidateLayer::builder().length_tolerance(0.0).build().is_err());
}

#[tokio::test]
async fn an_answer_that_a_judge_left_too_little_trust_in_is_not_learnt_from() {
    let doubt = || {
        let finding = Finding::new(SoftKind::Schema, "doubt", "").with_severity(Severity::Warning);
        Report::from(finding.with_weight(0.9))
    };
    let judge = service_fn(move |answer: Answer| {
        let is_odd = answer.text().is_some_and(|text| text.starts_with("SELECT"));
        ready(Ok::<_, Infallible>(if is_odd { doubt() } else { Report::new() }))
    });
    let layer = ValidateLayer::values(|text: &String| Answer::new(text.as_str()))
        .judge(Judge::new(judge))
        .drift(Drift::new(HashedNgrams::new()).warm_up(20).below(0.3).fails())
        .build()
        .unwrap();
    let service = layer.layer(service_fn(|text: String| ready(Ok::<_, Infallible>(text))));
    for _ in 0..30 {
        service.clone().oneshot(OTHER.into()).await.unwrap_err();
    }
    // Else these would be unlike those that nobody believed.
    for i in 0..30 {
        service.clone().oneshot(weather(i)).await.unwrap();
    }
}

#[cfg(feature = "schema")]
#[test]
fn the_preset_for_data_tells_a_refusal_from_a_slip() {
    let schema = serde_json::json!({"required": ["city"]});
    let class = |text: &str| judge(ValidateLayer::structured(&schema), &Answer::new(text)).class();
    assert_eq!(class(r#"{"city": "Oslo"}"#), Class::Success);
    assert_eq!(class("{}"), Class::Soft(SoftKind::Schema));
    assert_eq!(class("I'm sorry, but I can't help with that."), Class::Refused);
    assert_eq!(class("It is in Oslo."), Class::Soft(SoftKind::Malformed));
    // A call that nobody offered passed in place of the object, and no schema was held against it.
    let call = Answer::without_text().with_tool_calls([failsoft_core::ToolCall::new("look", "{}")]);
    let judged = |builder| judge(builder, &call).class();
    assert_eq!(judged(ValidateLayer::structured(&schema)), Class::Soft(SoftKind::UnknownTool));
    assert_eq!(judged(ValidateLayer::structured(&schema).tools(["look"])), Class::Success);
    #[cfg(feature = "http")]
    {
        let by_request = ValidateLayer::structured(&schema).chat_requests().build().unwrap();
        assert!(by_request.validator().judge(&call).0.is_success(), "each request says which");
    }
    assert_eq!(judged(ValidateLayer::builder().json_object()), Class::Success, "elsewhere nobody has said");
}
