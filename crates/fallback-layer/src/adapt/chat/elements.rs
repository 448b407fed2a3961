//! Answers that are a JSON array, edited element by element as they come.

use std::sync::Arc;

use bytes::BytesMut;
use failsoft_core::BoxError;

use super::{Edit, body::change};

/// A longer element passes as it comes.
const MAX_ELEMENT: usize = 256 * 1024;

/// Edits each object of an array, once it is whole. What is between them passes, and so does all that is no such array.
pub(super) struct Elements {
    edit: Arc<dyn Edit>,
    /// Of arrays and objects: within an element it is 2 or more.
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    /// What came of an object that is not whole yet.
    part: BytesMut,
    /// The object is being gathered; else what comes passes.
    gathers: bool,
}

impl Elements {
    pub(super) fn new(edit: Arc<dyn Edit>) -> Self {
        let (depth, part) = (0, BytesMut::new());
        Self { edit, depth, in_string: false, is_escaped: false, part, gathers: false }
    }

    /// What is there of an element that will not become whole.
    pub(super) fn rest(&mut self) -> BytesMut {
        self.gathers = false;
        self.part.split()
    }

    /// The elements that are whole with these bytes, edited, and what is around them; up to one that cannot be edited.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), BoxError> {
        // From where on nothing was taken yet.
        let mut start = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let was = self.depth;
            self.step(*byte);
            if was == 1 && self.depth == 2 && *byte == b'{' {
                out.extend_from_slice(bytes.get(start..at).unwrap_or_default());
                (start, self.gathers) = (at, true);
            } else if self.gathers && was == 2 && self.depth == 1 {
                self.part.extend_from_slice(bytes.get(start..=at).unwrap_or_default());
                start = at + 1;
                let element = self.rest();
                let changed = if element.len() > MAX_ELEMENT { None } else { change(&element, &*self.edit)? };
                match changed {
                    Some(changed) => out.extend_from_slice(changed.as_bytes()),
                    None => out.extend_from_slice(&element),
                }
            }
        }
        let left = bytes.get(start..).unwrap_or_default();
        if !self.gathers {
            out.extend_from_slice(left);
        } else if self.part.len().saturating_add(left.len()) > MAX_ELEMENT {
            out.extend_from_slice(&self.rest());
            out.extend_from_slice(left);
        } else {
            self.part.extend_from_slice(left);
        }
        Ok(())
    }

    /// Where in the text it is after this byte.
    fn step(&mut self, byte: u8) {
        if self.in_string {
            let is_escape = byte == b'\\' && !self.is_escaped;
            self.in_string = byte != b'"' || self.is_escaped;
            self.is_escaped = is_escape;
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' | b'{' => self.depth = self.depth.saturating_add(1),
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;
    use crate::adapt::chat::{answered_model, edit_fn};

    fn edited(text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut elements = Elements::new(Arc::new(answered_model("m")));
        let mut out = BytesMut::new();
        for cut in cuts.windows(2) {
            elements.feed(&text[cut[0]..cut[1]], &mut out).unwrap();
        }
        out.extend_from_slice(&elements.rest());
        out.to_vec()
    }

    #[test]
    fn each_object_of_the_array_is_edited_and_all_else_stays() {
        let text = r#" [{"model": "x", "t": "}]\"{"}
,
{"n": {"model": "x"}, "model":"x"}, 1, "{", [{"model": "x"}], {"model": "x" "#;
        let wanted = r#" [{"model": "m", "t": "}]\"{"}
,
{"n": {"model": "x"}, "model":"m"}, 1, "{", [{"model": "x"}], {"model": "x" "#;
        assert_eq!(String::from_utf8(edited(text.as_bytes(), &[0, text.len()])).unwrap(), wanted);
    }

    #[test]
    fn an_element_is_there_as_soon_as_it_is_whole() {
        let mut elements = Elements::new(Arc::new(answered_model("m")));
        for (piece, wanted) in
            [("[", "["), ("{\"model\":", ""), ("\"x\"}", "{\"model\":\"m\"}"), (",\n", ",\n"), ("]", "]")]
        {
            let mut out = BytesMut::new();
            elements.feed(piece.as_bytes(), &mut out).unwrap();
            assert_eq!(out, wanted);
        }
    }

    #[test]
    fn one_that_is_too_long_passes_and_the_next_is_edited() {
        let long = format!("[{{\"model\":\"x\",\"t\":\"{}\"}},", "t".repeat(MAX_ELEMENT));
        let text = format!("{long}{{\"model\":\"x\"}}]");
        let cuts: Vec<_> = (0..=text.len()).step_by(50_000).chain([text.len()]).collect();
        let out = edited(text.as_bytes(), &cuts);
        assert!(out.starts_with(long.as_bytes()) && out.ends_with(b"{\"model\":\"m\"}]"));
    }

    #[test]
    fn what_came_before_one_that_cannot_be_edited_comes_out_however_it_is_cut() {
        let edit = Arc::new(edit_fn(|json| if json.contains("bad") { Err("bad".into()) } else { Ok(None) }));
        let text = b"[{\"a\":1}, {\"b\":\"bad\"}, {\"c\":1}]";
        for cut in [0, 3, 9, 15, text.len()] {
            let (mut elements, mut out) = (Elements::new(edit.clone()), BytesMut::new());
            let (first, second) = text.split_at(cut);
            let fed = elements.feed(first, &mut out).and_then(|()| elements.feed(second, &mut out));
            assert_eq!((fed.unwrap_err().to_string().as_str(), &out[..]), ("bad", &text[..10]), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_same_comes_out_and_other_bytes_stay(
            pieces in vec(prop_oneof![
                Just(&b"["[..]),
                Just(&b"{\"model\":\"x\"}"[..]),
                Just(&b",\r\n"[..]),
                Just(&b"{\"t\":\"}\\\"\",\"model\":\"y\"}"[..]),
                Just(&b"]"[..]),
                Just(&b"\xff\"{"[..]),
            ], 0..12),
            cuts in vec(any::<Index>(), 0..8),
        ) {
            let text = pieces.concat();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let out = edited(&text, &cuts);
            prop_assert_eq!(&out, &edited(&text, &[0, text.len()]));
            let back = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\"x\"", "\"m\"").replace("\"y\"", "\"m\"");
            prop_assert_eq!(back(&out), back(&text));
        }
    }
}
