//! What a call holds of its circuit, without counting it up and down each time.
//!
//! A future cannot borrow from its service, so each call needs a reference of its own. To count it is two atomic
//! steps on one cache line, which threads that share a circuit take from each other: five times the price of all the
//! rest. So a thread keeps the reference of a call that ended and lends it to its next call on the same circuit.
//!
//! What is kept is not a handle: it keeps nobody listening, and the registry does not see it. A few circuits a
//! thread live a little longer than they would, until others take their places.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use crate::shared::Shared;

/// How many circuits a thread keeps a reference to; each has one place that it can be in.
const PLACES: usize = 4;

thread_local! {
    static KEPT: [Cell<Option<Arc<Shared>>>; PLACES] = const { [const { Cell::new(None) }; PLACES] };
}

/// Fibonacci hashing of the address.
#[inline]
fn place(shared: &Arc<Shared>) -> usize {
    let address = Arc::as_ptr(shared).addr() as u64;
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % PLACES
}

/// A reference for one call. It is there until it drops.
pub(crate) struct Lent(Option<Arc<Shared>>);

impl Lent {
    #[inline]
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        let kept = KEPT.try_with(|kept| kept[place(shared)].take()).ok().flatten();
        match kept {
            Some(kept) if Arc::ptr_eq(&kept, shared) => Self(Some(kept)),
            other => Self::counted(shared, other),
        }
    }

    #[cold]
    fn counted(shared: &Arc<Shared>, other: Option<Arc<Shared>>) -> Self {
        // of another circuit that has the same place: the one that is called last has it
        drop(other);
        Self(Some(Arc::clone(shared)))
    }

    /// A reference that is counted.
    pub(crate) fn to_counted(&self) -> Option<Arc<Shared>> {
        self.0.clone()
    }
}

impl Deref for Lent {
    type Target = Shared;

    #[inline]
    #[allow(clippy::expect_used, reason = "only the drop takes it")]
    fn deref(&self) -> &Shared {
        self.0.as_deref().expect("it is there until it drops")
    }
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        if shared.may_be_kept() {
            // where the thread is ending already, it is only counted down
            let other = KEPT.try_with(|kept| kept[place(&shared)].replace(Some(shared)));
            drop(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use failsoft_core::ErrorsOnly;

    use super::*;
    use crate::{BreakerLayer, Circuit};

    fn circuit() -> Circuit {
        BreakerLayer::builder().classify(ErrorsOnly).build().unwrap().circuit().clone()
    }

    #[test]
    fn the_next_call_of_a_thread_gets_what_the_last_one_held() {
        let circuit = circuit();
        let count = || Arc::strong_count(circuit.shared());
        drop(Lent::of(circuit.shared()));
        assert_eq!(count(), 2, "kept");
        let calls = (Lent::of(circuit.shared()), Lent::of(circuit.shared()));
        assert_eq!(count(), 3, "the first one was there, the second was counted");
        drop(calls);
        assert_eq!(count(), 2, "one is enough");
        std::thread::scope(|scope| scope.spawn(|| drop(Lent::of(circuit.shared()))).join().unwrap());
        assert_eq!(count(), 2, "a thread that ends keeps nothing");
    }

    #[test]
    fn of_many_circuits_a_thread_keeps_a_few() {
        let circuits: Vec<Circuit> = std::iter::repeat_with(circuit).take(100).collect();
        circuits.iter().for_each(|circuit| drop(Lent::of(circuit.shared())));
        let kept = circuits.iter().filter(|circuit| Arc::strong_count(circuit.shared()) > 1).count();
        assert!((1..=PLACES).contains(&kept), "{kept}");
    }

    #[test]
    fn a_circuit_of_a_key_is_not_kept() {
        let layer = BreakerLayer::builder().key_fn(|key: &&'static str| *key).build().unwrap();
        let circuit = layer.circuits().of("key");
        drop(Lent::of(circuit.shared()));
        assert_eq!(Arc::strong_count(circuit.shared()), 1);
    }

    #[test]
    fn who_listened_goes_with_the_last_handle_though_a_thread_keeps_the_circuit() {
        let circuit = circuit();
        let heard = Arc::new(());
        let hears = Arc::clone(&heard);
        circuit.subscribe(move |_| drop(Arc::clone(&hears))).forever();
        let call = Lent::of(circuit.shared());
        drop(circuit);
        assert_eq!(Arc::strong_count(&heard), 1);
        drop(call);
    }
}
