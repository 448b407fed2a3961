//! Values of a JSON text as they are written, so that a change of one leaves all else byte for byte: numbers, order and spaces.

use std::{borrow::Cow, ops::Range};

use super::Reader;

/// A value of a JSON text, as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Raw<'a>(&'a str);

/// Deeper texts are not taken apart: each level takes a place on the stack. As deep as readers with a limit go.
const MAX_DEPTH: usize = 128;

impl<'a> Raw<'a> {
    /// `None` where the text is no JSON, is too deep, or names a field twice: readers differ on which of the two counts.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut reader = Reader::new(text);
        let raw = reader.raw(0)?;
        reader.space();
        reader.is_over().then_some(raw)
    }

    /// As it is written.
    pub(crate) const fn as_str(self) -> &'a str {
        self.0
    }

    pub(crate) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// A field of an object.
    pub(crate) fn get(self, key: &str) -> Option<Self> {
        let mut reader = self.inside('{')?;
        loop {
            let name = reader.string()?;
            reader.space();
            reader.take(b':').then_some(())?;
            let value = reader.raw(0)?;
            if name == key {
                return Some(value);
            }
            reader.space();
            reader.take(b',').then_some(())?;
            reader.space();
        }
    }

    /// The items of a list; none of anything else.
    pub(crate) fn items(self) -> Vec<Self> {
        let mut items = Vec::new();
        if let Some(mut reader) = self.inside('[') {
            while let Some(item) = reader.raw(0) {
                items.push(item);
                reader.space();
                if !reader.take(b',') {
                    break;
                }
            }
        }
        items
    }

    pub(crate) fn is_list(self) -> bool {
        self.0.starts_with('[')
    }

    /// What a string says.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        if !self.0.starts_with('"') {
            return None;
        }
        Reader::new(self.0).string()
    }

    /// Just inside of it.
    fn inside(self, open: char) -> Option<Reader<'a>> {
        let mut reader = Reader::new(self.0.strip_prefix(open)?);
        reader.space();
        Some(reader)
    }
}

impl<'a> Reader<'a> {
    /// The value that comes next.
    fn raw(&mut self, depth: usize) -> Option<Raw<'a>> {
        self.space();
        let start = self.at();
        match self.rest().first()? {
            b'"' => drop(self.string()?),
            b'[' => self.skip_list(depth)?,
            b'{' => self.skip_fields(depth)?,
            _ => drop(self.bare()?),
        }
        self.since(start).map(Raw)
    }

    fn skip_list(&mut self, depth: usize) -> Option<()> {
        (depth < MAX_DEPTH).then_some(())?;
        self.take(b'[');
        self.space();
        if self.take(b']') {
            return Some(());
        }
        loop {
            self.raw(depth + 1)?;
            self.space();
            if self.take(b']') {
                return Some(());
            }
            self.take(b',').then_some(())?;
        }
    }

    fn skip_fields(&mut self, depth: usize) -> Option<()> {
        (depth < MAX_DEPTH).then_some(())?;
        self.take(b'{');
        self.space();
        if self.take(b'}') {
            return Some(());
        }
        let mut names = Vec::new();
        loop {
            self.space();
            (self.rest().first() == Some(&b'"')).then_some(())?;
            names.push(self.string()?);
            self.space();
            self.take(b':').then_some(())?;
            self.raw(depth + 1)?;
            self.space();
            if self.take(b'}') {
                break;
            }
            self.take(b',').then_some(())?;
        }
        names.sort_unstable();
        (!names.windows(2).any(|pair| pair[0] == pair[1])).then_some(())
    }
}

/// Changes of a text at several places.
pub(crate) struct Splices<'a> {
    text: &'a str,
    changes: Vec<(Range<usize>, String)>,
}

impl<'a> Splices<'a> {
    pub(crate) const fn of(text: &'a str) -> Self {
        Self { text, changes: Vec::new() }
    }

    /// Another text in place of a part of it.
    pub(crate) fn replace(&mut self, part: Raw<'a>, with: String) {
        if let Some(start) = self.start(part) {
            self.changes.push((start..start + part.0.len(), with));
        }
    }

    /// Takes out what lies between the beginnings of two parts.
    pub(crate) fn remove(&mut self, from: Raw<'a>, to: Raw<'a>) {
        if let (Some(from), Some(to)) = (self.start(from), self.start(to)) {
            self.changes.push((from..to, String::new()));
        }
    }

    /// More text before a part.
    pub(crate) fn insert_before(&mut self, part: Raw<'a>, text: String) {
        if let Some(start) = self.start(part) {
            self.changes.push((start..start, text));
        }
    }

    /// More text just inside of an object or a list, before all that is there.
    pub(crate) fn insert_inside(&mut self, part: Raw<'a>, text: String) {
        if let Some(start) = self.start(part) {
            self.changes.push((start + 1..start + 1, text));
        }
    }

    /// More text after a part.
    pub(crate) fn insert_after(&mut self, part: Raw<'a>, text: String) {
        if let Some(start) = self.start(part) {
            let end = start + part.0.len();
            self.changes.push((end..end, text));
        }
    }

    /// The changed text; `None` without any change.
    pub(crate) fn apply(mut self) -> Option<String> {
        if self.changes.is_empty() {
            return None;
        }
        self.changes.sort_by_key(|(at, _)| at.start);
        let more: usize = self.changes.iter().map(|(_, text)| text.len()).sum();
        let mut changed = String::with_capacity(self.text.len().saturating_add(more));
        let mut done = 0;
        for (at, text) in &self.changes {
            changed.push_str(self.text.get(done..at.start)?);
            changed.push_str(text);
            done = at.end;
        }
        changed.push_str(self.text.get(done..)?);
        Some(changed)
    }

    /// Where a part of the text lies in it.
    fn start(&self, part: Raw<'a>) -> Option<usize> {
        let start = (part.0.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize)?;
        (start.checked_add(part.0.len())? <= self.text.len()).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_as_they_are_written() {
        let raw = Raw::parse(
            " { \"a\" : [ 1e0 , {\"b\":\"\\u0063\"}, [] ], \"\\u0064\": 12345678901234567890123 } ",
        )
        .unwrap();
        let items = raw.get("a").unwrap().items();
        assert_eq!(
            items.iter().map(|item| item.as_str()).collect::<Vec<_>>(),
            ["1e0", "{\"b\":\"\\u0063\"}", "[]"]
        );
        assert_eq!(items[1].get("b").unwrap().text().unwrap(), "c");
        assert_eq!(raw.get("d").unwrap().as_str(), "12345678901234567890123");
        assert!(raw.get("e").is_none() && raw.get("a").unwrap().get("a").is_none() && raw.items().is_empty());
        assert!(
            Raw::parse("{}").unwrap().get("a").is_none() && Raw::parse("[ ]").unwrap().items().is_empty()
        );
        let text = "[1, 2,3]";
        let [first, second, third] = Raw::parse(text).unwrap().items()[..] else { panic!("three") };
        let mut splices = Splices::of(text);
        splices.insert_after(third, ",4".to_owned());
        splices.remove(second, third);
        splices.replace(first, "7".to_owned());
        assert_eq!(splices.apply().unwrap(), "[7, 3,4]");
        assert_eq!(Splices::of(text).apply(), None);
    }

    #[test]
    fn what_readers_may_take_differently_is_not_taken_apart() {
        let deep = "[".repeat(129) + &"]".repeat(129);
        for bad in [
            "",
            "{",
            "[1,]",
            "{a\":1}",
            "{\"a\":1, b\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "{\"x\":[{\"a\":1,\"a\":1}]}",
            "01",
            "[1] 2",
            &deep,
        ] {
            assert_eq!(Raw::parse(bad), None, "{bad:.40}");
        }
        assert!(Raw::parse(&deep[1..257]).is_some());
    }

    proptest! {
        #[test]
        fn it_takes_what_a_strict_reader_takes_and_finds_what_that_finds(text in r#"[\[\]{}",:\\u0-9ab\. eE+-]{0,24}"#) {
            let strict = serde_json::from_str::<serde_json::Value>(&text).ok();
            if let Some(raw) = Raw::parse(&text) {
                prop_assert!(strict.is_some() || text.contains(['e', 'E']));
                if let Some(strict) = strict {
                    let same = |raw: Option<Raw<'_>>, value: Option<&serde_json::Value>| {
                        raw.map(|raw| serde_json::from_str::<serde_json::Value>(raw.as_str()).unwrap()).as_ref() == value
                    };
                    prop_assert!(same(raw.get("a"), strict.get("a")));
                    prop_assert!(same(raw.items().get(1).copied(), strict.get(1)));
                }
            }
        }
    }
}
