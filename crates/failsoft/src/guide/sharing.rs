//! When to stay in process, and when to share state.
//!
//! Everything these layers know is in the layer's value, and all services made of it share that: clones, connections, routes of a router, threads. Between
//! processes nothing is shared but budgets, and those only where you give them a store. That is right more often than it seems: each process sees the target through its own connections, decides in
//! nanoseconds, and no store can take it down.
//!
//! | state | with `n` processes, nothing shared | stay in process | share it when |
//! |---|---|---|---|
//! | circuit | each learns by itself: `n` times `min_calls` failures until all have opened, `n` times 3 probes | almost always: an outage is seen by each within `min_calls` of its own calls | a process makes too few calls to see a rate: fewer than `min_calls`, 10, in the window, a minute |
//! | retry budget | the share of calls holds for the sum as it holds for each; the 10 a second are `n` times 10 | always; with many processes lower `min_per_sec` to 10 / `n` | never |
//! | the server's advice | each is told by its own 429 | as long as the provider tells each | one is told, and the others are punished for not knowing |
//! | spend of a session | a session that moves between processes has `n` budgets | where a session stays with its process: then carry it over a restart | it moves, or the limit is a tenant's: [`store`](crate::budget::BudgetBuilder::store) |
//! | rate or concurrency of a credential | the sum may be `n` times the limit | where `limit / n` for each is good enough | traffic is uneven, and one starves while others have room: `store` again |
//! | last good answers, cache | each keeps its own; a miss costs a call | small and warm | answers are dear and asked for everywhere: put an HTTP cache in front |
//! | stickiness | follows from who comes to which process | where the load balancer is sticky by the same key | |
//!
//! # What to do first
//!
//! | need | do |
//! |---|---|
//! | one limit for all, and a database is there | [`Leases`](crate::budget::Leases) from a [`Store`](crate::budget::Store) of yours: each process reserves from what it has leased, without asking for most calls, and all together never spend more than there is |
//! | one limit for all, and none is there | send the calls through one process: a gateway, such as the example `axum-server`, in which the layers stand |
//! | a hard limit with a few processes | divide it, and leave the provider's own limit as the last line |
//! | a session survives a restart | [`Ledger::save`](crate::budget::Ledger::save) and [`load`](crate::budget::Ledger::load), or those of a [`Budget`](crate::budget::Budget::save): limits that were set go with it, and those of the configuration follow the new one |
//! | an operator shuts a target everywhere | [`Circuit::set_mode`](crate::breaker::Circuit::set_mode), called by what each process already listens to: its configuration, a topic |
//! | a fresh process must not find out anew | start its circuit open where another one's [`Registry`](crate::breaker::Registry) says so: [`Circuit::open_for`](crate::breaker::Circuit::open_for) |
//!
//! A session carried over a restart:
//!
//! ```
//! use failsoft::budget::BudgetLayer;
//!
//! # fn main() -> Result<(), failsoft::core::ConfigError> {
//! let layer = || BudgetLayer::builder().calls(10).key_fn(|request: &http::Request<String>| request.uri().path().to_owned()).build();
//!
//! let before = layer()?;
//! let session = before.ledger().open("session-7").expect("there is room for it");
//! let kept = session.save(); // with the feature `serde` to a file, or a row
//!
//! let after = layer()?; // the next process
//! after.ledger().open("session-7").expect("there is room for it").load(&kept);
//! # Ok(())
//! # }
//! ```
//!
//! Shared state has a price that local state has not: a store that is slow or gone is now on the path of calls, and somebody must decide what happens then.
//! For budgets that is a [`StoreFailure`](crate::budget::StoreFailure): deny, allow for a while, or allow a little. Circuits have no store, and that is
//! meant: what a circuit protects is a process's own calls, and its own calls tell it.
