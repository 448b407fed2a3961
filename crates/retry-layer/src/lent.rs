//! A call's reference to its layer, see [`failsoft_core::lent`].

use failsoft_core::lent::{Kept, Lend, Place};

use crate::layer::Shared;

pub(crate) type Lent = failsoft_core::lent::Lent<Shared>;

thread_local! {
    static KEPT: Kept<Shared> = const { Kept::new() };
}

impl Lend for Shared {
    #[inline]
    fn place(&self) -> Place {
        self.place
    }

    /// A closure of the user's may hold what must go with the layer.
    #[inline]
    fn may_be_kept(&self) -> bool {
        !self.plain.holds_closures
    }

    #[inline(always)]
    fn with_kept<T>(f: impl FnOnce(&Kept<Self>) -> T) -> Option<T> {
        KEPT.try_with(f).ok()
    }
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use std::{sync::Arc, time::Duration};

    use failsoft_core::{Backoff, Class};

    use super::*;
    use crate::{RetryBuilder, RetryLayer};

    #[test]
    fn what_a_closure_of_the_users_holds_goes_with_the_layer() {
        type With = fn(RetryBuilder, Arc<()>) -> RetryBuilder;
        fn backoff(held: Arc<()>) -> Backoff {
            Backoff::custom(move |_| Duration::from_secs(Arc::strong_count(&held) as u64))
        }
        let all: [With; 3] = [
            |builder, held| builder.retry_if(move |_| Arc::strong_count(&held) > 0),
            |builder, held| builder.backoff(backoff(held)),
            |builder, held| builder.backoff_on(Class::RateLimited, backoff(held)),
        ];
        for with in all {
            let held = Arc::new(());
            let layer = with(RetryLayer::builder(), Arc::clone(&held)).build().unwrap();
            let call = Lent::of(layer.shared());
            drop(layer);
            assert_eq!(Arc::strong_count(&held), 2);
            drop(call);
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }
}
