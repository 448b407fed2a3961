//! The protocol of any body: every byte is content.
//!
//! ```
//! let layer = stream_layer::StreamLayer::new(stream_layer::AnyContent);
//! ```

use bytes::Bytes;
use failsoft_core::{Class, End, Fault, Verdict, is_grpc, verdict_of_grpc};
use http::response::Parts;

use crate::{Decoder, Mode, Protocol, Reader, Seen, Until};

/// Any body: its first byte is the first content, and all data is progress.
///
/// Applies to every success, an empty one too; a failure passes. A gRPC answer means what its trailers say.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyContent;

impl<Req: ?Sized> Protocol<Req> for AnyContent {
    type Reader = Self;

    fn request(&self, _: &Req) -> Self {
        Self
    }
}

impl Reader for AnyContent {
    type Decoder = AnyContentDecoder;

    fn head(self, parts: &mut Parts, until: Until) -> Mode<AnyContentDecoder> {
        let grpc = is_grpc(&parts.headers);
        let trailers_only = grpc && parts.headers.contains_key("grpc-status");
        if !parts.status.is_success() || trailers_only {
            return Mode::Pass;
        }
        Mode::Hold { decoder: AnyContentDecoder { grpc }, until }
    }
}

/// The decoder of [`AnyContent`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyContentDecoder {
    grpc: bool,
}

impl Decoder for AnyContentDecoder {
    fn feed(&mut self, bytes: &Bytes) -> Seen {
        let content = !bytes.is_empty();
        Seen { events: usize::from(content), content, ..Seen::default() }
    }

    fn end(&mut self, end: End<'_>) -> Result<Option<Verdict>, Fault> {
        Ok(match end {
            End::Clean(trailers) if self.grpc => {
                trailers.and_then(verdict_of_grpc).or(const { Some(Verdict::of(Class::Transient)) })
            }
            _ => None,
        })
    }
}
