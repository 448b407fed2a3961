//! Adds to a choice what came as a list of parts, each of its own kind.

use super::{CallPart, Pieces, Room};

/// A choice to which the parts of one event, or of one whole body, are added.
pub(crate) struct Parts<'a> {
    pieces: &'a mut Pieces,
    room: &'a mut Room,
    has_content: bool,
    bytes: u64,
}

impl<'a> Parts<'a> {
    pub(crate) const fn new(pieces: &'a mut Pieces, room: &'a mut Room) -> Self {
        Self { pieces, room, has_content: false, bytes: 0 }
    }

    /// Whether there was content, and how many bytes of it.
    pub(crate) const fn added(&self) -> (bool, u64) {
        (self.has_content, self.bytes)
    }

    /// Text that the caller sees.
    pub(crate) fn say(&mut self, text: &str) {
        let said = self.pieces.say(text, self.room);
        self.count(said);
    }

    /// Reasoning: it is not kept.
    pub(crate) fn think(&mut self, text: &str) {
        let thought = self.pieces.think(text);
        self.count(thought);
    }

    /// Content that is no text: a picture, sound, code.
    pub(crate) fn show(&mut self) {
        let shown = self.pieces.show();
        self.count(shown);
    }

    /// A tool call that was sent with this index, or a piece of it.
    pub(crate) fn call(&mut self, index: u64, part: CallPart<'_>) {
        let called = self.pieces.call_at(index, part, self.room);
        self.count(called);
    }

    /// So many bytes of a tool call's arguments came, which are put together elsewhere.
    pub(crate) const fn wrote(&mut self, bytes: usize) {
        self.has_content |= bytes > 0;
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Keeps the arguments that were put together elsewhere, and counted as they came.
    pub(crate) fn keep_arguments(&mut self, index: u64, arguments: &str) {
        let _ = self.pieces.call_at(index, CallPart { arguments, ..CallPart::default() }, self.room);
    }

    fn count(&mut self, (has_content, bytes): (bool, u64)) {
        self.has_content |= has_content;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}
