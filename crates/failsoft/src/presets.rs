//! Whole stacks in one expression. Each is a value that holds the builders of its layers; what it starts from is in its
//! docs, and any of it can be changed before `build`.
//!
//! | preset | its layers, from the outside | for |
//! |---|---|---|
//! | `HostedModel` | retry, breaker, validate, llm | a model behind somebody's API |
//! | `Tool` | retry, breaker | a tool that an agent calls over HTTP |
//! | `Server` | respond, call, breaker | a route of your own server, such as axum's |
//!
//! Each is there when the features of its layers are on. The layers are those of their crates, in the order that the README of the project gives reasons for; a fallback and a
//! budget go around one or several of these stacks, because they are shared by them.

#[cfg(all(feature = "breaker", feature = "llm", feature = "retry", feature = "validate"))]
mod hosted_model;
#[cfg(feature = "breaker")]
mod server;
#[cfg(all(feature = "breaker", feature = "retry"))]
mod tool;

#[cfg(all(feature = "breaker", feature = "llm", feature = "retry", feature = "validate"))]
pub use self::hosted_model::{HostedModel, HostedModelLayer};
#[cfg(feature = "breaker")]
pub use self::server::{Server, ServerLayer};
#[cfg(all(feature = "breaker", feature = "retry"))]
pub use self::tool::{Tool, ToolLayer};
