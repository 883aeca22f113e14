//! The body of a response.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// A response's body. Read it as an [`http_body::Body`]; it never fails.
///
/// In this version it is whole when the response is there, and
/// [`Body::as_bytes`] gives it without waiting.
#[derive(Clone, Debug, Default)]
pub struct Body {
    bytes: Bytes,
}

impl Body {
    /// A body without content.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The whole content.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { bytes }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes: bytes.into(),
        }
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self {
            bytes: Bytes::from_static(text.as_bytes()),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
