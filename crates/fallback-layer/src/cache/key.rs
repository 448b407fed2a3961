//! Which requests are the same, and for whom.

use std::{
    borrow::Cow,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use http::{HeaderMap, Method, header};

use super::CacheRequest;
use crate::json::Node;

/// Who a request is made for: answers never cross scopes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives requests of the type `{Req}` no scope",
    note = "call `.scope(|request: &_| …)` with the tenant's or user's id, or `.shared_by_all()`, on the builder"
)]
pub trait Scope<Req> {
    /// The scope; `None` for a request that is neither looked up nor kept.
    fn scope(&self, request: &Req) -> Option<Cow<'_, str>>;
}

/// No scope was said: `build()` refuses that.
#[derive(Clone, Copy, Debug)]
pub struct NoScope;

/// All callers are one, see [`Builder::shared_by_all`](super::Builder::shared_by_all).
#[derive(Clone, Copy, Debug)]
pub struct SharedByAll;

impl<Req> Scope<Req> for SharedByAll {
    fn scope(&self, _: &Req) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed("*"))
    }
}

/// The scope by a function, see [`Builder::scope`](super::Builder::scope).
#[derive(Clone, Copy)]
pub struct ByScope<F>(pub(super) F);

impl<F, Req, T> Scope<Req> for ByScope<F>
where
    F: Fn(&Req) -> Option<T>,
    T: Into<String>,
{
    fn scope(&self, request: &Req) -> Option<Cow<'_, str>> {
        // A blank one is what a missing header looks like, and would be one scope for all who have none.
        (self.0)(request).map(Into::into).filter(|scope| !scope.trim().is_empty()).map(Cow::Owned)
    }
}

impl<F> fmt::Debug for ByScope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByScope")
    }
}

/// 128 bits of a request, by two functions keyed with the process's own randomness: nobody outside can make two requests
/// meet, and chance does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest(u64, u64);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest")
    }
}

/// In which form an answer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Want {
    /// The body does not say: one form for each path.
    Unsaid,
    Whole,
    Stream {
        /// With the usage in it.
        usage: bool,
    },
}

/// Whose wire format a request has, where another form of the answer can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Unknown,
    OpenAiChat,
}

/// What makes a request the same as another, for whom, and in which form it wants the answer.
#[derive(Clone)]
pub struct CacheKey {
    pub(super) exact: (Digest, Want),
    pub(super) dialect: Dialect,
    pub(super) control: Control,
    /// What it asks, and the digest of all else; with a semantic cache only.
    pub(super) prompt: Option<(Digest, Box<str>)>,
}

impl fmt::Debug for CacheKey {
    /// Without the prompt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheKey").field("want", &self.exact.1).finish_non_exhaustive()
    }
}

/// What the request's `cache-control` allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// The caller wants a new answer.
    pub(super) no_cache: bool,
    /// No older answer than that.
    pub(super) max_age: Option<Duration>,
}

pub(super) struct Keys {
    hashes: [RandomState; 2],
    /// Left out of the key.
    pub(super) ignored: Vec<Box<str>>,
    /// Headers that are part of the key.
    pub(super) headers: Vec<http::HeaderName>,
    pub(super) prompts: bool,
}

/// Fields of a body that say who asks or in which form the answer comes, and not what is asked.
pub(super) const IGNORED: [&str; 7] = [
    "stream",
    "stream_options",
    "user",
    "safety_identifier",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
];

/// Headers that change what the answer is.
pub(super) const HEADERS: [&str; 10] = [
    "accept",
    "accept-language",
    "content-type",
    "anthropic-beta",
    "anthropic-version",
    "content-encoding",
    // Where the address does not say for which host it is.
    "host",
    "openai-beta",
    "openai-organization",
    "openai-project",
];

/// Headers that ask for something else than the whole answer.
const CONDITIONS: [header::HeaderName; 5] =
    [header::RANGE, header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_RANGE];

impl Keys {
    pub(super) fn new() -> Self {
        Self {
            hashes: [RandomState::new(), RandomState::new()],
            ignored: IGNORED.map(Box::from).into(),
            headers: HEADERS.map(http::HeaderName::from_static).into(),
            prompts: false,
        }
    }

    /// `None` where the request is not to be looked up: other methods than GET and POST, parts of answers, conditions, bodies
    /// that do not lie in memory, `no-store`, and answers that go on without the caller or depend on what the server keeps.
    pub(super) fn key<Req: CacheRequest>(&self, scope: &str, request: &Req) -> Option<CacheKey> {
        let headers = request.headers();
        if !matches!(*request.method(), Method::GET | Method::POST)
            || CONDITIONS.iter().any(|name| headers.contains_key(name))
        {
            return None;
        }
        let control = control(headers)?;
        let body = request.body()?;
        let (address, node) = (request.address(), Node::parse(&body));
        let field = |name| node.as_ref().and_then(|node| node.get(name));
        if field("background").is_some_and(Node::is_true)
            || field("conversation").is_some_and(|node| *node != Node::Bare("null"))
        {
            return None;
        }
        let want = match field("stream") {
            Some(Node::Bare("true")) => {
                let usage = field("stream_options").and_then(|options| options.get("include_usage"));
                Want::Stream { usage: usage.is_some_and(Node::is_true) }
            }
            Some(Node::Bare("false" | "null")) => Want::Whole,
            None if is_whole_by_default(address.path) => Want::Whole,
            _ => Want::Unsaid,
        };
        let dialect = match &node {
            Some(_) if address.path.ends_with("/chat/completions") => Dialect::OpenAiChat,
            _ => Dialect::Unknown,
        };
        let digest = |hole: Option<&Node<'_>>| {
            let mut digest = self.hashes.each_ref().map(BuildHasher::build_hasher);
            let mut show = |bytes: &[u8]| digest.iter_mut().for_each(|hasher| hasher.write(bytes));
            let head = [
                scope,
                request.method().as_str(),
                address.origin.0,
                address.origin.1,
                address.path,
                address.query.unwrap_or(""),
            ];
            for part in head {
                put(&mut show, part.as_bytes());
            }
            for name in &self.headers {
                let values = headers.get_all(name);
                show(&(values.iter().count() as u64).to_le_bytes());
                values.iter().for_each(|value| put(&mut show, value.as_bytes()));
            }
            match &node {
                Some(node) => {
                    show(b"json");
                    node.show(
                        hole,
                        &|field| self.ignored.iter().any(|ignored| **ignored == *field),
                        &mut show,
                    );
                }
                None => {
                    show(b"any ");
                    put(&mut show, &body);
                }
            }
            let [first, second] = &mut digest;
            // Both functions of one thread have nearly the same key, so that each sees something of its own.
            first.write(b"first");
            second.write(b"second");
            Digest(first.finish(), second.finish())
        };
        let prompt = self.prompts.then(|| node.as_ref().and_then(prompt)).flatten();
        let prompt = prompt.and_then(|hole| Some((digest(Some(hole)), hole.as_text()?.into())));
        Some(CacheKey { exact: (digest(None), want), dialect, control, prompt })
    }
}

fn put(show: &mut impl FnMut(&[u8]), bytes: &[u8]) {
    show(&(bytes.len() as u64).to_le_bytes());
    show(bytes);
}

/// Where an answer is streamed only if the body says so.
fn is_whole_by_default(path: &str) -> bool {
    ["/completions", "/responses", "/messages", "/embeddings"].iter().any(|end| path.ends_with(end))
}

/// `None` for `no-store`.
fn control(headers: &HeaderMap) -> Option<Control> {
    let mut control = Control::default();
    if !is_readable(headers) {
        return None;
    }
    for (name, value) in directives(headers) {
        match &*name.to_ascii_lowercase() {
            "no-store" => return None,
            "no-cache" => control.no_cache = true,
            "max-age" => {
                let seconds = value.trim_matches('"').parse().unwrap_or(0);
                control.max_age = Some(Duration::from_secs(seconds));
            }
            _ => {}
        }
    }
    Some(control)
}

/// Whether nothing of `cache-control` is hidden behind bytes that are no text.
pub(super) fn is_readable(headers: &HeaderMap) -> bool {
    headers.get_all(header::CACHE_CONTROL).iter().all(|value| value.to_str().is_ok())
}

/// The directives of `cache-control`, with their values.
pub(super) fn directives(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let values = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|directive| {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        (name.trim(), value.trim())
    })
}

/// The text of the last thing that a user says, where it is the last message and nothing but a text.
fn prompt<'n, 'a>(body: &'n Node<'a>) -> Option<&'n Node<'a>> {
    if let Some(messages) = body.get("messages").or_else(|| body.get("input")).and_then(Node::as_list) {
        let last = messages.last().filter(|last| last.get("role").and_then(Node::as_text) == Some("user"))?;
        return text_of(last.get("content")?);
    }
    if let Some(contents) = body.get("contents").and_then(Node::as_list) {
        let last = contents
            .last()
            .filter(|last| last.get("role").is_none_or(|role| role.as_text() == Some("user")))?;
        return text_of(last.get("parts")?);
    }
    body.get("prompt").or_else(|| body.get("input")).filter(|node| node.as_text().is_some())
}

/// A text, or a list of one part that is one.
fn text_of<'n, 'a>(content: &'n Node<'a>) -> Option<&'n Node<'a>> {
    match content {
        Node::Text(_) => Some(content),
        Node::List(parts) => match &parts[..] {
            [part] => part.get("text").filter(|node| node.as_text().is_some()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn keys() -> Keys {
        Keys { prompts: true, ..Keys::new() }
    }

    fn request(path: &str, body: &str) -> Request<String> {
        Request::post(path).body(body.to_owned()).unwrap()
    }

    fn key(keys: &Keys, path: &str, body: &str) -> CacheKey {
        keys.key("t", &request(path, body)).unwrap()
    }

    const CHAT: &str = "/v1/chat/completions";

    // G117
    #[test]
    fn every_field_that_changes_the_answer_is_in_the_key_and_who_asks_is_not() {
        let keys = keys();
        let plain = key(&keys, CHAT, r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#);
        let with = |more: &str| {
            key(
                &keys,
                CHAT,
                &format!(r#"{{"messages":[{{"content":"q","role":"user"}}],{more},"model":"m"}}"#),
            )
        };
        let fields = [
            r#""tool_choice":"auto""#,
            r#""max_tokens":5"#,
            r#""response_format":{"type":"json_object"}"#,
            r#""seed":1"#,
            r#""temperature":0"#,
            r#""tools":[]"#,
            r#""n":2"#,
            r#""store":true"#,
            r#""service_tier":"flex""#,
            r#""unheard":1"#,
            r#""previous_response_id":"r""#,
        ];
        for field in fields {
            assert_ne!(with(field).exact.0, plain.exact.0, "{field}");
        }
        for field in
            [r#""user":"u""#, r#""metadata":{"a":1}"#, r#""stream":true"#, r#""prompt_cache_key":"k""#]
        {
            assert_eq!(with(field).exact.0, plain.exact.0, "{field}");
        }
        // Only at the top.
        assert_ne!(with(r#""tools":[{"user":"a"}]"#).exact.0, with(r#""tools":[{"user":"b"}]"#).exact.0);
    }

    #[test]
    fn scope_address_method_and_headers_are_in_the_key_and_no_part_runs_into_the_next() {
        let keys = keys();
        let mut seen = std::collections::HashSet::new();
        let mut add = |scope: &str, request: Request<String>| {
            assert!(seen.insert(keys.key(scope, &request).unwrap().exact), "{scope} {request:?}");
        };
        add("t", request("/a", "{}"));
        add("u", request("/a", "{}"));
        add("t/a", request("/", "{}"));
        add("t", request("/a?b", "{}"));
        add("t", request("/ab", "{}"));
        add("t", request("https://h/a", "{}"));
        add("t", request("https://g/a", "{}"));
        add("t", request("http://h/a", "{}"));
        add("t", request("/a", "[]"));
        add("t", request("/a", " x"));
        add("t", request("/a", "x"));
        add("t", Request::get("/a").body("{}".to_owned()).unwrap());
        for (name, value) in
            [("accept", "a"), ("accept", "b"), ("anthropic-beta", "a"), ("openai-organization", "a")]
        {
            add("t", Request::post("/a").header(name, value).body("{}".to_owned()).unwrap());
        }
        add(
            "t",
            Request::post("/a").header("accept", "a").header("accept", "b").body("{}".to_owned()).unwrap(),
        );
        add("t", Request::post("/a").header("accept", "a, b").body("{}".to_owned()).unwrap());
    }

    #[test]
    fn a_body_that_names_a_field_twice_is_only_the_same_as_itself() {
        let keys = keys();
        let twice = key(&keys, CHAT, r#"{"model":"a","model":"b"}"#);
        assert_eq!(twice.exact, key(&keys, CHAT, r#"{"model":"a","model":"b"}"#).exact);
        for other in [r#"{"model":"a"}"#, r#"{"model":"b"}"#, r#"{"model":"b","model":"a"}"#] {
            assert_ne!(twice.exact.0, key(&keys, CHAT, other).exact.0);
        }
    }

    #[test]
    fn the_form_is_read_from_the_body() {
        let keys = keys();
        let want = |path, body| key(&keys, path, body).exact.1;
        assert_eq!(want(CHAT, "{}"), Want::Whole);
        assert_eq!(want(CHAT, r#"{"stream":false}"#), Want::Whole);
        assert_eq!(want(CHAT, r#"{"stream":true}"#), Want::Stream { usage: false });
        let usage = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
        assert_eq!(want(CHAT, usage), Want::Stream { usage: true });
        assert_eq!(want("/api/chat", "{}"), Want::Unsaid);
        assert_eq!(want("/api/chat", r#"{"stream":false}"#), Want::Whole);
    }

    #[test]
    fn what_is_not_to_be_looked_up_has_no_key() {
        let keys = keys();
        let with = |name, value| {
            keys.key("t", &Request::post(CHAT).header(name, value).body("{}".to_owned()).unwrap())
        };
        assert!(with("range", "bytes=0-1").is_none());
        assert!(with("if-none-match", "*").is_none());
        assert!(with("cache-control", "max-age=3, No-Store").is_none());
        assert!(with("cache-control", "no-cache").unwrap().control.no_cache);
        assert_eq!(with("cache-control", "max-age=3").unwrap().control.max_age, Some(Duration::from_secs(3)));
        assert!(keys.key("t", &Request::delete("/a").body("{}".to_owned()).unwrap()).is_none());
        for body in [r#"{"background":true}"#, r#"{"conversation":"c"}"#] {
            assert!(keys.key("t", &request("/v1/responses", body)).is_none());
        }
    }

    #[test]
    fn the_prompt_is_the_last_text_of_the_user_and_all_else_is_its_context() {
        let keys = keys();
        let prompt = |body: &str| key(&keys, CHAT, body).prompt;
        let one = prompt(r#"{"model":"m","messages":[{"role":"user","content":"one"}]}"#).unwrap();
        let two = prompt(r#"{"messages":[{"content":"two","role":"user"}],"model":"m"}"#).unwrap();
        assert_eq!((one.0, &*one.1, &*two.1), (two.0, "one", "two"));
        let other = prompt(r#"{"model":"n","messages":[{"role":"user","content":"one"}]}"#).unwrap();
        assert_ne!(other.0, one.0);
        let parts = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"one"}]}]}"#;
        assert_eq!(&*prompt(parts).unwrap().1, "one");
        assert_eq!(&*prompt(r#"{"contents":[{"parts":[{"text":"one"}]}]}"#).unwrap().1, "one");
        assert_eq!(&*prompt(r#"{"input":"one"}"#).unwrap().1, "one");
        for none in [
            r#"{"messages":[{"role":"tool","content":"one"}]}"#,
            r#"{"messages":[{"role":"user","content":[{"text":"a"},{"image":"b"}]}]}"#,
            r#"{"messages":[]}"#,
            "[]",
        ] {
            assert!(prompt(none).is_none(), "{none}");
        }
    }
}
