//! Ten megabytes made to be slow: each is judged in bounded time and memory, with a finding that says what it is.
//!
//! Steps are not counted here; a bound of a minute in a debug build fails what is quadratic (hours) and nothing else.

use std::time::Duration;

use failsoft_core::{Report, Verdict};
use tokio::time::Instant;
use validate_layer::{Answer, ValidateBuilder, ValidateLayer};

const SIZE: usize = 10_000_000;

fn judge(build: impl FnOnce(ValidateBuilder) -> ValidateBuilder, text: String) -> (Verdict, Report) {
    let layer = build(ValidateLayer::builder()).build().unwrap();
    let answer = Answer::new(text);
    let start = Instant::now();
    let judged = layer.validator().judge(&answer);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    judged
}

fn code(judged: &(Verdict, Report)) -> Option<&'static str> {
    judged.1.leading().map(failsoft_core::Finding::code)
}

fn to_size(unit: &str) -> String {
    unit.repeat(SIZE / unit.len() + 1)
}

#[test]
fn one_letter() {
    assert_eq!(code(&judge(|b| b, to_size("a"))), Some("repetition.loop"));
}

#[test]
fn whitespace_around_nothing() {
    let text = ["x", &to_size(" \n"), "y"].concat();
    assert_eq!(code(&judge(|b| b, text)), Some("repetition.whitespace"));
}

#[test]
fn almost_periodic() {
    // Each border fails late: what makes a naive search for periods quadratic.
    let text = to_size(&[&"a".repeat(2000), "b"].concat());
    assert_eq!(code(&judge(|b| b, text)), Some("repetition.loop"));
    let (mut long, mut short) = ("xy ".to_owned(), "z ".to_owned());
    while long.len() < SIZE {
        (long, short) = ([&*long, &*short].concat(), long);
    }
    // A Fibonacci word has runs everywhere and four copies of nothing.
    assert_eq!(code(&judge(|b| b, long)), Some("repetition.variety"));
}

#[test]
fn runs_of_whitespace_that_are_never_long_enough() {
    let text = to_size(&["word", &" ".repeat(1500), "\n"].concat());
    assert!(code(&judge(|b| b, text)).is_some());
}

/// Blocks of 4 KiB that are this many copies of one piece each, no two of them alike.
fn blocks_that_are_loops(copies: usize) -> String {
    let mut state = 1_u64;
    let mut letters = |count: usize| -> String {
        (0..count)
            .map(|at| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let letter = char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap());
                if at % 8 == 7 { '\n' } else { letter }
            })
            .collect()
    };
    let mut text = "```\n".to_owned();
    text += &letters(4096 - text.len());
    while text.len() < SIZE {
        let unit = letters(4096 / copies);
        let block = unit.repeat(copies);
        text += &block;
        text += &unit[..4096 - block.len()];
    }
    text + "And so it ends, with something that is not like what was before it."
}

#[test]
fn blocks_that_are_almost_loops() {
    // Each asked anew how many code fences there are before it: the first never enough copies, the second inside of a fence.
    for copies in [4, 9] {
        let found = judge(|b| b, blocks_that_are_loops(copies));
        assert!(found.0.is_success(), "{copies} {}", found.1);
    }
}

#[test]
fn nested_deeper_than_any_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let depth = SIZE / (open.len() + close.len());
        let text = [&*open.repeat(depth), "1", &close.repeat(depth)].concat();
        let found = judge(|b| b.json().require("/a").allow_repetition(), text);
        assert_eq!(code(&found), Some("json.depth"));
        let cut = judge(|b| b.json().allow_repetition(), open.repeat(depth));
        assert!(!cut.0.is_success());
    }
}

#[test]
fn a_million_keys() {
    let keys: String = (0..1_000_000).map(|i| format!("\"{i}\":0,")).collect();
    let text = ["{", &keys, "\"0\":1}"].concat();
    assert_eq!(code(&judge(|b| b.json().require("/missing"), text)), Some("json.duplicate-key"));
    let text = ["{", &keys, "\"a\":1}"].concat();
    let found = judge(|b| b.json().require("/missing").require("/a"), text);
    assert_eq!((code(&found), found.1.findings().len()), (Some("required"), 1));
}
