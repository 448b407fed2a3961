//! The circuits of a keyed layer, in bounded memory.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use failsoft_core::{KeyMap, bounded_key};

use crate::Circuit;
use crate::builder::Plan;
use crate::engine::Transition;
use crate::events;
use crate::listeners::{Listeners, Subscription};
use crate::metrics::GroupMeters;

/// A handle on the circuits that the services of one [`KeyedBreakerLayer`](crate::KeyedBreakerLayer) share. Clones
/// are the same circuits.
///
/// There are at most [`capacity`](Self::capacity) keys. For a new one the least recently used goes, and what its
/// circuit had counted; but not a circuit that is open or half-open, that has a call in flight, whose mode was
/// switched by hand, or that somebody holds. Where none can go, new keys share the [`overflow`](Self::overflow)
/// circuit: they stay protected, only together.
///
/// A key longer than [256 bytes](failsoft_core::MAX_KEY) is kept, and shown, as its beginning and a hash of the whole.
#[derive(Clone)]
pub struct Circuits(Arc<Shared>);

struct Shared {
    by_key: KeyMap<Arc<str>, Circuit>,
    overflow: Arc<Circuit>,
    group: Arc<Group>,
    plans: Plans,
    /// It was told that keys overflow.
    overflows: AtomicBool,
}

/// What the circuits of one layer have in common.
pub(crate) struct Group {
    name: Option<Arc<str>>,
    listeners: Listeners<Listener>,
    pub(crate) meters: GroupMeters,
}

type Listener = dyn Fn(&Circuit, &Transition) + Send + Sync;

/// How to make the circuit of a key.
pub(crate) struct Plans {
    pub(crate) usual: Plan,
    /// The last that fits wins.
    pub(crate) overrides: Vec<(Fits, Plan)>,
    pub(crate) name_of: Option<Arc<NameOf>>,
}

pub(crate) type NameOf = dyn Fn(&str) -> String + Send + Sync;

/// Which keys something is for.
#[derive(Clone)]
pub(crate) enum Fits {
    Key(Arc<str>),
    Keys(Arc<dyn Fn(&str) -> bool + Send + Sync>),
}

impl Circuits {
    pub(crate) fn new(capacity: usize, plans: Plans, meters: GroupMeters) -> Self {
        let group =
            Arc::new(Group { name: plans.usual.name.clone(), listeners: Listeners::default(), meters });
        let overflow = plans.usual.circuit(group.name_of("(overflow)"), &group);
        Self(Arc::new(Shared {
            by_key: KeyMap::refusing(capacity),
            overflow: Arc::new(overflow),
            group,
            plans,
            overflows: AtomicBool::new(false),
        }))
    }

    /// The name of the layer.
    pub fn name(&self) -> Option<&str> {
        self.0.group.name.as_deref()
    }

    /// The circuit of a key, if there is one. The key counts as used.
    pub fn get(&self, key: &str) -> Option<Circuit> {
        self.0.by_key.get(&*bounded_key(key)).map(|circuit| Circuit::clone(&circuit))
    }

    /// The circuit of a key, made where there is none: to steer it before its first call. As long as the handle is
    /// held, the key is not forgotten.
    pub fn of(&self, key: &str) -> Circuit {
        Circuit::clone(&self.circuit(key))
    }

    /// What new keys share while there is no room for them.
    pub fn overflow(&self) -> &Circuit {
        &self.0.overflow
    }

    /// All keys and their circuits, in no order. It looks at all of them, for reports.
    pub fn entries(&self) -> Vec<(Arc<str>, Circuit)> {
        let entries = self.0.by_key.entries().into_iter();
        entries.map(|(key, circuit)| (key, Circuit::clone(&circuit))).collect()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.by_key.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.by_key.is_empty()
    }

    /// How many keys fit.
    pub fn capacity(&self) -> usize {
        self.0.by_key.capacity()
    }

    /// How many keys were forgotten for a new one.
    pub fn evicted(&self) -> u64 {
        self.0.by_key.evicted()
    }

    /// How many calls went to the overflow circuit because their new key found no room.
    pub fn overflowed(&self) -> u64 {
        self.0.by_key.turned_away()
    }

    /// Calls `listener` with each transition of each circuit, also of those that are yet to come; see
    /// [`Circuit::subscribe`] for how.
    #[must_use = "it listens until this is dropped; `forever` keeps it"]
    pub fn subscribe(
        &self,
        listener: impl Fn(&Circuit, &Transition) + Send + Sync + 'static,
    ) -> Subscription {
        let id = self.0.group.listeners.add(Arc::new(listener));
        let group = Arc::downgrade(&self.0.group);
        Subscription::new(move || {
            if let Some(group) = group.upgrade() {
                group.listeners.remove(id);
            }
        })
    }

    /// Does not keep them alive.
    pub(crate) fn downgrade(&self) -> WeakCircuits {
        WeakCircuits(Arc::downgrade(&self.0))
    }

    pub(crate) fn target(&self) -> Option<Arc<str>> {
        self.0.group.name.clone()
    }

    /// The circuit for a call.
    pub(crate) fn circuit(&self, key: &str) -> Arc<Circuit> {
        // the usual call makes no key of its own
        let kept = bounded_key(key);
        if let Some(circuit) = self.0.by_key.get(&*kept) {
            return circuit;
        }
        self.circuit_of_new(key, &kept)
    }

    #[cold]
    fn circuit_of_new(&self, key: &str, kept: &str) -> Arc<Circuit> {
        let shared = &*self.0;
        let made = shared.by_key.get_or_insert_with(kept.into(), || shared.plans.circuit(key, &shared.group));
        let overflows = made.is_err();
        if shared.overflows.swap(overflows, Ordering::Relaxed) != overflows && overflows {
            events::keys_overflow(self.name(), self.capacity());
        }
        shared.group.meters.keys(self.name(), &shared.by_key);
        made.unwrap_or_else(|_| Arc::clone(&shared.overflow))
    }
}

/// Circuits that may be gone.
pub(crate) struct WeakCircuits(Weak<Shared>);

impl WeakCircuits {
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn upgrade(&self) -> Option<Circuits> {
        self.0.upgrade().map(Circuits)
    }
}

impl PartialEq for WeakCircuits {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Plans {
    fn circuit(&self, key: &str, group: &Arc<Group>) -> Circuit {
        let plan = self
            .overrides
            .iter()
            .rev()
            .find(|(fits, _)| fits.fits(key))
            .map_or(&self.usual, |(_, plan)| plan);
        let name = match (&self.name_of, &plan.name) {
            // an override may give a name of its own
            (_, Some(name)) if self.usual.name.as_ref() != Some(name) => Some(Arc::clone(name)),
            (Some(name_of), _) => group.name_of(&name_of(key)),
            (None, _) => group.name_of(key),
        };
        plan.circuit(name, group)
    }
}

impl Plan {
    fn circuit(&self, name: Option<Arc<str>>, group: &Arc<Group>) -> Circuit {
        Circuit::new(
            Arc::clone(&self.settings),
            name,
            Arc::clone(&self.table),
            Some(Arc::clone(group)),
            false,
        )
    }
}

impl Group {
    /// What a circuit is called: the layer's name, and what the key is called.
    fn name_of(&self, key: &str) -> Option<Arc<str>> {
        let key = &*bounded_key(key);
        match &self.name {
            Some(name) if key.is_empty() => Some(Arc::clone(name)),
            Some(name) => Some(format!("{name}/{key}").into()),
            None if key.is_empty() => None,
            None => Some(key.into()),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn listeners(&self) -> Vec<Arc<Listener>> {
        self.listeners.all()
    }
}

impl Fits {
    fn fits(&self, key: &str) -> bool {
        match self {
            Self::Key(only) => **only == *key,
            Self::Keys(fits) => fits(key),
        }
    }
}

impl fmt::Debug for Circuits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuits")
            .field("name", &self.name())
            .field("by_key", &self.0.by_key)
            .finish_non_exhaustive()
    }
}
