//! The request that a sample answers.

use http::Request;
use llm_layer::Provider;
use serde_json::{Value, json};

use crate::case::Fields;

/// What was asked, and of whom.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) provider: Provider,
    dialect: Dialect,
    pub(crate) streams: bool,
    precondition: Precondition,
}

#[derive(Debug, Clone, Copy)]
enum Dialect {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Bedrock,
    Ollama,
}

#[derive(Debug)]
enum Precondition {
    /// Nothing is known of the request.
    None,
    /// Tools with the names of their parameters, where those are given.
    Tools(Vec<(String, Option<Vec<String>>)>),
    Json,
    /// What only a validating layer can check.
    Validation(Validation),
}

/// What a validating layer around is told of the answer.
#[derive(Debug, Clone)]
pub(crate) enum Validation {
    /// It must not go in circles.
    Repetition,
    /// It must not begin as a refusal does.
    Refusals,
    /// It must fit this JSON Schema.
    Schema(Value),
}

impl Asked {
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, String> {
        let provider = fields.need("provider", Value::as_str)?;
        let api = fields.need("api", Value::as_str)?;
        let (dialect, provider) = match (provider, api) {
            ("openai", "responses" | "responses-stream") => (Dialect::Responses, Provider::OpenAiResponses),
            ("anthropic", _) => (Dialect::Anthropic, Provider::Anthropic),
            ("gemini", _) => (Dialect::Gemini, Provider::Gemini),
            ("bedrock", _) => (Dialect::Bedrock, Provider::Bedrock),
            ("ollama", "native-chat" | "native-chat-stream") => (Dialect::Ollama, Provider::Ollama),
            (_, "chat" | "chat-stream" | "error") => (Dialect::Chat, Provider::OpenAiCompatible),
            _ => return Err(format!("row: no dialect for {provider} {api}")),
        };
        let precondition = fields.need("precondition", |value| precondition(value.as_str()?))?;
        Ok(Self {
            provider,
            dialect,
            streams: api.ends_with("-stream") || api.starts_with("stream"),
            precondition,
        })
    }

    /// What a validating layer is told beside the request.
    pub(crate) const fn validation(&self) -> Option<&Validation> {
        match &self.precondition {
            Precondition::Validation(validation) => Some(validation),
            _ => None,
        }
    }

    /// The request; `None` where nothing is known of it.
    pub(crate) fn request(&self) -> Option<Request<String>> {
        let mut body = match self.dialect {
            Dialect::Chat => json!({"model": "m", "messages": [{"role": "user", "content": "?"}]}),
            Dialect::Anthropic => {
                json!({"model": "m", "max_tokens": 4096, "messages": [{"role": "user", "content": "?"}]})
            }
            Dialect::Responses => json!({"model": "m", "input": "?"}),
            Dialect::Gemini => json!({"contents": [{"role": "user", "parts": [{"text": "?"}]}]}),
            Dialect::Bedrock => json!({"messages": [{"role": "user", "content": [{"text": "?"}]}]}),
            Dialect::Ollama => json!({"model": "m", "messages": [{"role": "user", "content": "?"}]}),
        };
        match &self.precondition {
            Precondition::None => return None,
            Precondition::Validation(_) => {}
            Precondition::Json => self.ask_for_json(&mut body),
            Precondition::Tools(tools) => {
                let tools: Value =
                    tools.iter().map(|(name, names)| self.tool(name, names.as_deref())).collect();
                match self.dialect {
                    Dialect::Gemini => body["tools"] = json!([{"functionDeclarations": tools}]),
                    Dialect::Bedrock => body["toolConfig"] = json!({"tools": tools}),
                    _ => body["tools"] = tools,
                }
            }
        }
        // Of those that say it in the body and not in the path.
        if !matches!(self.dialect, Dialect::Gemini | Dialect::Bedrock) {
            body["stream"] = self.streams.into();
        }
        let path = match self.dialect {
            Dialect::Gemini if self.streams => "/v1beta/models/m:streamGenerateContent",
            Dialect::Gemini => "/v1beta/models/m:generateContent",
            Dialect::Bedrock if self.streams => "/model/m/converse-stream",
            Dialect::Bedrock => "/model/m/converse",
            Dialect::Ollama => "/api/chat",
            Dialect::Chat => "/v1/chat/completions",
            Dialect::Responses => "/v1/responses",
            Dialect::Anthropic => "/v1/messages",
        };
        Request::post(path).body(body.to_string()).ok()
    }

    fn tool(&self, name: &str, parameters: Option<&[String]>) -> Value {
        // A tool whose parameters are not told has some.
        let names = parameters.map_or_else(|| vec!["any".to_owned()], <[String]>::to_vec);
        let properties: serde_json::Map<_, _> =
            names.into_iter().map(|name| (name, json!({"type": "string"}))).collect();
        let schema = json!({"type": "object", "properties": properties});
        match self.dialect {
            Dialect::Chat | Dialect::Ollama => {
                json!({"type": "function", "function": {"name": name, "parameters": schema}})
            }
            Dialect::Gemini => json!({"name": name, "parameters": schema}),
            Dialect::Bedrock => json!({"toolSpec": {"name": name, "inputSchema": {"json": schema}}}),
            Dialect::Responses => json!({"type": "function", "name": name, "parameters": schema}),
            Dialect::Anthropic => json!({"name": name, "input_schema": schema}),
        }
    }

    fn ask_for_json(&self, body: &mut Value) {
        let (field, value) = match self.dialect {
            Dialect::Chat => ("response_format", json!({"type": "json_object"})),
            Dialect::Responses => ("text", json!({"format": {"type": "json_object"}})),
            Dialect::Anthropic => ("output_config", json!({"format": {"type": "json_schema", "schema": {}}})),
            Dialect::Gemini => ("generationConfig", json!({"responseMimeType": "application/json"})),
            Dialect::Ollama => ("format", json!("json")),
            // Converse has no such thing.
            Dialect::Bedrock => return,
        };
        body[field] = value;
    }
}

fn precondition(text: &str) -> Option<Precondition> {
    if let Some(tools) = text.strip_prefix("tools=[").and_then(|rest| rest.strip_suffix(']')) {
        return tools_of(tools).map(Precondition::Tools);
    }
    if let Some(fields) = text.strip_prefix("schema {") {
        let fields = fields.strip_suffix("} both required")?;
        return schema_of(fields).map(|schema| Precondition::Validation(Validation::Schema(schema)));
    }
    match text {
        "" => Some(Precondition::None),
        "response_format JSON" => Some(Precondition::Json),
        "repetition check on" => Some(Precondition::Validation(Validation::Repetition)),
        "text refusal markers on (opt-in)" => Some(Precondition::Validation(Validation::Refusals)),
        _ => None,
    }
}

/// `name:string, age:integer`, all of them required.
fn schema_of(fields: &str) -> Option<Value> {
    let pairs: Vec<_> = fields.split(',').map(|field| field.trim().split_once(':')).collect::<Option<_>>()?;
    let properties: serde_json::Map<_, _> =
        pairs.iter().map(|(name, kind)| ((*name).to_owned(), json!({"type": kind}))).collect();
    let required: Vec<_> = pairs.iter().map(|(name, _)| *name).collect();
    Some(json!({"type": "object", "properties": properties, "required": required}))
}

/// `get_weather(city,unit), list_files()`: commas stand inside parentheses too.
fn tools_of(text: &str) -> Option<Vec<(String, Option<Vec<String>>)>> {
    let mut tools = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(['(', ',']).unwrap_or(rest.len());
        let name = rest.get(..end)?.trim();
        let mut parameters = None;
        rest = rest.get(end..)?;
        if let Some(inner) = rest.strip_prefix('(') {
            let (names, after) = inner.split_once(')')?;
            let names = names.split(',').map(|name| name.trim().to_owned());
            parameters = Some(names.filter(|name| !name.is_empty()).collect());
            rest = after;
        }
        tools.push((name.to_owned(), parameters));
        rest = rest.trim_start().trim_start_matches(',').trim_start();
    }
    Some(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_read_with_their_parameters() {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            tools_of("a(x,y), b, c()"),
            Some(vec![
                ("a".to_owned(), Some(owned(&["x", "y"]))),
                ("b".to_owned(), None),
                ("c".to_owned(), Some(Vec::new())),
            ])
        );
        assert!(tools_of("a(x").is_none());
        assert!(precondition("something else").is_none());
        let Some(Precondition::Validation(Validation::Schema(schema))) =
            precondition("schema {a:string, b:integer} both required")
        else {
            panic!("a schema");
        };
        assert_eq!(schema["required"], json!(["a", "b"]));
        assert_eq!(schema["properties"]["b"]["type"], "integer");
    }
}
