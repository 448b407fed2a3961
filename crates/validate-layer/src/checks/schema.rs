//! JSON Schema: the answer's JSON, and the arguments of its tool calls.

use std::{fmt, sync::Arc};

use failsoft_core::{ConfigError, Finding, Report, Severity, SoftKind, ToolCall, json};
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use super::{TOOL_SCHEMA, missing_json};
use crate::{Answer, Check};

/// At most so many violations of one schema are reported for one value: what a model mends at a time.
pub const MAX_VIOLATIONS: usize = 8;

/// Of a value with more values inside than this, only the first violation is reported: the engine collects all of them
/// before it gives one, and a hostile answer has a million.
const MAX_VALUES: usize = 10_000;

/// The same of a value below a schema that refers to itself, where so many combinations of its alternatives may be tried: the
/// engine goes through all of them to say why none fits, which takes ten times as long with each level.
const MAX_COMBINATIONS: usize = 10_000;

/// So large may a schema be with all its references written out; one that refers to itself is larger than anything.
const MAX_WRITTEN_OUT: usize = 20_000;

/// A compiled pattern may take so many bytes: far above any sane one, and far below what hurts.
const MAX_PATTERN: usize = 1 << 20;

/// The answer's JSON fits a JSON Schema. Compiled once; clones share it.
///
/// Draft 2020-12 where the schema names none, else the one that its `$schema` names: 2020-12 and 7, and 4, 6 and 2019-09. Nothing is
/// fetched: a `$ref` to another document is refused when the schema is compiled. Patterns run in a linear engine, so a
/// schema or an answer cannot make one run away; lookaround and back references, which that cannot do, are refused. `format` is an
/// annotation unless [`formats`](SchemaOptions::formats) says otherwise.
///
/// The findings are of [`SoftKind::Schema`], with the code `schema.` and the keyword, at the JSON pointer of the value. They name
/// fields and what the schema wants, never the answer's values. Of one value at most [`MAX_VIOLATIONS`] are reported. Where a
/// schema refers to itself among alternatives, and a value that does not fit is nested so deep that more than 10 000 combinations of
/// them could be meant, the finding is one `schema.other` without a place.
///
/// ```
/// use serde_json::json;
/// use validate_layer::{Check, checks::Schema};
///
/// let schema = Schema::new(&json!({
///     "type": "object",
///     "required": ["name", "age"],
///     "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}
/// }))?;
/// assert!(schema.on_text(r#"{"name": "Ada", "age": 36}"#).is_empty());
/// let report = schema.on_text(r#"{"name": "Ada", "age": "36"}"#);
/// assert_eq!(report.to_string(), "schema.type at /age: value is not of type \"integer\"");
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Schema {
    compiled: Arc<Validator>,
    /// How many alternatives there are in it, where it refers to itself.
    alternatives: Option<usize>,
}

/// How a [`Schema`] is compiled.
#[derive(Clone, Copy, Debug, Default)]
pub struct SchemaOptions {
    formats: bool,
    draft7: bool,
}

impl SchemaOptions {
    /// Also checks `format`: dates, addresses, UUIDs and the others of the draft. Formats that are unknown pass. Default: off, as draft 2020-12 has it; models
    /// are trained on schemas in which it is a hint.
    #[must_use]
    pub const fn formats(mut self, check: bool) -> Self {
        self.formats = check;
        self
    }

    /// A schema that does not say of which draft it is, is of draft 7.
    #[must_use]
    pub const fn draft7(mut self) -> Self {
        self.draft7 = true;
        self
    }

    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// When it is no valid schema, refers to another document, or has a pattern that a linear engine cannot run.
    pub fn compile(self, schema: &Value) -> Result<Schema, ConfigError> {
        self.compile_within(schema, MAX_PATTERN)
    }

    /// The same with another limit on what each compiled pattern may take, in bytes.
    pub(crate) fn compile_within(self, schema: &Value, max_pattern: usize) -> Result<Schema, ConfigError> {
        let patterns = PatternOptions::regex().size_limit(max_pattern).dfa_size_limit(max_pattern);
        let mut options = jsonschema::options()
            .with_pattern_options(patterns)
            .should_validate_formats(self.formats)
            .should_ignore_unknown_formats(true);
        // One that names its own draft keeps that.
        if self.draft7 && schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft7);
        }
        match options.build(schema) {
            Ok(compiled) => {
                let mut left = MAX_WRITTEN_OUT;
                let is_small = is_bounded(schema, schema, 0, &mut left);
                let alternatives = (!is_small).then(|| alternatives(schema));
                Ok(Schema { compiled: Arc::new(compiled), alternatives })
            }
            Err(error) => {
                let problem = format!(
                    "{:.200} (at `{:.100}`)",
                    error.masked().to_string(),
                    error.instance_path().as_str()
                );
                Err(ConfigError::new(
                    "ValidateLayer",
                    "schema",
                    problem,
                    "a JSON Schema without references to other documents",
                ))
            }
        }
    }
}

impl Schema {
    /// Compiles a schema of draft 2020-12, or of the draft that it names.
    ///
    /// # Errors
    ///
    /// As those of [`SchemaOptions::compile`].
    pub fn new(schema: &Value) -> Result<Self, ConfigError> {
        SchemaOptions::default().compile(schema)
    }

    /// Compiles a schema in another way.
    #[must_use]
    pub fn options() -> SchemaOptions {
        SchemaOptions::default()
    }

    /// What is wrong with a value, as findings of a class and a code of the caller's.
    fn violations(&self, value: &Value, most: usize, mut report: impl FnMut(Violation)) {
        if self.compiled.is_valid(value) {
            return;
        }
        if self.is_endless(value) {
            report(Violation {
                code: "schema.other",
                path: String::new(),
                message: "it does not fit the schema, and is nested too deep to say where".into(),
            });
        } else if is_larger(value, MAX_VALUES) {
            self.compiled.validate(value).err().iter().map(Violation::of).for_each(report);
        } else {
            self.compiled.iter_errors(value).take(most).map(|error| Violation::of(&error)).for_each(report);
        }
    }

    /// Whether it would take far too long to say why a value does not fit; that it does not takes no time.
    fn is_endless(&self, value: &Value) -> bool {
        let combinations = |alternatives: usize| {
            let depth = u32::try_from(depth(value)).unwrap_or(u32::MAX);
            alternatives.saturating_pow(depth)
        };
        self.alternatives.is_some_and(|alternatives| combinations(alternatives) > MAX_COMBINATIONS)
    }
}

/// One keyword of a schema that a value does not fit.
struct Violation {
    code: &'static str,
    path: String,
    message: String,
}

impl Violation {
    fn of(error: &ValidationError<'_>) -> Self {
        Self {
            code: code_of(error.kind().keyword()),
            path: error.instance_path().as_str().to_owned(),
            message: error.masked().to_string(),
        }
    }
}

impl Check for Schema {
    fn check(&self, answer: &Answer, report: &mut Report) {
        if !answer.is_textual() {
            return;
        }
        let Some(value) = answer.value() else { return missing_json(answer, report) };
        self.violations(value, MAX_VIOLATIONS, |violation| {
            let finding = Finding::new(SoftKind::Schema, violation.code, violation.message);
            report.push(if violation.path.is_empty() { finding } else { finding.at(violation.path) });
        });
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("draft", &self.compiled.draft()).finish_non_exhaustive()
    }
}

/// The arguments of each tool call fit the schema of the tool's own parameters. Nothing is coerced: where the schema says string, `4` is
/// wrong, and so is `"4"` where it says integer.
///
/// The findings are of [`SoftKind::ToolCall`] with the code `tool.schema`, at `/tool_calls/N/arguments` and the pointer inside. Calls whose arguments are
/// no JSON object are left to [`ToolCalls`](super::ToolCalls), and those of tools without a schema pass.
///
/// ```
/// use failsoft_core::ToolCall;
/// use serde_json::json;
/// use validate_layer::{Answer, Check, checks::{Schema, ToolSchemas}};
///
/// let parameters = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
/// let check = ToolSchemas::new().tool("open", Schema::new(&parameters)?);
/// let call = |arguments: &str| Answer::without_text().with_tool_calls([ToolCall::new("open", arguments)]);
/// assert!(check.on_answer(&call(r#"{"id": "4"}"#)).is_empty());
/// let report = check.on_answer(&call(r#"{"id": 4}"#));
/// assert_eq!(report.findings()[0].path(), Some("/tool_calls/0/arguments/id"));
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolSchemas {
    tools: Vec<(Box<str>, Schema)>,
}

impl ToolSchemas {
    /// Of no tool.
    #[must_use]
    pub const fn new() -> Self {
        Self { tools: Vec::new() }
    }

    /// Adds the schema of a tool's parameters. Of several for one name the last counts.
    #[must_use]
    pub fn tool(mut self, name: impl Into<Box<str>>, parameters: Schema) -> Self {
        self.tools.push((name.into(), parameters));
        self
    }
}

impl ToolSchemas {
    pub(crate) fn of(&self, call: &ToolCall) -> Option<Schema> {
        self.tools.iter().rev().find(|(name, _)| *name == call.name).map(|(_, schema)| schema.clone())
    }
}

impl Check for ToolSchemas {
    fn check(&self, answer: &Answer, report: &mut Report) {
        check_calls(answer.tool_calls(), report, |call| self.of(call));
    }
}

/// Checks each call whose schema is known. Many calls share the room in a report, so that each has its own finding.
pub(crate) fn check_calls(
    calls: &[ToolCall],
    report: &mut Report,
    mut schema_of: impl FnMut(&ToolCall) -> Option<Schema>,
) {
    let most = (failsoft_core::MAX_FINDINGS / calls.len().max(1)).clamp(1, MAX_VIOLATIONS);
    for (i, call) in calls.iter().enumerate().filter(|(_, call)| !call.free_text) {
        let Some(schema) = schema_of(call) else { continue };
        // Empty arguments stand for none; whether those are right is for the schema to say.
        let arguments = match json::arguments_of(call) {
            Ok(arguments) => arguments,
            Err(_) if json::is_blank(&call.arguments) => Map::new(),
            Err(flaw) if flaw.severity() < Severity::Error => match flaw.into_value() {
                Some(Value::Object(arguments)) => arguments,
                _ => continue,
            },
            Err(_) => continue,
        };
        check_arguments(&schema, &Value::Object(arguments), most, |finding, path| {
            report.push(finding.at(format!("/tool_calls/{i}/arguments{path}")));
        });
    }
}

/// Reports what is wrong with a call's arguments, each with the pointer inside of them.
pub(crate) fn check_arguments(
    schema: &Schema,
    arguments: &Value,
    most: usize,
    mut report: impl FnMut(Finding, String),
) {
    schema.violations(arguments, most, |violation| {
        let finding = Finding::new(SoftKind::ToolCall, TOOL_SCHEMA, violation.message);
        report(finding, violation.path);
    });
}

/// Whether a tool with this schema takes no parameters at all, so that empty arguments are right.
pub(crate) fn takes_none(schema: &Value) -> bool {
    let Some(schema) = schema.as_object() else { return false };
    let says_nothing = |key: &str| match schema.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(values)) => values.is_empty(),
        Some(_) => false,
    };
    ["properties", "required", "$ref", "anyOf", "allOf", "oneOf"].into_iter().all(says_nothing)
}

/// Whether a value holds more than so many values; looks at no more than that many.
fn is_larger(value: &Value, most: usize) -> bool {
    let mut left = most;
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        if left == 0 {
            return true;
        }
        left -= 1;
        match value {
            Value::Array(values) if values.len() > left => return true,
            Value::Array(values) => rest.extend(values),
            Value::Object(fields) if fields.len() > left => return true,
            Value::Object(fields) => rest.extend(fields.values()),
            _ => {}
        }
    }
    false
}

/// How deep a value is nested.
fn depth(value: &Value) -> usize {
    let (mut rest, mut deepest) = (vec![(value, 0)], 0);
    while let Some((value, depth)) = rest.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(values) => rest.extend(values.iter().map(|value| (value, depth + 1))),
            Value::Object(fields) => rest.extend(fields.values().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// How many alternatives a schema has in all its places that have some.
fn alternatives(schema: &Value) -> usize {
    let (mut rest, mut all) = (vec![schema], 0_usize);
    while let Some(schema) = rest.pop() {
        match schema {
            Value::Array(schemas) => rest.extend(schemas),
            Value::Object(fields) => {
                let lists = ["anyOf", "oneOf", "allOf"].into_iter();
                let lists = lists.filter_map(|key| fields.get(key)?.as_array().map(Vec::len));
                // One that stands alone is no choice.
                all += lists.filter(|len| *len > 1).sum::<usize>();
                rest.extend(fields.values());
            }
            _ => {}
        }
    }
    all
}

/// The deepest that a schema may be with all its references written out.
const MAX_DEPTH: usize = 64;

/// Whether a schema is small also where all its references are written out, so that it refers to itself nowhere.
pub(crate) fn is_bounded(node: &Value, root: &Value, depth: usize, left: &mut usize) -> bool {
    if depth > MAX_DEPTH || *left == 0 {
        return false;
    }
    *left -= 1;
    match node {
        Value::Array(all) => all.iter().all(|node| is_bounded(node, root, depth + 1, left)),
        Value::Object(fields) => {
            // What cannot be followed here can be anything.
            let strange = ["$dynamicRef", "$recursiveRef", "$id", "id", "$anchor", "$dynamicAnchor"];
            if strange.iter().any(|key| fields.get(*key).is_some_and(Value::is_string)) {
                return false;
            }
            let target = fields.get("$ref").and_then(Value::as_str);
            target.is_none_or(|target| {
                let inside = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                inside.is_some_and(|inside| is_bounded(inside, root, depth + 1, left))
            }) && schemas_in(fields).all(|node| is_bounded(node, root, depth + 1, left))
        }
        _ => true,
    }
}

/// How many patterns there are in a [bounded](is_bounded) schema with its references written out.
#[cfg(feature = "http")]
pub(crate) fn patterns_in(node: &Value, root: &Value) -> usize {
    match node {
        Value::Array(all) => all.iter().map(|node| patterns_in(node, root)).sum(),
        Value::Object(fields) => {
            let pattern = usize::from(fields.get("pattern").is_some_and(Value::is_string));
            let keys = fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
            let pointer =
                fields.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
            let target = pointer.and_then(|pointer| root.pointer(pointer));
            let inside = schemas_in(fields).chain(target).map(|node| patterns_in(node, root)).sum::<usize>();
            pattern + keys + inside
        }
        _ => 0,
    }
}

/// The parts of a schema that apply where they stand; definitions do where something refers to them.
fn schemas_in(fields: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    fields.iter().filter(|(key, _)| !matches!(&***key, "$defs" | "definitions")).map(|(_, value)| value)
}

fn code_of(keyword: &str) -> &'static str {
    match keyword {
        "type" => "schema.type",
        "required" => "schema.required",
        "enum" => "schema.enum",
        "const" => "schema.const",
        "pattern" => "schema.pattern",
        "format" => "schema.format",
        "minLength" => "schema.minLength",
        "maxLength" => "schema.maxLength",
        "minimum" => "schema.minimum",
        "maximum" => "schema.maximum",
        "exclusiveMinimum" => "schema.exclusiveMinimum",
        "exclusiveMaximum" => "schema.exclusiveMaximum",
        "multipleOf" => "schema.multipleOf",
        "minItems" => "schema.minItems",
        "maxItems" => "schema.maxItems",
        "uniqueItems" => "schema.uniqueItems",
        "contains" => "schema.contains",
        "additionalItems" => "schema.additionalItems",
        "unevaluatedItems" => "schema.unevaluatedItems",
        "minProperties" => "schema.minProperties",
        "maxProperties" => "schema.maxProperties",
        "propertyNames" => "schema.propertyNames",
        "additionalProperties" => "schema.additionalProperties",
        "unevaluatedProperties" => "schema.unevaluatedProperties",
        "anyOf" => "schema.anyOf",
        "oneOf" => "schema.oneOf",
        "not" => "schema.not",
        "falseSchema" => "schema.false",
        _ => "schema.other",
    }
}
