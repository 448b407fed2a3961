use super::*;

const OFFERED: [&str; 1] = ["get_weather"];

/// The class of a reply or of arguments, as the cases name it.
fn class(text: &str, place: &str) -> &'static str {
    let result = match place {
        "arguments" => arguments(text).map(drop),
        _ if leaked(text, &OFFERED).is_some() => return "leaked-tool-call",
        _ => object(text).map(drop),
    };
    result.map_or_else(|flaw| flaw.kind().as_str(), |()| "ok")
}

#[test]
fn every_case_has_its_class() {
    let cases = include_str!("../../tests/cases/malformed.jsonl");
    let mut wrong = Vec::new();
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| case[name].as_str().unwrap();
        let got = class(field("text"), field("where"));
        if got != field("class") {
            wrong.push(format!("{}: wanted {}, got {got}", field("name"), field("class")));
        }
        let is_json = serde_json::from_str::<Value>(field("text")).is_ok();
        assert_eq!(is_json, field("strict") == "ok", "{}", field("name"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(cases.lines().count(), 49);
}

#[test]
fn relatives_of_the_cases_have_their_class_too() {
    let deep = |n: usize| format!("{}1{}", r#"{"a":"#.repeat(n), "}".repeat(n));
    let table = [
        ("{\"a\":1}\n{\"b\":2}", "multiple"),
        ("{\"a\":1},{\"b\":2}", "multiple"),
        ("{\"a\":1} or rather {\"a\":2}", "multiple"),
        ("Either {\"a\":1} or {\"a\":2}.", "multiple"),
        ("```json\n{\"a\": 1, \"b", "truncated"),
        ("Sure:\n{\"a\": [1, 2", "truncated"),
        ("\u{feff}{\"a\": 1", "truncated"),
        ("```json\n{'a': 1}\n```", "syntax"),
        ("{'a': 1}", "syntax"),
        ("{a: 1}", "syntax"),
        ("{\"a\": 1};", "syntax"),
        ("{\"a\": 1,, \"b\": 2}", "syntax"),
        ("{\"a\": +1}", "syntax"),
        ("{\"a\": .5}", "syntax"),
        ("{\"a\": True}", "syntax"),
        ("{\"a\": \"x\ny\"}", "syntax"),
        ("[Note] see {\"a\": 1}", "wrapped"),
        ("Result: [1, 2, 3]", "wrapped"),
        ("```\n{}\n```", "wrapped"),
        ("<think>hm</think>", "empty"),
        ("<think>hm", "truncated"),
        ("\u{200b}\n", "empty"),
        ("I cannot help with that.", "non-object"),
        ("See [1] and [2].", "non-object"),
        ("<!DOCTYPE html><script>{\"a\":1}</script>", "non-object"),
        ("[{\"a\": 1}]", "non-object"),
        ("\"{\\\"a\\\": 1}\"", "non-object"),
        ("42", "non-object"),
        ("{\"id\": -9007199254740993}", "lossy"),
        ("{\"id\": 18446744073709551616}", "lossy"),
        ("{\"x\": 0.1234567890123456789}", "lossy"),
        ("{\"x\": 1e400}", "lossy"),
        ("{\"x\": 1e-400}", "lossy"),
        ("{\"a\": {\"b\": 1, \"\\u0062\": 2}}", "duplicate-key"),
        ("{\"a\": 1, \"a\": 2, \"b\": \"cut", "truncated"),
        (&format!("{{\"a\": {}", "1".repeat(400)), "degenerate"),
        (&format!("{{\"a\": {}", "1234567890".repeat(40)), "degenerate"),
        (&format!("{{\"a\": 1e{}", "4".repeat(40)), "truncated"),
        (&format!("{{\"a\": 1{}}}", "0".repeat(400)), "lossy"),
        (&"I will. ".repeat(60), "degenerate"),
        ("json\n{\"a\": 1}", "wrapped"),
        ("data: {\"a\": 1}", "wrapped"),
        ("{\"a\": 1}<|im_end|>", "wrapped"),
        ("<json>{\"a\": 1}</json>", "wrapped"),
        ("<?xml version=\"1.0\"?><Error>no</Error>", "non-object"),
        (&deep(128), "depth"),
    ];
    for (text, wanted) in table {
        assert_eq!(class(text, "reply"), wanted, "{text}");
    }
}

#[test]
fn what_is_right_passes() {
    let deep = format!("{}1{}", r#"{"a":"#.repeat(127), "}".repeat(127));
    for text in [
        r#"{}"#,
        " {\"a\": [1, -0, 0.1, 1e5, 1.5e-7, 0.30000000000000004, 9007199254740992, 1700000000000000000]}\n",
        r#"{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]}"#,
        r#"{"text": "a \"quoted: word\", {and} [more]: 12345678901234567890", "é": "日本語"}"#,
        r#"{"zeros": 0.0, "long zero": 1.00000000000000000000, "big": 1e300}"#,
        &deep,
    ] {
        assert_eq!(class(text, "reply"), "ok", "{text}");
    }
}

#[test]
fn arguments_are_an_object_that_was_encoded_once() {
    let table = [
        ("{}", "ok"),
        (r#"{"name": "x", "arguments": "plain words"}"#, "ok"),
        (r#"{"name": "x", "arguments": {"a": 1}}"#, "ok"),
        (r#""{\"city\":\"Oslo\"}""#, "args"),
        ("null", "args"),
        ("Oslo", "args"),
        (r#"{"arguments": "{\"city\": 1}"}"#, "args"),
        (r#"{"city": "Os"#, "truncated"),
        ("{\"city\": \"Oslo\"}{\"city\": \"Bergen\"}", "multiple"),
        ("", "empty"),
    ];
    for (text, wanted) in table {
        assert_eq!(class(text, "arguments"), wanted, "{text}");
    }
}

#[test]
fn a_flaw_says_where_and_keeps_the_value_out_of_what_is_printed() {
    let flaw = strict("{\"a\": 1,\n \"secret\": 9007199254740993}").unwrap_err();
    assert_eq!((flaw.offset(), flaw.severity(), flaw.is_json()), (20, Severity::Warning, true));
    assert!(!format!("{flaw:?} {flaw}").contains("secret"));
    assert_eq!(flaw.into_value().unwrap()["secret"], 9_007_199_254_740_993_u64);
    assert_eq!(strict("{\"a\": x}").unwrap_err().offset(), 6);
    assert_eq!(strict("{\"a\": 1").unwrap_err().offset(), 7);
    let twice = strict("{\"a\": 1, \"a\": 2}").unwrap_err();
    assert_eq!((twice.offset(), twice.severity()), (9, Severity::Error));
}

#[test]
fn a_call_is_checked_by_name_first_and_by_its_arguments_then() {
    let call = |name: &str, arguments: &str| ToolCall::new(name, arguments);
    let check = |call: ToolCall| check_call(&call, Some(&OFFERED));
    assert_eq!(check(call("get_weather", "{}")), None);
    let unknown = check(call("get_whether", "{}")).unwrap();
    assert_eq!(unknown.kind(), Some(SoftKind::UnknownTool));
    assert!(unknown.message().contains("get_weather"), "re-asking needs the names: {}", unknown.message());
    for bad in ["", "{\"city\": \"Os", "[]", r#"{"name": "get_weather", "arguments": {}}"#] {
        let finding = check(call("get_weather", bad)).unwrap();
        assert_eq!(
            (finding.kind(), finding.severity()),
            (Some(SoftKind::ToolCall), Severity::Error),
            "{bad}"
        );
    }
    let long_id = check(call("get_weather", r#"{"id": 1234567890123456789}"#)).unwrap();
    assert_eq!(long_id.severity(), Severity::Warning);
    assert_eq!(check_call::<&str>(&call("anything", "{}"), None), None);
}

#[test]
fn a_leak_needs_an_offered_name_and_is_not_an_explanation() {
    let leaks = [
        "Let me look.<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"ci",
        "<tool_call>get_weather\n<arg_key>city</arg_key>",
        "<invoke name=\"get_weather\">",
        "[TOOL_CALLS]get_weather[ARGS]{}",
        "<|python_tag|>get_weather.call(city=\"Oslo\")",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n",
        "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{}",
        "```json\n{\"name\": \"get_weather\", \"parameters\": {}}\n```",
        "{\"tool\": \"get_weather\", \"tool_input\": {}}",
        "<|channel|>commentary to=functions.get_weather <|message|>{}",
        "[get_weather(city=\"Oslo\")]",
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": \"{}\"}}]",
    ];
    for text in leaks {
        assert!(leaked(text, &OFFERED).is_some(), "{text}");
    }
    let fine = [
        "The tool get_weather was called.",
        "Write `<function=get_weather>` to call it.",
        "```xml\n<tool_call>{\"name\": \"get_weather\"}</tool_call>\n```\nis the form.",
        "<function=get_weather_tomorrow>{}</function>",
        "{\"name\": \"Oslo\", \"arguments\": {}}",
        "{\"tool\": \"get_weather\", \"why\": \"it rains\"}",
        "[get_weather] (https://a.example)",
        "{\"name\": \"get_weather\", \"description\": \"gets the weather\"}",
    ];
    for text in fine {
        assert_eq!(leaked(text, &OFFERED), None, "{text}");
    }
}

#[test]
fn hostile_texts_of_ten_megabytes_take_bounded_time() {
    // What is quadratic takes minutes at this size too; in release mode ten times as much is taken.
    const SIZE: usize = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };
    let repeat = |piece: &str| piece.repeat(SIZE / piece.len());
    let keys: String = (0..SIZE / 12).map(|i| format!("\"k{i}\":1,")).collect();
    let hostile = [
        repeat("["),
        repeat("{\"a\":"),
        repeat("x{"),
        repeat("{x}"),
        repeat("x {\"a\" 1}"),
        repeat("x\n["),
        repeat("\n"),
        repeat("<tool_call>"),
        repeat("```\n"),
        repeat("`<tool_call>"),
        repeat("日 to="),
        repeat("\\\""),
        format!("\"{}", repeat("\\")),
        format!("[{}", repeat("1,")),
        repeat("9"),
        format!("{{{keys}\"k0\":2}}"),
        format!("<think>{}", repeat("a")),
        repeat("{\"a\":1}"),
    ];
    for text in hostile {
        let start = tokio::time::Instant::now();
        assert!(object(&text).is_err());
        assert!(arguments(&text).is_err());
        let _ = leaked(&text, &OFFERED);
        assert!(start.elapsed().as_secs() < 10, "{:?} for {:.20}", start.elapsed(), text);
    }
}

proptest::proptest! {
    #[test]
    fn any_text_has_a_verdict_and_an_offset_inside_it(text in "[\\{\\}\\[\\]\":,a0-9e.+\\-\\\\ \n`<>é]{0,60}") {
        let plain = serde_json::from_str::<Value>(&text);
        match strict(&text) {
            Ok(value) => proptest::prop_assert_eq!(value, plain.unwrap()),
            Err(flaw) => {
                proptest::prop_assert!(flaw.offset() <= text.len());
                proptest::prop_assert_eq!(flaw.clone().into_value().is_some(), plain.is_ok());
            }
        }
        let _ = (arguments(&text), leaked(&text, &["a"]));
    }

    #[test]
    fn a_valid_object_cut_anywhere_is_truncated(cut in 1_usize..60) {
        let whole = r#"{"a": [1.5, true, null], "b": {"c": "é\n\u00e9", "d": -12}}"#;
        let cut = (0..=cut.min(whole.len() - 1)).rev().find(|&at| whole.is_char_boundary(at)).unwrap();
        proptest::prop_assume!(cut > 0);
        proptest::prop_assert_eq!(class(&whole[..cut], "reply"), "truncated");
    }
}

#[test]
fn an_envelope_that_is_encoded_twice_is_no_arguments_and_a_text_that_is_json_is() {
    for envelope in [
        r#"{"arguments": "{\"a\": 1}"}"#,
        r#"{"parameters": "{}"}"#,
        r#"{"name": "pay", "input": "{\"a\": 1}"}"#,
    ] {
        assert!(arguments(envelope).is_err_and(|flaw| flaw.kind == FlawKind::Arguments), "{envelope}");
    }
    for good in [r#"{"input": "{\"a\": 1}"}"#, r#"{"arguments": "no JSON"}"#, r#"{"input": {"a": 1}}"#] {
        assert!(arguments(good).is_ok(), "{good}");
    }
}
