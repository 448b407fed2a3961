//! What a retry takes of the caps on attempts.

use super::{Call, Further, Told};

/// A retry that a call has granted, see [`Call::take_retry`]. It counts on the call and on all around it, until it is dropped
/// without having been sent.
#[derive(Debug)]
#[must_use = "it is given back as soon as it drops"]
pub struct TakenRetry {
    call: Option<Call>,
    is_sent: bool,
    told: Option<Told>,
}

impl TakenRetry {
    pub(super) const fn of(call: Option<Call>) -> Self {
        Self { call, is_sent: false, told: None }
    }

    /// After which attempt it was decided on. Dropped before it was sent, that attempt is the last one still, and what is decided next by
    /// a layer around, such as one whose limit of time has cut a wait off, is told of it.
    pub fn after(&mut self, told: &Told) {
        self.told = Some(told.clone());
    }

    /// The attempt is under way: from now on a drop gives nothing back.
    pub const fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Gives it back although it was on its way: it was refused before it reached anybody.
    pub fn give_back(mut self) {
        self.is_sent = false;
    }
}

impl Drop for TakenRetry {
    fn drop(&mut self) {
        if let Some(call) = self.call.as_ref().filter(|_| !self.is_sent) {
            call.give_back(Further::Retry);
            if let Some(told) = &self.told {
                told.cut();
            }
        }
    }
}
