//! One choice of a streamed answer, put together from its pieces.

mod parts;

use failsoft_core::Finish;

pub(crate) use self::parts::Parts;

use crate::{
    Offered,
    choice::{Choice, Content, Message},
    form::Form,
    lens,
    tools::{Calls, MAX_CALLS},
};

/// How much of an answer is kept. What a server sends beyond it passes, and is not looked at.
#[derive(Debug)]
pub(crate) struct Room {
    left: usize,
    full: bool,
}

/// Room for the first bytes of a choice's text.
const TEXT: usize = 1024;

/// What a tool call or a choice takes beside its text.
const ENTRY: usize = 128;

impl Room {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { left: bytes, full: false }
    }

    /// Whether something did not fit: what is kept is not the whole answer.
    pub(crate) const fn is_full(&self) -> bool {
        self.full
    }

    fn push(&mut self, text: &mut String, more: &str) {
        if self.takes(more.len()) {
            text.push_str(more);
        }
    }

    /// Whether one more choice or tool call fits.
    pub(crate) fn takes_entry(&mut self) -> bool {
        self.takes(ENTRY)
    }

    fn takes(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) if !self.full => self.left = left,
            _ => self.full = true,
        }
        !self.full
    }
}

/// What an event says of a tool call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallPart<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a str,
    /// A custom tool takes free text.
    pub(crate) is_custom: bool,
}

/// What came of one choice.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) index: u64,
    pub(crate) finish: Option<Finish>,
    content: Content,
    calls: Vec<Call>,
    /// The older form of a single call.
    function: Option<Call>,
    too_many: bool,
}

/// A tool call whose arguments come in fragments; id and name come in the first one only.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) index: Option<u64>,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// A custom tool takes free text.
    pub(crate) is_custom: bool,
}

impl Pieces {
    pub(crate) fn new(index: u64) -> Self {
        let mut pieces = Self { index, ..Self::default() };
        // Most answers are longer than the first few steps by which a text would grow.
        pieces.content.text.reserve(TEXT);
        pieces
    }

    /// The text so far.
    pub(crate) fn text(&self) -> &str {
        &self.content.text
    }

    /// Adds text that the caller can see; whether there was content in it, and of how many bytes.
    pub(crate) fn say(&mut self, text: &str, room: &mut Room) -> (bool, u64) {
        room.push(&mut self.content.text, text);
        self.count(text)
    }

    /// Adds reasoning, which is not kept.
    pub(crate) fn think(&mut self, text: &str) -> (bool, u64) {
        self.content.reasoning = true;
        self.count(text)
    }

    /// Adds a refusal, which is not kept.
    pub(crate) fn refuse(&mut self, text: &str) -> (bool, u64) {
        self.content.refused |= !text.is_empty();
        self.count(text)
    }

    /// Adds something else that the caller asked for: sound, pictures, what a tool of the provider's own found.
    pub(crate) const fn show(&mut self) -> (bool, u64) {
        self.content.other = true;
        (true, 0)
    }

    fn count(&mut self, text: &str) -> (bool, u64) {
        let bytes = text.len() as u64;
        self.content.bytes = self.content.bytes.saturating_add(bytes);
        (bytes > 0, bytes)
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The tool call that was sent with this index.
    pub(crate) fn find_call(&mut self, at: u64) -> Option<&mut Call> {
        self.calls.iter_mut().rfind(|call| call.index == Some(at))
    }

    /// Adds a piece of the tool call with this index, which stands for itself.
    pub(crate) fn call_at(&mut self, at: u64, part: CallPart<'_>, room: &mut Room) -> (bool, u64) {
        if self.find_call(at).is_none() {
            if self.calls.len() == MAX_CALLS {
                self.too_many = true;
                return (true, 0);
            }
            if !room.takes_entry() {
                return (true, 0);
            }
            self.calls.push(Call { index: Some(at), is_custom: part.is_custom, ..Call::default() });
        }
        let bytes = self.find_call(at).and_then(|call| call.push(part, room));
        (bytes.is_some(), bytes.unwrap_or(0) as u64)
    }

    /// Adds a delta of a chat completion; whether there was content in it, and of how many bytes. The role alone is none.
    pub(crate) fn add(&mut self, delta: Message<'_>, room: &mut Room) -> (bool, u64) {
        let before = self.content.bytes;
        let mut has_content = delta.content.is_some_and(|raw| self.say_raw(raw, room));
        has_content |= delta.beside(&mut self.content);
        let mut bytes = self.content.bytes.saturating_sub(before);
        let mut called = |added: Option<usize>| {
            has_content |= added.is_some();
            bytes = bytes.saturating_add(added.unwrap_or(0) as u64);
        };
        if let Some(list) = delta.tool_calls {
            lens::each(list, |raw| {
                called(self.call(raw, room));
                true
            });
        }
        if let Some(raw) = delta.function_call {
            called(self.function.get_or_insert_default().add(raw, None, room));
        }
        (has_content, bytes)
    }

    fn say_raw(&mut self, raw: &str, room: &mut Room) -> bool {
        if let Some(text) = lens::string(raw) {
            self.content.bytes = self.content.bytes.saturating_add(text.len() as u64);
            room.push(&mut self.content.text, &text);
            return !text.is_empty();
        }
        let more = Content::read(raw);
        self.content.bytes = self.content.bytes.saturating_add(more.bytes);
        room.push(&mut self.content.text, &more.text);
        self.content.other |= more.other;
        self.content.refused |= more.refused;
        self.content.reasoning |= more.reasoning;
        !more.text.is_empty() || more.other || more.refused || more.reasoning
    }

    /// Adds a fragment of a tool call; its bytes, where there is a name or a piece of arguments in it.
    fn call(&mut self, raw: &str, room: &mut Room) -> Option<usize> {
        let [index, id, function, custom] = lens::fields(raw, ["index", "id", "function", "custom"])?;
        let index = index.and_then(lens::count);
        let id = lens::some_string(id);
        let inner = function.or(custom);
        let [name] = inner.and_then(|raw| lens::fields(raw, ["name"])).unwrap_or_default();
        let at = match self.position(index, id.as_deref(), lens::some_string(name).is_some()) {
            Some(at) => at,
            None if self.calls.len() == MAX_CALLS => {
                self.too_many = true;
                return Some(0);
            }
            None if !room.takes_entry() => return Some(0),
            None => {
                self.calls.push(Call { index, is_custom: custom.is_some(), ..Call::default() });
                self.calls.len() - 1
            }
        };
        self.calls.get_mut(at)?.add(inner.unwrap_or("{}"), id.as_deref(), room)
    }

    /// The call that a fragment belongs to; `None` when it begins another.
    ///
    /// There are servers that give all parallel calls the index 0, servers without an index, and servers that make up an
    /// id for every fragment: so a fragment begins a call when it has another id *and* a name of its own.
    fn position(&self, index: Option<u64>, id: Option<&str>, is_named: bool) -> Option<usize> {
        let same_id = |call: &Call| id.is_some_and(|id| *call.id == *id);
        let at = match (index, id) {
            (Some(_), _) => self.calls.iter().rposition(|call| call.index == index)?,
            (None, Some(_)) => self.calls.iter().rposition(same_id)?,
            (None, None) => self.calls.len().checked_sub(1)?,
        };
        let call = self.calls.get(at)?;
        let begins = is_named && !call.name.is_empty() && !same_id(call) && (id.is_some() || index.is_none());
        (!begins).then_some(at)
    }

    /// The choice as a whole message would have it.
    pub(crate) fn into_choice(self, form: &'static Form, offered: &Offered) -> Choice<'static> {
        let at = form.choice(self.index);
        let function = self.function.filter(|_| self.calls.is_empty());
        let calls = Calls::assembled(self.calls, function, self.too_many, form, &at, offered);
        Choice { form, at, finish: self.finish, error: None, content: self.content, calls }
    }
}

impl Call {
    fn add(&mut self, raw: &str, id: Option<&str>, room: &mut Room) -> Option<usize> {
        let [name, arguments, input] = lens::fields(raw, ["name", "arguments", "input"]).unwrap_or_default();
        let name = lens::some_string(name).unwrap_or_default();
        let text = arguments.or(input).map_or_else(Default::default, |raw| {
            // Some servers send the object itself.
            lens::string(raw).unwrap_or_else(|| raw.into())
        });
        self.push(CallPart { id, name: &name, arguments: &text, is_custom: self.is_custom }, room)
    }

    /// Adds a fragment; its bytes, where there is a name or a piece of arguments in it.
    fn push(&mut self, part: CallPart<'_>, room: &mut Room) -> Option<usize> {
        let CallPart { id, name, arguments, .. } = part;
        if let Some(id) = id.filter(|_| self.id.is_empty()) {
            room.push(&mut self.id, id);
        }
        // Sent in pieces by few, and over and over again by some.
        if self.arguments.is_empty() && *self.name != *name {
            room.push(&mut self.name, name);
        }
        room.push(&mut self.arguments, arguments);
        (!name.is_empty() || !arguments.is_empty()).then_some(name.len() + arguments.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_together(deltas: &[&str]) -> Vec<(String, String, String)> {
        let (mut pieces, mut room) = (Pieces::new(0), Room::new(1 << 20));
        for delta in deltas {
            let (has_content, _) = pieces.add(Message::read(Some(delta), None), &mut room);
            assert!(has_content, "{delta}");
        }
        pieces.calls.into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    fn calls(wanted: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        wanted.iter().map(|(id, name, text)| ((*id).into(), (*name).into(), (*text).into())).collect()
    }

    #[test]
    fn interleaved_fragments_of_parallel_calls_find_their_call_by_index() {
        let got = put_together(&[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":""}},
                {"index":1,"id":"b","function":{"name":"two","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}"#,
            r#"{"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"1}"}}]}"#,
        ]);
        assert_eq!(got, calls(&[("a", "one", r#"{"x":1}"#), ("b", "two", "{}")]));
    }

    #[test]
    fn calls_that_all_have_the_index_0_are_told_apart_by_id_and_name() {
        let got = put_together(&[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"one","arguments":"{}"}}]}"#,
        ]);
        assert_eq!(got, calls(&[("a", "one", "{}"), ("b", "one", "{}")]));
    }

    #[test]
    fn a_new_id_in_every_fragment_and_a_repeated_name_begin_no_new_call() {
        let got = put_together(&[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"\"x\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"name":"one","arguments":"1}"}}]}"#,
        ]);
        assert_eq!(got, calls(&[("a", "one", r#"{"x":1}"#)]));
    }

    #[test]
    fn calls_without_an_index_are_whole_or_follow_each_other() {
        let got = put_together(&[
            r#"{"tool_calls":[{"function":{"name":"one","arguments":{"x":1}}},{"function":{"name":"two","arguments":"{"}}]}"#,
            r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#,
        ]);
        assert_eq!(got, calls(&[("", "one", r#"{"x":1}"#), ("", "two", "{}")]));
    }

    #[test]
    fn what_is_kept_is_bounded_and_says_so() {
        let (mut pieces, mut room) = (Pieces::new(0), Room::new(1000));
        for _ in 0..100 {
            let delta = r#"{"content":"0123456789","tool_calls":[{"index":0,"function":{"arguments":"0123456789"}}]}"#;
            pieces.add(Message::read(Some(delta), None), &mut room);
        }
        assert!(room.is_full());
        assert!(pieces.text().len() + pieces.calls[0].arguments.len() <= 1000);
    }
}
