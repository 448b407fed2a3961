//! The model's name, and edits of one's own.

use std::{borrow::Cow, fmt};

use failsoft_core::BoxError;

use super::Edit;
use crate::json::{Raw, Splices, quoted};

/// Another `model` in the body of a request; one is added where there is none.
pub fn model(name: impl Into<Cow<'static, str>>) -> Model {
    Model(quoted(&name.into()))
}

/// The edit made by [`model`].
#[derive(Clone, Debug)]
pub struct Model(String);

impl Edit for Model {
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        let body = Raw::parse(json).filter(|body| body.is_object()).ok_or(NO_OBJECT)?;
        let mut splices = Splices::of(json);
        match body.get("model") {
            Some(name) if name.as_str() == self.0 => {}
            Some(name) => splices.replace(name, self.0.clone()),
            None => {
                let comma = if is_empty(body) { "" } else { "," };
                splices.insert_inside(body, format!("\"model\":{}{comma}", self.0));
            }
        }
        Ok(splices.apply())
    }
}

/// Another `model` in an answer, where it names one: at its top, in the first event of Anthropic's streams, and in those of OpenAI's
/// responses.
pub fn answered_model(name: impl Into<Cow<'static, str>>) -> AnsweredModel {
    AnsweredModel(quoted(&name.into()))
}

/// The edit made by [`answered_model`].
#[derive(Clone, Debug)]
pub struct AnsweredModel(String);

impl Edit for AnsweredModel {
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        let Some(answer) = Raw::parse(json) else { return Ok(None) };
        let mut splices = Splices::of(json);
        let holders = [Some(answer), answer.get("message"), answer.get("response")];
        for holder in holders.into_iter().flatten() {
            let names = ["model", "modelVersion"].into_iter().filter_map(|name| holder.get(name));
            for name in names.filter(|name| name.text().is_some() && name.as_str() != self.0) {
                splices.replace(name, self.0.clone());
            }
        }
        Ok(splices.apply())
    }
}

/// An edit by a function, from a JSON object to a changed one, or to `None` where it stays.
pub const fn edit_fn<F>(edit: F) -> EditFn<F>
where
    F: Fn(&str) -> Result<Option<String>, BoxError> + Send + Sync,
{
    EditFn(edit)
}

/// The edit made by [`edit_fn`].
#[derive(Clone, Copy)]
pub struct EditFn<F>(F);

impl<F> Edit for EditFn<F>
where
    F: Fn(&str) -> Result<Option<String>, BoxError> + Send + Sync,
{
    fn edit(&self, json: &str) -> Result<Option<String>, BoxError> {
        (self.0)(json)
    }
}

impl<F> fmt::Debug for EditFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EditFn")
    }
}

pub(super) const NO_OBJECT: &str = "the body is no JSON object, or names a field twice";

/// Whether an object or a list has nothing in it.
pub(super) fn is_empty(container: Raw<'_>) -> bool {
    let text = container.as_str();
    text.get(1..text.len().saturating_sub(1)).is_none_or(|inside| inside.trim().is_empty())
}
