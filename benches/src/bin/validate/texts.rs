//! What is looked at: answers as they are, and as they are made to be slow.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// A JSON object of 4 KB as a model answers with: the same fields, fewer of them, and texts that say something.
pub(crate) fn answer() -> String {
    let items: Vec<Value> = (0..12)
        .map(|i| json!({"id": i, "title": sentence(i * 40, 38), "price": 3.5 * f64::from(i), "tags": ["new", word(i + 7)], "done": i % 3 == 0}))
        .collect();
    json!({"name": "order 7", "items": items, "total": 34, "note": sentence(900, 110)}).to_string()
}

fn sentence(from: u32, words: u32) -> String {
    (from..from + words).map(word).collect::<Vec<_>>().join(" ")
}

/// A JSON object of 4 KB that is all small fields.
pub(crate) fn object() -> String {
    let items: Vec<Value> = (0..43)
        .map(|i| json!({"id": i, "title": format!("part {} of the order", word(i)), "price": 3.5 * f64::from(i), "tags": ["new", word(i + 7)], "done": i % 3 == 0}))
        .collect();
    json!({"name": "order 7", "items": items, "total": 34, "note": "deliver in the morning"}).to_string()
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["name", "items", "total"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "total": {"type": "integer", "minimum": 0},
            "items": {"type": "array", "items": {
                "type": "object",
                "required": ["id", "title", "price"],
                "properties": {
                    "id": {"type": "integer"},
                    "title": {"type": "string"},
                    "price": {"type": "number", "minimum": 0},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "done": {"type": "boolean"}
                }
            }}
        }
    })
}

const WORDS: [&str; 24] = [
    "circuit", "opens", "when", "calls", "fail", "and", "the", "probe", "decides", "whether", "it", "closes",
    "again", "after", "a", "while", "of", "waiting", "for", "answers", "that", "never", "came", "back",
];

/// Follows no short pattern.
fn word(i: u32) -> &'static str {
    let mixed = i.wrapping_mul(2_654_435_761) >> 7;
    WORDS[mixed as usize % WORDS.len()]
}

pub(crate) fn prose(bytes: usize) -> String {
    let mut text = String::new();
    for i in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(word(i));
        text.push_str(if i % 11 == 10 { ". " } else { " " });
    }
    text
}

pub(crate) fn chinese(bytes: usize) -> String {
    let first = u32::from('一');
    let chars = (0..)
        .map(|i: u32| char::from_u32(first + (i.wrapping_mul(2_654_435_761) >> 9) % 3000).unwrap_or('一'));
    chars.take(bytes / 3).collect()
}

pub(crate) fn log(bytes: usize) -> String {
    let mut text = String::new();
    for i in 0_u32.. {
        if text.len() >= bytes {
            break;
        }
        let _ = writeln!(
            text,
            "2026-01-01T00:{:02}:{:02}Z INFO worker {} {} ok",
            i / 60 % 60,
            i % 60,
            i % 8,
            word(i)
        );
    }
    text
}

pub(crate) fn rows(bytes: usize) -> String {
    let mut text = String::from("[");
    for i in 0_u32.. {
        if text.len() >= bytes {
            break;
        }
        let _ =
            write!(text, "{{\"id\": {i}, \"name\": \"x\", \"active\": true, \"word\": \"{}\"}}, ", word(i));
    }
    text + "{}]"
}

pub(crate) fn late(bytes: usize) -> String {
    [&"a".repeat(2000), "b"].concat().repeat(bytes / 2001)
}

pub(crate) fn fibonacci(bytes: usize) -> String {
    let (mut long, mut short) = ("xy ".to_owned(), "z ".to_owned());
    while long.len() < bytes {
        (long, short) = ([&*long, &*short].concat(), long);
    }
    long.truncate(bytes);
    long
}

pub(crate) fn gaps(bytes: usize) -> String {
    ["word", &" ".repeat(1500), "\n"].concat().repeat(bytes / 1505)
}

pub(crate) fn nested(bytes: usize) -> String {
    ["[".repeat(bytes / 2), "]".repeat(bytes / 2)].concat()
}

pub(crate) fn keys(number: usize) -> String {
    let keys: Vec<String> = (0..number).map(|i| format!("\"{i}\":0")).collect();
    format!("{{{}}}", keys.join(","))
}
