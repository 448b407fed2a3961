//! Where the parts of an answer lie in a dialect, and what differs in what they mean.

use failsoft_core::Hint;

/// One dialect. The texts are JSON pointers, below the choice where nothing else is said.
#[derive(Debug)]
pub(crate) struct Form {
    /// The choices themselves; their index comes after it, where there can be several.
    pub(crate) choices: &'static str,
    pub(crate) has_index: bool,
    /// Why it stopped.
    pub(crate) finish: &'static str,
    /// The message.
    pub(crate) message: &'static str,
    /// Its text.
    pub(crate) content: &'static str,
    /// Its tool calls; their index comes after it.
    pub(crate) calls: &'static str,
    /// Whether the index that a tool call was streamed with is that one.
    pub(crate) keeps_index: bool,
    /// Below a tool call, the object with its name and its arguments.
    pub(crate) function: &'static str,
    /// Below that, the arguments.
    pub(crate) arguments: &'static str,
    /// An answer that says nothing: whether the same request may be answered better.
    pub(crate) empty: Hint,
}

impl Form {
    /// Where a choice lies.
    pub(crate) fn choice(&self, index: u64) -> String {
        if self.has_index { format!("{}/{index}", self.choices) } else { self.choices.to_owned() }
    }
}
