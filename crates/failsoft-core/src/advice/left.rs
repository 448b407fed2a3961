//! What a server says it has left of its limits.

use std::{
    cmp::Ordering,
    time::{Duration, SystemTime},
};

use http::HeaderMap;

use super::{longest, parse_reset, remainder, structured, texts};

/// What a server says it has left, in its answers good or bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remaining {
    /// Of its limit on requests.
    pub requests: Option<Left>,
    /// Of its limit on tokens, of prompts and answers together.
    pub tokens: Option<Left>,
}

/// What is left of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// So many requests or tokens.
    pub left: u64,
    /// In how long the limit is reset, if the server says so. Above zero and at most [`LONGEST`](super::LONGEST).
    pub reset: Option<Duration>,
}

/// What a server says it has left of its limits on requests and tokens.
///
/// Understood are `x-ratelimit-remaining-NAME` with `x-ratelimit-reset-NAME`, the same with `ratelimit-`,
/// `anthropic-ratelimit-NAME-remaining` with `-reset`, and the structured `RateLimit` header. A name with `token` in it is one of tokens; without
/// a name, with `request` in it, and in the structured header it is one of requests; any other is neither. Of several limits the one with
/// least left counts. Limits on tokens of prompts and of answers apart (`input-tokens`, `output-tokens`) count where nothing is left of one
/// of them, and else with their sum where no limit on all of them is told. A limit whose reset is past, zero or unreadable says nothing any more.
///
/// ```
/// use std::time::Duration;
/// use failsoft_core::advice;
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("x-ratelimit-remaining-tokens", http::HeaderValue::from_static("1200"));
/// headers.insert("x-ratelimit-reset-tokens", http::HeaderValue::from_static("6m0s"));
/// let remaining = advice::remaining(&headers, advice::wall_clock());
/// let tokens = remaining.tokens.unwrap();
/// assert_eq!((tokens.left, tokens.reset), (1_200, Some(Duration::from_secs(360))));
/// assert_eq!(remaining.requests, None);
/// ```
#[must_use]
pub fn remaining(headers: &HeaderMap, now: SystemTime) -> Remaining {
    let mut limits = Limits::default();
    for name in headers.keys() {
        let name = name.as_str();
        if let Some((limit, reset)) = limit_of(name) {
            let Some(left) = remainder(headers, name) else { continue };
            let says = headers.contains_key(&reset);
            let reset = longest(headers, &reset, |text| parse_reset(text, now));
            if reset.is_some() || !says {
                limits.add(Counts::of(limit), left, reset);
            }
        } else if name == "ratelimit" {
            for text in texts(headers, name) {
                structured(text, now, |left, reset| {
                    if let Some(left) = left {
                        limits.add(Counts::Requests, left, reset);
                    }
                });
            }
        }
    }
    limits.remaining()
}

/// What a limit counts.
#[derive(Clone, Copy)]
enum Counts {
    Requests,
    Tokens,
    /// Tokens of prompts only.
    Prompts,
    /// Tokens of answers only.
    Answers,
    Others,
}

impl Counts {
    /// By the name of the limit, without that of its family.
    fn of(limit: &str) -> Self {
        let has = |what: &str| limit.contains(what);
        match limit {
            _ if has("token") && (has("input") || has("prompt")) => Self::Prompts,
            _ if has("token") && (has("output") || has("completion") || has("generated")) => Self::Answers,
            _ if has("token") => Self::Tokens,
            "" => Self::Requests,
            _ if has("request") => Self::Requests,
            _ => Self::Others,
        }
    }
}

/// The tightest limit of each kind.
#[derive(Default)]
struct Limits {
    requests: Option<Left>,
    tokens: Option<Left>,
    prompts: Option<Left>,
    answers: Option<Left>,
}

impl Limits {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and the cast saturates"
    )]
    fn add(&mut self, counts: Counts, left: f64, reset: Option<Duration>) {
        let place = match counts {
            Counts::Requests => &mut self.requests,
            Counts::Tokens => &mut self.tokens,
            Counts::Prompts => &mut self.prompts,
            Counts::Answers => &mut self.answers,
            Counts::Others => return,
        };
        *place = tightest(*place, Some(Left { left: left as u64, reset }));
    }

    fn remaining(self) -> Remaining {
        let Self { requests, tokens, prompts, answers } = self;
        let used_up = [prompts, answers].into_iter().map(|part| part.filter(|part| part.left == 0));
        let both = || {
            let (prompts, answers) = (prompts?, answers?);
            let reset = prompts.reset.zip(answers.reset).map(|(one, other)| one.max(other));
            Some(Left { left: prompts.left.saturating_add(answers.left), reset })
        };
        let tokens = used_up.fold(tokens.or_else(both), tightest);
        Remaining { requests, tokens }
    }
}

/// The one with less left, and of two with as much the one that is reset later.
fn tightest(one: Option<Left>, other: Option<Left>) -> Option<Left> {
    let (Some(first), Some(second)) = (one, other) else { return one.or(other) };
    let later = first.reset.is_none() || (second.reset.is_some() && first.reset >= second.reset);
    match first.left.cmp(&second.left) {
        Ordering::Less => one,
        Ordering::Greater => other,
        Ordering::Equal if later => one,
        Ordering::Equal => other,
    }
}

/// For the name of a header that says what remains, that of the limit within its family, and the header of its reset.
fn limit_of(name: &str) -> Option<(&str, String)> {
    for family in ["x-ratelimit", "ratelimit"] {
        if let Some(limit) = name.strip_prefix(family).and_then(|rest| rest.strip_prefix("-remaining")) {
            return Some((limit, format!("{family}-reset{limit}")));
        }
    }
    let limit = name.strip_prefix("anthropic-ratelimit-")?.strip_suffix("-remaining")?;
    Some((limit, format!("anthropic-ratelimit-{limit}-reset")))
}
