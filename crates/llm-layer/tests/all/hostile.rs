//! No bytes make the layer panic, whatever a peer sends.

use std::sync::LazyLock;

use failsoft_core::MAX_FINDINGS;
use http::{HeaderMap, StatusCode};
use llm_layer::{Offered, Provider};
use proptest::prelude::*;

/// Read once for all cases.
static SAMPLES: LazyLock<Vec<crate::common::Sample>> = LazyLock::new(crate::common::samples);

fn judge(status: u16, body: &[u8], offered: &Offered) {
    let Ok(status) = StatusCode::from_u16(status) else { return };
    let facts = Provider::OpenAiCompatible.judge(status, &HeaderMap::new(), body, offered);
    assert!(facts.verdict.is_some());
    assert!(facts.report.findings().len() <= MAX_FINDINGS);
    let text = facts.text.map_or(0, |text| text.len());
    // A replacement character takes three bytes in place of one.
    assert!(text <= 3 * body.len());
}

fn offered() -> Offered {
    Offered::of_body(
        br#"{"messages":[],"max_tokens":3,"response_format":{"type":"json_object"},
        "tools":[{"function":{"name":"get_weather"}}]}"#,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_have_a_verdict(status in 100u16..1000, body in proptest::collection::vec(any::<u8>(), 0..400)) {
        judge(status, &body, &Offered::unknown());
        judge(200, &body, &offered());
        let _ = Offered::of_body(&body);
    }

    #[test]
    fn any_cut_and_any_changed_byte_of_a_sample_has_a_verdict(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        status in prop_oneof![Just(200u16), Just(400), Just(429), 200u16..600],
    ) {
        let mut body = which.get(&SAMPLES).body.clone();
        for (at, byte) in changes {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        judge(status, &body, &offered());
        body.truncate(cut.index(body.len() + 1));
        judge(status, &body, &offered());
    }

    #[test]
    fn any_text_may_stand_in_any_field(text in ".{0,80}", raw in "(null|[0-9]{1,30}|\\[\\]|\\{\\}|\"x\"|true|-1e9)") {
        let quoted = serde_json::to_string(&text).unwrap();
        for value in [quoted, raw] {
            let body = format!(
                r#"{{"error":{value},"object":{value},"usage":{value},"choices":[{value},{{"finish_reason":{value},
                "message":{{"content":{value},"refusal":{value},"reasoning":{value},"tool_calls":[{value},
                {{"id":{value},"function":{{"name":{value},"arguments":{value}}}}}]}}}}]}}"#
            );
            judge(200, body.as_bytes(), &offered());
            judge(400, body.as_bytes(), &offered());
            let error = format!(
                r#"[{{"error":{{"code":{value},"type":{value},"status":{value},"message":{value},
                "metadata":{{"raw":{value},"headers":{value}}},"innererror":{value}}}}}]"#
            );
            judge(429, error.as_bytes(), &offered());
        }
    }
}

#[test]
fn a_body_that_nests_without_end_is_no_trouble() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    for body in [
        deep("[", "]"),
        deep("{\"error\":", "}"),
        deep("[", ""),
        deep("{\"choices\":[", "]}"),
        format!(r#"{{"choices":[{{"message":{{"content":{}}}}}]}}"#, deep("[", "]")),
        format!(
            r#"{{"choices":[{{"message":{{"tool_calls":[{{"function":{{"name":"a","arguments":{}}}}}]}}}}]}}"#,
            deep("{\"a\":", "1}")
        ),
    ] {
        judge(200, body.as_bytes(), &offered());
        judge(400, body.as_bytes(), &offered());
        let _ = Offered::of_body(body.as_bytes());
    }
}

#[test]
fn more_tool_calls_than_anyone_makes_are_an_error_and_not_kept() {
    let calls = r#"{"function":{"name":"get_weather","arguments":"{}"}},"#.repeat(5_000);
    let body = format!(
        r#"{{"choices":[{{"message":{{"tool_calls":[{}]}},"finish_reason":"tool_calls"}}]}}"#,
        calls.trim_end_matches(',')
    );
    let facts = Provider::OpenAiCompatible.judge(
        StatusCode::OK,
        &HeaderMap::new(),
        body.as_bytes(),
        &Offered::unknown(),
    );
    assert_eq!(facts.verdict.map(|verdict| verdict.class().as_str()), Some("soft.tool_call"));
    assert!(facts.tool_calls.len() <= 1024);
}
