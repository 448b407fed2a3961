//! The same again and again: what a model says when it cannot stop.

mod grams;
mod period;
mod shape;

use failsoft_core::{Finding, Report, Severity, SoftKind};

use self::{
    grams::distinct_share,
    period::tail_loop,
    shape::{Fences, Unit, is_fenced, is_prose},
};
use crate::{Answer, Check};

/// The codes of the findings.
const LOOP: &str = "repetition.loop";
const WHITESPACE: &str = "repetition.whitespace";
pub(crate) const VARIETY: &str = "repetition.variety";

/// So many bytes at the end are searched for a loop: five copies of a long paragraph.
const TAIL: usize = 16 * 1024;

/// A loop before that is one if it fills a whole block of this size.
const BLOCK: usize = 4096;

/// What may close an answer after a loop in it: quotes, brackets, a fence.
const CLOSERS: usize = 64;

/// A run of whitespace at the end, in characters.
const BLANK_TAIL: usize = 200;

/// The same in the middle, where tables and drawings have some.
const BLANK_RUN: usize = 2000;

/// Of a run in the middle, one whole block of this size is whitespace.
const BLANK_BLOCK: usize = 512;

/// The end of the text in which pieces are counted, in bytes, and the least number of characters that makes a count worth
/// anything.
const VARIETY_TAIL: usize = 2048;
const VARIETY_CHARS: usize = 600;

/// Shares of distinct pieces of eight characters.
const SUSPICIOUS: f64 = 0.2;
const LOOPING: f64 = 0.04;

/// The text does not go round in circles: no piece of it again and again up to the end, no endless whitespace, and not
/// the same few phrases over and over.
///
/// | code | what it is | severity |
/// |---|---|---|
/// | `repetition.loop` | the text ends in exact copies of one piece: five or more over 200 characters of prose (half of that in Chinese and Japanese), more where lines, code or tables are repeated, 1 000 characters where a divider or one digit is; or a loop fills a block of 4 KiB before the end | error |
/// | `repetition.whitespace` | 200 characters of whitespace at the end, or 2 000 anywhere | error |
/// | `repetition.variety` | of the last 2 KiB of prose, fewer than 4 in 100 pieces of eight characters are different | error |
/// | `repetition.variety` | fewer than 20 in 100 | warning |
///
/// Lists of numbers, bytes or literals are data at any length, whatever repeats in them. Code fences, tables, JSON and the lines of
/// logs are not prose, and a poem with a refrain is far from these limits. Characters are counted, never words, so scripts without
/// spaces are no exception.
///
/// The figures come from public detectors: inference servers stop at three to eight copies of up to 128 tokens, and five copies over
/// 200 characters separated all loops from all complete texts in a comparison of those rules. They were then measured, all default
/// checks together, on the texts of a Linux machine with Rust on it: whole files and first pages of documentation, licences, manual
/// pages, the messages of translated programs in dozens of languages, data and sources, split by a hash of their content. What was
/// changed was changed by the tuning half; `examples/false_alarms.rs` measures yours:
///
/// | texts | tuning half | alarms | held-out half | alarms |
/// |---|---:|---:|---:|---:|
/// | documentation | 590 | 0 | 576 | 0 |
/// | licences | 450 | 0 | 421 | 0 |
/// | manual pages | 47 | 0 | 51 | 0 |
/// | message catalogues | 1 256 | 0 | 1 221 | 0 |
/// | plain text | 631 | 0 | 661 | 0 |
/// | markup | 2 393 | 0 | 2 386 | 0 |
/// | data | 1 171 | 0 | 1 044 | 0 |
/// | source | 5 043 | 0 | 5 237 | 0 |
/// | all | 11 581 | 0 | 11 597 | 0 |
///
/// There was no warning either. Of 72 loops of all kinds and in eighteen languages, written for the tests, all are found.
///
/// Time is linear in the text, and memory is bounded (about 100 KiB where something repeats). An answer of tool calls is not
/// looked at.
///
/// ```
/// use validate_layer::{Check, checks::Repetition};
///
/// assert!(Repetition.on_text("Row, row, row your boat, gently down the stream.").is_empty());
/// let report = Repetition.on_text(&"I will do it now. ".repeat(40));
/// assert_eq!(report.leading().unwrap().code(), "repetition.loop");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Repetition;

impl Check for Repetition {
    fn check(&self, answer: &Answer, report: &mut Report) {
        if let Some(text) = answer.text().filter(|_| answer.is_textual()) {
            report.extend(find(text));
        }
    }
}

fn find(text: &str) -> Option<Finding> {
    blank_run(text).or_else(|| at_the_end(text)).or_else(|| in_a_block(text)).or_else(|| variety(text))
}

/// Whitespace without end.
fn blank_run(text: &str) -> Option<Finding> {
    let found = |chars: usize, at: usize| {
        let message = format!("{chars} characters of whitespace, from byte {at}");
        Finding::new(SoftKind::Repetition, WHITESPACE, message)
    };
    // What closes a value that was left open may come after it.
    for end in [text, without_closers(text)] {
        let start = end.trim_end().len();
        if end.len() - start >= BLANK_TAIL {
            let chars = end[start..].chars().count();
            if chars >= BLANK_TAIL {
                return Some(found(chars, start));
            }
        }
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    while at + BLANK_BLOCK <= bytes.len() {
        let block = &bytes[at..at + BLANK_BLOCK];
        if block.iter().all(u8::is_ascii_whitespace) {
            let start = text[..at].trim_end().len();
            let rest = &text[at..];
            let end = at + (rest.len() - rest.trim_start().len());
            let chars = text[start..end].chars().count();
            if chars >= BLANK_RUN {
                return Some(found(chars, start));
            }
            at = end;
        }
        at += BLANK_BLOCK;
    }
    None
}

/// Exact copies up to what closes the answer. A loop of closing characters is one without its last few too.
fn at_the_end(text: &str) -> Option<Finding> {
    let end = without_closers(text);
    let start = floor(end, end.len().saturating_sub(TAIL));
    let (period, length) = tail_loop(&end.as_bytes()[start..])?;
    judge(end, period, length, || is_fenced(end))
}

/// Exact copies that fill a block in the middle.
fn in_a_block(text: &str) -> Option<Finding> {
    let bytes = text.as_bytes();
    if bytes.len() < 2 * BLOCK {
        return None;
    }
    let mut fences = Fences::default();
    bytes.chunks_exact(BLOCK).enumerate().find_map(|(i, block)| {
        let (period, length) = tail_loop(block)?;
        let end = &text[..floor(text, (i + 1) * BLOCK)];
        (length >= BLOCK - period.min(BLOCK / 8)).then_some(())?;
        judge(end, period, length.min(end.len()), || fences.is_fenced(end))
            .filter(|_| Unit::of(end, period).has_words())
    })
}

/// Whether copies at the end of a text are a loop.
fn judge(text: &str, period: usize, length: usize, is_fenced: impl FnOnce() -> bool) -> Option<Finding> {
    let unit = Unit::of(text, period);
    let looped = &text[floor(text, text.len() - length)..];
    let copies = length / period;
    unit.is_loop(copies, shape::width(looped), is_fenced).then(|| {
        let (chars, at) = (unit.chars(), text.len() - length);
        let message = format!("{copies} copies of the same {chars} characters, from byte {at}");
        Finding::new(SoftKind::Repetition, LOOP, message)
    })
}

/// The same few phrases over and over, not exactly.
fn variety(text: &str) -> Option<Finding> {
    let tail = &text[floor(text, text.len().saturating_sub(VARIETY_TAIL))..];
    // JSON, the most common text that is not prose, is told by its quotes before anything is counted.
    if memchr::memchr_iter(b'"', tail.as_bytes()).count() * 50 > tail.len() {
        return None;
    }
    let share = distinct_share(tail, VARIETY_CHARS)?;
    if share >= SUSPICIOUS || !is_prose(tail) || is_fenced(text) {
        return None;
    }
    let message =
        format!("of the pieces of eight characters at the end, {:.0} in 100 are different", share * 100.0);
    let severity = if share < LOOPING { Severity::Error } else { Severity::Warning };
    Some(Finding::new(SoftKind::Repetition, VARIETY, message).with_severity(severity))
}

/// The text up to what may close an answer.
fn without_closers(text: &str) -> &str {
    let from = floor(text, text.len().saturating_sub(CLOSERS));
    let closes = |c: char| {
        matches!(
            c,
            '"' | '\'' | '}' | ']' | ')' | '>' | '`' | '\n' | '\r' | ' ' | '\t' | '”' | '」' | '…' | '.'
        )
    };
    let end = text[from..].trim_end_matches(closes).len();
    &text[..from + end]
}

/// The nearest character's start, not after this byte.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
