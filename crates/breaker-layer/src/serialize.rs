//! The JSON of snapshots, as documented at [`RegistrySnapshot`](crate::RegistrySnapshot#json).

use failsoft_core::Condition;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::engine::{Mode, Reason, Snapshot, State};
use crate::{CircuitSnapshot, KeyedSnapshot, RegistrySnapshot};

impl Serialize for RegistrySnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("circuits", &self.circuits)?;
        map.serialize_entry("keyed", &self.keyed)?;
        map.end()
    }
}

impl Serialize for CircuitSnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name.as_deref())?;
        let condition = match self.condition {
            Condition::Good => "good",
            Condition::Degraded => "degraded",
            Condition::Poor => "poor",
        };
        map.serialize_entry("condition", condition)?;
        fields(&self.snapshot, &mut map)?;
        map.end()
    }
}

impl Serialize for KeyedSnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name.as_deref())?;
        map.serialize_entry("keys", &self.keys)?;
        map.serialize_entry("capacity", &self.capacity)?;
        map.serialize_entry("evicted", &self.evicted)?;
        map.serialize_entry("overflowed", &self.overflowed)?;
        map.serialize_entry("closed", &self.closed)?;
        map.serialize_entry("half_open", &self.half_open)?;
        map.serialize_entry("open", &self.open)?;
        map.serialize_entry("forced_open", &self.forced_open)?;
        map.serialize_entry("circuits", &self.circuits)?;
        map.end()
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        fields(self, &mut map)?;
        map.end()
    }
}

fn fields<M: SerializeMap>(snapshot: &Snapshot, map: &mut M) -> Result<(), M::Error> {
    let counts = &snapshot.counts;
    map.serialize_entry("state", &snapshot.state)?;
    map.serialize_entry("mode", &snapshot.mode)?;
    map.serialize_entry("reason", &snapshot.reason)?;
    map.serialize_entry("time_in_state_ms", &millis(snapshot.time_in_state))?;
    map.serialize_entry("time_left_ms", &snapshot.time_left.map(millis))?;
    map.serialize_entry("consecutive_openings", &snapshot.consecutive_openings)?;
    map.serialize_entry("probes", &snapshot.probes)?;
    map.serialize_entry("calls", &counts.total)?;
    map.serialize_entry("failed", &counts.failed)?;
    map.serialize_entry("failed_weight", &counts.failed_weight)?;
    map.serialize_entry("failure_rate", &counts.failure_rate)?;
    map.serialize_entry("soft", &counts.soft)?;
    map.serialize_entry("soft_failure_rate", &counts.soft_failure_rate)?;
    map.serialize_entry("slow", &counts.slow)?;
    map.serialize_entry("slow_failed", &counts.slow_failed)?;
    map.serialize_entry("slow_rate", &counts.slow_rate)?;
    map.serialize_entry("refused", &counts.refused)?;
    map.serialize_entry("refused_in_all", &snapshot.refused_in_all)
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Enforcing => "enforcing",
            Self::Advisory => "advisory",
            Self::ObserveOnly => "observe_only",
            Self::ForcedOpen => "forced_open",
            Self::Disabled => "disabled",
        })
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
