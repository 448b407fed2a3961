//! Without the feature nothing is counted.

use failsoft_core::{Class, KeyMap};

use crate::Circuit;
use crate::engine::{Outcome, Refusal, State, Transition};

#[derive(Default)]
pub(crate) struct Meters;

#[allow(clippy::unused_self, reason = "as with the feature")]
impl Meters {
    #[inline]
    pub(crate) const fn success(&self, _: &Circuit) {}
    pub(crate) const fn outcome(&self, _: &Circuit, _: Class, _: Outcome, _: bool) {}
    pub(crate) const fn rates(&self, _: &Circuit) {}
    pub(crate) const fn probe(&self, _: &Circuit, _: &'static str) {}
    pub(crate) const fn refused(&self, _: &Circuit, _: &Refusal) {}
    pub(crate) const fn transition(&self, _: &Circuit, _: &Transition) {}
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
