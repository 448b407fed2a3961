//! Which outcomes go on to the next route, and to which: one [`Row`] for each kind of outcome.
//!
//! | row | goes on to | a last good answer may stand in |
//! |---|---|---|
//! | `Transient`, `Overloaded`, `Timeout`, `Soft`, `Unknown` | any route | yes |
//! | `RateLimited` | any route | yes |
//! | `Quota` | another credential | yes |
//! | `Auth` | another credential | no: the caller may have lost the right to it |
//! | `ModelNotFound` | any route | yes |
//! | `ContextLength` | a larger window | no |
//! | `Refused` | none | no |
//! | `Invalid` | none | no |
//! | `DeniedByCircuit` | any route | yes |
//! | `DeniedOtherwise` | free routes | no |
//!
//! An outcome that is rate limited goes on whatever its advice: a retry inside has already waited when waiting was
//! worth it, and without one nobody waits here.
//!
//! ```
//! use failsoft_core::{Class, SoftKind};
//! use fallback_layer::{FallbackLayer, Route, Row, To};
//! # use tower::service_fn;
//!
//! # let backup = service_fn(|_: u8| async { Ok::<_, std::io::Error>(1_u8) });
//! assert_eq!(Row::of(Class::Soft(SoftKind::Empty)), Some(Row::Soft));
//! // A content filter of one provider says little of another's.
//! let layer = FallbackLayer::builder().route(Route::new("backup", backup)).next(Row::Refused, To::Any).build();
//! # layer.unwrap();
//! ```

use failsoft_core::{Class, Denier};

use crate::route::Marks;

/// A row of the table: a kind of outcome, see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Row {
    /// [`Class::Transient`].
    Transient,
    /// [`Class::Overloaded`].
    Overloaded,
    /// [`Class::Timeout`].
    Timeout,
    /// [`Class::RateLimited`].
    RateLimited,
    /// [`Class::Quota`].
    Quota,
    /// [`Class::Auth`].
    Auth,
    /// [`Class::ModelNotFound`].
    ModelNotFound,
    /// [`Class::ContextLength`].
    ContextLength,
    /// [`Class::Refused`].
    Refused,
    /// [`Class::Invalid`].
    Invalid,
    /// [`Class::Soft`], of any kind.
    Soft,
    /// [`Class::Unknown`], and classes that this version has no row for.
    Unknown,
    /// [`Class::Denied`] by a circuit.
    DeniedByCircuit,
    /// [`Class::Denied`] by anything else: a budget, a loop, a quarantine.
    DeniedOtherwise,
}

/// Where an outcome goes on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum To {
    /// Nowhere: the outcome is returned.
    Nowhere,
    /// Any route.
    Any,
    /// Routes with another [credential](crate::Route::credential).
    OtherCredential,
    /// Routes with a larger [window](crate::Route::window).
    LargerWindow,
    /// [Free](crate::Route::free) routes.
    Free,
    /// Routes of another [provider](crate::Route::provider).
    OtherProvider,
    /// Routes that [handle refusals](crate::Route::handles_refusals).
    HandlesRefusals,
}

/// One field for each [`Row`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    rows: [(To, bool); Row::COUNT],
}

impl Row {
    const COUNT: usize = Self::DeniedOtherwise as usize + 1;

    /// The row of a class; `None` for a success and for a call that was cancelled.
    #[must_use]
    pub const fn of(class: Class) -> Option<Self> {
        Some(match class {
            Class::Success | Class::Cancelled => return None,
            Class::Transient => Self::Transient,
            Class::Overloaded => Self::Overloaded,
            Class::Timeout(_) => Self::Timeout,
            Class::RateLimited => Self::RateLimited,
            Class::Quota => Self::Quota,
            Class::Auth => Self::Auth,
            Class::ModelNotFound => Self::ModelNotFound,
            Class::ContextLength => Self::ContextLength,
            Class::Refused => Self::Refused,
            Class::Invalid => Self::Invalid,
            Class::Soft(_) => Self::Soft,
            Class::Denied(Denier::Circuit) => Self::DeniedByCircuit,
            Class::Denied(_) => Self::DeniedOtherwise,
            _ => Self::Unknown,
        })
    }
}

impl To {
    /// Whether a route may follow one that failed.
    pub(crate) fn accepts(self, failed: &Marks, next: &Marks) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Any => true,
            Self::OtherCredential => next.credential.is_none() || next.credential != failed.credential,
            Self::LargerWindow => next.window > failed.window,
            Self::Free => next.free,
            Self::OtherProvider => next.provider.is_none() || next.provider != failed.provider,
            Self::HandlesRefusals => next.handles_refusals,
        }
    }
}

impl Table {
    pub(crate) fn set_next(&mut self, row: Row, to: To) {
        if let Some(entry) = self.rows.get_mut(row as usize) {
            entry.0 = to;
        }
    }

    pub(crate) fn set_stand_in(&mut self, row: Row, allowed: bool) {
        if let Some(entry) = self.rows.get_mut(row as usize) {
            entry.1 = allowed;
        }
    }

    pub(crate) fn next(&self, row: Option<Row>) -> To {
        self.get(row).0
    }

    pub(crate) fn stand_in(&self, row: Option<Row>) -> bool {
        self.get(row).1
    }

    fn get(&self, row: Option<Row>) -> (To, bool) {
        row.and_then(|row| self.rows.get(row as usize)).copied().unwrap_or((To::Nowhere, false))
    }
}

impl Default for Table {
    fn default() -> Self {
        let mut table = Self { rows: [(To::Any, true); Row::COUNT] };
        table.set_next(Row::Quota, To::OtherCredential);
        for (row, to) in [
            (Row::Auth, To::OtherCredential),
            (Row::ContextLength, To::LargerWindow),
            (Row::Refused, To::Nowhere),
            (Row::Invalid, To::Nowhere),
            (Row::DeniedOtherwise, To::Free),
        ] {
            table.set_next(row, to);
            table.set_stand_in(row, false);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use failsoft_core::{Limit, SoftKind};

    use super::*;

    fn marks(credential: Option<&str>, window: u32, free: bool) -> Marks {
        Marks { credential: credential.map(Into::into), window, free, ..Marks::default() }
    }

    #[test]
    fn each_class_goes_where_the_table_says() {
        let table = Table::default();
        let rows = [
            (Class::Transient, To::Any, true),
            (Class::Overloaded, To::Any, true),
            (Class::Timeout(Limit::Total), To::Any, true),
            (Class::RateLimited, To::Any, true),
            (Class::Quota, To::OtherCredential, true),
            (Class::Auth, To::OtherCredential, false),
            (Class::ModelNotFound, To::Any, true),
            (Class::ContextLength, To::LargerWindow, false),
            (Class::Refused, To::Nowhere, false),
            (Class::Invalid, To::Nowhere, false),
            (Class::Soft(SoftKind::Schema), To::Any, true),
            (Class::Unknown, To::Any, true),
            (Class::Cancelled, To::Nowhere, false),
            (Class::Denied(Denier::Circuit), To::Any, true),
            (Class::Denied(Denier::Budget), To::Free, false),
            (Class::Denied(Denier::Loop), To::Free, false),
            (Class::Denied(Denier::Quarantine), To::Free, false),
        ];
        for (class, to, stand_in) in rows {
            assert_eq!(
                (table.next(Row::of(class)), table.stand_in(Row::of(class))),
                (to, stand_in),
                "{class}"
            );
        }
    }

    #[test]
    fn a_route_counts_as_another_credential_unless_it_is_marked_as_the_same() {
        let (a, b, none) = (marks(Some("a"), 0, false), marks(Some("b"), 0, false), marks(None, 0, false));
        for (failed, next, accepted) in
            [(&a, &a, false), (&a, &b, true), (&a, &none, true), (&none, &a, true), (&none, &none, true)]
        {
            assert_eq!(To::OtherCredential.accepts(failed, next), accepted);
        }
    }

    #[test]
    fn a_prompt_that_is_too_long_goes_to_a_larger_window_only() {
        let (small, large) = (marks(None, 8_000, false), marks(None, 200_000, false));
        assert!(To::LargerWindow.accepts(&small, &large));
        assert!(!To::LargerWindow.accepts(&large, &small));
        assert!(!To::LargerWindow.accepts(&marks(None, 0, false), &marks(None, 0, false)));
    }
}
