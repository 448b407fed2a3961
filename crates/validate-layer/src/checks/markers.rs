//! Refusals and errors that are written as text.

use failsoft_core::{Class, Finding, Finish, Report, SoftKind, json};

use crate::{Answer, Check};

/// How far into a text its beginning goes, in bytes.
const BEGINNING: usize = 240;

/// A refusal is short: a longer text that begins like one goes on to answer.
const LONGEST_REFUSAL: usize = 1_000;

/// The model refuses in words.
///
/// What a provider says in fields of its own ([`Finish::Refusal`], [`Finish::ContentFilter`]) is looked at by
/// [`FinishReason`](super::FinishReason), always. This one reads text, and is to be asked for: words are a guess. It takes a
/// text for a refusal only if it *begins* with one in the first person, in at most 1 000 bytes, and calls no tool: "I'm sorry to
/// hear that" and "the linker cannot find libssl" are none.
///
/// The finding is of [`Class::Refused`] with the code `refusal.text`: a breaker is neutral, the same is not sent again, and the next
/// route is asked where that is allowed.
///
/// The beginnings, in English, are those that recur in the prefix lists of published work on refusals: Zou et al.,
/// *Universal and Transferable Adversarial Attacks on Aligned Language Models* (2023), and Röttger et al., *XSTest* (2024), without those that also
/// begin an answer ("Sorry", "As an", "I apologize", "I do not", "Hello!").
///
/// ```
/// use validate_layer::{Check, checks::Refusal};
///
/// assert_eq!(Refusal.on_text("I’m sorry, but I can’t help with that.").leading().unwrap().code(), "refusal.text");
/// assert!(Refusal.on_text("I'm sorry to hear that your build failed. Install libssl.").is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusal;

/// What may stand before the refusal itself.
const OPENERS: [&str; 13] = [
    "i'm really sorry",
    "i'm very sorry",
    "i'm sorry",
    "i am really sorry",
    "i am sorry",
    "i'm afraid",
    "i apologize",
    "i apologise",
    "my apologies",
    "sorry",
    "unfortunately",
    "as an ai language model",
    "as an ai",
];

/// What ties them to it.
const TIES: [&str; 4] = ["but", "however", "that", "for the confusion"];

/// The refusal itself: that it cannot or will not…
const UNABLE: [&str; 16] = [
    "i can't ",
    "i cannot ",
    "i can not ",
    "i couldn't ",
    "i won't be able to ",
    "i won't ",
    "i will not ",
    "i'm unable to ",
    "i am unable to ",
    "i'm not able to ",
    "i am not able to ",
    "i'm not allowed to ",
    "i am not allowed to ",
    "i'm not comfortable ",
    "i must refuse to ",
    "i have to refuse to ",
];

/// …do what. Verbs of which nobody goes on to give the answer after all.
const DEEDS: [&str; 26] = [
    "help with that",
    "help with this",
    "help you with that",
    "help you with this",
    "help with your request",
    "help you",
    "assist with",
    "assist you",
    "assist in",
    "comply with",
    "fulfill that",
    "fulfill this",
    "fulfill your",
    "fulfil that",
    "fulfil this",
    "fulfil your",
    "do that",
    "answer that",
    "engage in",
    "engage with",
    "participate in",
    "continue with this",
    "provide assistance",
    "provide instructions",
    "provide guidance on",
    "provide that",
];

/// Refusals that are whole by themselves.
const DECLINES: [&str; 5] = [
    "i must decline",
    "i must respectfully decline",
    "i have to decline",
    "i need to decline",
    "i respectfully decline",
];

impl Check for Refusal {
    fn check(&self, answer: &Answer, report: &mut Report) {
        // Said in a field of its own, it was reported as that.
        if matches!(answer.finish(), Some(Finish::Refusal | Finish::ContentFilter)) || !answer.is_textual() {
            return;
        }
        if answer.text().is_some_and(is_refusal) {
            report.push(Finding::of(Class::Refused, "refusal.text", "it begins as a refusal does"));
        }
    }
}

fn is_refusal(text: &str) -> bool {
    if text.trim().len() > LONGEST_REFUSAL {
        return false;
    }
    let text = beginning(text);
    let mut rest = &*text;
    // Two openers are said too: "I'm sorry, but as an AI".
    for _ in 0..2 {
        let Some(after) = OPENERS.iter().find_map(|opener| rest.strip_prefix(opener)) else { break };
        rest = after.trim_start_matches([' ', ',', '.', ';', ':', '-', '—', '!']);
        if let Some(after) = TIES.iter().find_map(|tie| rest.strip_prefix(tie)) {
            rest = after.trim_start_matches([' ', ',', '.']);
        }
    }
    if DECLINES.iter().any(|decline| rest.starts_with(decline)) {
        return true;
    }
    let Some(deed) = UNABLE.iter().find_map(|unable| rest.strip_prefix(unable)) else { return false };
    DEEDS.iter().any(|known| deed.starts_with(known))
}

/// The beginning in small letters, with straight apostrophes, without quotes and marks of emphasis before it.
fn beginning(text: &str) -> String {
    let text = text
        .trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '_' | '"' | '“' | '>' | '#'));
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= BEGINNING).last().unwrap_or(0);
    let end = if text.len() <= BEGINNING { text.len() } else { end };
    let small = |c: char| if matches!(c, '’' | '‘' | '´') { '\'' } else { c.to_ascii_lowercase() };
    text[..end].chars().map(small).collect()
}

/// An error message stands in the place of an answer: a proxy's page, a server's words, a stack trace.
///
/// To be asked for, as [`Refusal`] is: text is a guess, and an answer may be *about* errors. A text counts only if it *begins* with one of the markers
/// and is short, or is a JSON object with nothing but an error in it. A status in words counts only where no sentence goes on from it, and an HTML page
/// that is not a raw body only where its title says so: a page may be what was asked for.
///
/// The finding is of [`SoftKind::Malformed`] with the code `error.text`; the same request may be sent again.
///
/// | marker | from |
/// |---|---|
/// | `upstream connect error or disconnect`, `no healthy upstream`, `upstream request timeout` | Envoy |
/// | `<!doctype html`, `<html`, as a raw body, or with an error or its number as the title | the page of a proxy, such as nginx |
/// | `Internal Server Error`, `Bad Gateway`, `Service Unavailable`, `Gateway Timeout`, also after their number | RFC 9110 |
/// | `error code: 5` | Cloudflare's plain pages |
/// | `Traceback (most recent call last):`, `thread 'main' panicked at`, `Exception in thread` | Python, Rust, Java |
/// | `{"error": …}` with nothing beside but `status`, `code`, `message`, `detail`, `type`, `request_id` | most JSON APIs |
///
/// ```
/// use validate_layer::{Check, checks::ErrorText};
///
/// let code = |text| ErrorText.on_text(text).leading().map(|finding| finding.code());
/// assert_eq!(code("upstream connect error or disconnect/reset before headers"), Some("error.text"));
/// assert_eq!(code(r#"{"error": "model is loading"}"#), Some("error.text"));
/// assert_eq!(code("A 502 Bad Gateway means that the proxy got no good answer."), None);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorText;

/// The code of an error in an answer's place.
pub(crate) const ERROR_TEXT: &str = "error.text";

const LONGEST_ERROR: usize = 4_000;

const ERRORS: [&str; 7] = [
    "upstream connect error or disconnect",
    "no healthy upstream",
    "upstream request timeout",
    "error code: 5",
    "traceback (most recent call last):",
    "exception in thread",
    "thread 'main' panicked at",
];

/// A server's words for a status: what is about it begins so too, and goes on in the same line, or with a mark of emphasis before it.
const STATUSES: [&str; 6] = [
    "internal server error",
    "500 internal server error",
    "502 bad gateway",
    "503 service unavailable",
    "504 gateway timeout",
    "504 gateway time-out",
];

/// No server says more than this with a status.
const LONGEST_STATUS: usize = 500;

/// What the title of a proxy's page says.
const TITLES: [&str; 8] = [
    "error",
    "bad gateway",
    "unavailable",
    "gateway time",
    "too many requests",
    "forbidden",
    "just a moment",
    "attention required",
];

/// Short ones, which mean an error only where nothing follows.
const WHOLE_ERRORS: [&str; 4] = ["bad gateway", "service unavailable", "gateway timeout", "internal error"];

impl Check for ErrorText {
    fn check(&self, answer: &Answer, report: &mut Report) {
        let Some(text) = answer.text().filter(|text| answer.is_textual() && text.len() <= LONGEST_ERROR)
        else {
            return;
        };
        let start = beginning(text);
        let is_whole = || {
            let whole = start.trim_end_matches(['.', '!', '\n', ' ']);
            WHOLE_ERRORS.contains(&whole)
        };
        if ERRORS.iter().any(|error| start.starts_with(error))
            || is_status(text)
            || is_error_page(answer, text)
            || is_whole()
            || is_error_object(answer, &start)
        {
            report.push(Finding::new(
                SoftKind::Malformed,
                ERROR_TEXT,
                "an error message in place of an answer",
            ));
        }
    }
}

fn is_status(text: &str) -> bool {
    let text = text.trim_start();
    if text.len() > LONGEST_STATUS || text.starts_with(['*', '_', '"', '“', '>', '#']) {
        return false;
    }
    let start = beginning(text);
    let rest = STATUSES.iter().find_map(|status| start.strip_prefix(status));
    let goes_on =
        |rest: &str| rest.trim_start_matches([' ', ',', '-', '—', '–']).starts_with(char::is_alphanumeric);
    rest.is_some_and(|rest| !goes_on(rest.split('\n').next().unwrap_or_default()))
}

fn is_error_page(answer: &Answer, text: &str) -> bool {
    if !json::is_html(text) {
        return false;
    }
    let text = text.to_ascii_lowercase();
    let title = || text.split_once("<title>")?.1.split_once("</title>").map(|(title, _)| title);
    let is_status =
        |word: &str| word.len() == 3 && word.starts_with(['4', '5']) && word.parse::<u16>().is_ok();
    let mut said = title().into_iter();
    answer.is_body()
        || said.any(|title| {
            TITLES.iter().any(|words| title.contains(words))
                || title.split(|c: char| !c.is_alphanumeric()).any(is_status)
        })
}

fn is_error_object(answer: &Answer, start: &str) -> bool {
    const BESIDE: [&str; 7] = ["error", "status", "code", "message", "detail", "type", "request_id"];
    if !start.starts_with('{') || !start.contains("\"error\"") {
        return false;
    }
    let Some(fields) = answer.value().and_then(serde_json::Value::as_object) else { return false };
    let is_error = |error: &serde_json::Value| match error {
        serde_json::Value::String(text) => !json::is_blank(text),
        serde_json::Value::Object(error) => error.contains_key("message") || error.contains_key("code"),
        _ => false,
    };
    fields.get("error").is_some_and(is_error) && fields.keys().all(|key| BESIDE.contains(&&**key))
}
