//! Bodies that lie in memory.

use std::borrow::Cow;

use bytes::Bytes;

/// A body that lies in memory.
pub trait InMemory {
    /// The whole body; `None` where it does not lie in memory after all.
    fn whole(&self) -> Option<Cow<'_, [u8]>>;
}

#[cfg(feature = "reqwest-013")]
impl InMemory for reqwest::Body {
    fn whole(&self) -> Option<Cow<'_, [u8]>> {
        self.as_bytes().map(Cow::Borrowed)
    }
}

impl InMemory for Bytes {
    fn whole(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self))
    }
}

impl InMemory for String {
    fn whole(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.as_bytes()))
    }
}

impl InMemory for &'static str {
    fn whole(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.as_bytes()))
    }
}

impl InMemory for Vec<u8> {
    fn whole(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self))
    }
}

impl InMemory for () {
    fn whole(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(&[]))
    }
}
