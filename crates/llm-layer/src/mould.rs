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

mod scan;

use std::ops::Range;

use self::scan::{any_number, count, is_string, number, string, unescape};
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
    /// The bytes around the gaps have a line end in them.
    has_line_end: bool,
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
    /// its data. Data that is one line is not like one that was put together from several.
    pub(crate) fn known<'t>(
        &'t mut self,
        name: &[u8],
        data: &'t [u8],
        is_one_line: bool,
    ) -> Option<(usize, Known<'t>)> {
        let (at, found, length) = self.find(name, data, is_one_line)?;
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

    fn find<'d>(
        &mut self,
        name: &[u8],
        data: &'d [u8],
        is_one_line: bool,
    ) -> Option<(usize, Found<'d>, usize)> {
        for step in 0..MOULDS {
            let at = (self.last + step) % MOULDS;
            let may_fit = |mould: &&Mould| mould.adds.is_some() && !(is_one_line && mould.has_line_end);
            let mould = self.all.get(at).filter(may_fit);
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
        self.has_line_end = self.fixed.contains(&b'\n');
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

#[cfg(test)]
mod tests;
