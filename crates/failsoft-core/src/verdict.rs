//! The [`Verdict`]: what an outcome means, decided once.
//!
//! ```
//! use std::time::Duration;
//! use failsoft_core::{Class, Hint, Verdict};
//!
//! let verdict = Verdict::of(Class::RateLimited).with_retry_after(Duration::from_secs(7));
//! assert_eq!(verdict.hint(), Hint::After);
//! assert!(!verdict.is_success());
//! ```

use std::{error::Error, fmt, time::Duration};

use crate::{Blame, Class, Fault, Limit, SoftKind};

/// What an outcome means: its [`Class`], a [`Hint`] for whoever might send it again, and the server's advice.
///
/// A small value that is copied from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    class: Class,
    hint: Hint,
    blame: Blame,
    unsent: bool,
    retry_after: Option<Duration>,
}

/// What may be sent to the *same* target again. Which outcomes move on to another route is the class's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hint {
    /// The same request may work.
    Same,
    /// The same request may work after a while.
    After,
    /// Only a changed request can help.
    Modify,
    /// Not here: another route may work.
    Fallback,
    /// Send the answer back, and the target goes on.
    Continue,
    /// Nothing helps.
    Never,
}

impl Hint {
    /// Whether the same request to the same target is worth another attempt.
    #[must_use]
    pub const fn same_again(self) -> bool {
        matches!(self, Self::Same | Self::After)
    }
}

impl Verdict {
    /// A good answer.
    pub const SUCCESS: Self = Self::of(Class::Success);

    /// Dropped by the caller before the end was seen.
    pub const CANCELLED: Self = Self::of(Class::Cancelled);

    /// The verdict with the class's usual hint and blame, and no advice.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        let hint = match class {
            Class::Transient | Class::Timeout(_) => Hint::Same,
            Class::Overloaded | Class::RateLimited => Hint::After,
            Class::Quota | Class::Auth | Class::ModelNotFound | Class::Refused => Hint::Fallback,
            Class::ContextLength | Class::Soft(_) => Hint::Modify,
            Class::Success | Class::Invalid | Class::Unknown | Class::Cancelled | Class::Denied(_) => {
                Hint::Never
            }
        };
        Self { class, hint, blame: class.blame(), unsent: class.is_denied(), retry_after: None }
    }

    /// An answer that came and is wrong, with the hint [`Hint::Modify`].
    #[must_use]
    pub const fn soft(kind: SoftKind) -> Self {
        Self::of(Class::Soft(kind))
    }

    /// What an error means: what a [`Fault`] in its chain says, else what is known of the error's type, else
    /// [`Class::Unknown`].
    ///
    /// Known are `std::io::Error`, tokio's `Elapsed`, and by feature the errors of reqwest, tonic and tower.
    #[must_use]
    pub fn of_error(err: &(dyn Error + 'static)) -> Self {
        if let Some(fault) = Fault::find(err) {
            return fault.verdict();
        }
        chain(err).find_map(known).unwrap_or(const { Self::of(Class::Unknown) })
    }

    /// The same with another hint.
    #[must_use]
    pub const fn with_hint(mut self, hint: Hint) -> Self {
        self.hint = hint;
        self
    }

    /// The same with somebody else to blame, such as a caller whose deadline was shorter than the target's limit.
    #[must_use]
    pub const fn with_blame(mut self, blame: Blame) -> Self {
        self.blame = blame;
        self
    }

    /// The same with the server's advice: not before this much time has passed.
    #[must_use]
    pub const fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The same with advice where there is some.
    #[must_use]
    pub const fn with_advice(mut self, after: Option<Duration>) -> Self {
        self.retry_after = after;
        self
    }

    /// Says that the request certainly never reached the target, so that sending it again repeats nothing.
    #[must_use]
    pub const fn with_unsent(mut self) -> Self {
        self.unsent = true;
        self
    }

    /// What happened.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// What may be sent to the same target again.
    #[must_use]
    pub const fn hint(&self) -> Hint {
        self.hint
    }

    /// Who is to blame.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        self.blame
    }

    /// The server's advice: not before this much time has passed.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the request certainly never reached the target.
    #[must_use]
    pub const fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// Whether the class is [`Class::Success`].
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.class.is_success()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(after) => write!(f, "{} (retry after {after:?})", self.class),
            None => self.class.fmt(f),
        }
    }
}

/// An error and its sources. `std::io::Error` forwards `source` past the error that it holds, so that one is visited
/// too.
pub(crate) fn chain<'a>(err: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(err), |&err: &&'a (dyn Error + 'static)| {
        let held = err.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        held.map(|held| held as &(dyn Error + 'static)).or_else(|| err.source())
    })
}

/// What one link of an error's chain says about the whole.
fn known(err: &(dyn Error + 'static)) -> Option<Verdict> {
    #[cfg(feature = "reqwest-013")]
    if let Some(err) = err.downcast_ref::<reqwest::Error>() {
        return crate::reqwest::verdict_of_error(err);
    }
    #[cfg(feature = "tonic-014")]
    if let Some(status) = err.downcast_ref::<tonic::Status>() {
        // What caused a status, such as a refused connection, says more than the code that tonic gave it.
        let cause = status.source().map(Verdict::of_error).filter(|cause| cause.class() != Class::Unknown);
        return Some(cause.unwrap_or_else(|| crate::tonic::verdict_of_status(status)));
    }
    #[cfg(feature = "tower-05")]
    {
        if err.is::<tower::timeout::error::Elapsed>() {
            return Some(Verdict::of(Class::Timeout(Limit::Total)));
        }
        if err.is::<tower::load_shed::error::Overloaded>() {
            // Our own side had no room: the target is not to blame, and nothing was sent.
            return Some(Verdict::of(Class::Overloaded).with_blame(Blame::Nobody).with_unsent());
        }
    }
    if err.is::<tokio::time::error::Elapsed>() {
        return Some(Verdict::of(Class::Timeout(Limit::Total)));
    }
    err.downcast_ref::<std::io::Error>().and_then(of_io)
}

fn of_io(err: &std::io::Error) -> Option<Verdict> {
    use std::io::ErrorKind as Kind;
    match err.kind() {
        Kind::ConnectionRefused
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::AddrNotAvailable => Some(Verdict::of(Class::Transient).with_unsent()),
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::NotConnected
        | Kind::BrokenPipe
        | Kind::UnexpectedEof
        | Kind::NetworkDown => Some(Verdict::of(Class::Transient)),
        Kind::TimedOut => Some(Verdict::of(Class::Timeout(Limit::Total))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_refused_connection_was_never_sent_and_a_reset_one_may_have_been() {
        let refused = Verdict::of_error(&io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!((refused.class(), refused.is_unsent()), (Class::Transient, true));
        let reset = Verdict::of_error(&io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!((reset.class(), reset.is_unsent()), (Class::Transient, false));
    }

    #[test]
    fn an_error_that_nobody_knows_is_unknown_and_never_repeated() {
        let verdict = Verdict::of_error(&fmt::Error);
        assert_eq!((verdict.class(), verdict.hint()), (Class::Unknown, Hint::Never));
        assert_eq!(verdict.blame(), Blame::Target);
    }

    #[test]
    fn an_io_error_is_found_behind_errors_that_wrap_it() {
        let inner = io::Error::from(io::ErrorKind::BrokenPipe);
        let wrapped = io::Error::other(io::Error::other(inner));
        assert_eq!(Verdict::of_error(&wrapped).class(), Class::Transient);
    }

    #[tokio::test(start_paused = true)]
    async fn tokios_elapsed_is_a_timeout() {
        let err =
            tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(Verdict::of_error(&err).class(), Class::Timeout(Limit::Total));
    }

    #[cfg(feature = "tower-05")]
    #[test]
    fn towers_own_load_shedding_blames_nobody() {
        let verdict = Verdict::of_error(&tower::load_shed::error::Overloaded::new());
        assert_eq!((verdict.class(), verdict.blame()), (Class::Overloaded, Blame::Nobody));
        assert!(verdict.is_unsent());
    }
}
