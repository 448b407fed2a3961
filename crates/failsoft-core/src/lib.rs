//! The vocabulary that the Failsoft layers share.
//!
//! A call ends in an outcome. What that outcome *means* is decided once, by whoever reads it first, as a
//! [`Verdict`]; every layer acts on the verdict by its own small table. You need this crate by itself to write a
//! classifier, to read the errors and insights that the layers give, or to build a layer of your own.
//!
//! ```
//! use failsoft_core::{Class, Hint, Verdict};
//!
//! let verdict = Verdict::of_error(&std::io::Error::from(std::io::ErrorKind::ConnectionReset));
//! assert_eq!((verdict.class(), verdict.hint()), (Class::Transient, Hint::Same));
//! ```
//!
//! | to | look at |
//! |---|---|
//! | name what happened | [`Class`], [`Blame`], [`Verdict`], [`Hint`] |
//! | decide what happened | [`Classify`], [`Respond`], [`ByResponse`], [`ErrorsOnly`], [`classify_fn`] |
//! | read an error | [`Fault::find`] |
//! | read what was learnt of an answer | [`Insight`], [`Report`], [`Usage`], [`Degraded`] |
//! | bound a call and see its steps | [`Call`], [`Trail`] |
//! | send a request again | [`Replay`], [`Repeat`], [`Backoff`] |
//! | choose between targets | [`Health`] |
//! | keep state for each key in bounded memory | [`KeyMap`] |
//! | compare texts by what they say | [`Embed`], [`HashedNgrams`] |
//! | judge a text that should be JSON | `json` (feature `json`) |
//!
//! # Features
//!
//! `http` (default), `json`, `reqwest-013`, `tonic-014`, `tower-05`. They add, and never change what is there.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The README is tested with the crate.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

#[cfg(feature = "http")]
pub mod advice;
#[cfg(feature = "http")]
mod authority;
pub mod backoff;
mod bounds;
mod call;
#[cfg(feature = "http")]
mod call_layer;
mod carry;
mod class;
mod classify;
mod config;
mod degraded;
mod embed;
mod fault;
#[cfg(feature = "http")]
mod grpc;
mod health;
#[cfg(feature = "http")]
mod hold;
#[cfg(feature = "http")]
mod http;
mod insight;
#[cfg(feature = "json")]
pub mod json;
mod key_map;
mod ledger;
#[doc(hidden)]
pub mod lent;
mod observation;
mod observe;
mod replay;
mod report;
#[cfg(feature = "reqwest-013")]
mod reqwest;
#[cfg(feature = "http")]
mod respond;
#[cfg(feature = "http")]
mod sealed;
mod text;
mod tokens;
#[cfg(feature = "tonic-014")]
mod tonic;
mod trail;
mod usage;
mod verdict;
#[cfg(feature = "http")]
mod watched;

/// An error of any kind; the same type as tower's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[doc(hidden)]
pub use self::bounds::unbuilt;
#[doc(hidden)]
pub use self::call::pledge;
#[cfg(feature = "reqwest-013")]
pub use self::replay::KeptReqwest;
#[cfg(feature = "tonic-014")]
pub use self::tonic::to_status;
#[cfg(feature = "http")]
pub use self::{
    authority::Authority,
    bounds::UnpinBody,
    call_layer::{CallFuture, CallLayer, CallService, PutTrail, TRAIL_HEADER},
    grpc::{class_of_grpc_code, is_grpc, verdict_of_grpc},
    hold::{Gate, Held, Hold, ReadWhole, Rebody, Whole},
    http::{BodyJudge, class_of_status, is_encoded, verdict_of_body_error, verdict_of_head, with_headers},
    replay::{Buffered, KeptRequest, ReplayBody},
    respond::{RespondBody, RespondFuture, RespondLayer, Responding, error_response},
    sealed::is_sealed,
    watched::{GuardFn, Watched},
};
pub use self::{
    backoff::{Backoff, Jitter},
    bounds::{CloneService, IntoBoxError},
    call::{
        Blocker, Blockers, Call, CallOptions, Deferred, EnteredDeferred, Mark, OnClose, Reservation,
        Reserved, Scoped, TakenRetry, Told,
    },
    carry::{Carried, Carry, CarryLayer, TakesCarried, Uncarry, UncarryFuture, UncarryLayer},
    class::{Blame, Class, Denier, Limit, SoftKind},
    classify::{
        ByResponse, Classify, ClassifyFn, End, ErrorsOnly, Guard, Judge, NoBody, Respond, Seen, Step, Watch,
        classify_fn,
    },
    config::ConfigError,
    degraded::{DEGRADED_HEADER, Degraded, StandIn},
    embed::{Embed, EmbedFuture, EmbedWith, Embedding, HashedNgrams, NoEmbedding},
    fault::{Fault, FaultDetails, MAX_ANSWER},
    health::{Condition, Health},
    insight::{Alternative, Facts, Finish, Insight, Slow, ToolCall},
    key_map::{DEFAULT_KEYS, Evict, KeyMap, KeysFull, MAX_KEY, bounded_key},
    ledger::{Attempted, Closing, Slot},
    observation::Observation,
    observe::{NoTool, ObserveFuture, ObserveLayer, Observing, ToolFn, ToolOf},
    replay::{Auto, Cloned, Once, Repeat, Replay, Stamp},
    report::{Explained, Finding, MAX_FINDINGS, MAX_TEXT, Report, Severity},
    tokens::estimate_tokens,
    trail::{Attempt, Decision, MAX_ATTEMPTS, Next, Trail},
    usage::Usage,
    verdict::{Hint, Verdict},
};
