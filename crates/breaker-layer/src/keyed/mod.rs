//! A circuit for each key.

mod builder;
mod circuits;
mod key;
mod layer;
mod service;

pub(crate) use self::circuits::{Group, WeakCircuits};
#[cfg(feature = "http")]
pub use self::key::ByAuthority;
pub use self::{
    builder::Keys,
    circuits::Circuits,
    key::{KeyFn, KeyRef, Keyed, OneForAll},
    layer::KeyedBreakerLayer,
    service::KeyedBreaker,
};
