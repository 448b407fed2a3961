//! What the framers share: how long one event may be, and the error when it is longer.
//!
//! ```
//! use stream_layer::LineFramer;
//!
//! let mut framer = LineFramer::new(8);
//! let too_long = framer.feed(b"0123456789").next_line().expect("it says so").unwrap_err();
//! assert_eq!(too_long.to_string(), "a streamed event is longer than 8 bytes");
//! ```

use std::{error::Error, fmt};

use failsoft_core::{Class, Fault, Hint, SoftKind, Verdict};

use crate::LAYER;

/// The usual cap on one event: 8 MiB, which holds an image in base64 and is far from what a server needs to exhaust
/// a client's memory.
pub const MAX_EVENT: usize = 8 << 20;

/// One event is longer than its cap. The framer gives nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    limit: usize,
}

impl TooLong {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit }
    }

    /// The cap in bytes.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a streamed event is longer than {} bytes", self.limit)
    }
}

impl Error for TooLong {}

impl From<TooLong> for Fault {
    /// A malformed answer to a request that was fine: the same request may work.
    fn from(err: TooLong) -> Self {
        let verdict = Verdict::of(Class::Soft(SoftKind::Malformed)).with_hint(Hint::Same);
        Self::with_verdict(verdict, LAYER).with_message("an event beyond the size cap").with_source(err)
    }
}
