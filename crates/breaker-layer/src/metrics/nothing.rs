//! Without the feature nothing is counted.

use failsoft_core::{Class, KeyMap};

use crate::engine::{Outcome, Refusal, State, Transition};
use crate::shared::Shared;

#[derive(Default)]
pub(crate) struct Meters;

#[allow(clippy::unused_self, reason = "as with the feature")]
impl Meters {
    #[inline]
    pub(crate) const fn success(&self, _: &Shared) {}
    pub(crate) const fn outcome(&self, _: &Shared, _: Class, _: Outcome, _: bool) {}
    pub(crate) const fn rates(&self, _: &Shared) {}
    pub(crate) const fn probe(&self, _: &Shared, _: &'static str) {}
    pub(crate) const fn refused(&self, _: &Shared, _: &Refusal) {}
    pub(crate) const fn transition(&self, _: &Shared, _: &Transition) {}
}

pub(crate) struct GroupMeters;

#[allow(clippy::unused_self, reason = "as with the feature")]
impl GroupMeters {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) const fn entered(&self, _: Option<&str>, _: State, _: f64) {}
    pub(crate) const fn keys<K, V>(&self, _: Option<&str>, _: &KeyMap<K, V>) {}
}
