//! The protocol of any body: every byte is content.
//!
//! ```
//! let layer = stream_layer::StreamLayer::new(stream_layer::AnyContent);
//! ```

use failsoft_core::{End, Fault, Verdict, verdict_of_body_error};
use http::response::Parts;

use crate::{Decoder, Mode, Protocol, Reader, Seen, Until};

/// Any body: its first byte is the first content, and all data is progress.
///
/// Applies to every success, an empty one too; a failure passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyContent;

impl<Req: ?Sized> Protocol<Req> for AnyContent {
    type Reader = Self;

    fn request(&self, _: &Req) -> Self {
        Self
    }
}

impl Reader for AnyContent {
    type Decoder = Self;

    fn head(self, parts: &mut Parts, until: Until) -> Mode<Self> {
        if parts.status.is_success() { Mode::Hold { decoder: self, until } } else { Mode::Pass }
    }
}

impl Decoder for AnyContent {
    fn feed(&mut self, bytes: &[u8]) -> Seen {
        let content = !bytes.is_empty();
        Seen { events: usize::from(content), content, ..Seen::default() }
    }

    fn end(&mut self, end: End<'_>) -> Result<Verdict, Fault> {
        Ok(match end {
            End::Error(err) => verdict_of_body_error(err),
            _ => Verdict::SUCCESS,
        })
    }
}
