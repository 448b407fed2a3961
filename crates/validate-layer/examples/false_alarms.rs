//! How often the checks that are on by default complain of texts that nobody should complain of: whatever texts lie about on a
//! machine.
//!
//! ```text
//! cargo run --release -p validate-layer --example false_alarms -- [--half tuning|held-out] [--list] [DIRECTORY…]
//! ```
//!
//! Without directories it reads what systems usually have: documentation, licences, manual pages, message catalogues,
//! sources. Each file is in the tuning half or in the held-out half by a hash of its first bytes, so the halves are the same on
//! every machine that has the file; thresholds are chosen on the first and believed on the second.
//!
//! A text is a whole file of at most 1 MiB, and what a model might have given of it: its first 4 KiB, cut at a line. A message
//! catalogue gives its messages, in their language. The first lines of files that are the same are read once.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::{
    collections::{BTreeMap, HashSet},
    env, fs,
    path::{Path, PathBuf},
};

use failsoft_core::{Finish, Report, Severity};
use validate_layer::{Answer, ValidateLayer};

/// Where texts usually are.
const USUAL: [&str; 7] = [
    "/usr/share",
    "/usr/lib/python3",
    "/usr/include",
    "/etc",
    "~/.cargo/registry/src",
    "~/.rustup/toolchains",
    "/usr/local/share",
];

/// At most so many files of one kind are taken from one directory given.
const PER_KIND: usize = 1500;

const MAX_FILE: u64 = 1024 * 1024;

#[derive(Clone, Copy, Default)]
struct Counts {
    texts: usize,
    alarms: usize,
    warnings: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut half, mut list, mut places) = (None, false, Vec::new());
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--half" => half = args.next(),
            "--list" => list = true,
            _ => places.push(PathBuf::from(arg)),
        }
    }
    if places.is_empty() {
        let home = env::var("HOME").unwrap_or_default();
        places = USUAL.iter().map(|place| PathBuf::from(place.replacen('~', &home, 1))).collect();
    }
    let layer = ValidateLayer::builder().build()?;
    let mut table: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
    let mut seen = HashSet::new();
    for place in &places {
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        walk(place, &mut |path| {
            let Some(kind) = kind(path) else { return };
            let taken = taken.entry(kind).or_default();
            if *taken >= PER_KIND {
                return;
            }
            let Some(text) = read(path, kind) else { return };
            let head = &text[..floor(&text, 4096)];
            let hash = hash(head);
            if !seen.insert(hash) {
                return;
            }
            *taken += 1;
            let of = if hash % 2 == 0 { "tuning" } else { "held-out" };
            if half.as_deref().is_some_and(|half| half != of) {
                return;
            }
            let excerpt = head.rsplit_once('\n').map_or(head, |(lines, _)| lines);
            let texts =
                if excerpt.len() < text.trim_end().len() { vec![&*text, excerpt] } else { vec![&*text] };
            for (i, text) in texts.into_iter().enumerate() {
                let (verdict, report) = layer.validator().judge(&Answer::new(text).with_finish(Finish::Stop));
                let counts = table.entry((kind, of)).or_default();
                counts.texts += 1;
                counts.alarms += usize::from(!verdict.is_success());
                counts.warnings +=
                    usize::from(verdict.is_success() && report.worst() >= Some(Severity::Warning));
                if list && !report.is_empty() {
                    println!(
                        "{} {}: {}",
                        path.display(),
                        if i == 0 { "whole" } else { "excerpt" },
                        said(&report)
                    );
                }
            }
        });
    }
    println!("| texts | half | number | alarms | warnings |");
    println!("|---|---|---:|---:|---:|");
    let mut total = [("tuning", Counts::default()), ("held-out", Counts::default())];
    for ((kind, half), counts) in &table {
        println!("| {kind} | {half} | {} | {} | {} |", counts.texts, counts.alarms, counts.warnings);
        let sum = total.iter_mut().filter(|(of, _)| of == half);
        sum.for_each(|(_, sum)| {
            sum.texts += counts.texts;
            sum.alarms += counts.alarms;
            sum.warnings += counts.warnings;
        });
    }
    for (half, counts) in total {
        println!("| all | {half} | {} | {} | {} |", counts.texts, counts.alarms, counts.warnings);
    }
    Ok(())
}

fn said(report: &Report) -> String {
    report.to_string()
}

/// What a file is, where it is text that somebody could have asked for.
fn kind(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let lower = name.to_ascii_lowercase();
    let dir = path.to_str()?;
    if lower.starts_with("license")
        || lower.starts_with("copying")
        || lower.starts_with("copyright")
        || dir.contains("common-licenses")
    {
        return Some("licences");
    }
    if dir.contains("/man/") && !lower.ends_with(".gz") {
        return Some("manual pages");
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    Some(match extension {
        "mo" => "message catalogues",
        "md" | "rst" | "adoc" => "documentation",
        "txt" | "NEWS" | "README" => "plain text",
        "html" | "htm" | "xml" | "svg" => "markup",
        "json" | "yaml" | "yml" | "toml" | "csv" | "tsv" | "ini" | "conf" | "cfg" => "data",
        "rs" | "py" | "c" | "h" | "sh" | "pl" | "pm" | "js" | "ts" | "go" | "java" | "cpp" | "hpp"
        | "css" | "sql" | "el" | "lua" | "awk" | "vim" | "cmake" => "source",
        "" if ["README", "NEWS", "AUTHORS", "CHANGELOG", "ChangeLog", "TODO", "HACKING"].contains(&name) => {
            "plain text"
        }
        _ => return None,
    })
}

fn read(path: &Path, kind: &str) -> Option<String> {
    let size = fs::metadata(path).ok()?.len();
    let bytes = fs::read(path).ok().filter(|_| size <= MAX_FILE || kind == "message catalogues")?;
    let mut text =
        if kind == "message catalogues" { messages(&bytes)? } else { String::from_utf8(bytes).ok()? };
    if text.len() > usize::try_from(MAX_FILE).unwrap_or(usize::MAX) {
        text.truncate(floor(&text, 1 << 20));
    }
    // An empty file is no answer, and one of nothing but NULs is no text.
    let is_text = !text.trim().is_empty() && !text.contains('\0');
    is_text.then_some(text)
}

/// The translations in a GNU message catalogue, one after another.
fn messages(bytes: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    if word(0)? != 0x9504_12de {
        return None;
    }
    let (count, table) = (word(8)?, word(16)?);
    let mut text = String::new();
    for i in 1..count {
        let (length, at) = (word(table + 8 * i)?, word(table + 8 * i + 4)?);
        let message = std::str::from_utf8(bytes.get(at..at + length)?).ok()?;
        for form in message.split('\0') {
            text.push_str(form);
            text.push('\n');
        }
    }
    Some(text)
}

fn walk(place: &Path, each: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(place) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), each),
            Ok(kind) if kind.is_file() => each(&entry.path()),
            _ => {}
        }
    }
}

/// FNV-1a, whose values do not change with a compiler; its upper half, whose lowest bit all bytes reach.
fn hash(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 24
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
