//! What the free text of an error may say, where it may say anything.
//!
//! Only whole phrases that servers are known to send count: a message may repeat parts of the request, so neither a
//! number nor a lone word decides.

use failsoft_core::Class;

use crate::lens;

/// Only the start of a message is looked at; servers put what matters first.
const MAX_BYTES: usize = 4096;

/// Narrows a 400.
pub(super) fn of_bad_request(message: &str) -> Option<Class> {
    let text = lower(message);
    if any(&text, QUOTA) {
        Some(Class::Quota)
    } else if any(&text, AUTH) {
        Some(Class::Auth)
    } else if any(&text, MODEL) || names_a_missing_model(&text) {
        Some(Class::ModelNotFound)
    } else if any(&text, REFUSED) {
        Some(Class::Refused)
    } else if any(&text, CONTEXT) && !any(&text, THROTTLE) {
        Some(Class::ContextLength)
    } else {
        None
    }
}

/// Narrows a 404: whether it is the model that is missing, or only the path.
pub(super) fn of_not_found(message: &str) -> Option<Class> {
    let text = lower(message);
    // The path itself may have such a word in it.
    let is_path = any(&text, WRONG_PATH);
    (!is_path && any(&text, &["model", "deployment", "engine"])).then_some(Class::ModelNotFound)
}

/// Narrows a 429.
pub(super) fn of_rate_limit(message: &str) -> Option<Class> {
    let text = lower(message);
    if any(&text, QUOTA) || any(&text, LONG_LIMIT) {
        Some(Class::Quota)
    } else if any(&text, OVERLOADED) {
        Some(Class::Overloaded)
    } else {
        None
    }
}

/// Whether a limit is one by the day or by the month.
pub(super) fn is_long_limit(message: &str) -> bool {
    any(&lower(message), LONG_LIMIT)
}

/// Whether a rate limit is one that this very request can never pass.
pub(super) fn never_fits(message: &str) -> bool {
    lower(message).lines().any(|line| line.starts_with("request too large"))
}

/// Of a request whose prompt fits and whose limit of tokens for the answer does not fit beside it: how many tokens the
/// prompt takes, and how many the model has room for. A smaller limit is the cure.
///
/// Anthropic: ``input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000``.
pub(super) fn prompt_and_window(message: &str) -> Option<(u64, u64)> {
    let text = lower(message);
    let (_, sum) = text.split_once("`max_tokens` exceed context limit:")?;
    let (prompt, rest) = sum.split_once('+')?;
    let (_, window) = rest.split_once('>')?;
    let window = window.trim_start();
    let end = window.find(|c: char| !c.is_ascii_digit()).unwrap_or(window.len());
    let (prompt, window) = (prompt.trim().parse().ok()?, window.get(..end)?.parse().ok()?);
    (prompt < window).then_some((prompt, window))
}

/// What the server says, in lower case: what it repeats of the request says whoever wrote that.
fn lower(message: &str) -> String {
    let mut text = lens::head(message, MAX_BYTES).to_ascii_lowercase();
    let repeats = REPEATS.iter().filter_map(|before| text.find(before)).min();
    text.truncate(repeats.unwrap_or(text.len()));
    text
}

fn any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// `The model 'x' does not exist`, `model 'x' not found`, `models/x is not found`.
fn names_a_missing_model(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.strip_prefix("the ").unwrap_or(line);
        line.starts_with("model") && any(line, &["not exist", "not found"])
    })
}

/// Behind one of these comes what did not pass a validator, as pydantic writes it in the answers of vLLM and other servers that stand
/// on FastAPI.
const REPEATS: &[&str] = &["'input':", "\"input\":", "input_value="];

const QUOTA: &[&str] = &[
    "credit balance is too low",
    "reached your specified api usage limits",
    "exceeded your current quota",
    "check your plan and billing",
    "billing hard limit",
    "insufficient balance",
    "insufficient credits",
    "insufficient quota",
    "requires more credits",
    "out of credits",
    "no credits left",
];

/// Limits that a call cannot wait for.
const LONG_LIMIT: &[&str] =
    &["per-day", "per day", "daily limit", "daily quota", "weekly usage limit", "per month", "monthly limit"];

/// It is the path that is missing.
const WRONG_PATH: &[&str] = &[
    "unknown request url",
    "invalid url",
    "no route",
    "route not found",
    "path not found",
    "cannot get /",
    "cannot post /",
];

const OVERLOADED: &[&str] = &[
    "overloaded",
    "capacity exceeded",
    "at capacity",
    "no capacity",
    "not enough capacity",
    "experiencing high demand",
    "model is not ready",
    "model not ready",
];

const AUTH: &[&str] =
    &["api key not valid", "invalid api key", "incorrect api key", "api key is invalid", "api key expired"];

const MODEL: &[&str] = &[
    "is not a valid model",
    "invalid model name",
    "invalid model id",
    "unknown model",
    "no such model",
    // Bedrock.
    "provided model identifier is invalid",
    "with on-demand throughput isn",
    "model not found",
    "model_not_found",
    "model not exist",
    "model has been decommissioned",
];

const REFUSED: &[&str] = &[
    "content management policy",
    "content policy",
    "content filter",
    "our usage policy",
    "our safety system",
    "inappropriate content",
    "content exists risk",
    "input flagged",
];

const CONTEXT: &[&str] = &[
    "maximum context length",
    "exceeds the context window",
    "context window exceeds limit",
    "context length exceeded",
    "model's context length",
    "exceeds the available context size",
    "greater than the context length",
    "exceed context limit",
    "exceeds the maximum number of tokens allowed",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "reduce the length of the messages",
    "exceeded model token limit",
    "range of input length should be",
    // The prompt left no room: what remains for the answer is negative.
    "max_tokens must be at least 1, got -",
];

/// Words of a throttle: with one of these, "too long" is about a rate.
const THROTTLE: &[&str] = &["throttl", "rate limit", "rate_limit", "too many requests"];
