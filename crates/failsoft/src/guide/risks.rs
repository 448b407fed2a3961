//! Which risks each layer answers, and which none does.
//!
//! Two lists that one is asked about: the OWASP Top 10 for LLM Applications, 2025, and the MAST taxonomy of how systems of several agents fail (Cemri et
//! al., 2025). A layer sees requests and answers, not intentions: it bounds what a failure can do, and finds what is wrong by form. Where a row says
//! *part*, what is left is said, and it is yours.
//!
//! # A system prompt is no guard
//!
//! "Never call `delete_database`" in a prompt is a wish: the model reads it beside whatever else it reads, and whoever writes that can talk it out of it. A
//! rule holds when something outside of the model holds it. So each row names code that runs whatever the model says:
//!
//! ```
//! use failsoft::core::{BoxError, Class, Denier, Fault, ToolCall};
//! use failsoft::validate::{Answer, Asked, Rails, ValidateLayer};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let rails = Rails::new().forbid(["delete_database"]);
//! let layer = ValidateLayer::values(|result: &String| Answer::new(result.as_str()))
//!     .asked_fn(|call: &ToolCall| Asked::new().with_call(call.clone()))
//!     .rails(rails)
//!     .build()?;
//! let tools = ServiceBuilder::new().layer(layer).service_fn(async |_: ToolCall| Ok::<_, BoxError>("done".to_owned()));
//!
//! let refused = tools.oneshot(ToolCall::new("delete_database", "{}")).await.unwrap_err();
//! assert_eq!(Fault::find(&*refused).unwrap().class(), Class::Denied(Denier::Rail));
//! # Ok(())
//! # }
//! ```
//!
//! # OWASP Top 10 for LLM Applications, 2025
//!
//! | risk | answered by | how far |
//! |---|---|---|
//! | LLM01 Prompt injection | validate: [`Rails`](crate::validate::Rails) on which tools may be called, with which arguments | part: what an injected instruction can *do* is bounded; that it is read is not prevented |
//! | LLM02 Sensitive information disclosure | validate: `must_not_match` on answers (feature `regex`); no layer logs prompts, answers or keys; caches have a scope that must be said | part: by pattern only |
//! | LLM03 Supply chain | none of the layers. Of this project itself: `deny.toml`, few dependencies, no `unsafe` | no |
//! | LLM04 Data and model poisoning | validate: [`Drift`](crate::validate::Drift) tells that answers are unlike the good ones before | part: it tells, late, and does not know why |
//! | LLM05 Improper output handling | validate: strict JSON, schemas, tool calls against what was offered; nothing is repaired, and a wrong answer is an error before anyone acts on it | by form. Escaping for the place where it goes (HTML, SQL, a shell) is yours |
//! | LLM06 Excessive agency | validate: rails; budget: calls, money and time for each session and tool; retry: what may have been done is not done again | part: what a tool itself may do is its credential's business |
//! | LLM07 System prompt leakage | validate: `must_not_match`. Better: nothing secret in it, because it is no guard | part |
//! | LLM08 Vector and embedding weaknesses | validate: checks on vectors ([`checks::Embedding`](crate::validate::checks::Embedding)): length, zeros, numbers that are none; fallback's cache keeps tenants apart | part: not who may read which document |
//! | LLM09 Misinformation | validate: a [`Judge`](crate::validate::Judge), confidence, checks of your own | part: as good as the judge |
//! | LLM10 Unbounded consumption | budget: tokens, money, calls, time, calls at once, reserved before and settled after; retry budget; breaker; limits on streams and bodies | yes; over several processes as [`sharing`](super::sharing) says |
//!
//! # MAST, failures of several agents together
//!
//! | failure mode | answered by | how far |
//! |---|---|---|
//! | 1.1 disobeys the task, 1.2 disobeys its role | validate: schemas, required fields, rails, a judge | what can be said as a rule |
//! | 1.3 repeats steps | validate: an answer that goes round in circles; budget: the session's limit ends the loop, [`pause_above`](crate::budget::BudgetBuilder::pause_above) sooner | circles in one answer; across answers it is bounded, not found |
//! | 1.4 loses the conversation | llm: `ContextLength` as a class; fallback: a larger window, or a [pruned](crate::fallback::adapt::chat::prune) request | it is told apart from other failures |
//! | 1.5 does not know when to stop | budget: the soft line, the denial that tells the model to conclude, the closing reserve in which it can | yes |
//! | 2.1 starts over, 2.3 loses the thread | – | no: agents' own state |
//! | 2.2 does not ask back, 2.4 withholds, 2.5 ignores what another said | – | no |
//! | 2.6 says one thing and does another | validate: tool calls left in the text, unknown or malformed ones; [`mutations`](crate::validate::Rails::mutations), a change that answered with nothing | by form |
//! | 3.1 ends too early | llm and validate: cut answers, empty ones, nothing but reasoning; a stream without its end | yes |
//! | 3.2 verifies nothing, 3.3 verifies wrongly | validate stands on the path of every answer, and its verdict is what retry, breaker and fallback act on | as good as its checks |
//! | a failed tool read as a result | [`ObserveLayer`](crate::core::ObserveLayer): refused and failed calls as structured observations | yes; not of the list, and the most common |
//! | one agent's outage becomes everybody's | breaker and fallback for each route; retry budget; [`Call::isolated`](crate::core::CallOptions::isolated) for nested agents | yes; not of the list either |
