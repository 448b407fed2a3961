//! Events that differ from one that was read before only in the text that they bring. Most of a stream is such events.
//!
//! To read one as JSON finds again what is known, but for one string. A [`Mould`] keeps the bytes around that string
//! from an event that was read in full, and so that it is known what the string does. An event with the same bytes around a
//! string means the same with another text: nothing of it needs to be read but the string. Values that differ from event to
//! event and mean nothing here, such as padding against eavesdroppers, are gaps of their own, and so are the token counts
//! that some servers send with each event.
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
    /// The token counts that came with it.
    pub(crate) usage: Option<Used<'a>>,
}

/// So many fields that are not read may differ.
pub(crate) const UNREAD: usize = 3;

/// An object of token counts that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used<'a> {
    /// All of it, as it stands in the event.
    pub(crate) raw: &'a str,
    /// The fields in it that are read as counts, as they stand there. No other number in it means anything.
    pub(crate) fields: [Option<&'a str>; COUNTS],
}

/// A dialect reads at most so many counts.
pub(crate) const COUNTS: usize = 7;

/// What the fields of a [`Used`] say in another event.
pub(crate) type Counted = [Option<u64>; COUNTS];

/// An event that is like one before it.
#[derive(Debug)]
pub(crate) struct Known<'t> {
    pub(crate) adds: Adds,
    pub(crate) text: &'t str,
    /// It has token counts: those that [`Moulds::counted`] gives.
    pub(crate) has_counts: bool,
}

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
    /// The counts of the event that was known last.
    counted: Counted,
}

/// A buffer for longer strings is not kept.
const MAX_SCRATCH: usize = 64 << 10;

/// No mould is made of an event that is longer.
const MAX_FIXED: usize = 4 << 10;

/// Nor of one with more gaps than so many.
const MAX_GAPS: usize = 32;

#[derive(Debug, Default)]
struct Mould {
    adds: Option<Adds>,
    has_counts: bool,
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
    /// Any number that does not.
    AnyNumber,
    /// A token count, of the field that has this place in [`Used::fields`].
    Count(usize),
}

impl Moulds {
    /// What an event adds whose data some bytes begin with, where it is like one before it; and how many of the bytes are
    /// its data.
    pub(crate) fn known<'t>(&'t mut self, name: &[u8], data: &'t [u8]) -> Option<(usize, Known<'t>)> {
        let (at, found, length) = self.find(name, data)?;
        let mould = self.all.get(at)?;
        if self.scratch.capacity() > MAX_SCRATCH {
            self.scratch = String::new();
        }
        let text = found.text(&mut self.scratch)?;
        Some((length, Known { adds: mould.adds?, text, has_counts: mould.has_counts }))
    }

    /// The token counts of the event that was known last, where it has some.
    pub(crate) const fn counted(&self) -> Counted {
        self.counted
    }

    fn find<'d>(&mut self, name: &[u8], data: &'d [u8]) -> Option<(usize, Found<'d>, usize)> {
        for step in 0..MOULDS {
            let at = (self.last + step) % MOULDS;
            let mould = self.all.get(at).filter(|mould| mould.adds.is_some());
            if let Some((found, length)) = mould.and_then(|mould| mould.fit(name, data, &mut self.counted)) {
                self.last = at;
                return Some((at, found, length));
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
        let has_counts = plain.usage.is_some();
        let same = |mould: &Mould| mould.adds == Some(plain.adds) && mould.has_counts == has_counts;
        let same = self.all.iter().position(same);
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
        self.has_counts = plain.usage.is_some();
        self.name.clear();
        self.name.extend_from_slice(plain.name.as_bytes());
        self.fixed.clear();
        self.gaps.clear();
        let Some(mut holes) = Holes::of(plain, unread) else { return };
        self.fixed.reserve(plain.data.len() - plain.raw.len());
        self.gaps.reserve(holes.count);
        let mut done = 0;
        for (range, gap) in holes.sorted() {
            let Some(part) = plain.data.as_bytes().get(done..range.start) else { return };
            self.fixed.extend_from_slice(part);
            self.gaps.push((self.fixed.len(), *gap));
            done = range.end;
        }
        self.fixed.extend_from_slice(plain.data.as_bytes().get(done..).unwrap_or_default());
        self.adds = Some(plain.adds);
    }

    fn fit<'d>(&self, name: &[u8], data: &'d [u8], counted: &mut Counted) -> Option<(Found<'d>, usize)> {
        let (mut rest, mut done, mut found) = (data, 0, None);
        if self.has_counts {
            *counted = [None; COUNTS];
        }
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
                    let inner = rest.get(..length)?;
                    if is_escaped || !inner.is_ascii() && std::str::from_utf8(inner).is_err() {
                        return None;
                    }
                    length
                }
                Gap::Number => number(rest)?,
                Gap::AnyNumber => any_number(rest)?,
                Gap::Count(field) => {
                    let (length, count) = count(rest)?;
                    *counted.get_mut(*field)? = Some(count);
                    length
                }
            };
            rest = rest.get(length..)?;
        }
        let rest = rest.strip_prefix(self.fixed.get(done..)?)?;
        (name.len() == self.name.len() && (name.is_empty() || name == self.name))
            .then_some((found?, data.len() - rest.len()))
    }
}

/// Where the gaps of an event are.
struct Holes {
    all: [(Range<usize>, Gap); MAX_GAPS],
    count: usize,
}

impl Holes {
    /// `None` where no mould can be made.
    fn of<'a>(plain: &Plain<'a>, unread: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut holes = Self { all: [const { (0..0, Gap::Text) }; MAX_GAPS], count: 0 };
        let text = place(plain.data, plain.raw).filter(|_| is_string(plain.raw.as_bytes()))?;
        holes.add(text, Gap::Text)?;
        for field in unread {
            let gap = match field.as_bytes() {
                bytes if is_string(bytes) => Gap::String,
                bytes if number(bytes) == Some(bytes.len()) => Gap::Number,
                _ => continue,
            };
            holes.add(place(plain.data, field)?, gap)?;
        }
        plain.usage.is_none_or(|usage| holes.counts(plain.data, &usage).is_some()).then_some(holes)
    }

    fn add(&mut self, range: Range<usize>, gap: Gap) -> Option<()> {
        *self.all.get_mut(self.count)? = (range, gap);
        self.count += 1;
        Some(())
    }

    /// Adds a gap for each number among token counts. `None` where that cannot be: a count that is written in another way
    /// than most, as one with an exponent, is read in full each time.
    fn counts(&mut self, data: &str, usage: &Used<'_>) -> Option<()> {
        let start = place(data, usage.raw).filter(|_| usage.raw.starts_with('{'))?.start;
        let (bytes, mut at) = (usage.raw.as_bytes(), 0);
        while let Some(byte) = bytes.get(at) {
            let rest = bytes.get(at..)?;
            at += match byte {
                b'"' => string(rest)?.0,
                b'-' | b'0'..=b'9' => {
                    let length = any_number(rest)?;
                    let range = start + at..start + at + length;
                    let is_here = |field: &&str| place(data, field) == Some(range.clone());
                    match usage.fields.iter().position(|field| field.as_ref().is_some_and(is_here)) {
                        None => self.add(range, Gap::AnyNumber)?,
                        Some(field) if number(rest) == Some(length) => self.add(range, Gap::Count(field))?,
                        Some(_) if lens::count(data.get(range)?).is_some() => return None,
                        // None that is read: the same bytes are none the next time.
                        Some(_) => {}
                    }
                    length
                }
                _ => 1,
            };
        }
        Some(())
    }

    /// From left to right.
    fn sorted(&mut self) -> &[(Range<usize>, Gap)] {
        let holes = self.all.get_mut(..self.count).unwrap_or_default();
        holes.sort_unstable_by_key(|(range, _)| range.start);
        holes
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
#[inline]
fn string(bytes: &[u8]) -> Option<(usize, bool)> {
    let inner = bytes.strip_prefix(b"\"")?;
    let (mut at, mut is_escaped) = (0, false);
    loop {
        at += stop(inner.get(at..)?)?;
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

/// How many bytes come before the first that does not stand for itself in a string: a quote, a backslash, a control
/// character.
#[inline]
fn stop(bytes: &[u8]) -> Option<usize> {
    let (mut rest, mut at) = (bytes, 0);
    while let Some((eight, more)) = rest.split_first_chunk::<8>() {
        let stops = stops_in(u64::from_le_bytes(*eight));
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize / 8);
        }
        (rest, at) = (more, at + 8);
    }
    let left = rest.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\'))?;
    Some(at + left)
}

/// Eight bytes at once: the highest bit of each that is a quote, a backslash or a control character. A borrow may set it in
/// bytes after the first of these too.
const fn stops_in(eight: u64) -> u64 {
    const fn all(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    const fn below(eight: u64, limit: u8) -> u64 {
        eight.wrapping_sub(all(limit)) & !eight
    }
    let quotes = below(eight ^ all(b'"'), 1);
    let backslashes = below(eight ^ all(b'\\'), 1);
    (below(eight, 0x20) | quotes | backslashes) & all(0x80)
}

/// The length of the whole number that some bytes begin with.
fn number(bytes: &[u8]) -> Option<usize> {
    count(bytes).map(|(length, _)| length)
}

/// The same, and the number. No number of 19 digits is too large.
fn count(bytes: &[u8]) -> Option<(usize, u64)> {
    let (mut digits, mut number) = (0, 0_u64);
    while let Some(digit) = bytes.get(digits).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
    {
        if digits == 19 {
            return None;
        }
        number = number * 10 + u64::from(digit);
        digits += 1;
    }
    let is_padded = digits > 1 && bytes.first() == Some(&b'0');
    (digits > 0 && !is_padded).then_some((digits, number))
}

/// The length of the number of any kind that some bytes begin with, as JSON writes them.
fn any_number(bytes: &[u8]) -> Option<usize> {
    let digits = |at: usize| bytes.iter().skip(at).take_while(|byte| byte.is_ascii_digit()).count();
    let start = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(start);
    if whole == 0 || whole > 1 && bytes.get(start) == Some(&b'0') {
        return None;
    }
    let mut end = start + whole;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        end += if fraction == 0 { return None } else { 1 + fraction };
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        end += if exponent == 0 { return None } else { 1 + sign + exponent };
    }
    Some(end)
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
        Plain { name: "", data, adds: TEXT, raw: part(raw), unread: fields, usage: None }
    }

    fn found(moulds: &mut Moulds, data: &str) -> Option<String> {
        let (length, known) = moulds.known(b"", data.as_bytes())?;
        (length == data.len()).then(|| known.text.to_owned())
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

    fn counting<'a>(data: &'a str, fields: &[&str]) -> Plain<'a> {
        let raw = &data[data.find(r#"{"n""#).unwrap()..data.len() - 1];
        let mut found = [None; COUNTS];
        for (field, value) in found.iter_mut().zip(fields) {
            *field = Some(&raw[raw.find(value).unwrap()..][..value.len()]);
        }
        Plain { usage: Some(Used { raw, fields: found }), ..plain(data, r#""a""#, &[]) }
    }

    fn counted(moulds: &mut Moulds, data: &str) -> Option<Counted> {
        let (length, known) = moulds.known(b"", data.as_bytes())?;
        (length == data.len() && known.has_counts).then(|| moulds.counted())
    }

    #[test]
    fn the_numbers_of_a_usage_object_are_gaps_and_those_that_are_counts_are_read() {
        let event = |n: &str, m: &str, x: &str| {
            format!(r#"{{"c":"a","u":{{"n":{n},"d":{{"m":{m}}},"x":[{x},"7"]}}}}"#)
        };
        let mut moulds = Moulds::default();
        moulds.learn(&counting(&event("31", "12", "0.25"), &["31", "12"]));
        let of = |n, m| Some([Some(n), Some(m), None, None, None, None, None]);
        for (data, counts) in [
            (event("0", "1234567890123456789", "-1e-7"), of(0, 1_234_567_890_123_456_789)),
            (event("9999999999999999999", "0", "1E+400"), of(9_999_999_999_999_999_999, 0)),
            (event("10000000000000000000", "0", "1"), None),
            (event("-1", "0", "1"), None),
            (event("1.0", "0", "1"), None),
            (event("1e2", "0", "1"), None),
            (event("01", "0", "1"), None),
            (event("", "0", "1"), None),
            (event("\"1\"", "0", "1"), None),
            (event("null", "0", "1"), None),
            (event("1", "0", "01"), None),
            (event("1", "0", "1."), None),
            (event("1", "0", ".5"), None),
            (event("1", "0", "1e"), None),
            (event("1", "0", "-"), None),
            (event("1", "0", "+1"), None),
            (event("1", "0", "\"1\""), None),
            (event("1", "0", "1,2"), None),
        ] {
            assert_eq!(counted(&mut moulds, &data), counts, "{data}");
        }
    }

    #[test]
    fn a_count_that_is_written_oddly_is_no_gap_and_is_never_taken_for_one() {
        let event = |n: &str| format!(r#"{{"c":"a","u":{{"n":{n}}}}}"#);
        for odd in ["1.0", "1e2", "18446744073709551616"] {
            let mut moulds = Moulds::default();
            moulds.learn(&counting(&event(odd), &[odd]));
            assert_eq!(counted(&mut moulds, &event(odd)), None, "{odd}");
        }
        let mut moulds = Moulds::default();
        moulds.learn(&counting(&event("-7"), &["-7"]));
        assert_eq!(counted(&mut moulds, &event("-7")), Some([None; COUNTS]));
        assert_eq!(counted(&mut moulds, &event("7")), None);
    }

    #[test]
    fn too_many_numbers_make_no_mould() {
        let event = format!(r#"{{"c":"a","u":{{"n":[{}]}}}}"#, vec!["1"; MAX_GAPS].join(","));
        let mut moulds = Moulds::default();
        moulds.learn(&counting(&event, &[]));
        assert_eq!(found(&mut moulds, &event), None);
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
                moulds.known(b"", data.as_bytes()).map(|(_, known)| known.adds),
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
        fn a_string_stops_where_the_first_byte_that_is_not_itself_stands(
            bytes in proptest::collection::vec(prop_oneof![4 => any::<u8>(), 4 => b' '..=b'~', 1 => Just(b'"'), 1 => 0x1Eu8..0x23], 0..40),
        ) {
            let slow = bytes.iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\');
            prop_assert_eq!(stop(&bytes), slow);
        }

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
