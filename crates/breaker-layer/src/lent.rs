//! A call's reference to its circuit, see [`failsoft_core::lent`].
//!
//! What a thread keeps is not a handle: it keeps nobody listening, and the registry does not see it.

use failsoft_core::lent::{Kept, Lend, Place};

use crate::shared::Shared;

pub(crate) type Lent = failsoft_core::lent::Lent<Shared>;

thread_local! {
    static KEPT: Kept<Shared> = const { Kept::new() };
}

impl Lend for Shared {
    #[inline]
    fn place(&self) -> Place {
        self.place
    }

    /// Not where its calls in flight are counted.
    #[inline]
    fn may_be_kept(&self) -> bool {
        self.group().is_none()
    }

    #[inline(always)]
    fn with_kept<T>(f: impl FnOnce(&Kept<Self>) -> T) -> Option<T> {
        KEPT.try_with(f).ok()
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use std::sync::Arc;

    use failsoft_core::ErrorsOnly;

    use super::*;
    use crate::BreakerLayer;

    #[test]
    fn the_circuit_of_a_layer_is_kept_and_that_of_a_key_is_not() {
        let layer = BreakerLayer::builder().classify(ErrorsOnly).build().unwrap();
        let keyed = BreakerLayer::builder().key_fn(|key: &&'static str| *key).build().unwrap();
        let counts = [layer.circuit().clone(), keyed.circuits().of("key")].map(|circuit| {
            drop(Lent::of(circuit.shared()));
            Arc::strong_count(circuit.shared())
        });
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn who_listened_goes_with_the_last_handle_though_a_thread_keeps_the_circuit() {
        let circuit = BreakerLayer::builder().classify(ErrorsOnly).build().unwrap().circuit().clone();
        let heard = Arc::new(());
        let hears = Arc::clone(&heard);
        circuit.subscribe(move |_| drop(Arc::clone(&hears))).forever();
        let call = Lent::of(circuit.shared());
        drop(circuit);
        assert_eq!(Arc::strong_count(&heard), 1);
        drop(call);
    }
}
