//! A connection that reads a limited number of bytes until the limit is set again.
//!
//! The library parses an answer once it has arrived completely, however long it is. Only one
//! command is sent at a time, so all bytes until the next command are its answer, and an answer has
//! a maximum size.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, join, split};

/// How many more bytes may be received.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteAllowance(Arc<AtomicUsize>);

impl ByteAllowance {
    /// Sets the number of bytes from now on.
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Subtracts received bytes. Returns whether there were as many left.
    fn take(&self, bytes: usize) -> bool {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes);
        // The allowance is not set while an answer arrives.
        self.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// A connection of any kind, in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Returns the stream with its peer limited by an allowance.
pub(super) fn bounded(stream: Box<dyn Duplex>, allowance: ByteAllowance) -> impl Duplex + 'static {
    let (stream, writer) = split(stream);
    join(BoundedReader { stream, allowance }, writer)
}

struct BoundedReader {
    stream: ReadHalf<Box<dyn Duplex>>,
    allowance: ByteAllowance,
}

impl AsyncRead for BoundedReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = buffer.filled().len().saturating_sub(before);
        Poll::Ready(if self.allowance.take(came) {
            Ok(())
        } else {
            let why = "its answer is too long";
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn bytes_beyond_the_allowance_end_the_connection() {
        let (near, mut far) = tokio::io::duplex(64);
        let allowance = ByteAllowance::default();
        let mut stream = bounded(Box::new(near), allowance.clone());
        far.write_all(b"12345").await.unwrap();
        allowance.set(5);
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).await.unwrap();
        far.write_all(b"6").await.unwrap();
        let refused = stream.read_u8().await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
