//! What happened: the [`Class`] of an outcome, and who is to [`Blame`] for it.
//!
//! A class is the common tongue of the layers: whoever reads an outcome first gives it a class, and every layer
//! acts on it by its own small table.
//!
//! ```
//! use failsoft_core::{Blame, Class, SoftKind};
//!
//! let class = Class::Soft(SoftKind::Truncated);
//! assert_eq!(class.blame(), Blame::Target);
//! assert_eq!(class.to_string(), "soft.truncated");
//! ```

use std::fmt;

/// What happened in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The answer is good as far as anyone has looked.
    Success,
    /// A fault that may pass: most 5xx, 409, 425, a reset, TLS, DNS, a cut body, HTML instead of JSON.
    Transient,
    /// The target has no capacity now: 503, 529, 498, a model that is not ready.
    Overloaded,
    /// A limit of time fired, or the server said 408.
    Timeout(Limit),
    /// The caller's rate is too high: 429, `RESOURCE_EXHAUSTED`.
    RateLimited,
    /// Money or a long-term allowance is used up: 402, `insufficient_quota`.
    Quota,
    /// The credential is refused: 401, 403.
    Auth,
    /// The target does not have that model.
    ModelNotFound,
    /// The prompt is too long for this model.
    ContextLength,
    /// The content was refused: a filter, a refusal, moderation.
    Refused,
    /// The request is wrong: the other 4xx, and 3xx.
    Invalid,
    /// The answer came, and is wrong.
    Soft(SoftKind),
    /// An error that nobody recognises.
    Unknown,
    /// Dropped by the caller before the end was seen.
    Cancelled,
    /// One of our own layers said no; nothing was sent.
    Denied(Denier),
}

impl Class {
    /// Who is to blame when nothing more is known than the class.
    #[must_use]
    pub const fn blame(self) -> Blame {
        match self {
            Self::Transient | Self::Overloaded | Self::Timeout(_) | Self::Soft(_) | Self::Unknown => {
                Blame::Target
            }
            Self::Quota => Blame::Account,
            Self::Auth | Self::ModelNotFound => Blame::Credential,
            Self::ContextLength | Self::Invalid => Blame::Caller,
            Self::Success | Self::RateLimited | Self::Refused | Self::Cancelled | Self::Denied(_) => {
                Blame::Nobody
            }
        }
    }

    /// Whether this is [`Class::Success`].
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }

    /// Whether one of our own layers refused the call, so that nothing was sent.
    #[must_use]
    pub const fn is_denied(self) -> bool {
        matches!(self, Self::Denied(_))
    }

    /// A short stable name, for logs, labels and headers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Transient => "transient",
            Self::Overloaded => "overloaded",
            Self::Timeout(Limit::Connect) => "timeout.connect",
            Self::Timeout(Limit::FirstContent) => "timeout.first_content",
            Self::Timeout(Limit::Idle) => "timeout.idle",
            Self::Timeout(Limit::Total) => "timeout.total",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::Auth => "auth",
            Self::ModelNotFound => "model_not_found",
            Self::ContextLength => "context_length",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
            Self::Soft(SoftKind::Truncated) => "soft.truncated",
            Self::Soft(SoftKind::Empty) => "soft.empty",
            Self::Soft(SoftKind::Malformed) => "soft.malformed",
            Self::Soft(SoftKind::Schema) => "soft.schema",
            Self::Soft(SoftKind::MissingField) => "soft.missing_field",
            Self::Soft(SoftKind::ToolCall) => "soft.tool_call",
            Self::Soft(SoftKind::UnknownTool) => "soft.unknown_tool",
            Self::Soft(SoftKind::LeakedToolCall) => "soft.leaked_tool_call",
            Self::Soft(SoftKind::Repetition) => "soft.repetition",
            Self::Soft(SoftKind::LowConfidence) => "soft.low_confidence",
            Self::Soft(SoftKind::Drift) => "soft.drift",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
            Self::Denied(Denier::Circuit) => "denied.circuit",
            Self::Denied(Denier::Budget) => "denied.budget",
            Self::Denied(Denier::Loop) => "denied.loop",
            Self::Denied(Denier::Quarantine) => "denied.quarantine",
            Self::Denied(Denier::Rail) => "denied.rail",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which limit of time fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The connection did not come up in time; nothing was sent.
    Connect,
    /// No content came in time, counted from the call.
    FirstContent,
    /// The answer stalled between two pieces of content.
    Idle,
    /// The whole attempt took too long.
    Total,
}

/// In which way an answer that came is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SoftKind {
    /// Cut short, or far shorter than what was asked for.
    Truncated,
    /// Nothing in it, or nothing but reasoning.
    Empty,
    /// Not what its format promises, such as text that is no JSON.
    Malformed,
    /// Well formed, but not of the shape that was asked for.
    Schema,
    /// A required field is missing or null.
    MissingField,
    /// A tool call whose arguments cannot be used.
    ToolCall,
    /// A call of a tool that was not offered.
    UnknownTool,
    /// A tool call left as text in the content.
    LeakedToolCall,
    /// The answer repeats itself.
    Repetition,
    /// Several small findings that together leave little trust.
    LowConfidence,
    /// Far from what good answers of this kind look like.
    Drift,
}

/// Which of our own layers refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Denier {
    /// An open circuit.
    Circuit,
    /// A budget with nothing left.
    Budget,
    /// A detected loop.
    Loop,
    /// A quarantined request.
    Quarantine,
    /// A rail: a rule on what may be asked, such as a forbidden tool.
    Rail,
}

/// Who is to blame for a failure: what a breaker asks before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Blame {
    /// The target failed.
    Target,
    /// The account at the target is out of money or allowance; another account may work.
    Account,
    /// The credential does not allow it; another credential may.
    Credential,
    /// The caller asked for something wrong, or for an answer in too little time.
    Caller,
    /// Nobody.
    Nobody,
}
