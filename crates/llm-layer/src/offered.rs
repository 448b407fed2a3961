//! [`Offered`]: what a request offered and asked for, as far as an answer can only be judged by it.
//!
//! "Unknown tool", "leaked tool call" and "not the JSON that was asked for" need the request. [`LlmLayer`] reads it
//! where its body lies in memory, and forwards it unchanged; where it does not, those three are not looked for.
//!
//! ```
//! use llm_layer::Offered;
//!
//! let request = http::Request::post("http://localhost/v1/chat/completions")
//!     .body(r#"{"messages": [], "max_tokens": 64, "tools": [
//!         {"type": "function", "function": {"name": "get_weather", "parameters": {}}}]}"#.to_owned())
//!     .unwrap();
//!
//! let offered = Offered::of(&request);
//! assert_eq!(offered.has_tool("get_weather"), Some(true));
//! assert_eq!(offered.has_tool("get_wether"), Some(false));
//! assert_eq!(offered.max_tokens(), Some(64));
//! assert_eq!(Offered::unknown().has_tool("get_weather"), None);
//! ```
//!
//! [`LlmLayer`]: crate::LlmLayer

mod shape;

use crate::{
    Provider,
    recognise::{self, Endpoint},
    request::{Look, look},
};

/// At most so many offered tools are remembered; of a request with more, the tools count as unknown.
pub const MAX_TOOLS: usize = 1024;

/// What a request offered and asked for. Everything may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    chat: Option<bool>,
    tools: Option<Vec<Tool>>,
    /// `None` where it is not the body that says so, but a path that nobody knows.
    stream: Option<bool>,
    json: bool,
    max_tokens: Option<u64>,
}

/// A tool by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    name: Box<str>,
    /// Whether it is known to take no arguments at all.
    bare: bool,
    /// Whether it is known to take no call without arguments.
    needy: bool,
}

impl AsRef<str> for Tool {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl Offered {
    /// Nothing is known.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { chat: None, tools: None, stream: None, json: false, max_tokens: None }
    }

    /// Reads a request, where its body lies in memory: a `reqwest::Request` (feature `reqwest-013`), and an
    /// `http::Request` whose body is `Bytes`, `String`, `Vec<u8>`, `&'static str`, `http_body_util::Full<Bytes>` or `Empty<Bytes>`,
    /// or `reqwest::Body`. Of any other request nothing is known, nor of one whose body is encoded (`content-encoding`).
    ///
    /// Which dialect it speaks is recognised by its path and its shape.
    #[must_use]
    pub fn of<Req: 'static>(request: &Req) -> Self {
        let look = look(request);
        Self::seen(recognise::of_request(&look).unwrap_or(Provider::Auto), &look)
    }

    /// Reads the body of a request, of whatever dialect.
    #[must_use]
    pub fn of_body(body: &[u8]) -> Self {
        let look = Look { body: Some(body.into()), ..Look::default() };
        Self::seen(recognise::of_request(&look).unwrap_or(Provider::Auto), &look)
    }

    /// Reads what can be seen of a request in a dialect.
    pub(crate) fn seen(provider: Provider, look: &Look<'_>) -> Self {
        let endpoint = look.path.map(Endpoint::of).unwrap_or_default();
        let Some(body) = &look.body else {
            let chat = if endpoint.is_other { Some(false) } else { None };
            return Self { chat, stream: endpoint.streams, ..Self::unknown() };
        };
        let asked = std::str::from_utf8(body).ok().and_then(shape::read);
        let mut offered = asked
            .map_or(Self { chat: Some(false), ..Self::unknown() }, |shape| shape.offered(provider, endpoint));
        if endpoint.is_other {
            offered.chat = Some(false);
        }
        offered
    }

    /// The same with one more tool offered.
    #[must_use]
    pub fn with_tool(mut self, name: impl Into<Box<str>>) -> Self {
        self.tools.get_or_insert_default().push(Tool { name: name.into(), bare: false, needy: false });
        self
    }

    /// The same, and the answer is to be JSON.
    #[must_use]
    pub const fn with_json(mut self) -> Self {
        self.json = true;
        self
    }

    /// The same, and the answer is to come as a stream.
    #[must_use]
    pub const fn with_stream(mut self) -> Self {
        self.stream = Some(true);
        self
    }

    /// The same with a limit on generated tokens.
    #[must_use]
    pub const fn with_max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Whether the request offered a tool of this name; `None` when its tools are not known.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> Option<bool> {
        self.tools.as_ref().map(|tools| tools.iter().any(|tool| *tool.name == *name))
    }

    /// The names of the offered tools; none when they are not known.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().flatten().map(|tool| &*tool.name)
    }

    /// Whether the answer was to come as a stream.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        matches!(self.stream, Some(true))
    }

    /// Whether the answer was to be JSON (`response_format` of `json_object` or `json_schema`, and what the other
    /// dialects have in its place).
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// The limit on generated tokens (`max_completion_tokens`, else `max_tokens`, and what the other dialects have in
    /// its place).
    #[must_use]
    pub const fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    /// Whether it was a chat request; `None` when that is not known, also of one that has a `prompt` only: pictures are
    /// made from those too.
    #[must_use]
    pub const fn is_chat(&self) -> Option<bool> {
        self.chat
    }

    /// Whether it is known to be a chat request that is to be answered in one piece.
    pub(crate) fn wants_whole_chat(&self) -> bool {
        self.chat == Some(true) && self.stream == Some(false)
    }

    /// The offered tools, where they are known.
    pub(crate) fn known_tools(&self) -> Option<&[Tool]> {
        self.tools.as_deref()
    }

    /// Whether this tool is known to need arguments.
    pub(crate) fn needs_arguments(&self, name: &str) -> bool {
        self.tools.iter().flatten().any(|tool| tool.needy && *tool.name == *name)
    }

    /// Whether this tool is known to take no arguments, so that empty ones are right.
    pub(crate) fn takes_none(&self, name: &str) -> bool {
        self.tools.iter().flatten().any(|tool| tool.bare && *tool.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,
        "response_format":{"type":"json_schema","json_schema":{}},"max_tokens":9,"max_completion_tokens":5,
        "tools":[{"type":"function","function":{"name":"a","parameters":{"type":"object","properties":{"x":{}}}}},
                 {"type":"custom","custom":{"name":"b"}},
                 {"type":"function","function":{"name":"c","parameters":{"type":"object","properties":{}}}}]}"#;

    fn whole(offered: &Offered) {
        assert_eq!(offered.tools().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(offered.is_chat(), Some(true));
        assert!(offered.is_stream() && offered.is_json());
        assert_eq!(offered.max_tokens(), Some(5));
        assert!(offered.takes_none("c") && !offered.takes_none("a") && !offered.takes_none("z"));
    }

    #[test]
    fn every_body_in_memory_is_read() {
        whole(&Offered::of(&http::Request::new(BODY)));
        whole(&Offered::of(&http::Request::new(BODY.to_owned())));
        whole(&Offered::of(&http::Request::new(BODY.as_bytes().to_vec())));
        whole(&Offered::of(&http::Request::new(Bytes::from(BODY))));
        whole(&Offered::of(&http::Request::new(Full::new(Bytes::from(BODY)))));
    }

    #[cfg(feature = "reqwest-013")]
    #[test]
    fn reqwests_bodies_are_read() {
        let request = reqwest::Client::new().post("http://localhost/").body(BODY).build().unwrap();
        whole(&Offered::of(&request));
        whole(&Offered::of(&http::Request::new(reqwest::Body::from(BODY))));
        let get = reqwest::Client::new().get("http://localhost/v1/models").build().unwrap();
        assert_eq!(Offered::of(&get).is_chat(), Some(false));
    }

    #[test]
    fn of_any_other_request_nothing_is_known() {
        assert_eq!(Offered::of(&7), Offered::unknown());
        assert_eq!(Offered::of(&http::Request::new(())), Offered::unknown());
    }

    #[test]
    fn a_body_that_is_encoded_may_be_a_chat() {
        let request = |coding: &str, body: &[u8]| {
            let request = http::Request::post("http://a/v1/chat/completions");
            Offered::of(&request.header("content-encoding", coding).body(body.to_vec()).unwrap())
        };
        let offered = request("gzip", b"\x1f\x8b\x08\0");
        assert_eq!((offered.is_chat(), offered.has_tool("x")), (None, None));
        whole(&request("identity", BODY.as_bytes()));
    }

    #[test]
    fn a_request_without_a_body_is_no_chat() {
        let empty = http_body_util::Empty::<Bytes>::new();
        assert_eq!(Offered::of(&http::Request::new(empty)).is_chat(), Some(false));
    }

    #[test]
    fn tools_without_a_name_to_call_make_the_tools_unknown() {
        let offered = Offered::of_body(br#"{"messages":[],"tools":[{"type":"web_search"}]}"#);
        assert_eq!(offered.has_tool("x"), None);
        let none = Offered::of_body(br#"{"messages":[]}"#);
        assert_eq!(none.has_tool("x"), Some(false));
        let functions = Offered::of_body(br#"{"messages":[],"functions":[{"name":"x"}]}"#);
        assert_eq!(functions.has_tool("x"), Some(true));
    }

    #[test]
    fn of_a_prompt_alone_nobody_knows_whether_text_or_a_picture_is_made_from_it() {
        assert_eq!(Offered::of_body(br#"{"prompt":"a cat"}"#).is_chat(), None);
        assert_eq!(Offered::of_body(br#"{"prompt":"a cat","messages":[]}"#).is_chat(), Some(true));
    }

    #[test]
    fn a_body_that_is_no_chat_is_known_to_be_none() {
        for body in ["", "x", "[]", r#"{"input":"embed me"}"#] {
            assert_eq!(Offered::of_body(body.as_bytes()).is_chat(), Some(false), "{body}");
        }
    }
}
