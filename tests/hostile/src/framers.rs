//! The framers of stream-layer.

use stream_layer::{ArrayFramer, EventStreamFramer, LineFramer, SseFramer};

use crate::cuts::cut;

/// So small that inputs pass it.
const MAX: usize = 64;

/// Reads an input whole, cut, and byte by byte: what comes of it is the same, and no more than came in.
fn same(input: &[u8], read: impl Fn(&[&[u8]], usize) -> Vec<Vec<u8>>) {
    let (body, pieces) = cut(input);
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    for max in [MAX, 1 << 20] {
        let whole = read(&[body], max);
        let length: usize = whole.iter().map(Vec::len).sum();
        assert!(length <= body.len() + 8 * whole.len(), "more came out than in");
        assert_eq!(whole, read(&pieces, max));
        assert_eq!(whole, read(&bytes, max));
    }
}

/// Server-sent events.
pub fn events(input: &[u8]) {
    same(input, |pieces, max| {
        let (mut framer, mut all) = (SseFramer::new(max), Vec::new());
        for piece in pieces {
            let mut events = framer.feed(piece);
            while let Some(event) = events.next_event() {
                match event {
                    Ok(event) => all.push([event.name(), b"|", event.data().unwrap_or(b"-")].concat()),
                    Err(_) => all.push(b"too long".to_vec()),
                }
            }
        }
        if let Some(event) = framer.finish() {
            all.push([event.name(), b"|", event.data().unwrap_or(b"-")].concat());
        }
        all
    });
}

/// Lines.
pub fn lines(input: &[u8]) {
    same(input, |pieces, max| {
        let (mut framer, mut all) = (LineFramer::new(max), Vec::new());
        for piece in pieces {
            let mut lines = framer.feed(piece);
            while let Some(line) = lines.next_line() {
                all.push(line.map_or_else(|_| b"too long".to_vec(), <[u8]>::to_vec));
            }
        }
        all.extend(framer.finish().map(<[u8]>::to_vec));
        all
    });
}

/// The elements of a JSON array.
pub fn arrays(input: &[u8]) {
    same(input, |pieces, max| {
        let (mut framer, mut all) = (ArrayFramer::new(max), Vec::new());
        for piece in pieces {
            let mut elements = framer.feed(piece);
            while let Some(element) = elements.next_element() {
                all.push(element.map_or_else(|_| b"no".to_vec(), <[u8]>::to_vec));
            }
        }
        all
    });
}

/// AWS's binary messages.
pub fn messages(input: &[u8]) {
    same(input, |pieces, max| {
        let (mut framer, mut all) = (EventStreamFramer::new(max), Vec::new());
        for piece in pieces {
            let mut messages = framer.feed(piece);
            while let Some(message) = messages.next_message() {
                all.push(message.map_or_else(|_| b"no".to_vec(), |message| message.payload().to_vec()));
            }
        }
        all
    });
}
