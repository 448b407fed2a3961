//! What one wants to know before the first stack is in production, by question. There is no code in here but examples.
//!
//! | you ask | read |
//! |---|---|
//! | which layer goes around which, and where do tower's own go? | [`order`] |
//! | what becomes of an answer that comes in pieces? | [`streams`] |
//! | how do the layers learn what my service's outcomes mean? | [`classifier`] |
//! | I have tower's retry: what becomes of my policy? | [`from_tower_retry`] |
//! | I have reqwest-retry: what becomes of it? | [`from_reqwest_retry`] |
//! | I have tower-resilience: what becomes of its layers? | [`from_tower_resilience`] |
//! | many processes call one provider: what must they share? | [`sharing`] |
//! | how do I bring it into a service that runs? | [`adopting`] |
//! | which risks of a list that somebody handed me does it answer? | [`risks`] |

pub mod adopting;
pub mod classifier;
pub mod from_reqwest_retry;
pub mod from_tower_resilience;
pub mod from_tower_retry;
pub mod order;
pub mod risks;
pub mod sharing;
pub mod streams;
