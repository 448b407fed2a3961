//! With defaults, nothing that is an answer is an alarm, and everything that goes round in circles is one.
//!
//! The texts in `corpus/` were written for this test; `%%` on a line of its own ends one. A degenerate text is a line of
//! JSON: what comes `before`, a `unit` and how many `copies` of it, and what comes `after`.

use failsoft_core::{Class, Finish, Hint, SoftKind};
use serde_json::Value;
use validate_layer::{Answer, ValidateLayer};

const ANSWERS: [(&str, &str); 9] = [
    ("prose", include_str!("../corpus/prose.txt")),
    ("one-word", include_str!("../corpus/one-word.txt")),
    ("maths", include_str!("../corpus/maths.txt")),
    ("tables", include_str!("../corpus/tables.txt")),
    ("json", include_str!("../corpus/json.txt")),
    ("logs", include_str!("../corpus/logs.txt")),
    ("poems-and-art", include_str!("../corpus/poems-and-art.txt")),
    ("code", include_str!("../corpus/code.txt")),
    ("other", include_str!("../corpus/other.txt")),
];

#[test]
fn no_answer_is_an_alarm() {
    let layer = ValidateLayer::builder().build().unwrap();
    let (mut number, mut alarms) = (0, Vec::new());
    for (file, texts) in ANSWERS {
        for text in texts.split_terminator("\n%%\n") {
            number += 1;
            let (_, report) = layer.validator().judge(&Answer::new(text).with_finish(Finish::Stop));
            if !report.is_empty() {
                let start: String = text.chars().take(60).collect();
                alarms.push(format!("{file}: {report}: {start:?}"));
            }
        }
    }
    assert!(alarms.is_empty(), "{}", alarms.join("\n"));
    assert!(number >= 300, "{number}");
}

#[test]
fn all_that_goes_round_in_circles_is_found() {
    let layer = ValidateLayer::builder().build().unwrap();
    let lines: Vec<Value> = include_str!("../corpus/degenerate.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut missed = Vec::new();
    for line in &lines {
        let part = |name: &str| line[name].as_str().unwrap();
        let copies = usize::try_from(line["copies"].as_u64().unwrap()).unwrap();
        let text = [part("before"), &part("unit").repeat(copies), part("after")].concat();
        for finish in [Finish::Stop, Finish::Length] {
            let (verdict, report) = layer.validator().judge(&Answer::new(&*text).with_finish(finish));
            if (verdict.class(), verdict.hint()) != (Class::Soft(SoftKind::Repetition), Hint::Modify) {
                missed.push(format!("{}: {:?}: {report}", part("name"), verdict.class()));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(lines.len() >= 60, "{}", lines.len());
}

#[test]
fn the_same_in_other_words_is_found_too() {
    let layer = ValidateLayer::builder().build().unwrap();
    let phrases = ["I should check the logs. ", "I will check the logs now. ", "Let me check the logs. "];
    // No exact copies: which one comes next follows no short pattern.
    let mut state = 1_u32;
    let text: String = (0..400)
        .map(|_| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            phrases[(state >> 16) as usize % 3]
        })
        .collect();
    let (verdict, report) = layer.validator().judge(&Answer::new(&*text));
    assert_eq!(verdict.class(), Class::Soft(SoftKind::Repetition), "{report}");
    assert_eq!(report.leading().unwrap().code(), "repetition.variety");
    // Counted: suspicious, and let through.
    let counted: String =
        (1..60).map(|i| format!("{i}. I will now do what was asked of me as well as I can. ")).collect();
    let (verdict, report) = layer.validator().judge(&Answer::new(&*counted));
    assert!(verdict.is_success());
    assert_eq!((report.leading().unwrap().code(), report.confidence()), ("repetition.variety", Some(0.5)));
}
