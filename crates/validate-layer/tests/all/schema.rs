//! JSON Schema and regular expressions, in a layer and by themselves.
#![cfg(all(feature = "schema", feature = "regex"))]

use failsoft_core::{Class, Hint, Report, SoftKind, ToolCall, Verdict};
use serde_json::{Value, json};
use validate_layer::{
    Answer, Check, ValidateBuilder, ValidateLayer,
    checks::{MAX_VIOLATIONS, Pattern, Schema, ToolSchemas},
};

fn judge(build: impl FnOnce(ValidateBuilder) -> ValidateBuilder, answer: &Answer) -> (Verdict, Report) {
    build(ValidateLayer::builder()).build().unwrap().validator().judge(answer)
}

fn codes(report: &Report) -> Vec<(&str, Option<&str>)> {
    report.findings().iter().map(|finding| (finding.code(), finding.path())).collect()
}

fn person() -> Value {
    json!({"type": "object", "required": ["name", "age"], "additionalProperties": false,
           "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}})
}

fn call(name: &str, arguments: &str) -> Answer {
    Answer::without_text().with_tool_calls([ToolCall::new(name, arguments)])
}

#[test]
fn each_violation_has_its_place_and_its_keyword() {
    let schema = Schema::new(&person()).unwrap();
    let report = schema.on_text(r#"{"name": 1, "age": -1, "extra": true}"#);
    let mut found = codes(&report);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("schema.additionalProperties", None),
            ("schema.minimum", Some("/age")),
            ("schema.type", Some("/name"))
        ]
    );
    assert!(schema.on_value(json!({"name": "Ada", "age": 36})).is_empty());
}

#[test]
fn why_nothing_fits_a_schema_that_refers_to_itself_takes_bounded_time() {
    let node = |kind: &str| {
        json!({"type": "object", "required": ["child", "type"],
               "properties": {"child": {"$ref": "#/$defs/node"}, "type": {"const": kind}}})
    };
    let kinds = [node("not"), node("abs"), node("neg"), node("inv"), json!({"type": "number"})];
    let schema = Schema::new(&json!({"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": kinds}}})).unwrap();
    let nested = |depth, inner| (0..depth).fold(inner, |inner, _| json!({"type": "neg", "child": inner}));
    assert!(schema.on_value(nested(100, json!(1))).is_empty());
    assert_eq!(codes(&schema.on_value(nested(2, json!("x")))), [("schema.anyOf", None)]);
    // Four to the power of a hundred reasons.
    assert_eq!(codes(&schema.on_value(nested(100, json!("x")))), [("schema.other", None)]);

    // One that has no alternatives tells the place at any depth.
    let list = Schema::new(&json!({"properties": {"next": {"$ref": "#"}, "n": {"type": "number"}}})).unwrap();
    let deep = (0..100).fold(json!({"n": "x"}), |next, _| json!({"next": next}));
    assert_eq!(codes(&list.on_value(deep))[0].0, "schema.type");
}

#[test]
fn the_answers_own_values_are_not_repeated() {
    let schema =
        Schema::new(&json!({"properties": {"key": {"enum": ["a"]}, "n": {"type": "integer"}}})).unwrap();
    let report = schema.on_text(r#"{"key": "sk-secret", "n": "sk-secret"}"#);
    assert_eq!(report.findings().len(), 2);
    assert!(!report.to_string().contains("sk-secret"), "{report}");
}

#[test]
fn a_layer_with_a_schema_asks_for_json_and_a_miss_needs_another_request() {
    let (verdict, report) = judge(|b| b.schema(&person()), &Answer::new(r#"{"name": "Ada"}"#));
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::Schema), Hint::Modify));
    assert_eq!(report.to_string(), "schema.required: \"age\" is a required property");
    let (_, report) = judge(|b| b.schema(&person()), &Answer::new("{\"name\": "));
    assert_eq!(codes(&report), [("json.truncated", None)]);
    // An answer that calls tools is not the text that was asked for.
    assert!(judge(|b| b.schema(&person()), &call("look", "{}")).0.is_success());
}

#[test]
fn a_schema_that_is_none_or_reaches_out_is_refused_by_build() {
    let refused = |schema: Value| {
        let err = ValidateLayer::builder().schema(&schema).build().unwrap_err().to_string();
        assert!(err.contains("ValidateLayer") && err.contains("schema"), "{err}");
    };
    refused(json!({"type": 5}));
    refused(json!({"$ref": "https://schemas.example/a.json"}));
    refused(json!({"$ref": "file:///etc/passwd"}));
    refused(json!({"$ref": "other.json"}));
    refused(json!({"$ref": "#/nowhere"}));
    refused(json!({"$schema": "https://schemas.example/draft"}));
    refused(json!({"pattern": "(?=a)b"}));
    refused(json!({"pattern": "a{1000}{1000}{1000}"}));
    let tool = ValidateLayer::builder().tool_schema("look", &json!({"type": 5})).build().unwrap_err();
    assert!(tool.to_string().contains("schema"));
}

#[test]
fn drafts_differ_where_they_do_and_format_is_asked_for() {
    // A list of schemas for `items` is of draft 7 and older.
    let tuple = json!({"items": [{"type": "integer"}, {"type": "string"}]});
    let draft7 = Schema::options().draft7().compile(&tuple).unwrap();
    assert_eq!(draft7.on_text(r#"[1, 2]"#).findings().len(), 1);
    assert!(Schema::new(&tuple).is_err(), "draft 2020-12 has `prefixItems`");
    let named = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]});
    assert_eq!(Schema::new(&named).unwrap().on_text(r#"["x"]"#).findings().len(), 1);
    let prefix = json!({"prefixItems": [{"type": "integer"}]});
    assert_eq!(Schema::new(&prefix).unwrap().on_text(r#"["x"]"#).findings().len(), 1);

    let date = json!({"format": "date"});
    assert!(Schema::new(&date).unwrap().on_text(r#""tomorrow""#).is_empty());
    let checked = Schema::options().formats(true).compile(&date).unwrap();
    assert_eq!(codes(&checked.on_text(r#""tomorrow""#)), [("schema.format", None)]);
    assert!(checked.on_text(r#""2026-11-30""#).is_empty());
    let (verdict, _) = judge(
        |b| b.schema(&date).schema_options(Schema::options().formats(true)),
        &Answer::new(r#""tomorrow""#),
    );
    assert!(!verdict.is_success());
    let own = Schema::options().formats(true).compile(&json!({"format": "our-own"})).unwrap();
    assert!(own.on_text(r#""x""#).is_empty(), "an unknown format is a remark");
}

#[test]
fn the_number_of_violations_is_bounded_also_of_a_hostile_answer() {
    let schema = Schema::new(&json!({"items": {"type": "integer"}})).unwrap();
    let some = Value::from(vec!["x"; 100]);
    assert_eq!(schema.on_value(some).findings().len(), MAX_VIOLATIONS);
    // Of more than can be collected cheaply, the first.
    let many = Value::from(vec!["x"; 300_000]);
    assert_eq!(codes(&schema.on_value(many)), [("schema.type", Some("/0"))]);
}

#[test]
fn a_schema_that_refers_to_itself_ends_and_a_pattern_cannot_run_away() {
    for schema in [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]})] {
        let _ = Schema::new(&schema).unwrap().on_text("1");
    }
    let tree = json!({"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}});
    let deep = format!("{}{{\"n\": \"x\"}}{}", "{\"next\": ".repeat(100), "}".repeat(100));
    assert_eq!(Schema::new(&tree).unwrap().on_text(&deep).findings().len(), 1);

    // Exponential for an engine that backtracks.
    let schema = Schema::new(&json!({"pattern": "^(a+)+$"})).unwrap();
    let text = format!("\"{}!\"", "a".repeat(100_000));
    assert_eq!(codes(&schema.on_text(&text)), [("schema.pattern", None)]);
    let pattern = Pattern::required("^(a+)+$").unwrap();
    assert!(!pattern.on_text(&text).is_empty());
}

#[test]
fn v_d8_a_string_of_digits_stays_a_string() {
    let schema = |kind: &str| {
        let parameters = json!({"properties": {"id": {"type": kind}}});
        ToolSchemas::new().tool("open", Schema::new(&parameters).unwrap())
    };
    let fits = |kind: &str, arguments: &str| schema(kind).on_answer(&call("open", arguments)).is_empty();
    assert!(fits("string", r#"{"id": "4"}"#) && fits("integer", r#"{"id": 4}"#));
    assert!(!fits("string", r#"{"id": 4}"#) && !fits("integer", r#"{"id": "4"}"#));
}

#[test]
fn arguments_are_checked_against_their_tools_own_schema_call_by_call() {
    let build = |b: ValidateBuilder| {
        b.tool_schema("look", &json!({"required": ["at"], "properties": {"at": {"type": "string"}}}))
            .tool_schema("list", &json!({"type": "object", "properties": {}}))
            .tools(["free"])
    };
    let all = |calls: &[(&str, &str)]| {
        let calls = calls.iter().map(|(name, arguments)| ToolCall::new(*name, *arguments));
        judge(build, &Answer::without_text().with_tool_calls(calls))
    };
    assert!(
        all(&[("look", r#"{"at": "x"}"#), ("list", ""), ("list", "{}"), ("free", r#"{"any": 1}"#)])
            .0
            .is_success()
    );
    let (verdict, report) =
        all(&[("look", r#"{"at": 1}"#), ("look", r#"{"at": "x"}"#), ("look", "{}"), ("gone", "{}")]);
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::UnknownTool), Hint::Modify));
    let mut found = codes(&report);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("tool.schema", Some("/tool_calls/0/arguments/at")),
            ("tool.schema", Some("/tool_calls/2/arguments")),
            ("tool.unknown", Some("/tool_calls/3"))
        ]
    );
    let (verdict, _) = all(&[("look", "{}")]);
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::ToolCall), Hint::Modify));
}

#[test]
fn v_d1_empty_arguments_of_a_tool_that_has_parameters_are_not_taken_for_its_defaults() {
    let optional = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let (verdict, _) = judge(|b| b.tool_schema("delete", &optional), &call("delete", ""));
    assert_eq!(verdict.class(), Class::Soft(SoftKind::ToolCall));
    assert!(judge(|b| b.tool_schema("delete", &optional), &call("delete", "{}")).0.is_success());
}

#[test]
fn v_f3_of_many_calls_each_has_a_finding_of_its_own() {
    let schema = json!({"required": ["a", "b", "c", "d"]});
    let calls = (0..8).map(|_| ToolCall::new("t", "{}"));
    let answer = Answer::without_text().with_tool_calls(calls);
    let (_, report) = judge(|b| b.tool_schema("t", &schema), &answer);
    for i in 0..8 {
        let path = format!("/tool_calls/{i}/arguments");
        assert!(report.findings().iter().any(|finding| finding.path() == Some(&*path)), "{path}");
    }
}

#[test]
fn patterns_say_what_the_text_must_and_must_not_match() {
    let build = |b: ValidateBuilder| b.must_match(r"^\d+$").must_not_match("^0");
    assert!(judge(build, &Answer::new("42")).0.is_success());
    let (verdict, report) = judge(build, &Answer::new("forty-two"));
    assert_eq!((verdict.class(), codes(&report)[0].0), (Class::Soft(SoftKind::Schema), "pattern.missing"));
    assert_eq!(codes(&judge(build, &Answer::new("042")).1)[0].0, "pattern.forbidden");
    let kind = Pattern::forbidden("x").unwrap().kind(SoftKind::LowConfidence).on_text("x");
    assert_eq!(kind.leading().unwrap().kind(), Some(SoftKind::LowConfidence));
    for bad in ["(", "(?=a)", "a{1000}{1000}{1000}"] {
        let err = ValidateLayer::builder().must_not_match(bad).build().unwrap_err().to_string();
        assert!(err.contains("must_not_match"), "{err}");
    }
}

#[test]
fn v_f7_a_list_with_one_item_that_does_not_fit_is_no_shorter_list() {
    let schema = json!({"items": {"type": "object", "required": ["id"]}});
    let (verdict, report) =
        judge(|b| b.schema(&schema), &Answer::new(r#"[{"id": 1}, {"name": "x"}, {"id": 3}]"#));
    assert_eq!(verdict.class(), Class::Soft(SoftKind::Schema));
    assert_eq!(codes(&report), [("schema.required", Some("/1"))]);
}
