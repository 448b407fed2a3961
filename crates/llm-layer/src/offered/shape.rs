//! The body of a request, in the shapes of all dialects: they share no name for two things.

use super::{MAX_TOOLS, Offered, Tool};
use crate::{Provider, lens, recognise::Endpoint};

/// The fields of a request that matter here.
pub(super) struct Shape<'a> {
    messages: bool,
    /// Gemini's messages.
    contents: bool,
    /// The messages of Responses; an embedding has this too.
    input: bool,
    prompt: bool,
    tools: Option<&'a str>,
    functions: Option<&'a str>,
    stream: Option<bool>,
    json: bool,
    max_tokens: Option<u64>,
    /// One of Anthropic's models at Amazon or Google, where the version stands in the body.
    is_hosted: bool,
}

/// Reads a body; `None` when it is no object.
pub(super) fn read(text: &str) -> Option<Shape<'_>> {
    let [messages, contents, input, prompt, stream] =
        lens::fields(text, ["messages", "contents", "input", "prompt", "stream"])?;
    let [tools, functions, tool_config, version] =
        lens::fields(text, ["tools", "functions", "toolConfig", "anthropic_version"]).unwrap_or_default();
    let [bedrock_tools] = inside(tool_config, ["tools"]);
    Some(Shape {
        messages: messages.is_some(),
        contents: contents.is_some(),
        input: input.is_some(),
        prompt: prompt.is_some(),
        tools: tools.or(bedrock_tools),
        functions,
        stream: stream.map(|raw| raw == "true"),
        json: asks_for_json(text),
        max_tokens: max_tokens(text),
        is_hosted: version.is_some(),
    })
}

impl Shape<'_> {
    pub(super) fn offered(&self, provider: Provider, endpoint: Endpoint) -> Offered {
        let chat = self.chat(provider);
        Offered {
            chat,
            tools: self.tools(provider),
            stream: endpoint.streams.or(self.stream).or_else(|| match provider {
                // Here the path says it, not the body.
                Provider::Gemini | Provider::Bedrock => None,
                Provider::Anthropic if self.is_hosted => None,
                // Ollama streams unless it is told not to.
                _ => Some(provider == Provider::Ollama && chat == Some(true)),
            }),
            json: self.json,
            max_tokens: self.max_tokens,
        }
    }

    /// Whether a model's answer was asked for.
    fn chat(&self, provider: Provider) -> Option<bool> {
        // Of an `input` alone vectors are made too.
        if self.messages || self.contents || self.input && provider == Provider::OpenAiResponses {
            Some(true)
        } else if self.prompt {
            // Of a `prompt` alone pictures are made too, but not here.
            (provider == Provider::Ollama).then_some(true)
        } else {
            Some(false)
        }
    }

    /// The offered tools; `None` when some of them have no name that a call would carry.
    fn tools(&self, provider: Provider) -> Option<Vec<Tool>> {
        // A chat completion calls a provider's own tools like any other, the other dialects do not.
        let knows_nameless = provider == Provider::OpenAiResponses || self.contents || self.input;
        let mut found = Tools { tools: Vec::new(), known: true };
        if let Some(tools) = self.tools {
            lens::each(tools, |raw| {
                let named = found.add_any(raw);
                found.known &= named || knows_nameless;
                found.known
            })?;
        }
        if let Some(functions) = self.functions {
            lens::each(functions, |raw| {
                found.add(tool(raw, None));
                found.known
            })?;
        }
        found.known.then_some(found.tools)
    }
}

struct Tools {
    tools: Vec<Tool>,
    known: bool,
}

impl Tools {
    fn add(&mut self, tool: Option<Tool>) {
        self.known &= tool.is_some() && self.tools.len() < MAX_TOOLS;
        self.tools.extend(tool.filter(|_| self.known));
    }

    /// Adds what is in an element of `tools`; whether there is a name in it.
    fn add_any(&mut self, raw: &str) -> bool {
        let names = [
            "function",
            "custom",
            "name",
            "input_schema",
            "functionDeclarations",
            "function_declarations",
            "toolSpec",
            "cachePoint",
        ];
        let [function, custom, name, input_schema, declared, declared_too, spec, cache] =
            lens::fields(raw, names).unwrap_or_default();
        if let Some(inner) = function.or(custom) {
            // OpenAI chat, Ollama.
            self.add(tool(inner, None));
        } else if let Some(list) = declared.or(declared_too) {
            // Gemini.
            lens::each(list, |raw| {
                self.add(tool(raw, None));
                self.known
            });
        } else if let Some(spec) = spec {
            // Bedrock.
            let [schema] = inside(Some(spec), ["inputSchema"]);
            let [json] = inside(schema, ["json"]);
            self.add(tool(spec, json));
        } else if name.is_some() {
            // Anthropic, and OpenAI's Responses.
            self.add(tool(raw, input_schema));
        } else {
            return cache.is_some();
        }
        true
    }
}

fn tool(raw: &str, schema: Option<&str>) -> Option<Tool> {
    let [name, parameters] = lens::fields(raw, ["name", "parameters"])?;
    let names = ["properties", "required", "additionalProperties", "$ref", "anyOf"];
    let (bare, needy) = match schema.or(parameters) {
        None => (true, false),
        Some(schema) => match lens::fields(schema, names) {
            Some(found) => {
                let [_, required, ..] = found;
                let bare = found.into_iter().flatten().all(|raw| !lens::truthy(raw));
                (bare, required.is_some_and(lens::has_elements))
            }
            None => (false, false),
        },
    };
    Some(Tool { name: lens::some_string(name)?.into(), bare, needy })
}

fn asks_for_json(text: &str) -> bool {
    let names = ["response_format", "text", "output_format", "output_config", "generationConfig", "format"];
    let [of_chat, of_text, of_output, config, generation, of_ollama] =
        lens::fields(text, names).unwrap_or_default();
    // OpenAI chat; Responses; Anthropic, twice.
    let [responses] = inside(of_text, ["format"]);
    let [anthropic] = inside(config, ["format"]);
    let typed = [of_chat, responses, of_output, anthropic].into_iter().flatten().any(|format| {
        let [kind] = lens::fields(format, ["type"]).unwrap_or_default();
        lens::some_string(kind).is_some_and(|kind| matches!(&*kind, "json_object" | "json_schema"))
    });
    // Gemini; Ollama, which takes a schema too.
    let [mime] = inside(generation, ["responseMimeType"]);
    let is_json = |raw: Option<&str>, name: &str| lens::some_string(raw).is_some_and(|text| text == name);
    typed
        || is_json(mime, "application/json")
        || is_json(of_ollama, "json")
        || of_ollama.is_some_and(|raw| raw.starts_with('{'))
}

fn max_tokens(text: &str) -> Option<u64> {
    let names = [
        "max_completion_tokens",
        "max_tokens",
        "max_output_tokens",
        "generationConfig",
        "inferenceConfig",
        "options",
    ];
    let [completion, chat, responses, generation, inference, options] = lens::fields(text, names)?;
    let [gemini] = inside(generation, ["maxOutputTokens"]);
    let [bedrock] = inside(inference, ["maxTokens"]);
    let [ollama] = inside(options, ["num_predict"]);
    completion.or(chat).or(responses).or(gemini).or(bedrock).or(ollama).and_then(lens::count)
}

fn inside<'a, const N: usize>(raw: Option<&'a str>, names: [&str; N]) -> [Option<&'a str>; N] {
    raw.and_then(|raw| lens::fields(raw, names)).unwrap_or([None; N])
}
