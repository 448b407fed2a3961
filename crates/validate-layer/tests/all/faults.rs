//! Faults seen in the field, each as a test that begins with the fault's number.

use failsoft_core::{Class, Finish, Hint, SoftKind, ToolCall, Verdict};
use validate_layer::{Answer, ValidateBuilder, ValidateLayer, checks::Length};

fn judge(build: impl FnOnce(ValidateBuilder) -> ValidateBuilder, answer: &Answer) -> Verdict {
    build(ValidateLayer::builder()).build().unwrap().validator().judge(answer).0
}

fn calls<const N: usize>(calls: [(&str, &str); N]) -> Answer {
    Answer::without_text().with_tool_calls(calls.map(|(name, arguments)| ToolCall::new(name, arguments)))
}

#[test]
fn g73_an_empty_turn_that_ended_well_is_a_failure() {
    let verdict = judge(|b| b, &Answer::new("").with_finish(Finish::Stop));
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::Empty), Hint::Same));
}

#[test]
fn g83_fenced_json_is_told_apart_from_broken_json() {
    let layer = ValidateLayer::builder().json_object().build().unwrap();
    let code = |text| layer.validator().judge(&Answer::new(text)).1.leading().unwrap().code();
    assert_eq!(code("```json\n{\"a\": 1}\n```"), "json.wrapped");
    assert_eq!(code("{\"a\" 1}"), "json.syntax");
}

#[test]
fn v_d1_cut_arguments_never_pass_for_an_empty_object() {
    for cut in ["", "{", "{\"path\": \"/etc/ho"] {
        let verdict = judge(|b| b.tools(["write_file"]), &calls([("write_file", cut)]));
        assert_eq!(verdict.class(), Class::Soft(SoftKind::ToolCall), "{cut:?}");
    }
    let bare = judge(|b| b.tools_without_parameters(["list_files"]), &calls([("list_files", "")]));
    assert!(bare.is_success(), "a tool without parameters needs no arguments");
}

#[test]
fn v_d3_arguments_cut_at_the_limit_of_tokens_are_truncated_and_need_another_request() {
    let answer = calls([("write_file", "{\"path\": \"/e")]).with_finish(Finish::Length);
    let verdict = judge(|b| b.tools(["write_file"]), &answer);
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::Truncated), Hint::Modify));
}

#[test]
fn v_d6_an_invented_tool_is_a_kind_of_its_own_and_the_offered_ones_are_named() {
    let layer = ValidateLayer::builder().tools(["get_weather", "get_time"]).build().unwrap();
    let (verdict, report) = layer.validator().judge(&calls([("weather_now", "{}")]));
    assert_eq!(verdict.class(), Class::Soft(SoftKind::UnknownTool));
    assert!(report.leading().unwrap().message().contains("get_weather, get_time"));
}

#[test]
fn v_d7_a_call_in_the_text_counts_only_where_its_tool_was_offered() {
    let answer = Answer::new(r#"<tool_call>{"name": "get_time", "arguments": {}}</tool_call>"#);
    let leaked = judge(|b| b.tools(["get_time"]), &answer);
    assert_eq!(leaked.class(), Class::Soft(SoftKind::LeakedToolCall));
    assert!(judge(|b| b.tools(["get_weather"]), &answer).is_success());
    assert!(judge(|b| b, &answer).is_success(), "no tool was offered");
}

#[test]
fn v_e2_reasoning_that_used_up_all_tokens_is_not_sent_again_as_it_was() {
    for answer in [Answer::new("").with_finish(Finish::Length), Answer::new("<think>so, first")] {
        assert_eq!(judge(|b| b, &answer).hint(), Hint::Modify, "{:?}", answer.finish());
    }
}

#[test]
fn v_e3_unclosed_json_is_a_failure() {
    let layer = ValidateLayer::builder().json().build().unwrap();
    let (verdict, report) = layer.validator().judge(&Answer::new("{\"steps\": [\"one\", \"tw"));
    assert!(!verdict.is_success());
    assert_eq!(report.leading().unwrap().code(), "json.truncated");
}

#[test]
fn v_f3_each_of_several_calls_has_its_own_finding() {
    let layer = ValidateLayer::builder().tools(["a", "b"]).build().unwrap();
    let (_, report) = layer.validator().judge(&calls([("a", "{"), ("b", "{}"), ("c", "{}")]));
    let found: Vec<_> = report.findings().iter().map(|f| (f.path().unwrap(), f.code())).collect();
    assert_eq!(found, [("/tool_calls/0", "tool.arguments"), ("/tool_calls/2", "tool.unknown")]);
}

#[test]
fn v_j2_whitespace_without_end_is_a_loop_whatever_the_json_before_it() {
    let text = ["{\"items\": [{\"text\": \"alpha\"", &" \n".repeat(2000)].concat();
    for finish in [Finish::Stop, Finish::Length] {
        let verdict = judge(|b| b.json(), &Answer::new(&*text).with_finish(finish));
        assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::Repetition), Hint::Modify));
    }
}

#[test]
fn v_j3_a_loop_that_the_server_stopped_as_if_it_were_done_is_a_loop() {
    let text = "I'll do it now. ".repeat(80);
    let verdict = judge(|b| b, &Answer::new(&*text).with_finish(Finish::Stop));
    assert_eq!(verdict.class(), Class::Soft(SoftKind::Repetition));
    assert!(
        judge(ValidateBuilder::allow_repetition, &Answer::new(&*text).with_finish(Finish::Stop)).is_success()
    );
}

#[test]
fn v_h8_a_text_without_spaces_is_as_long_as_it_is() {
    let text = "当太多调用失败时断路器会打开然后由几个探测请求决定何时再次关闭";
    for length in [Length::words(16), Length::chars(31), Length::tokens(31)] {
        assert!(judge(|b| b.expected_length(length), &Answer::new(text)).is_success(), "{length:?}");
    }
}
