//! An answer over HTTP that is kept to be given again.

use std::time::Duration;

use bytes::Bytes;
#[cfg(feature = "cache")]
use failsoft_core::DEGRADED_HEADER;
use failsoft_core::{Degraded, Facts, Finish, Insight, Slow, StandIn, Trail};
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue,
    header::{self, AGE, CONTENT_LENGTH, CONTENT_TYPE},
    response::Parts,
};

#[cfg(feature = "cache")]
use crate::cache::Freshness;
use crate::json::Raw;

pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    /// Among them, in a type of its own, the URL of a reqwest response.
    extensions: Extensions,
    /// What was learnt of it, for checks outside this layer.
    facts: Option<Facts>,
    /// Of one that stood in; and whether its header says so.
    #[cfg(feature = "cache")]
    mark: Option<(Degraded, bool)>,
    /// What it says of its age, where a cache has asked.
    #[cfg(feature = "cache")]
    pub(crate) freshness: Freshness,
    pub(crate) bytes: Bytes,
}

/// Content that is read while it comes, so that nobody may wait for its end.
const STREAMS: [&str; 5] = [
    "text/event-stream",
    "application/grpc",
    "application/x-ndjson",
    "application/jsonl",
    "application/stream+json",
];

/// Headers that describe the body, and go with it.
const KEPT: [HeaderName; 6] = [
    CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    header::ETAG,
    header::LAST_MODIFIED,
];

impl Answer {
    pub(crate) fn new(parts: &Parts, bytes: &[u8]) -> Self {
        let mut headers = HeaderMap::new();
        for name in KEPT {
            if let Some(value) = parts.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let mut extensions = parts.extensions.clone();
        // Of the one exchange.
        extensions.remove::<Trail>();
        extensions.remove::<Degraded>();
        let facts = extensions.remove::<Insight>().map(|insight| {
            let mut facts = insight.read(|facts| facts.within(bytes.len()));
            // The tokens were counted when it was made: standing in costs none, which is not the same as unknown.
            let zero = Some(0);
            let none = &mut facts.usage;
            (none.input, none.cache_read, none.cache_write) = (zero, zero, zero);
            (none.output, none.reasoning) = (zero, zero);
            // Nor does it say anything of how quick a target is now.
            (facts.output_bytes, facts.first_content, facts.slow) = (0, None, Slow::default());
            facts.degraded = None;
            facts
        });
        // Copied: the bytes may be a small part of a large buffer.
        Self {
            headers,
            extensions,
            facts,
            #[cfg(feature = "cache")]
            mark: None,
            #[cfg(feature = "cache")]
            freshness: Freshness::default(),
            bytes: Bytes::copy_from_slice(bytes),
        }
    }

    /// With the mark that it has, if it stood in.
    #[cfg(feature = "cache")]
    pub(crate) fn marked(parts: &Parts, bytes: &[u8]) -> Self {
        let mark = Degraded::of(&parts.extensions).cloned();
        let mark = mark.map(|mark| (mark, parts.headers.contains_key(DEGRADED_HEADER)));
        Self { mark, ..Self::new(parts, bytes) }
    }

    #[cfg(feature = "cache")]
    pub(crate) const fn with_freshness(mut self, freshness: Freshness) -> Self {
        self.freshness = freshness;
        self
    }

    /// Whether it stood in.
    #[cfg(feature = "cache")]
    pub(crate) const fn stood_in(&self) -> bool {
        self.mark.is_some()
    }

    /// Its head, as that of a new response.
    pub(crate) fn head(&self, age: Duration) -> Parts {
        let mut parts = http::Response::new(()).into_parts().0;
        parts.headers.clone_from(&self.headers);
        parts.headers.insert(AGE, HeaderValue::from(age.as_secs()));
        parts.extensions.clone_from(&self.extensions);
        if let Some(facts) = &self.facts {
            // One of its own: what is learnt of one answer is not told of another.
            let insight = Insight::new();
            insight.learn(|new| new.clone_from(facts));
            parts.extensions.insert(insight);
        }
        #[cfg(feature = "cache")]
        if let Some((mark, in_header)) = &self.mark {
            mark.clone().put(&mut parts.headers, &mut parts.extensions, *in_header);
        }
        parts
    }
}

/// Whether the content is read while it comes.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    STREAMS.iter().any(|name| is_type(headers, name))
}

/// Whether a stream has come to its protocol's own end, blank line and all.
#[cfg(feature = "cache")]
pub(crate) fn ends_as_a_stream(bytes: &[u8]) -> bool {
    let is_event = bytes.ends_with(b"\n\n") || bytes.ends_with(b"\r\n\r\n") || bytes.ends_with(b"\r\r");
    is_event && ends_with_the_last_event(bytes)
}

/// Whether the last event is the one after which nothing comes: `[DONE]`, `message_stop`, `response.completed`.
pub(crate) fn ends_with_the_last_event(bytes: &[u8]) -> bool {
    let lines = bytes.rsplit(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    let mut lines = lines.filter(|line| !line.is_empty());
    let Some(data) = lines.next().and_then(|line| line.strip_prefix(b"data:")) else { return false };
    if data.trim_ascii() == b"[DONE]" {
        return true;
    }
    let event = lines.next().and_then(|line| line.strip_prefix(b"event:")).map(<[u8]>::trim_ascii);
    matches!(event, Some(b"message_stop" | b"response.completed"))
}

/// Whether it is one JSON text.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let ends = |end: &str| {
        let start = essence.len().checked_sub(end.len());
        start.and_then(|start| essence.get(start..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    };
    essence.eq_ignore_ascii_case("application/json") || ends("+json")
}

/// Whether the content type begins so.
pub(crate) fn is_type(headers: &HeaderMap, name: &str) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    content_type.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether all is there that was announced.
pub(crate) fn is_whole(headers: &HeaderMap, length: usize) -> bool {
    let announced = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
    announced.is_none_or(|announced| announced == length.to_string().as_bytes())
}

/// Whether nothing that was learnt speaks against an answer; with `judged`, only where somebody has judged it. What an inner
/// layer learnt may be known only now that the body has ended.
pub(crate) fn is_good(extensions: &Extensions, judged: bool) -> bool {
    Insight::of(extensions).map_or(!judged, |insight| {
        insight.read(|facts| {
            facts.verdict.map_or(!judged, |verdict| verdict.is_success())
                && matches!(facts.finish, None | Some(Finish::Stop | Finish::ToolCalls))
        })
    })
}

/// Whether nobody has judged an answer that should be JSON and is none: one that was cut looks whole where its length was not announced.
pub(crate) fn is_broken_json(headers: &HeaderMap, extensions: &Extensions, bytes: &[u8]) -> bool {
    let is_judged = Insight::of(extensions).is_some_and(|insight| insight.verdict().is_some());
    !is_judged
        && is_json(headers)
        && std::str::from_utf8(bytes).map_or(true, |text| Raw::parse(text).is_none())
}

/// Whether a target gave it, and not what stood in for all of them: kept again, that would live longer than it may.
pub(crate) fn is_of_a_route(extensions: &Extensions) -> bool {
    Degraded::of(extensions).is_none_or(|mark| mark.stand_in == StandIn::Route)
}
