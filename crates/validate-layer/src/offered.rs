//! [`ChatRequests`]: the tools that a chat request offers, each with the schema of its parameters.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use failsoft_core::{Evict, Finding, KeyMap, Report, Severity, SoftKind, ToolCall, is_encoded, json};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::{
    Answer, Asked, Check, Inspect,
    asked::sealed::Sealed,
    checks::{
        Schema, SchemaOptions,
        schema::{check_calls, is_bounded, patterns_in},
    },
};

/// The longest schema of a request that is compiled, in bytes.
const MAX_SCHEMA: usize = 64 * 1024;

/// The most that a schema of a request may be when all its references are written out: whoever sends requests chooses it, and
/// references to references double with each step.
const MAX_NODES: usize = 4_096;

/// The deepest that it may be.
const MAX_DEPTH: usize = 64;

/// What all patterns of one may take when they are compiled, in bytes: a short one can be as large as it is allowed to be.
const MAX_PATTERNS: usize = 1 << 20;

/// So many compiled schemas are kept.
const KEPT: usize = 256;

/// Chat requests are looked at for the tools that they offer; see
/// [`ValidateBuilder::chat_requests`](crate::ValidateBuilder::chat_requests).
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatRequests {
    _private: (),
}

impl ChatRequests {
    pub(crate) const fn new() -> Self {
        Self { _private: () }
    }
}

impl Sealed for ChatRequests {}

impl<S: Clone, Req: RequestText> Inspect<S, Req> for ChatRequests {
    fn asked(&self, request: &Req) -> Option<Asked> {
        let bytes = request.bytes()?;
        let mut asked = Asked::new().with_bytes(bytes.len());
        let seen = seen(&bytes);
        for name in seen.names {
            asked = asked.with_offered(name);
        }
        asked.tools = seen.tools.map(Arc::from);
        asked.is_unreadable = seen.is_unreadable || request.is_encoded();
        Some(asked)
    }

    fn let_go(&self, service: &mut S) {
        *service = service.clone();
    }
}

/// A request whose body lies in memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no request whose body lies in memory",
    note = "`http::Request` with a body of `Bytes`, `String`, `Vec<u8>` or `&'static str` is one, with `Full<Bytes>` by the \
            feature `http-body-util-01`, and `reqwest::Request` by the feature `reqwest-013`; implement `BodyText` for a body of your own"
)]
pub trait RequestText {
    /// The body, where it lies in memory.
    fn bytes(&self) -> Option<Cow<'_, [u8]>>;

    /// Whether the bytes are compressed, so that nothing can be read in them.
    fn is_encoded(&self) -> bool {
        false
    }
}

/// A body of a request that lies in memory.
pub trait BodyText {
    /// The whole body; `None` where it does not lie in memory after all.
    fn bytes(&self) -> Option<Cow<'_, [u8]>>;
}

impl<B: BodyText> RequestText for http::Request<B> {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        self.body().bytes()
    }

    fn is_encoded(&self) -> bool {
        is_encoded(self.headers())
    }
}

#[cfg(feature = "reqwest-013")]
impl RequestText for reqwest::Request {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        self.body()?.as_bytes().map(Cow::Borrowed)
    }

    fn is_encoded(&self) -> bool {
        is_encoded(self.headers())
    }
}

#[cfg(feature = "reqwest-013")]
impl BodyText for reqwest::Body {
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        self.as_bytes().map(Cow::Borrowed)
    }
}

macro_rules! in_memory {
    ($($body:ty),+) => {$(
        impl BodyText for $body {
            fn bytes(&self) -> Option<Cow<'_, [u8]>> {
                Some(Cow::Borrowed(self.as_ref()))
            }
        }
    )+};
}

#[cfg(feature = "http-body-util-01")]
impl BodyText for http_body_util::Full<Bytes> {
    /// It shows its bytes frame by frame only; a clone, which shares them, gives its one frame.
    fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        use std::{
            pin::Pin,
            task::{Context, Poll, Waker},
        };
        let mut body = self.clone();
        match http_body::Body::poll_frame(Pin::new(&mut body), &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|data| Cow::Owned(data.into())),
            Poll::Ready(None) => Some(Cow::Borrowed(&[])),
            _ => None,
        }
    }
}

in_memory!(Bytes, String, Vec<u8>, &'static str);

/// A tool that a request offers.
pub(crate) struct Offered {
    name: Box<str>,
    /// Its schema as a text, by which the compiled one is found.
    schema: Option<Arc<str>>,
}

/// What was seen of the tools that a request offers.
#[derive(Default)]
struct Seen {
    /// Every name under which anybody could take something for a tool, for the rails.
    names: Vec<String>,
    /// The tools by their dialects, for their schemas. `None` where it is no chat request.
    tools: Option<Vec<Offered>>,
    /// Readers could see others: what is refused here, such as `NaN` or a key that is there twice, is taken by some.
    is_unreadable: bool,
}

/// The values of the places where a dialect has its tools. Which counts of one that is there twice, nobody knows: the rails look at both, and the
/// schemas of neither are used.
#[derive(Default)]
struct Top<'a> {
    tools: Vec<&'a RawValue>,
    functions: Vec<&'a RawValue>,
    tool_config: Vec<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Top<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Places)
    }
}

struct Places;

impl<'de> Visitor<'de> for Places {
    type Value = Top<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top<'de>, A::Error> {
        let mut top = Top::default();
        while let Some(place) = map.next_key::<Cow<'de, str>>()? {
            let list = match &*folded(&place) {
                "tools" => &mut top.tools,
                "functions" => &mut top.functions,
                "toolconfig" => &mut top.tool_config,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            list.push(map.next_value()?);
        }
        Ok(top)
    }
}

/// A key as the most tolerant readers take it: some do not mind its case, some take both `toolConfig` and `tool_config`.
fn folded(key: &str) -> String {
    // No key that matters is that long.
    let known = key.chars().take(64).filter(|c| *c != '_');
    known.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// The tools of a request in any of the dialects, which have no name for two things.
fn seen(body: &[u8]) -> Seen {
    let text = std::str::from_utf8(body).ok().map(|text| text.trim_start_matches('\u{feff}').trim_start());
    let Some(top) = text.and_then(|text| serde_json::from_str::<Top<'_>>(text).ok()) else {
        return Seen { is_unreadable: may_be_object(body), ..Seen::default() };
    };
    let is_twice = [&top.tools, &top.functions, &top.tool_config].into_iter().any(|place| place.len() > 1);
    let mut is_unreadable = false;
    let mut value = |raw: &&RawValue| match json::strict(raw.get()) {
        Ok(value) => Some(value),
        Err(flaw) => {
            is_unreadable |= flaw.severity() == Severity::Error;
            flaw.into_value()
        }
    };
    let (mut names, mut offered) = (Vec::new(), Vec::new());
    for config in top.tool_config.iter().filter_map(&mut value) {
        // In it there is more than tools.
        for (_, tools) in config.as_object().into_iter().flatten().filter(|(key, _)| folded(key) == "tools") {
            names_in(tools, 0, &mut names);
            tools.as_array().into_iter().flatten().for_each(|tool| add(tool, &mut offered));
        }
    }
    for tools in top.tools.iter().filter_map(&mut value) {
        names_in(&tools, 0, &mut names);
        tools.as_array().into_iter().flatten().for_each(|tool| add(tool, &mut offered));
    }
    for functions in top.functions.iter().filter_map(&mut value) {
        names_in(&functions, 0, &mut names);
        offered.extend(functions.as_array().into_iter().flatten().filter_map(|of| tool(of, "parameters")));
    }
    if is_twice || is_unreadable {
        offered.iter_mut().for_each(|tool| tool.schema = None);
    }
    Seen { names, tools: Some(offered), is_unreadable }
}

/// Whether somebody could read an object in a body that is none here: by another encoding, or with another grammar.
fn may_be_object(body: &[u8]) -> bool {
    let is_before =
        |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, 0 | 0xef | 0xbb | 0xbf | 0xff | 0xfe);
    body.iter().find(|byte| !is_before(byte)) == Some(&b'{')
}

/// All names in a list of tools. What has none, as tools that the provider runs itself, goes by its type, or by the key that it stands under.
fn names_in(tools: &Value, depth: usize, names: &mut Vec<String>) {
    // Nothing is nested as deep as that.
    if depth > 8 {
        return;
    }
    match tools {
        Value::Array(tools) => tools.iter().for_each(|tool| names_in(tool, depth + 1, names)),
        Value::Object(fields) => {
            let (mut kind, mut is_named, mut others) = (None, false, Vec::new());
            for (key, value) in fields {
                match (&*folded(key), value) {
                    ("name", Value::String(name)) => {
                        is_named = true;
                        names.push(name.clone());
                    }
                    ("type", Value::String(of)) => kind = Some(of),
                    ("function" | "custom" | "toolspec" | "systemtool", Value::Object(_)) => {
                        is_named = true;
                        names_in(value, depth + 1, names);
                    }
                    ("functiondeclarations" | "tools", _) => names_in(value, depth + 1, names),
                    ("cachepoint", _) => is_named = true,
                    (_, Value::Object(_)) => others.push(key),
                    _ => {}
                }
            }
            if !is_named {
                match kind {
                    Some(kind) => names.push(kind.clone()),
                    None => names.extend(others.into_iter().cloned()),
                }
            }
        }
        _ => {}
    }
}

fn add(element: &Value, offered: &mut Vec<Offered>) {
    let declared = element.get("functionDeclarations").or_else(|| element.get("function_declarations"));
    if let Some(function) = element.get("function") {
        // OpenAI's chat completions, Ollama.
        offered.extend(tool(function, "parameters"));
    } else if let Some(Value::Array(declared)) = declared {
        // Gemini: JSON Schema, or its own kind of it.
        for function in declared {
            if function.get("parametersJsonSchema").is_some() {
                offered.extend(tool(function, "parametersJsonSchema"));
            } else {
                let mut function = function.clone();
                function.get_mut("parameters").into_iter().for_each(|schema| from_gemini(schema, 0));
                offered.extend(tool(&function, "parameters"));
            }
        }
    } else if let Some(spec) = element.get("toolSpec") {
        // Bedrock.
        let schema = spec.pointer("/inputSchema/json").map(Value::to_string);
        let name = spec.get("name").and_then(Value::as_str);
        offered.extend(name.map(|name| Offered { name: name.into(), schema: schema.map(Arc::from) }));
    } else if element.get("input_schema").is_some() {
        // Anthropic.
        offered.extend(tool(element, "input_schema"));
    } else {
        // OpenAI's responses.
        offered.extend(tool(element, "parameters"));
    }
}

fn tool(function: &Value, schema: &str) -> Option<Offered> {
    let name = function.get("name")?.as_str()?.into();
    let schema = function.get(schema).filter(|schema| !schema.is_null()).map(Value::to_string);
    Some(Offered { name, schema: schema.map(Arc::from) })
}

/// Gemini writes types in capitals, and has a field for what may be null.
fn from_gemini(schema: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match schema {
        Value::Array(all) => all.iter_mut().for_each(|schema| from_gemini(schema, depth + 1)),
        Value::Object(fields) => {
            let nullable = fields.get("nullable") == Some(&Value::Bool(true));
            if let Some(Value::String(kind)) = fields.get("type") {
                let kind = Value::from(kind.to_ascii_lowercase());
                let kind = if nullable { Value::from(vec![kind, "null".into()]) } else { kind };
                fields.insert("type".into(), kind);
            }
            for (key, inside) in fields.iter_mut().filter(|(key, _)| is_schema_place(key)) {
                match inside {
                    // Fields may be called `type` too.
                    Value::Object(properties) if key == "properties" => {
                        properties.values_mut().for_each(|schema| from_gemini(schema, depth + 1));
                    }
                    _ => from_gemini(inside, depth + 1),
                }
            }
        }
        _ => {}
    }
}

fn is_schema_place(key: &str) -> bool {
    matches!(key, "properties" | "items" | "anyOf" | "prefixItems" | "additionalProperties")
}

/// Arguments against the schemas that the request itself has offered.
pub(crate) struct OfferedSchemas {
    compiled: KeyMap<Arc<str>, Compiled>,
}

/// `None` is a schema that cannot be used.
struct Compiled(Option<Schema>);

impl Evict for Compiled {
    fn may_go(&self) -> bool {
        true
    }
}

impl OfferedSchemas {
    pub(crate) fn new() -> Self {
        Self { compiled: KeyMap::sharing(KEPT, Compiled(None)) }
    }

    fn schema_of(&self, call: &ToolCall, tools: &[Offered]) -> Found {
        let tool = tools.iter().find(|tool| tool.name == call.name);
        let Some(text) = tool.and_then(|tool| tool.schema.as_ref()) else { return Found::None };
        // Not even kept: it would be there as the key of nothing.
        if text.len() > MAX_SCHEMA {
            return Found::Unusable;
        }
        let compiled = self.compiled.get_or_insert_with(Arc::clone(text), || Compiled(compile(text)));
        match compiled.ok().and_then(|compiled| compiled.0.clone()) {
            Some(schema) => Found::Schema(schema),
            None => Found::Unusable,
        }
    }
}

enum Found {
    None,
    Schema(Schema),
    Unusable,
}

impl Check for OfferedSchemas {
    fn check(&self, answer: &Answer, report: &mut Report) {
        let Some(tools) = answer.asked().and_then(|asked| asked.tools.as_deref()) else { return };
        let mut unusable = None;
        check_calls(answer.tool_calls(), report, |call| match self.schema_of(call, tools) {
            Found::Schema(schema) => Some(schema),
            Found::None => None,
            Found::Unusable => {
                unusable.get_or_insert_with(|| call.name.clone());
                None
            }
        });
        if let Some(name) = unusable {
            let message =
                format!("the schema of `{name:.64}` cannot be used, and its arguments are not checked");
            let finding = Finding::new(SoftKind::ToolCall, "tool.schema_unusable", message);
            report.push(finding.with_severity(Severity::Info));
        }
    }
}

fn compile(text: &str) -> Option<Schema> {
    let schema = serde_json::from_str(text).ok()?;
    let mut left = MAX_NODES;
    if !is_bounded(&schema, &schema, 0, &mut left) {
        return None;
    }
    let each = MAX_PATTERNS / patterns_in(&schema, &schema).max(1);
    SchemaOptions::default().compile_within(&schema, each).ok()
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Offered").field(&self.name).finish()
    }
}
