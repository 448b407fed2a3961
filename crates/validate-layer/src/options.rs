//! What can be chosen of a layer, and the validator that comes of it.

use std::sync::Arc;

use failsoft_core::{ConfigError, Hint, SoftKind};
#[cfg(feature = "schema")]
use serde_json::Value;

#[cfg(feature = "regex")]
use crate::checks::Pattern;
#[cfg(feature = "schema")]
use crate::checks::{Schema, SchemaOptions, ToolSchemas, schema::takes_none};
use crate::{
    Beyond, Check, Compressed, Drift, Judge, Rails, StreamMode, Validator,
    checks::{ErrorText, FinishReason, Json, Length, NotEmpty, Refusal, Require, ToolCalls},
    confidence::Confidence,
    judge::SlowCheck,
    metrics::Meters,
};

const BUILDER: &str = "ValidateLayer";

/// The longest body that is held, in bytes: the answers of models are far below.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// All that can be chosen, whatever the answers lie in.
pub(crate) struct Options {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) allow_empty: bool,
    pub(crate) allow_repetition: bool,
    pub(crate) tools: ToolCalls,
    /// Where nobody says which tools are offered, none is.
    #[cfg(feature = "schema")]
    pub(crate) no_tools: bool,
    pub(crate) json: Option<Json>,
    pub(crate) pointers: Vec<Box<str>>,
    pub(crate) length: Option<Length>,
    pub(crate) custom: Vec<Arc<dyn Check>>,
    pub(crate) blank_code: bool,
    pub(crate) hints: Vec<(SoftKind, Hint)>,
    pub(crate) max_body: usize,
    pub(crate) beyond: Beyond,
    pub(crate) compressed: Compressed,
    pub(crate) confidence: Confidence,
    pub(crate) unwraps_fences: bool,
    pub(crate) refusals: bool,
    pub(crate) error_texts: bool,
    pub(crate) streams: StreamMode,
    pub(crate) rails: Option<Rails>,
    #[cfg(all(feature = "http", feature = "schema"))]
    pub(crate) offered_schemas: bool,
    pub(crate) judges: Vec<Judge>,
    pub(crate) drift: Option<Drift>,
    pub(crate) length_tolerance: Option<f64>,
    #[cfg(feature = "schema")]
    pub(crate) schemas: Schemas,
    #[cfg(feature = "regex")]
    pub(crate) patterns: Vec<Result<Pattern, ConfigError>>,
}

/// Schemas that wait for the builder's end to be compiled.
#[cfg(feature = "schema")]
#[derive(Default)]
pub(crate) struct Schemas {
    pub(crate) answer: Option<Value>,
    pub(crate) tools: Vec<(Box<str>, Value)>,
    pub(crate) options: SchemaOptions,
}

#[cfg(feature = "schema")]
impl Schemas {
    /// Adds the tools to those that were offered.
    fn offer(&self, tools: ToolCalls) -> ToolCalls {
        self.tools.iter().fold(tools, |tools, (name, parameters)| {
            let name = [name.clone()];
            if takes_none(parameters) { tools.and_without_parameters(name) } else { tools.and(name) }
        })
    }

    /// Those of the answer and of the tools, compiled.
    fn compile(&self) -> Result<(Option<Schema>, ToolSchemas), ConfigError> {
        let answer = self.answer.as_ref().map(|schema| self.options.compile(schema)).transpose()?;
        let tools = self.tools.iter().try_fold(ToolSchemas::new(), |tools, (name, schema)| {
            Ok(tools.tool(name.clone(), self.options.compile(schema)?))
        })?;
        Ok((answer, tools))
    }
}

impl Options {
    /// Nothing is chosen.
    pub(crate) fn new() -> Self {
        Self {
            name: None,
            allow_empty: false,
            allow_repetition: false,
            tools: ToolCalls::any(),
            #[cfg(feature = "schema")]
            no_tools: false,
            json: None,
            pointers: Vec::new(),
            length: None,
            custom: Vec::new(),
            blank_code: false,
            hints: Vec::new(),
            max_body: MAX_BODY,
            beyond: Beyond::default(),
            compressed: Compressed::default(),
            confidence: Confidence::new(),
            unwraps_fences: false,
            refusals: false,
            error_texts: false,
            streams: StreamMode::default(),
            rails: None,
            #[cfg(all(feature = "http", feature = "schema"))]
            offered_schemas: false,
            judges: Vec::new(),
            drift: None,
            length_tolerance: None,
            #[cfg(feature = "schema")]
            schemas: Schemas::default(),
            #[cfg(feature = "regex")]
            patterns: Vec::new(),
        }
    }

    /// The checks, in their order.
    pub(crate) fn validator(self) -> Result<Validator, ConfigError> {
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(ConfigError::new(BUILDER, "name", "blank", "a name"));
        }
        if self.max_body == 0 {
            return Err(ConfigError::new(BUILDER, "max_body", 0, "at least 1 byte"));
        }
        if self.blank_code {
            return Err(ConfigError::new(BUILDER, "check_fn", "a blank code", "a short stable name"));
        }
        #[cfg(feature = "schema")]
        let (schema, tool_schemas) = self.schemas.compile()?;
        let tools = self.tools;
        #[cfg(feature = "schema")]
        let tools = self.schemas.offer(tools);
        #[cfg(all(feature = "http", feature = "schema"))]
        let by_request = self.offered_schemas;
        #[cfg(all(not(feature = "http"), feature = "schema"))]
        let by_request = false;
        #[cfg(feature = "schema")]
        let tools = if self.no_tools && !by_request { tools.and([""; 0]) } else { tools };
        #[cfg(feature = "schema")]
        let asks_for_json = schema.is_some() || !self.pointers.is_empty();
        #[cfg(not(feature = "schema"))]
        let asks_for_json = !self.pointers.is_empty();
        tools.validate()?;
        self.confidence.validate(BUILDER)?;
        let mut checks: Vec<Arc<dyn Check>> = vec![Arc::new(FinishReason)];
        if !self.allow_empty {
            checks.push(Arc::new(NotEmpty));
        }
        checks.push(Arc::new(tools));
        #[cfg(feature = "schema")]
        if !self.schemas.tools.is_empty() {
            checks.push(Arc::new(tool_schemas));
        }
        #[cfg(all(feature = "http", feature = "schema"))]
        if self.offered_schemas {
            checks.push(Arc::new(crate::offered::OfferedSchemas::new()));
        }
        if self.error_texts {
            checks.push(Arc::new(ErrorText));
        }
        // Before the JSON that a refusal is not.
        if self.refusals {
            checks.push(Arc::new(Refusal));
        }
        let implied = asks_for_json.then(Json::any);
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
        #[cfg(feature = "schema")]
        if let Some(schema) = schema {
            checks.push(Arc::new(schema));
        }
        #[cfg(feature = "regex")]
        for pattern in self.patterns {
            checks.push(Arc::new(pattern?));
        }
        if let Some(part) = self.length_tolerance {
            ConfigError::check_range(BUILDER, "length_tolerance", part, f64::MIN_POSITIVE, 1.0)?;
        }
        if let Some(length) = self.length {
            let length = length.or_below(self.length_tolerance);
            length.validate()?;
            checks.push(Arc::new(length));
        }
        checks.extend(self.custom);
        let mut slow: Vec<Arc<dyn SlowCheck>> = Vec::new();
        for judge in self.judges {
            judge.validate()?;
            slow.push(Arc::new(judge));
        }
        if let Some(drift) = self.drift {
            drift.validate()?;
            slow.push(Arc::new(drift));
        }
        Ok(Validator {
            checks,
            hints: self.hints,
            name: self.name,
            allow_empty: self.allow_empty,
            allow_repetition: self.allow_repetition,
            max_body: self.max_body,
            beyond: self.beyond,
            compressed: self.compressed,
            unwraps_fences: self.unwraps_fences,
            streams: self.streams,
            rails: self.rails,
            slow,
            confidence: self.confidence,
            meters: Meters::new(),
        })
    }
}
