//! Events that differ from one that was read before only in the text that they bring. Most of a stream is such events.
//!
//! To read one as JSON finds again what is known, but for one string. A [`Mould`] keeps the bytes around that string
//! from an event that was read in full, and so that it is known what the string does. An event with the same bytes around a
//! string means the same with another text: nothing of it needs to be read but the string. Values that differ from event to
//! event and mean nothing here, such as padding against eavesdroppers, are gaps of their own.
//!
//! Whatever does not fit is read in full. What does must be valid, so that it would be read in full to the same end: each
//! gap is checked as strictly as a JSON reader would.

use std::ops::Range;

use crate::lens;

/// What the string of an event is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adds {
    /// To the text of this choice.
    Text { choice: u64 },
    /// To its reasoning.
    Reasoning { choice: u64 },
    /// To the arguments of its tool call that has the index `at`.
    Arguments { choice: u64, at: u64 },
}

/// An event that was read in full, and did nothing but add a string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    pub(crate) name: &'a str,
    pub(crate) data: &'a str,
    pub(crate) adds: Adds,
    /// The string as it stands in `data`, with its quotes.
    pub(crate) raw: &'a str,
    /// Fields, as they stand in `data`, that nobody reads: strings, and whole numbers.
    pub(crate) unread: [Option<&'a str>; UNREAD],
}

/// So many fields that are not read may differ.
pub(crate) const UNREAD: usize = 3;

/// So many moulds are kept: as many choices, or parallel tool calls, may take turns.
const MOULDS: usize = 4;

/// The moulds of one stream. What they take is bounded by [`MAX_FIXED`].
#[derive(Debug, Default)]
pub(crate) struct Moulds {
    all: [Mould; MOULDS],
    /// Which one fitted, or was made, last.
    last: usize,
    /// The unread fields of the last event that was read in full.
    unread: [String; UNREAD],
    /// Which of those were seen to differ.
    differs: [bool; UNREAD],
    /// For a string with escapes.
    scratch: String,
}

/// A buffer for longer strings is not kept.
const MAX_SCRATCH: usize = 64 << 10;

/// No mould is made of an event that is longer.
const MAX_FIXED: usize = 4 << 10;

#[derive(Debug, Default)]
struct Mould {
    adds: Option<Adds>,
    name: Vec<u8>,
    /// The bytes around the gaps, one part after the other.
    fixed: Vec<u8>,
    /// Where in `fixed` the gaps are, from left to right.
    gaps: Vec<(usize, Gap)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// The string that counts. Its quotes belong to the gap.
    Text,
    /// A string that does not.
    String,
    /// A whole number that does not.
    Number,
}

impl Moulds {
    /// What an event adds whose data some bytes begin with, where it is like one before it; and how many of the bytes are
    /// its data.
    pub(crate) fn known<'t>(&'t mut self, name: &[u8], data: &'t [u8]) -> Option<(usize, (Adds, &'t str))> {
        let (adds, found, length) = self.find(name, data)?;
        if self.scratch.capacity() > MAX_SCRATCH {
            self.scratch = String::new();
        }
        Some((length, (adds, found.text(&mut self.scratch)?)))
    }

    fn find<'d>(&mut self, name: &[u8], data: &'d [u8]) -> Option<(Adds, Found<'d>, usize)> {
        for step in 0..MOULDS {
            let at = (self.last + step) % MOULDS;
            let mould = self.all.get(at)?;
            if let (Some(adds), Some((found, length))) = (mould.adds, mould.fit(name, data)) {
                self.last = at;
                return Some((adds, found, length));
            }
        }
        None
    }

    /// Makes a mould of an event, in place of an earlier one for the same use.
    pub(crate) fn learn(&mut self, plain: &Plain<'_>) {
        for (at, field) in plain.unread.iter().enumerate() {
            let (known, differs) = (&mut self.unread[at], &mut self.differs[at]);
            let field = field.unwrap_or_default();
            if field.len() <= MAX_FIXED && known != field {
                *differs |= !known.is_empty();
                known.clear();
                known.push_str(field);
            }
        }
        if plain.data.len() - plain.raw.len() > MAX_FIXED || plain.name.len() > MAX_FIXED {
            return;
        }
        let same = self.all.iter().position(|mould| mould.adds == Some(plain.adds));
        let free = || self.all.iter().position(|mould| mould.adds.is_none());
        let at = same.or_else(free).unwrap_or((self.last + 1) % MOULDS);
        let unread = plain.unread.iter().zip(self.differs);
        let unread = unread.filter_map(|(field, differs)| field.filter(|_| differs));
        self.all[at].cast(plain, unread);
        self.last = at;
    }
}

impl Mould {
    /// Takes the form of an event. Buffers are used again: a stream in which no event is like another costs no allocations
    /// here.
    fn cast<'a>(&mut self, plain: &Plain<'a>, unread: impl Iterator<Item = &'a str>) {
        self.adds = None;
        self.name.clear();
        self.name.extend_from_slice(plain.name.as_bytes());
        self.fixed.clear();
        self.gaps.clear();
        let mut holes = [const { None }; UNREAD + 1];
        let text = place(plain.data, plain.raw).map(|range| (range, Gap::Text));
        let Some(text) = text.filter(|_| is_string(plain.raw.as_bytes())) else { return };
        holes[0] = Some(text);
        for (hole, field) in holes[1..].iter_mut().zip(unread) {
            let gap = match field.as_bytes() {
                bytes if is_string(bytes) => Gap::String,
                bytes if number(bytes) == Some(bytes.len()) => Gap::Number,
                _ => continue,
            };
            *hole = place(plain.data, field).map(|range| (range, gap));
        }
        holes.sort_unstable_by_key(|hole| hole.as_ref().map(|(range, _)| range.start));
        let mut done = 0;
        for (range, gap) in holes.into_iter().flatten() {
            let Some(part) = plain.data.as_bytes().get(done..range.start) else { return };
            self.fixed.extend_from_slice(part);
            self.gaps.push((self.fixed.len(), gap));
            done = range.end;
        }
        self.fixed.extend_from_slice(plain.data.as_bytes().get(done..).unwrap_or_default());
        self.adds = Some(plain.adds);
    }

    fn fit<'d>(&self, name: &[u8], data: &'d [u8]) -> Option<(Found<'d>, usize)> {
        let (mut rest, mut done, mut found) = (data, 0, None);
        for (end, gap) in &self.gaps {
            rest = rest.strip_prefix(self.fixed.get(done..*end)?)?;
            done = *end;
            let length = match gap {
                Gap::Text => {
                    let (length, is_escaped) = string(rest)?;
                    found = Some(Found { raw: rest.get(..length)?, is_escaped });
                    length
                }
                Gap::String => {
                    let (length, is_escaped) = string(rest)?;
                    // Whether its escapes are valid is nothing that is looked at here.
                    if is_escaped || std::str::from_utf8(rest.get(..length)?).is_err() {
                        return None;
                    }
                    length
                }
                Gap::Number => number(rest)?,
            };
            rest = rest.get(length..)?;
        }
        let rest = rest.strip_prefix(self.fixed.get(done..)?)?;
        (name.len() == self.name.len() && (name.is_empty() || name == self.name))
            .then_some((found?, data.len() - rest.len()))
    }
}

/// Where a part of a text is in it.
fn place(whole: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let range = start..start.checked_add(part.len())?;
    (whole.get(range.clone()) == Some(part)).then_some(range)
}

fn is_string(bytes: &[u8]) -> bool {
    string(bytes).is_some_and(|(length, _)| length == bytes.len())
}

/// The length of the JSON string, with its quotes, that some bytes begin with, and whether there are escapes in it. Control
/// characters have no place in one.
fn string(bytes: &[u8]) -> Option<(usize, bool)> {
    let inner = bytes.strip_prefix(b"\"")?;
    let (mut at, mut is_escaped) = (0, false);
    loop {
        at += inner.get(at..)?.iter().position(|byte| STOPS[usize::from(*byte)])?;
        match inner.get(at)? {
            b'"' => return Some((at + 2, is_escaped)),
            b'\\' => {
                is_escaped = true;
                at += 2;
            }
            _ => return None,
        }
    }
}

/// Bytes that do not stand for themselves in a string.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        stops[control] = true;
        control += 1;
    }
    stops[b'"' as usize] = true;
    stops[b'\\' as usize] = true;
    stops
};

/// The length of the whole number that some bytes begin with.
fn number(bytes: &[u8]) -> Option<usize> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_padded = digits > 1 && bytes.first() == Some(&b'0');
    ((1..=19).contains(&digits) && !is_padded).then_some(digits)
}

/// The string of an event that fits.
#[derive(Clone, Copy, Debug)]
struct Found<'d> {
    /// With its quotes.
    raw: &'d [u8],
    is_escaped: bool,
}

impl<'d> Found<'d> {
    /// What it says. `None` where it is not valid, or where it takes a closer look. `scratch` is for one with escapes.
    fn text<'t>(&self, scratch: &'t mut String) -> Option<&'t str>
    where
        'd: 't,
    {
        let raw = std::str::from_utf8(self.raw).ok()?;
        let inner = raw.get(1..raw.len().checked_sub(1)?)?;
        if !self.is_escaped {
            return Some(inner);
        }
        scratch.clear();
        if unescape(inner, scratch).is_none() {
            // Half of a surrogate pair, or no escape at all.
            let text = lens::string(raw)?;
            scratch.clear();
            scratch.push_str(&text);
        }
        Some(scratch)
    }
}

/// Writes what a JSON string says. `None` where an escape is not valid, or is half of a surrogate pair.
fn unescape(inner: &str, text: &mut String) -> Option<()> {
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(rest.get(..at)?);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        text.push(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let unit = hex(&mut rest)?;
                match unit {
                    0xD800..=0xDBFF => {
                        rest = rest.strip_prefix("\\u")?;
                        let low = hex(&mut rest)?;
                        char::decode_utf16([unit, low]).next()?.ok()?
                    }
                    _ => char::from_u32(u32::from(unit))?,
                }
            }
            _ => return None,
        });
    }
    text.push_str(rest);
    Some(())
}

/// Takes four hexadecimal digits.
fn hex(rest: &mut &str) -> Option<u16> {
    let digits = rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    *rest = rest.get(4..)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: Adds = Adds::Text { choice: 0 };

    fn plain<'a>(data: &'a str, raw: &str, unread: &[&str]) -> Plain<'a> {
        let part = |part: &str| &data[data.find(part).unwrap()..][..part.len()];
        let mut fields = [None; UNREAD];
        for (field, value) in fields.iter_mut().zip(unread) {
            *field = Some(part(value));
        }
        Plain { name: "", data, adds: TEXT, raw: part(raw), unread: fields }
    }

    fn found(moulds: &mut Moulds, data: &str) -> Option<String> {
        let (length, (_, text)) = moulds.known(b"", data.as_bytes())?;
        (length == data.len()).then(|| text.to_owned())
    }

    #[test]
    fn the_same_bytes_around_another_string_fit_and_nothing_else_does() {
        let mut moulds = Moulds::default();
        moulds.learn(&plain(r#"{"c":"a","d":1}"#, r#""a""#, &[]));
        for (data, text) in [
            (r#"{"c":"","d":1}"#, Some("")),
            (r#"{"c":"Grüezi","d":1}"#, Some("Grüezi")),
            (r#"{"c":"a \"b\"\n\u00e9\ud83d\ude00","d":1}"#, Some("a \"b\"\né😀")),
            (r#"{"c":"a","d":2}"#, None),
            (r#"{"c":"a","d":1} "#, None),
            (r#"{"c":"a","d":1"#, None),
            (r#"{"c":"a\","d":1}"#, None),
            (r#"{"c":"\x","d":1}"#, None),
            (r#"{"c":"\u12","d":1}"#, None),
            ("{\"c\":\"a\u{1}\",\"d\":1}", None),
            (r#"{"c":"a","e":"","d":1}"#, None),
            (r#"{"c":null,"d":1}"#, None),
        ] {
            assert_eq!(found(&mut moulds, data).as_deref(), text, "{data}");
        }
        assert!(moulds.known(b"error", br#"{"c":"a","d":1}"#).is_none());
        assert!(moulds.known(b"", b"{\"c\":\"\xFF\",\"d\":1}").is_none());
    }

    #[test]
    fn half_of_a_surrogate_pair_is_what_it_is_to_everybody_else_here() {
        let mut moulds = Moulds::default();
        moulds.learn(&plain(r#"{"c":"a"}"#, r#""a""#, &[]));
        for raw in [r#""x\ud83d""#, r#""\ude00y""#, r#""\ud83d\ud83d\ude00""#] {
            assert_eq!(
                found(&mut moulds, &format!(r#"{{"c":{raw}}}"#)).as_deref(),
                lens::string(raw).as_deref()
            );
        }
    }

    #[test]
    fn unread_fields_are_gaps_once_they_were_seen_to_differ() {
        let mut moulds = Moulds::default();
        let event = |id: &str, text: &str, pad: &str| format!(r#"{{"id":{id},"c":"{text}","p":"{pad}"}}"#);
        let learn = |moulds: &mut Moulds, id: &str, text: &str, pad: &str| {
            let (data, raw, pad) = (event(id, text, pad), format!("\"{text}\""), format!("\"{pad}\""));
            moulds.learn(&plain(&data, &raw, &[id, &pad]));
        };
        learn(&mut moulds, "1", "a", "xy");
        assert!(found(&mut moulds, &event("1", "b", "xy")).is_some());
        assert!(found(&mut moulds, &event("1", "b", "z")).is_none());
        learn(&mut moulds, "1", "b", "z");
        assert!(found(&mut moulds, &event("1", "b", "zzz")).is_some());
        assert!(found(&mut moulds, &event("2", "b", "zzz")).is_none());
        learn(&mut moulds, "2", "w", "q");
        for (id, pad, fits) in [
            ("17", "", true),
            ("0", "é", true),
            ("01", "", false),
            ("-1", "", false),
            ("1.5", "", false),
            ("1", "\\n", false),
        ] {
            assert_eq!(found(&mut moulds, &event(id, "d", pad)).is_some(), fits, "{id} {pad}");
        }
    }

    #[test]
    fn choices_that_take_turns_have_a_mould_each() {
        let mut moulds = Moulds::default();
        let event = |choice: u64, text: &str| format!(r#"{{"i":{choice},"c":"{text}"}}"#);
        for choice in 0..3 {
            let data = event(choice, "a");
            moulds.learn(&Plain { adds: Adds::Text { choice }, ..plain(&data, r#""a""#, &[]) });
        }
        for choice in [2, 0, 1, 1, 0, 2] {
            let data = event(choice, "b");
            assert_eq!(
                moulds.known(b"", data.as_bytes()).map(|(_, (adds, _))| adds),
                Some(Adds::Text { choice })
            );
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut moulds = Moulds::default();
        let long = format!(r#"{{"p":"{}","c":"a"}}"#, "x".repeat(MAX_FIXED));
        moulds.learn(&plain(&long, r#""a""#, &[]));
        assert_eq!(found(&mut moulds, &long), None);
        let text = format!("\"{}\"", "y".repeat(1 << 20));
        let data = format!(r#"{{"c":{text}}}"#);
        moulds.learn(&plain(&data, &text, &[]));
        assert!(found(&mut moulds, r#"{"c":"z"}"#).is_some());
        assert!(moulds.all.iter().all(|mould| mould.fixed.capacity() < MAX_FIXED));
    }

    proptest! {
        #[test]
        fn a_string_is_read_as_the_general_reader_does(inner in "(\\\\[nrtbf/\"\\\\xu]|\\\\u[0-9a-fA-F]{0,5}|\\\\ud[89a-f][0-9a-f]{2}|[ -~é😀\u{1}]){0,12}") {
            let raw = format!("\"{inner}\"");
            let general = lens::fields(&format!(r#"{{"c":{raw}}}"#), ["c"]).is_some().then(|| lens::string(&raw)).flatten();
            let mut moulds = Moulds::default();
            moulds.learn(&plain(r#"{"c":"a"}"#, r#""a""#, &[]));
            let data = format!(r#"{{"c":{raw}}}"#);
            let known = found(&mut moulds, &data);
            prop_assert_eq!(known.as_deref(), general.as_deref());
        }
    }
}
