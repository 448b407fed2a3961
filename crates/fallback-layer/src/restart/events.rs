//! Where events end, so that none is handed on in part.

use bytes::{Bytes, BytesMut};

/// A longer event is handed on as it comes: from then on nothing can be taken back.
const MAX_EVENT: usize = 256 * 1024;

/// Hands on whole events.
#[derive(Debug)]
pub(super) struct Events {
    /// What came of the event that is not whole yet.
    part: BytesMut,
    /// Nothing came yet of the line.
    line_is_empty: bool,
    /// The last byte was a carriage return, which a line feed may follow as the same end of line.
    after_cr: bool,
    /// The last end of line ended an event.
    after_event: bool,
    /// An event was too long.
    pub(super) is_torn: bool,
    /// Nothing was handed on yet of a stream that follows another one: in its middle a byte order mark is none.
    begins: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Events {
    pub(super) fn new() -> Self {
        let part = BytesMut::new();
        Self { part, line_is_empty: true, after_cr: false, after_event: true, is_torn: false, begins: false }
    }

    /// Of a stream that follows another one.
    pub(super) fn of_another() -> Self {
        Self { begins: true, ..Self::new() }
    }

    /// The events that are whole with these bytes.
    pub(super) fn feed(&mut self, bytes: &Bytes) -> Bytes {
        let whole = self.whole(bytes);
        if whole.is_empty() || !std::mem::take(&mut self.begins) || !whole.starts_with(BYTE_ORDER_MARK) {
            return whole;
        }
        whole.slice(BYTE_ORDER_MARK.len()..)
    }

    fn whole(&mut self, bytes: &Bytes) -> Bytes {
        if self.is_torn {
            return bytes.clone();
        }
        let end = self.end_of_events(bytes);
        let (whole, rest) = (bytes.slice(..end), bytes.slice(end..));
        let whole = if self.part.is_empty() || whole.is_empty() {
            whole
        } else {
            self.part.extend_from_slice(&whole);
            self.part.split().freeze()
        };
        self.part.extend_from_slice(&rest);
        if self.part.len() <= MAX_EVENT {
            return whole;
        }
        self.is_torn = true;
        let part = self.part.split();
        if whole.is_empty() { part.freeze() } else { [whole, part.freeze()].concat().into() }
    }

    /// What is there of an event that will not become whole.
    pub(super) fn rest(&mut self) -> Bytes {
        self.part.split().freeze()
    }

    /// Where the last event ends in these bytes, just after its blank line.
    fn end_of_events(&mut self, bytes: &[u8]) -> usize {
        let mut end = 0;
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.after_cr => {
                    self.after_cr = false;
                    if self.after_event {
                        end = at + 1;
                    }
                    continue;
                }
                b'\n' | b'\r' => {
                    self.after_event = self.line_is_empty;
                    self.line_is_empty = true;
                    if self.after_event {
                        end = at + 1;
                    }
                }
                _ => (self.line_is_empty, self.after_event) = (false, false),
            }
            self.after_cr = *byte == b'\r';
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use proptest::{
        collection::vec,
        prelude::any,
        prop_assert_eq, proptest,
        sample::{Index, select},
    };

    use super::*;

    fn feed(events: &mut Events, text: &str) -> String {
        String::from_utf8(events.feed(&Bytes::copy_from_slice(text.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn events_are_whole_with_any_end_of_line() {
        let mut events = Events::new();
        assert_eq!(feed(&mut events, "data: a\n"), "");
        assert_eq!(feed(&mut events, "\ndata: b\n\nda"), "data: a\n\ndata: b\n\n");
        assert_eq!(feed(&mut events, "ta: c\r\n\r"), "data: c\r\n\r");
        assert_eq!(feed(&mut events, "\ndata: d\r\r"), "\ndata: d\r\r");
        assert_eq!(feed(&mut events, "data: e"), "");
        assert_eq!(events.rest(), "data: e");
    }

    #[test]
    fn an_event_that_is_too_long_is_handed_on_as_it_comes() {
        let mut events = Events::new();
        let long = "x".repeat(MAX_EVENT);
        assert_eq!(feed(&mut events, &long), "");
        assert_eq!(feed(&mut events, "y").len(), MAX_EVENT + 1);
        assert!(events.is_torn);
        assert_eq!(feed(&mut events, "z"), "z");
    }

    /// The slow model: the longest beginning that ends with a blank line.
    fn whole(text: &[u8]) -> usize {
        let (mut start, mut end, mut at) = (0, 0, 0);
        while at < text.len() {
            let eol = match text[at] {
                b'\r' if text.get(at + 1) == Some(&b'\n') => 2,
                b'\r' | b'\n' => 1,
                _ => 0,
            };
            if eol == 0 {
                at += 1;
                continue;
            }
            if at == start {
                end = at + eol;
            }
            at += eol;
            start = at;
        }
        end
    }

    proptest! {
        #[test]
        fn however_it_is_cut_what_is_handed_on_and_held_is_what_came(
            text in vec(select(b"a:\n\r".to_vec()), 0..64),
            cuts in vec(any::<Index>(), 0..6),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut events = Events::new();
            let mut given = Vec::new();
            for cut in cuts.windows(2) {
                given.extend_from_slice(&events.feed(&Bytes::copy_from_slice(&text[cut[0]..cut[1]])));
                prop_assert_eq!(given.len(), whole(&text[..cut[1]]));
            }
            given.extend_from_slice(&events.rest());
            prop_assert_eq!(given, text);
        }
    }
}
