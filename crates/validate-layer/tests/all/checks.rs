//! Each check alone, and what all of them together let be.

use failsoft_core::{Class, Finding, Finish, Hint, Report, Severity, SoftKind, ToolCall};
use validate_layer::{
    Answer, Check, ValidateLayer, check_fn,
    checks::{FinishReason, Json, Length, NotEmpty, Require, ToolCalls, count_words, estimate_tokens},
};

fn code(report: &Report) -> Option<&'static str> {
    report.leading().map(Finding::code)
}

fn calls(name: &str, arguments: &str) -> Answer {
    Answer::without_text().with_tool_calls([ToolCall::new(name, arguments)])
}

#[test]
fn an_answer_with_nothing_to_see_is_empty() {
    for text in ["", " \n\t", "\u{200b}\u{feff}", "\0", "\u{3000}\u{a0}\u{2003}", "\u{200e}\u{2060}"] {
        assert_eq!(code(&NotEmpty.on_text(text)), Some("empty"), "{text:?}");
    }
    assert_eq!(code(&NotEmpty.on_answer(&Answer::without_text())), Some("empty"));
    assert!(NotEmpty.on_answer(&calls("x", "{}")).is_empty());
    assert!(NotEmpty.on_text("0").is_empty());
}

#[test]
fn reasoning_alone_is_no_answer() {
    for text in ["<think>so, first", "<think>so</think>\n", "\n<thinking>a</thinking>"] {
        assert_eq!(code(&NotEmpty.on_text(text)), Some("empty.reasoning_only"), "{text}");
    }
    assert!(NotEmpty.on_text("<think>so</think> 42").is_empty());
}

#[test]
fn only_a_good_end_is_taken_for_one() {
    let end = |finish| code(&FinishReason.on_answer(&Answer::new("text").with_finish(finish)));
    assert_eq!(end(Finish::Stop), None);
    assert_eq!(end(Finish::Length), Some("finish.length"));
    assert_eq!(end(Finish::ContentFilter), Some("finish.content_filter"));
    assert_eq!(end(Finish::Other("error_finish".into())), Some("finish.unknown"));
    assert_eq!(end(Finish::ToolCalls), Some("finish.no_tool_calls"));
    assert!(FinishReason.on_answer(&calls("x", "{}").with_finish(Finish::ToolCalls)).is_empty());
    assert!(FinishReason.on_text("text").is_empty());
}

#[test]
fn fenced_json_is_named_and_never_unwrapped() {
    assert_eq!(code(&Json::any().on_text("```json\n{\"a\": 1}\n```")), Some("json.wrapped"));
    assert_eq!(code(&Json::any().on_text("{\"a\": 1")), Some("json.truncated"));
    assert_eq!(code(&Json::any().on_text("")), Some("json.empty"));
    assert!(Json::any().on_text("[1]").is_empty());
    assert_eq!(code(&Json::object().on_text("[1]")), Some("json.non-object"));
    assert!(Json::object().on_value(serde_json::json!({"a": 1})).is_empty());
}

#[test]
fn a_number_that_most_readers_change_is_a_warning() {
    let report = Json::object().on_text(r#"{"id": 9007199254740993}"#);
    assert_eq!((code(&report), report.worst()), (Some("json.lossy"), Some(Severity::Warning)));
    let layer = ValidateLayer::builder().require("/id").build().unwrap();
    let (verdict, report) = layer.validator().judge(&Answer::new(r#"{"id": 9007199254740993}"#));
    assert!(verdict.is_success() && !report.is_empty());
}

#[test]
fn a_required_field_is_there_and_not_null() {
    let require = Require::new(["/city", "/days/0/high", "/a~1b"]).unwrap();
    let good = r#"{"city": "", "days": [{"high": 0}], "a/b": false}"#;
    assert!(require.on_text(good).is_empty());
    let report = require.on_text(r#"{"city": null, "days": []}"#);
    let paths: Vec<_> = report.findings().iter().map(|finding| finding.path().unwrap()).collect();
    assert_eq!(paths, ["/city", "/days/0/high", "/a~1b"]);
    assert_eq!(report.leading().unwrap().kind(), Some(SoftKind::MissingField));
    assert_eq!(code(&require.on_text("no JSON")), Some("json.non-object"));
    assert!(require.on_answer(&calls("x", "{}")).is_empty(), "a tool call is not the object asked for");
}

#[test]
fn what_is_no_json_is_said_once() {
    let layer = ValidateLayer::builder().json().require("/a").require("/b").build().unwrap();
    let (_, report) = layer.validator().judge(&Answer::new("{\"a\": 1"));
    assert_eq!(report.findings().len(), 1);
}

#[test]
fn words_are_counted_in_every_script() {
    let table = [
        ("", 0),
        ("one", 1),
        ("don't stop — now.", 3),
        ("Добрый день, мир", 3),
        ("नमस्ते दुनिया", 2),
        ("مرحبا بالعالم", 2),
        ("안녕하세요 세계", 2),
        ("你好世界", 2),
        ("断路器打开了,请稍后再试。", 6),
        ("モデルが応答しません", 5),
        ("GPT は 東京 です", 4),
        ("བོད་ཀྱི་སྐད་ཡིག", 4),
        ("ሰላም፡ለዓለም፡ሁሉ", 3),
    ];
    for (text, words) in table {
        assert_eq!(count_words(text), words, "{text}");
    }
    // Javanese, Balinese, and Tai Tham have no spaces either.
    for text in ["ꦱꦧꦼꦤ꧀ꦲꦸꦮꦺꦴꦁꦏꦭꦲꦶꦂꦫꦏꦺ", "ᬲᬓᬮᬮᬫᬦᬸᬲᬯ", "ᨠᩣᩴᨾᩮᩬᩥᨦᩃ᩶ᩣᨶᨶᩣ"]
    {
        assert!((2..=8).contains(&count_words(text)), "{text}: {}", count_words(text));
    }
    // Eight words of Thai.
    assert!((6..=12).contains(&count_words("วันนี้อากาศดีมากและไม่มีฝนตกเลย")));
}

#[test]
fn far_below_the_expected_length_is_cut_short_in_every_script() {
    let prose = "The circuit opens when too many calls fail, and a few probes decide when it closes again. ";
    let chinese = "当太多调用失败时断路器会打开,然后由几个探测请求决定何时再次关闭。";
    for text in [prose, chinese] {
        let expected = count_words(text) * 4;
        assert!(Length::words(expected).on_text(text).is_empty());
        let short: String = text.chars().take(9).collect();
        assert_eq!(code(&Length::words(expected).on_text(&short)), Some("length"), "{short}");
    }
    assert_eq!(code(&Length::chars(100).on_text(&"ab ".repeat(9))), Some("length"));
    assert!(Length::chars(100).on_text(&"ab ".repeat(10)).is_empty());
    assert!(Length::words(100).below(0.01).on_text("one").is_empty());
    assert!(Length::words(3).on_text(&"much longer than expected ".repeat(50)).is_empty());
}

#[test]
fn tokens_are_estimated_in_every_script() {
    // Within a third of what a vocabulary of 200 000 tokens has for texts of this kind.
    for (text, about) in
        [("The circuit opens when too many calls fail.", 9), ("当太多调用失败时断路器会打开", 12)]
    {
        let estimate = usize::try_from(estimate_tokens(text)).unwrap();
        assert!(estimate * 3 >= about * 2 && estimate * 2 <= about * 3, "{text}: {estimate}");
        let code = |expected| code(&Length::tokens(expected).on_text(text));
        assert_eq!((code(estimate * 5), code(estimate * 5 + 6)), (None, Some("length")));
    }
    assert_eq!(estimate_tokens(""), 0);
}

#[test]
fn an_expected_length_in_tokens_is_reached_also_by_a_text_that_begins_like_an_image() {
    let image = format!("{} {}", "a".repeat(20_000), "word ".repeat(2_000));
    assert!(Length::tokens(3_000).below(1.0).on_text(&image).is_empty());
    assert_eq!(code(&Length::tokens(5_000).below(1.0).on_text(&image)), Some("length"));
}

#[test]
fn cut_arguments_are_never_an_empty_object() {
    let check = ToolCalls::offered(["write_file"]);
    for bad in ["", " ", "{\"path\": \"/etc", "{\"path\": ", "null", "[]", "\"{}\"", "{}{}"] {
        assert_eq!(code(&check.on_answer(&calls("write_file", bad))), Some("tool.arguments"), "{bad}");
    }
    assert!(check.on_answer(&calls("write_file", "{}")).is_empty());
    let bare = ToolCalls::any().and_without_parameters(["list_files"]);
    assert!(bare.on_answer(&calls("list_files", "")).is_empty());
    assert_eq!(code(&bare.on_answer(&calls("list_files", "{"))), Some("tool.arguments"));
}

#[test]
fn an_unknown_tool_is_answered_with_those_there_are() {
    let report = ToolCalls::offered(["get_weather", "get_time"]).on_answer(&calls("get_whether", "{}"));
    let finding = report.leading().unwrap();
    assert_eq!((finding.kind(), finding.path()), (Some(SoftKind::UnknownTool), Some("/tool_calls/0")));
    assert!(finding.message().contains("get_weather, get_time"), "{}", finding.message());
    assert!(ToolCalls::any().on_answer(&calls("anything", "{}")).is_empty());
}

#[test]
fn a_call_left_in_the_text_is_found_where_its_tool_was_offered() {
    let text = r#"<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>"#;
    assert_eq!(code(&ToolCalls::offered(["get_weather"]).on_text(text)), Some("tool.leaked"));
    assert!(ToolCalls::offered(["other"]).on_text(text).is_empty());
    assert!(ToolCalls::any().on_text(text).is_empty());
}

#[test]
fn a_function_is_a_check() {
    let finding = |answer: &Answer| {
        let wrong = answer.text().is_some_and(|text| text.contains("TODO"));
        if wrong { Err(Finding::new(SoftKind::Truncated, "placeholder", "a placeholder")) } else { Ok(()) }
    };
    assert_eq!(code(&check_fn("ignored", finding).on_text("TODO")), Some("placeholder"));
    let message = check_fn("odd", |answer: &Answer| match answer.value() {
        Some(value) if value["n"].as_u64().is_some_and(|n| n % 2 == 1) => {
            Err(format!("{} is odd", value["n"]))
        }
        _ => Ok(()),
    });
    let report = message.on_value(serde_json::json!({"n": 3}));
    assert_eq!(report.to_string(), "odd: 3 is odd");
    assert!(message.on_text("{\"n\": 2}").is_empty());
}

#[test]
fn the_hint_says_whether_the_same_request_may_help() {
    let layer = ValidateLayer::builder().tools(["t"]).expected_length(Length::words(100)).build().unwrap();
    let judge = |answer: Answer| {
        let (verdict, _) = layer.validator().judge(&answer);
        (verdict.class(), verdict.hint())
    };
    let soft = Class::Soft;
    let long: String = (0..90).map(|i| format!("word{i} ")).collect();
    assert_eq!(judge(Answer::new("")), (soft(SoftKind::Empty), Hint::Same));
    assert_eq!(judge(Answer::new("And so")), (soft(SoftKind::Truncated), Hint::Same));
    assert_eq!(judge(calls("t", "{\"a\":")), (soft(SoftKind::ToolCall), Hint::Modify));
    assert_eq!(judge(calls("u", "{}")), (soft(SoftKind::UnknownTool), Hint::Modify));
    assert_eq!(judge(Answer::new("<think>a</think>")), (soft(SoftKind::Empty), Hint::Modify));
    // The limit of tokens was reached: the same again is cut again, whatever it looks like.
    let cut = |answer: Answer| judge(answer.with_finish(Finish::Length));
    assert_eq!(cut(Answer::new("")), (soft(SoftKind::Truncated), Hint::Modify));
    assert_eq!(cut(Answer::new(&*long)), (soft(SoftKind::Truncated), Hint::Modify));
    assert_eq!(cut(calls("t", "{\"a\":")), (soft(SoftKind::Truncated), Hint::Modify));
    let filtered = judge(Answer::new(&*long).with_finish(Finish::ContentFilter));
    assert_eq!(filtered, (Class::Refused, Hint::Fallback));

    let stubborn = ValidateLayer::builder().hint(SoftKind::Empty, Hint::Never).build().unwrap();
    assert_eq!(stubborn.validator().judge(&Answer::new("")).0.hint(), Hint::Never);
}

#[test]
fn with_defaults_nothing_that_is_an_answer_is_an_alarm() {
    let corpus = [
        "Yes.",
        "42",
        "👍",
        "No",
        "The circuit opens when too many calls fail; then a few probes decide when it closes again.",
        "Предохранитель размыкается, когда слишком много вызовов заканчивается неудачей.",
        "Το κύκλωμα ανοίγει όταν αποτυγχάνουν πάρα πολλές κλήσεις.",
        "当太多调用失败时,断路器会打开。",
        "呼び出しの失敗が多すぎると、回路が開きます。",
        "너무 많은 호출이 실패하면 회로가 열립니다.",
        "تفتح الدائرة عندما تفشل مكالمات كثيرة جدًا.",
        "המעגל נפתח כאשר קריאות רבות מדי נכשלות.",
        "बहुत अधिक कॉल विफल होने पर सर्किट खुल जाता है।",
        "วงจรจะเปิดเมื่อมีการเรียกที่ล้มเหลวมากเกินไป",
        "```rust\nfn main() {\n    println!(\"<tool_call>\");\n}\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 1 | 2 |\n| 1 | 2 |",
        "{\"name\": \"Oslo\", \"arguments\": [1, 2, 3]}",
        "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]",
        "Call `get_weather` like this: `<function=get_weather>{}</function>`.",
        "<html><body>Here is the page you asked for.</body></html>",
        "To stop: <think> is a tag that some models write.",
        "2026-01-01T00:00:00Z ERROR connection reset by peer\n2026-01-01T00:00:01Z INFO ok",
        "∫₀^∞ e^{-x²} dx = √π / 2",
        "Roses are red,\nviolets are blue,\nroses are red,\nand so are you.",
    ];
    let layer = ValidateLayer::builder().tools(["get_weather"]).build().unwrap();
    for text in corpus {
        let (verdict, report) = layer.validator().judge(&Answer::new(text).with_finish(Finish::Stop));
        assert!(verdict.is_success() && report.is_empty(), "{text}: {report}");
    }
}

#[test]
fn printing_an_answer_shows_none_of_it() {
    let answer = Answer::new("secret").with_tool_calls([ToolCall::new("x", "secret")]);
    assert!(!format!("{answer:?}").contains("secret"));
}
