//! Refusals and errors in words, fences, and bodies that nothing can look into.

use failsoft_core::{Class, Finish, Hint, Report, Severity, SoftKind, Verdict};
use validate_layer::{
    Answer, Check, ValidateBuilder, ValidateLayer,
    checks::{ErrorText, Refusal, unfenced},
};

fn judge(build: impl FnOnce(ValidateBuilder) -> ValidateBuilder, answer: &Answer) -> (Verdict, Report) {
    build(ValidateLayer::builder()).build().unwrap().validator().judge(answer)
}

#[test]
fn a_refusal_in_words_is_one_only_where_it_was_asked_for() {
    let refusal = Answer::new("I'm sorry, but I can't help with that.");
    assert!(judge(|b| b, &refusal).0.is_success());
    let (verdict, report) = judge(ValidateBuilder::refusals, &refusal);
    assert_eq!((verdict.class(), verdict.hint()), (Class::Refused, Hint::Fallback));
    assert_eq!(report.leading().unwrap().code(), "refusal.text");
    // Also in the place of JSON, which it is not.
    assert_eq!(judge(|b| b.json_object().refusals(), &refusal).0.class(), Class::Refused);
}

#[test]
fn what_is_said_in_a_field_of_its_own_goes_before_words() {
    let (verdict, report) = judge(
        ValidateBuilder::refusals,
        &Answer::new("I can't help with that.").with_finish(Finish::Refusal),
    );
    assert_eq!(verdict.class(), Class::Refused);
    let codes: Vec<_> = report.findings().iter().map(|finding| finding.code()).collect();
    assert_eq!(codes, ["finish.content_filter"]);
}

#[test]
fn refusals_are_found_at_the_beginning() {
    for text in [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "I cannot assist you in doing this.",
        "Sorry, I can't help with that.",
        "Unfortunately, I am unable to assist with this.",
        "I apologize, but I cannot fulfill this request as it goes against my guidelines.",
        "As an AI language model, I cannot provide instructions for that.",
        "I'm sorry, but as an AI, I won't engage in that.",
        "**I'm not able to help with that.**",
        "I must respectfully decline.",
        "  \n\"I will not comply with this.\"",
    ] {
        assert!(!Refusal.on_text(text).is_empty(), "{text}");
    }
}

#[test]
fn answers_that_sound_like_refusals_are_none() {
    for text in [
        "I'm sorry to hear that your build failed. The linker cannot find libssl; install the dev package.",
        "I can't believe how well this works: the answer is 42.",
        "I cannot stress enough that backups matter.",
        "I can't provide an exact figure, but it is about 3 million.",
        "Sorry, my earlier answer was wrong: it is 7.",
        "Unfortunately the server is down, so restart it first.",
        "As an AI language model, I have no birthday. The company was founded in 1998.",
        "You can't help with that if you are away.",
        "The model said: I can't help with that.",
        "Sorry",
        "",
        "I'm",
        "对不起，我来晚了。",
        "I apologize for the confusion. The total is 12.",
    ] {
        assert!(Refusal.on_text(text).is_empty(), "{text}");
    }
    let long =
        format!("I can't help with that as written, so here is another way. {}", "It works so. ".repeat(100));
    assert!(Refusal.on_text(&long).is_empty());
    // Cut in the middle of a character by no limit of ours.
    assert!(Refusal.on_text(&"é".repeat(300)).is_empty());
}

#[test]
fn an_error_message_in_an_answers_place_may_be_asked_for_again() {
    let error =
        Answer::new("upstream connect error or disconnect/reset before headers. reset reason: overflow");
    assert!(judge(|b| b, &error).0.is_success());
    let (verdict, report) = judge(ValidateBuilder::error_texts, &error);
    assert_eq!((verdict.class(), verdict.hint()), (Class::Soft(SoftKind::Malformed), Hint::Same));
    assert_eq!(report.leading().unwrap().code(), "error.text");
    for text in [
        "Internal Server Error",
        "Bad Gateway\n",
        "502 Bad Gateway",
        "Internal Server Error: no upstream",
        "Internal Server Error\n\nThe server encountered an internal error.",
        "<!DOCTYPE html><html><head><title>example.com | 504: Gateway time-out</title></head></html>",
        "<html>\r\n<head><title>502 Bad Gateway</title></head>",
        "Traceback (most recent call last):\n  File \"x.py\"",
        r#"{"error": {"message": "overloaded", "type": "server_error"}}"#,
        r#"{"status": 500, "error": "Internal Server Error"}"#,
    ] {
        assert!(!ErrorText.on_text(text).is_empty(), "{text}");
    }
    for text in [
        "A traceback (most recent call last) is what Python prints.",
        "Internal errors are of two kinds.",
        "Service unavailable means 503.",
        "502 Bad Gateway means that a proxy got no good answer.",
        "**502 Bad Gateway** is a status of HTTP.",
        "# 503 Service Unavailable\n\nA server says this when it has too much to do.",
        "Internal server error, or 500, is what a server says of its own faults.",
        "Traceback (most recent call last) is the first line of what Python prints.",
        "<!DOCTYPE html>\n<html><head><title>My garden</title></head><body><h1>Roses</h1></body></html>",
        r#"{"error": null, "result": 4}"#,
        r#"{"error": "", "code": 0}"#,
        r#"{"error": "none found", "rows": []}"#,
    ] {
        assert!(ErrorText.on_text(text).is_empty(), "{text}");
    }
}

#[test]
fn g83_a_fence_is_taken_off_only_where_it_was_asked_for_and_the_report_says_so() {
    let fenced = Answer::new("```json\n{\"city\": \"Oslo\"}\n```");
    let (verdict, report) = judge(|b| b.require("/city"), &fenced);
    assert!(!verdict.is_success());
    assert_eq!(report.leading().unwrap().code(), "json.wrapped");
    let (verdict, report) = judge(|b| b.require("/city").unwrap_fences(), &fenced);
    assert!(verdict.is_success());
    let told = report.leading().unwrap();
    assert_eq!((told.code(), told.severity()), ("json.unwrapped", Severity::Warning));
    // What is inside is held to the same.
    let (verdict, report) = judge(|b| b.require("/town").unwrap_fences(), &fenced);
    assert_eq!(verdict.class(), Class::Soft(SoftKind::MissingField));
    assert!(report.findings().iter().any(|finding| finding.code() == "json.unwrapped"));
    // Neither words around it nor anything else is taken off.
    for text in [
        "Sure!\n```json\n{\"city\": 1}\n```",
        "```json\n{\"city\": 1}\n``` ```\nx\n```",
        "```json\n{\"city\": 1\n```",
    ] {
        assert!(!judge(|b| b.require("/city").unwrap_fences(), &Answer::new(text)).0.is_success(), "{text}");
    }
}

#[test]
fn a_fence_is_a_fence_only_as_a_whole() {
    assert_eq!(unfenced("```\n1\n```"), Some("1"));
    assert_eq!(unfenced(" ```JSON \r\n{}\r\n```\n"), Some("{}"));
    for text in [
        "",
        "```",
        "``````",
        "```\n```",
        "```json {} ```",
        "```js on\n1\n```",
        "`1`",
        "```\n1\n```\n```\n2\n```",
    ] {
        assert_eq!(unfenced(text), None, "{text:?}");
    }
}
