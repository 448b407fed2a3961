//! What a call holds of its layer, without counting it up and down each time.
//!
//! A future cannot borrow from its service, so each call needs a reference of its own. To count it is two atomic steps on one
//! cache line, which threads take from each other. So a thread keeps the reference of a call that ended and lends it to its next
//! call through the same layer. A few layers a thread live a little longer than they would, until others take their places.

use std::{cell::Cell, ops::Deref, sync::Arc};

use crate::layer::Shared;

/// How many layers a thread keeps a reference to; each has one place that it can be in.
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
        // Of another layer that has the same place: the one that is called last has it.
        drop(other);
        Self(Some(Arc::clone(shared)))
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
        // A closure of the user's may hold what must go with the layer.
        if shared.policy.retry_if.is_none() {
            // Where the thread is ending already, it is only counted down.
            let other = KEPT.try_with(|kept| kept[place(&shared)].replace(Some(shared)));
            drop(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RetryBuilder, RetryLayer};

    fn shared(builder: RetryBuilder) -> Arc<Shared> {
        Arc::clone(builder.build().unwrap().shared())
    }

    #[test]
    fn the_next_call_of_a_thread_gets_what_the_last_one_held() {
        let shared = shared(RetryLayer::builder());
        drop(Lent::of(&shared));
        assert_eq!(Arc::strong_count(&shared), 2, "kept");
        let calls = (Lent::of(&shared), Lent::of(&shared));
        assert_eq!(Arc::strong_count(&shared), 3, "the first one was there, the second was counted");
        drop(calls);
        assert_eq!(Arc::strong_count(&shared), 2, "one is enough");
        std::thread::scope(|scope| scope.spawn(|| drop(Lent::of(&shared))).join().unwrap());
        assert_eq!(Arc::strong_count(&shared), 2, "a thread that ends keeps nothing");
    }

    #[test]
    fn of_many_layers_a_thread_keeps_a_few() {
        let all: Vec<_> = (0..100).map(|_| shared(RetryLayer::builder())).collect();
        all.iter().for_each(|shared| drop(Lent::of(shared)));
        let kept = all.iter().filter(|shared| Arc::strong_count(shared) > 1).count();
        assert!((1..=PLACES).contains(&kept), "{kept}");
    }

    #[test]
    fn what_a_closure_of_the_users_holds_goes_with_the_layer() {
        let heard = Arc::new(());
        let hears = Arc::clone(&heard);
        let shared = shared(RetryLayer::builder().retry_if(move |_| Arc::strong_count(&hears) > 0));
        let call = Lent::of(&shared);
        drop(shared);
        assert_eq!(Arc::strong_count(&heard), 2);
        drop(call);
        assert_eq!(Arc::strong_count(&heard), 1);
    }
}
