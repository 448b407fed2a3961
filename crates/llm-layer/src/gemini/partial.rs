//! The arguments of a function call that Vertex AI streams piece by piece (`streamFunctionCallArguments`).
//!
//! Each piece says by a JSON path where its value belongs, and strings come in fragments. The call is whole at a
//! `functionCall` that does not say that another follows; of one that is not, the arguments are left cut, so that a strict
//! reader refuses them.

use crate::lens;

/// The arguments so far.
#[derive(Debug, Default)]
pub(super) struct Partial {
    root: Node,
    /// How many names, elements and bytes are kept.
    size: usize,
    /// A piece could not be put anywhere, or there are too many.
    is_broken: bool,
}

/// A value that is put together.
#[derive(Debug, Default)]
enum Node {
    #[default]
    Empty,
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
    Text(String),
    /// A number, `true`, `false` or `null`.
    Bare(String),
}

/// More than so much is not kept: the limit of one event.
const MAX_SIZE: usize = stream_layer::MAX_EVENT;

/// A path goes no deeper: writing the arguments out goes as deep.
const MAX_DEPTH: usize = 64;

impl Partial {
    /// Adds what is in a list of `partialArgs`; how many bytes of values.
    pub(super) fn add(&mut self, list: &str) -> usize {
        let mut bytes = 0;
        let is_list = lens::each(list, |raw| {
            match self.piece(raw) {
                Some(added) => bytes += added,
                None => self.is_broken = true,
            }
            !self.is_broken
        });
        self.is_broken |= is_list.is_none();
        bytes
    }

    fn piece(&mut self, raw: &str) -> Option<usize> {
        let names = ["jsonPath", "stringValue", "numberValue", "boolValue", "nullValue"];
        let [path, text, number, truth, _] = lens::fields(raw, names)?;
        let path = path.and_then(lens::string)?;
        let mut node = &mut self.root;
        let mut rest = path.strip_prefix('$')?;
        let mut depth = 0;
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            self.size = self.size.saturating_add(32 + rest.len() - after.len());
            depth += 1;
            if depth > MAX_DEPTH {
                return None;
            }
            node = match step {
                Step::Name(name) => node.member(&name)?,
                Step::Index(index) => node.element(index)?,
            };
            rest = after;
        }
        if depth == 0 {
            return None;
        }
        let added = match text.and_then(lens::string) {
            Some(text) => {
                node.text()?.push_str(&text);
                text.len()
            }
            None => {
                // What has no value at all is a null, which this format leaves out.
                let bare = number.or(truth).unwrap_or("null");
                let is_bare = !bare.starts_with(['{', '[', '"']);
                if !is_bare || !matches!(node, Node::Empty) {
                    return None;
                }
                *node = Node::Bare(bare.to_owned());
                bare.len()
            }
        };
        self.size = self.size.saturating_add(added);
        (self.size <= MAX_SIZE).then_some(added)
    }

    /// The arguments as JSON text; cut short where they are not whole.
    pub(super) fn written(&self, is_whole: bool) -> String {
        let mut text = String::new();
        match &self.root {
            Node::Empty => text.push_str("{}"),
            root => root.write(&mut text),
        }
        if self.is_broken || !is_whole {
            text.pop();
        }
        text
    }
}

impl Node {
    fn member(&mut self, name: &str) -> Option<&mut Self> {
        if let Self::Empty = self {
            *self = Self::Object(Vec::new());
        }
        let Self::Object(members) = self else { return None };
        let at = match members.iter().position(|(known, _)| known == name) {
            Some(at) => at,
            None if members.len() < 1024 => {
                members.push((name.to_owned(), Self::Empty));
                members.len() - 1
            }
            None => return None,
        };
        members.get_mut(at).map(|(_, node)| node)
    }

    /// The elements of a list come in their order.
    fn element(&mut self, index: usize) -> Option<&mut Self> {
        if let Self::Empty = self {
            *self = Self::Array(Vec::new());
        }
        let Self::Array(elements) = self else { return None };
        if index == elements.len() {
            elements.push(Self::Empty);
        }
        elements.get_mut(index)
    }

    fn text(&mut self) -> Option<&mut String> {
        if let Self::Empty = self {
            *self = Self::Text(String::new());
        }
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Empty => out.push_str("null"),
            Self::Bare(bare) => out.push_str(bare),
            Self::Text(text) => quote(text, out),
            Self::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    element.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (name, node)) in members.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    quote(name, out);
                    out.push(':');
                    node.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Writes a string of JSON.
fn quote(text: &str, out: &mut String) {
    // A string can always be written.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// One step of a path.
enum Step {
    Name(String),
    Index(usize),
}

/// The first step of `.name`, `['name']`, `["name"]` or `[0]`, and what comes after it.
fn step(path: &str) -> Option<(Step, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        return (!name.is_empty()).then(|| (Step::Name(name.to_owned()), after));
    }
    let inner = path.strip_prefix('[')?;
    let Some(quote) = inner.chars().next().filter(|first| matches!(first, '\'' | '"')) else {
        let (index, after) = inner.split_once(']')?;
        return Some((Step::Index(index.parse().ok()?), after));
    };
    let mut name = String::new();
    let mut chars = inner.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            let after = inner.get(at + 1..)?.strip_prefix(']')?;
            return Some((Step::Name(name), after));
        }
        name.push(if c == '\\' { chars.next()?.1 } else { c });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&str], is_whole: bool) -> String {
        let mut partial = Partial::default();
        for piece in pieces {
            partial.add(piece);
        }
        partial.written(is_whole)
    }

    #[test]
    fn fragments_find_their_place_and_strings_grow() {
        let pieces = [
            r#"[{"jsonPath":"$.city","stringValue":"New \"","willContinue":true}]"#,
            r#"[{"jsonPath":"$.city","stringValue":"Delhi"},{"jsonPath":"$.days","numberValue":3}]"#,
            r#"[{"jsonPath":"$.list[0].name","stringValue":"a"},{"jsonPath":"$.list[1]","boolValue":true}]"#,
            r#"[{"jsonPath":"$['odd name']","nullValue":"NULL_VALUE"},{"jsonPath":"$[\"it's\"].x","numberValue":-1.5}]"#,
        ];
        assert_eq!(
            of(&pieces, true),
            r#"{"city":"New \"Delhi","days":3,"list":[{"name":"a"},true],"odd name":null,"it's":{"x":-1.5}}"#
        );
        assert_eq!(of(&[], true), "{}");
    }

    #[test]
    fn what_is_not_whole_or_fits_nowhere_is_no_json() {
        let good = r#"[{"jsonPath":"$.a","stringValue":"x"}]"#;
        assert_eq!(of(&[good], false), r#"{"a":"x""#);
        assert_eq!(of(&[], false), "{");
        for bad in [
            r#"[{"jsonPath":"$.a.b","stringValue":"x"}]"#,
            r#"[{"jsonPath":"$.a","numberValue":1}]"#,
            r#"[{"jsonPath":"$.l[7]","stringValue":"x"}]"#,
            r#"[{"jsonPath":"$","stringValue":"x"}]"#,
            r#"[{"jsonPath":"a","stringValue":"x"}]"#,
            r#"[{"jsonPath":"$..a","stringValue":"x"}]"#,
            r#"[{"jsonPath":"$['a","stringValue":"x"}]"#,
            r#"[{"jsonPath":"$.n","numberValue":{}}]"#,
            r#"[{"stringValue":"x"}]"#,
            "[7]",
            "7",
        ] {
            let written = of(&[good, bad], true);
            assert!(serde_json::from_str::<serde_json::Value>(&written).is_err(), "{bad}: {written}");
        }
    }

    #[test]
    fn paths_without_end_are_refused_and_not_kept() {
        let mut partial = Partial::default();
        let deep = format!(r#"[{{"jsonPath":"${}","stringValue":"x"}}]"#, ".a".repeat(100_000));
        partial.add(&deep);
        assert!(partial.is_broken);
        let mut partial = Partial::default();
        for index in 0..5_000 {
            partial.add(&format!(r#"[{{"jsonPath":"$.k{index}","numberValue":1}}]"#));
        }
        assert!(partial.is_broken);
        assert!(partial.written(true).len() < 20_000);
    }
}
