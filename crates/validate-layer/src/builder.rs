//! The builder: every option is here.

use std::{fmt, sync::Arc};

use failsoft_core::{ConfigError, Hint, SoftKind};

use crate::{
    Answer, Beyond, Bodies, Check, Complaint, ValidateLayer, Validator, Values, check_fn,
    checks::{FinishReason, Json, Length, NotEmpty, Require, ToolCalls},
};

const BUILDER: &str = "ValidateLayer";

/// The longest body that is held, in bytes: the answers of models are far below.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// Builds a [`ValidateLayer`]; made by [`ValidateLayer::builder`] or [`ValidateLayer::values`].
///
/// | option | default |
/// |---|---|
/// | [`name`](Self::name) | none |
/// | [`allow_empty`](Self::allow_empty) | an empty answer is a failure |
/// | [`tools`](Self::tools) | arguments are checked, names are not |
/// | [`json`](Self::json), [`json_object`](Self::json_object), [`require`](Self::require) | any text |
/// | [`expected_length`](Self::expected_length) | none; if given, below 0.2 of it is cut short |
/// | [`check`](Self::check), [`check_fn`](Self::check_fn) | none |
/// | [`max_body`](Self::max_body) | 8 MiB |
/// | [`beyond`](Self::beyond) | [`Beyond::Fail`] |
/// | [`hint`](Self::hint) | see [`Validator`] |
#[must_use = "a builder does nothing until it is built"]
pub struct ValidateBuilder<M = Bodies> {
    mode: M,
    options: Options,
}

/// All that can be chosen, whatever the answers lie in.
struct Options {
    name: Option<Arc<str>>,
    allow_empty: bool,
    tools: ToolCalls,
    json: Option<Json>,
    pointers: Vec<Box<str>>,
    length: Option<Length>,
    custom: Vec<Arc<dyn Check>>,
    blank_code: bool,
    hints: Vec<(SoftKind, Hint)>,
    max_body: usize,
    beyond: Beyond,
}

impl<M> ValidateBuilder<M> {
    pub(crate) fn new(mode: M) -> Self {
        let options = Options {
            name: None,
            allow_empty: false,
            tools: ToolCalls::any(),
            json: None,
            pointers: Vec::new(),
            length: None,
            custom: Vec::new(),
            blank_code: false,
            hints: Vec::new(),
            max_body: MAX_BODY,
            beyond: Beyond::default(),
        };
        Self { mode, options }
    }

    /// Looks at plain values through a function that makes an [`Answer`] of a response.
    pub fn values<F>(self, extract: F) -> ValidateBuilder<Values<F>> {
        ValidateBuilder { mode: Values::new(extract), options: self.options }
    }

    /// The target's name, for faults and events. Not blank.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// Lets an answer with nothing in it pass, without looking at it any further.
    pub const fn allow_empty(mut self) -> Self {
        self.options.allow_empty = true;
        self
    }

    /// The text is JSON, strictly: [`Json::any`].
    pub const fn json(mut self) -> Self {
        if self.options.json.is_none() {
            self.options.json = Some(Json::any());
        }
        self
    }

    /// The text is a JSON object, strictly: [`Json::object`].
    pub const fn json_object(mut self) -> Self {
        self.options.json = Some(Json::object());
        self
    }

    /// The text is JSON, and the field at this JSON pointer is there and not null: [`Require`]. May be called for many
    /// fields.
    pub fn require(mut self, pointer: impl Into<Box<str>>) -> Self {
        self.options.pointers.push(pointer.into());
        self
    }

    /// The text has about this length: [`Length`].
    pub const fn expected_length(mut self, length: Length) -> Self {
        self.options.length = Some(length);
        self
    }

    /// Tools that were offered: a call of another one is a failure, and so is a call that was left in the text. May be
    /// called several times.
    pub fn tools(mut self, names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.options.tools = self.options.tools.and(names);
        self
    }

    /// Offered tools that take no parameters: empty arguments are right for those.
    pub fn tools_without_parameters(mut self, names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.options.tools = self.options.tools.and_without_parameters(names);
        self
    }

    /// A check of one's own.
    pub fn check(mut self, check: impl Check) -> Self {
        self.options.custom.push(Arc::new(check));
        self
    }

    /// A function as a check; see [`check_fn`](crate::check_fn()). `code` is short, stable and not blank.
    pub fn check_fn<F, E>(mut self, code: &'static str, check: F) -> Self
    where
        F: Fn(&Answer) -> Result<(), E> + Send + Sync + 'static,
        E: Into<Complaint> + 'static,
    {
        self.options.blank_code |= code.trim().is_empty();
        self.check(check_fn(code, check))
    }

    /// What may be sent to the same target again after an answer that is wrong in this way. Overrules the defaults of
    /// [`Validator`]; of several for one kind the last counts.
    pub fn hint(mut self, kind: SoftKind, hint: Hint) -> Self {
        self.options.hints.push((kind, hint));
        self
    }

    /// The longest body that is held and looked at, in bytes; at least 1. One answer takes up to that much memory,
    /// twice where it is text, and up to twenty times where it is checked as JSON and made to be large.
    pub const fn max_body(mut self, bytes: usize) -> Self {
        self.options.max_body = bytes;
        self
    }

    /// What happens to a longer body.
    pub const fn beyond(mut self, policy: Beyond) -> Self {
        self.options.beyond = policy;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Names the option with a value outside its range, or that contradicts another.
    pub fn build(self) -> Result<ValidateLayer<M>, ConfigError> {
        let Self { mode, options } = self;
        Ok(ValidateLayer::new(mode, Arc::new(options.validator()?)))
    }
}

impl Options {
    fn validator(self) -> Result<Validator, ConfigError> {
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(ConfigError::new(BUILDER, "name", "blank", "a name"));
        }
        if self.max_body == 0 {
            return Err(ConfigError::new(BUILDER, "max_body", 0, "at least 1 byte"));
        }
        if self.blank_code {
            return Err(ConfigError::new(BUILDER, "check_fn", "a blank code", "a short stable name"));
        }
        self.tools.validate()?;
        let mut checks: Vec<Arc<dyn Check>> = vec![Arc::new(FinishReason)];
        if !self.allow_empty {
            checks.push(Arc::new(NotEmpty));
        }
        checks.push(Arc::new(self.tools));
        let implied = (!self.pointers.is_empty()).then(Json::any);
        if let Some(json) = self.json.or(implied) {
            checks.push(Arc::new(json));
        }
        if !self.pointers.is_empty() {
            if self.allow_empty {
                return Err(ConfigError::new(
                    BUILDER,
                    "allow_empty",
                    true,
                    "false: an empty answer has no required field",
                ));
            }
            checks.push(Arc::new(Require::new(self.pointers)?));
        }
        if let Some(length) = self.length {
            length.validate()?;
            checks.push(Arc::new(length));
        }
        checks.extend(self.custom);
        Ok(Validator {
            checks,
            hints: self.hints,
            name: self.name,
            allow_empty: self.allow_empty,
            max_body: self.max_body,
            beyond: self.beyond,
        })
    }
}

impl<M> fmt::Debug for ValidateBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidateBuilder")
            .field("name", &self.options.name)
            .field("tools", &self.options.tools)
            .field("json", &self.options.json)
            .field("require", &self.options.pointers)
            .field("expected_length", &self.options.length)
            .field("custom", &self.options.custom.len())
            .finish_non_exhaustive()
    }
}
