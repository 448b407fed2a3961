//! Examples for a model that needs them.

use std::borrow::Cow;

use failsoft_core::BoxError;

use super::{Edit, edits::NO_OBJECT, prune::instructions};
use crate::json::{Raw, Splices, quoted};

/// Turns of question and answer that stand before the conversation, after its instructions: a small model learns from them what a large
/// one knows. None by itself.
#[must_use]
pub const fn examples() -> Examples {
    Examples { shots: Vec::new() }
}

/// The edit made by [`examples`].
#[derive(Clone, Debug, Default)]
pub struct Examples {
    shots: Vec<(String, String)>,
}

impl Examples {
    /// One more: what a user says, and what a good answer is.
    #[must_use]
    pub fn shot(
        mut self,
        user: impl Into<Cow<'static, str>>,
        assistant: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.shots.push((quoted(&user.into()), quoted(&assistant.into())));
        self
    }

    fn turns(&self, of_gemini: bool) -> String {
        let turn = |(user, assistant): &(String, String)| {
            if of_gemini {
                format!(
                    "{{\"role\":\"user\",\"parts\":[{{\"text\":{user}}}]}},{{\"role\":\"model\",\"parts\":[{{\"text\":{assistant}}}]}}"
                )
            } else {
                format!(
                    "{{\"role\":\"user\",\"content\":{user}}},{{\"role\":\"assistant\",\"content\":{assistant}}}"
                )
            }
        };
        self.shots.iter().map(turn).collect::<Vec<_>>().join(",")
    }
}

impl Edit for Examples {
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        let body = Raw::parse(json).filter(|body| body.is_object()).ok_or(NO_OBJECT)?;
        let of_gemini = body.get("messages").is_none() && body.get("input").is_none();
        let list = ["messages", "input", "contents"].into_iter().find_map(|name| body.get(name));
        let Some(list) = list.filter(|_| !self.shots.is_empty()) else { return Ok(None) };
        let turns = self.turns(of_gemini);
        let mut splices = Splices::of(json);
        if list.text().is_some() {
            // A text stands for a list of one turn of the user's, in OpenAI's responses.
            let text = list.as_str();
            splices.replace(list, format!("[{turns},{{\"role\":\"user\",\"content\":{text}}}]"));
            return Ok(splices.apply());
        }
        if !list.is_list() {
            return Ok(None);
        }
        let messages = list.items();
        let lead = instructions(&messages);
        match (messages.get(lead), messages.last()) {
            (Some(first), _) => splices.insert_before(*first, format!("{turns},")),
            (None, Some(last)) => splices.insert_after(*last, format!(",{turns}")),
            (None, None) => splices.insert_inside(list, turns),
        }
        Ok(splices.apply())
    }
}
