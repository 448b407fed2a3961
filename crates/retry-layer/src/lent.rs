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
        self.policy.retry_if.is_none()
    }

    #[inline(always)]
    fn with_kept<T>(f: impl FnOnce(&Kept<Self>) -> T) -> Option<T> {
        KEPT.try_with(f).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::RetryLayer;

    #[test]
    fn what_a_closure_of_the_users_holds_goes_with_the_layer() {
        let heard = Arc::new(());
        let hears = Arc::clone(&heard);
        let layer = RetryLayer::builder().retry_if(move |_| Arc::strong_count(&hears) > 0).build().unwrap();
        let call = Lent::of(layer.shared());
        drop(layer);
        assert_eq!(Arc::strong_count(&heard), 2);
        drop(call);
        assert_eq!(Arc::strong_count(&heard), 1);
    }
}
