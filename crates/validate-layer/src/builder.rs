//! The builder: every option is here.

use std::{fmt, sync::Arc};

use failsoft_core::{ConfigError, Hint, Severity, SoftKind};
#[cfg(feature = "schema")]
use serde_json::Value;

#[cfg(feature = "regex")]
use crate::checks::Pattern;
#[cfg(feature = "schema")]
use crate::checks::SchemaOptions;
use crate::{
    Answer, Asked, Beyond, Bodies, Check, Complaint, Compressed, Drift, InspectFn, Judge, Rails, StreamMode,
    Unseen, ValidateLayer, Values, check_fn,
    checks::{Json, Length},
    options::Options,
};

/// Builds a [`ValidateLayer`]; made by [`ValidateLayer::builder`] or [`ValidateLayer::values`].
///
/// | option | default |
/// |---|---|
/// | [`name`](Self::name) | none |
/// | [`allow_empty`](Self::allow_empty) | an empty answer is a failure |
/// | [`allow_repetition`](Self::allow_repetition) | an answer that goes round in circles is a failure |
/// | [`tools`](Self::tools) | arguments are checked, names are not |
/// | [`json`](Self::json), [`json_object`](Self::json_object), [`require`](Self::require) | any text |
/// | [`unwrap_fences`](Self::unwrap_fences) | a code fence around JSON is a failure |
/// | `schema`, `tool_schema` (feature `schema`) | none |
/// | `must_match`, `must_not_match` (feature `regex`) | none |
/// | [`refusals`](Self::refusals), [`error_texts`](Self::error_texts) | text is not taken for either |
/// | [`expected_length`](Self::expected_length) | none; if given, below 0.2 of it is cut short |
/// | [`check`](Self::check), [`check_fn`](Self::check_fn) | none |
/// | [`asked_fn`](Self::asked_fn), [`rails`](Self::rails) | requests are not looked at |
/// | [`judge`](Self::judge), [`drift`](Self::drift) | none |
/// | [`length_tolerance`](Self::length_tolerance) | 0.2 |
/// | [`streams`](Self::streams) | [`StreamMode::Pass`] |
/// | [`min_confidence`](Self::min_confidence) | 0.35; 0 is off |
/// | [`weight`](Self::weight), [`severity`](Self::severity) | see [`Validator`](crate::Validator) |
/// | [`max_body`](Self::max_body) | 8 MiB |
/// | [`beyond`](Self::beyond) | [`Beyond::Fail`] |
/// | [`compressed`](Self::compressed) | [`Compressed::Pass`] |
/// | [`hint`](Self::hint) | see [`Validator`](crate::Validator) |
#[must_use = "a builder does nothing until it is built"]
pub struct ValidateBuilder<M = Bodies, Q = Unseen> {
    mode: M,
    inspect: Q,
    options: Options,
}

impl<M, Q> ValidateBuilder<M, Q> {
    pub(crate) fn new(mode: M, inspect: Q) -> Self {
        Self { mode, inspect, options: Options::new() }
    }

    /// Looks at plain values through a function that makes an [`Answer`] of a response.
    pub fn values<F>(self, extract: F) -> ValidateBuilder<Values<F>, Q> {
        ValidateBuilder { mode: Values::new(extract), inspect: self.inspect, options: self.options }
    }

    /// Looks at requests through a function that says what is known of one: for [`rails`](Self::rails), and for checks that ask
    /// [`Answer::asked`]. The service inside must be `Clone`, so that a call that is denied gives its readiness back.
    pub fn asked_fn<Req, F: Fn(&Req) -> Asked>(self, inspect: F) -> ValidateBuilder<M, InspectFn<F>> {
        ValidateBuilder { mode: self.mode, inspect: InspectFn::new(inspect), options: self.options }
    }

    /// Looks at chat requests, in any dialect, whose body lies in memory: the arguments of each tool call are checked against the schema that the
    /// request itself has offered for the tool, and [`rails`](Self::rails) know which tools are offered. The service inside must be
    /// `Clone`.
    ///
    /// Whoever sends the requests chooses those schemas. So only such are used that have at most 64 KiB, refer to nothing outside and not
    /// to themselves, are no larger than 4 096 values when all references are written out, and whose patterns take no more than 1 MiB
    /// when they are compiled, in equal parts; calls of tools with others are not checked, and an info `tool.schema_unusable` says so. 256 compiled ones are kept.
    #[cfg(all(feature = "http", feature = "schema"))]
    pub fn chat_requests(mut self) -> ValidateBuilder<M, crate::ChatRequests> {
        self.options.offered_schemas = true;
        ValidateBuilder { mode: self.mode, inspect: crate::ChatRequests::new(), options: self.options }
    }

    /// Rules on requests, and on the results of tools: [`Rails`]. They need to [know the request](Self::asked_fn).
    pub fn rails(mut self, rails: Rails) -> Self {
        self.options.rails = Some(rails);
        self
    }

    /// A check that takes time, such as another model: [`Judge`]. Asked about answers that pass all others; of several, one
    /// after the other.
    pub fn judge(mut self, judge: Judge) -> Self {
        self.options.judges.push(judge);
        self
    }

    /// Looks for answers that are unlike the good ones before them: [`Drift`]. Asked after all judges.
    pub fn drift(mut self, drift: Drift) -> Self {
        self.options.drift = Some(drift);
        self
    }

    /// The part of an [expected length](Self::expected_length) below which an answer is cut short, above 0, to 1, where
    /// [`Length::below`] says nothing else. 0.2 by default.
    pub const fn length_tolerance(mut self, part: f64) -> Self {
        self.options.length_tolerance = Some(part);
        self
    }

    /// What becomes of streamed answers: [`StreamMode`].
    pub const fn streams(mut self, mode: StreamMode) -> Self {
        self.options.streams = mode;
        self
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

    /// Lets an answer pass that says the same again and again: [`Repetition`](crate::checks::Repetition) is not looked for.
    pub const fn allow_repetition(mut self) -> Self {
        self.options.allow_repetition = true;
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

    /// The text is JSON, and the field at this JSON pointer is there and not null: [`Require`](crate::checks::Require). May be called for many
    /// fields.
    pub fn require(mut self, pointer: impl Into<Box<str>>) -> Self {
        self.options.pointers.push(pointer.into());
        self
    }

    /// Looks at the JSON inside of a code fence that is the whole text, with a warning `json.unwrapped` in the report. The answer
    /// still reaches the caller as it came: [`unfenced`](crate::checks::unfenced) takes the fence off. Nothing else is repaired.
    pub const fn unwrap_fences(mut self) -> Self {
        self.options.unwraps_fences = true;
        self
    }

    /// The text is JSON that fits this schema: [`Schema`](crate::checks::Schema). Compiled once, at [`build`](Self::build).
    #[cfg(feature = "schema")]
    pub fn schema(mut self, schema: &Value) -> Self {
        self.options.schemas.answer = Some(schema.clone());
        self
    }

    /// Offers a tool, whose calls must have arguments that fit this schema: [`ToolSchemas`](crate::checks::ToolSchemas). Empty arguments are right only where the
    /// tool takes no parameters. May be called several times.
    #[cfg(feature = "schema")]
    pub fn tool_schema(mut self, name: impl Into<Box<str>>, parameters: &Value) -> Self {
        self.options.schemas.tools.push((name.into(), parameters.clone()));
        self
    }

    /// How the schemas are compiled.
    #[cfg(feature = "schema")]
    pub const fn schema_options(mut self, options: SchemaOptions) -> Self {
        self.options.schemas.options = options;
        self
    }

    /// The text matches this regular expression: [`Pattern::required`](crate::checks::Pattern::required). May be called several times.
    #[cfg(feature = "regex")]
    pub fn must_match(mut self, pattern: &str) -> Self {
        self.options.patterns.push(Pattern::required(pattern));
        self
    }

    /// The text does not match this regular expression: [`Pattern::forbidden`](crate::checks::Pattern::forbidden). May be called several times.
    #[cfg(feature = "regex")]
    pub fn must_not_match(mut self, pattern: &str) -> Self {
        self.options.patterns.push(Pattern::forbidden(pattern));
        self
    }

    /// Takes a text that begins as a refusal does for one: [`Refusal`](crate::checks::Refusal). What a provider says in fields of its own needs no option.
    pub const fn refusals(mut self) -> Self {
        self.options.refusals = true;
        self
    }

    /// Takes a text that begins as an error message does for a failure: [`ErrorText`](crate::checks::ErrorText).
    pub const fn error_texts(mut self) -> Self {
        self.options.error_texts = true;
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

    /// Where nobody says which tools are offered, none is: an answer that calls one is not the one that was asked for.
    #[cfg(feature = "schema")]
    pub(crate) const fn no_tools(mut self) -> Self {
        self.options.no_tools = true;
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
    /// [`Validator`](crate::Validator); of several for one kind the last counts.
    pub fn hint(mut self, kind: SoftKind, hint: Hint) -> Self {
        self.options.hints.push((kind, hint));
        self
    }

    /// Below this confidence, 0 to 1, an answer is [`SoftKind::LowConfidence`]; 0 switches that off. See [`Validator`](crate::Validator).
    pub const fn min_confidence(mut self, min: f64) -> Self {
        self.options.confidence.min = min;
        self
    }

    /// The part, 0 to 1, that findings with this code take of the confidence. Of several for one code the last counts.
    pub fn weight(mut self, code: impl Into<Box<str>>, weight: f64) -> Self {
        self.options.confidence.weights.push((code.into(), weight));
        self
    }

    /// How much findings with this code matter: an error fails the answer, a warning is weighed. Of several for one code the
    /// last counts.
    pub fn severity(mut self, code: impl Into<Box<str>>, severity: Severity) -> Self {
        self.options.confidence.severities.push((code.into(), severity));
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

    /// What happens to a body that came compressed.
    pub const fn compressed(mut self, policy: Compressed) -> Self {
        self.options.compressed = policy;
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Names the option with a value outside its range, or that contradicts another.
    pub fn build(self) -> Result<ValidateLayer<M, Q>, ConfigError> {
        let Self { mode, inspect, options } = self;
        Ok(ValidateLayer::new(mode, inspect, Arc::new(options.validator()?)))
    }
}

failsoft_core::unbuilt!([M, Q] ValidateBuilder<M, Q>);

impl<M, Q> fmt::Debug for ValidateBuilder<M, Q> {
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
