//! The canonical form of a JSON text: what is left when spaces, the order of keys and the ways to write a character do
//! not matter. Numbers stay as they are written, so that none loses digits.

use std::borrow::Cow;

use super::Reader;

/// A JSON text taken apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    /// A number, `true`, `false` or `null`.
    Bare(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// Sorted by the keys, of which no two are the same.
    Fields(Vec<(Cow<'a, str>, Self)>),
}

/// Deeper texts are not taken apart: each level takes a place on the stack.
const MAX_DEPTH: usize = 64;

impl<'a> Node<'a> {
    /// `None` where the text is no JSON, is too deep, or names a field twice: readers differ on which of the two counts.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut reader = Reader::new(text);
        let node = reader.node(0)?;
        reader.space();
        reader.is_over().then_some(node)
    }

    /// A field of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Fields(fields) = self else { return None };
        let place = fields.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        fields.get(place).map(|(_, node)| node)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(nodes) => Some(nodes),
            _ => None,
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        matches!(self, Self::Bare("true"))
    }

    /// Shows the canonical form, piece by piece; each piece says how long it is, so that no two texts look the same.
    /// `hole` stands for a text that is left out, and `fields` of the outermost object are left out where it says so.
    pub(crate) fn show(&self, hole: Option<&Self>, skip: &dyn Fn(&str) -> bool, to: &mut impl FnMut(&[u8])) {
        if hole.is_some_and(|hole| std::ptr::eq(hole, self)) {
            return to(b"h");
        }
        let piece = |tag: &[u8], bytes: &[u8], to: &mut dyn FnMut(&[u8])| {
            to(tag);
            to(&(bytes.len() as u64).to_le_bytes());
            to(bytes);
        };
        match self {
            Self::Bare(text) => piece(b"b", text.as_bytes(), to),
            Self::Text(text) => piece(b"t", text.as_bytes(), to),
            Self::List(nodes) => {
                to(b"l");
                to(&(nodes.len() as u64).to_le_bytes());
                nodes.iter().for_each(|node| node.show(hole, &|_| false, to));
            }
            Self::Fields(fields) => {
                to(b"f");
                for (key, node) in fields.iter().filter(|(key, _)| !skip(key)) {
                    piece(b"k", key.as_bytes(), to);
                    node.show(hole, &|_| false, to);
                }
                to(b"e");
            }
        }
    }
}

impl<'a> Reader<'a> {
    fn node(&mut self, depth: usize) -> Option<Node<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.space();
        match self.rest().first()? {
            b'"' => self.string().map(Node::Text),
            b'[' => self.list(depth),
            b'{' => self.fields(depth),
            _ => self.bare().map(Node::Bare),
        }
    }

    fn list(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut nodes = Vec::new();
        self.take(b'[');
        self.space();
        if self.take(b']') {
            return Some(Node::List(nodes));
        }
        loop {
            nodes.push(self.node(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Some(Node::List(nodes));
            }
            self.take(b',').then_some(())?;
        }
    }

    fn fields(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut fields = Vec::new();
        self.take(b'{');
        self.space();
        if self.take(b'}') {
            return Some(Node::Fields(fields));
        }
        loop {
            self.space();
            (self.rest().first() == Some(&b'"')).then_some(())?;
            let key = self.string()?;
            self.space();
            self.take(b':').then_some(())?;
            fields.push((key, self.node(depth + 1)?));
            self.space();
            if self.take(b'}') {
                break;
            }
            self.take(b',').then_some(())?;
        }
        fields.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let twice = fields.windows(2).any(|pair| pair[0].0 == pair[1].0);
        (!twice).then_some(Node::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Option<Vec<u8>> {
        let mut shown = Vec::new();
        Node::parse(text.as_bytes())?.show(None, &|_| false, &mut |bytes| shown.extend_from_slice(bytes));
        Some(shown)
    }

    // G88
    #[test]
    fn spaces_the_order_of_keys_and_escapes_do_not_matter() {
        let plain = shown(r#"{"a":[1,{"b":"é/","c":null}],"d":"😀"}"#).unwrap();
        let other =
            "\n{ \"d\" : \"\\ud83d\\uDE00\",\t\"a\": [1 , { \"c\": null, \"\\u0062\": \"\\u00e9\\/\" }] } ";
        assert_eq!(shown(other).unwrap(), plain);
    }

    #[test]
    fn what_differs_in_a_value_differs() {
        let all = [
            r#"{"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":"1"}"#,
            r#"{"a":[1]}"#,
            r#"{"a":12345678901234567890123}"#,
            r#"{"a":12345678901234567890124}"#,
            r#"{"a":null}"#,
            "{}",
            r#"{"a":{}}"#,
            r#"{"a":[]}"#,
            r#"[["a"],"b"]"#,
            r#"[["a","b"]]"#,
            r#"{"ab":"c"}"#,
            r#"{"a":"bc"}"#,
            r#"{"a":true}"#,
            r#"{"a":"true"}"#,
            r#""f""#,
            "[]",
        ];
        let shown: std::collections::HashSet<_> = all.iter().map(|text| shown(text).unwrap()).collect();
        assert_eq!(shown.len(), all.len());
    }

    #[test]
    fn what_readers_may_take_differently_is_not_taken_apart() {
        let deep = "[".repeat(10_000);
        let bad = [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "NaN",
            "[1,]",
            r#"{"a":1,}"#,
            "{a:1}",
            "'a'",
            "[1] 2",
            "",
            "\"a\nb\"",
            r#""\x""#,
            r#""\u00g0""#,
            r#""a"#,
            &deep,
            r#""\u+041""#,
            "\u{feff}{}",
            "tru",
            "[1 2]",
        ];
        for text in bad {
            assert_eq!(Node::parse(text.as_bytes()), None, "{text:.40}");
        }
        assert_eq!(Node::parse(b"\"\xff\""), None);
    }

    proptest! {
        #[test]
        fn it_takes_what_a_strict_reader_takes(text in r#"[\[\]{}",:\\u0-9ab\. eE+-]{0,24}"#) {
            let strict = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let ours = Node::parse(text.as_bytes()).is_some();
            // Less: names that come twice, numbers too large for that reader's.
            prop_assert!(strict || !ours || text.contains(['e', 'E']));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Node::parse(&bytes);
        }
    }
}
