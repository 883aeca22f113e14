//! A connection's stream that reports reads and writes to its [`Peer`].

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{linger::SharedStream, peer::Peer};

/// A stream that counts for a [`Peer`].
pub(super) struct MeteredStream<S> {
    stream: SharedStream<S>,
    peer: Arc<Peer>,
}

impl<S> MeteredStream<S> {
    pub(super) fn new(stream: SharedStream<S>, peer: Arc<Peer>) -> Self {
        Self { stream, peer }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let Poll::Ready(read) = Pin::new(&mut *self.stream.lock()).poll_read(context, buffer)
        else {
            self.peer.note_all_processed();
            return Poll::Pending;
        };
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.peer.count_received(count as u64);
        }
        Poll::Ready(read)
    }
}

impl<S> MeteredStream<S> {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(count)) => self.peer.count_written(*count as u64),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.peer.note_blocked(),
        }
        written
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream.lock()).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream.lock()).poll_write_vectored(context, slices);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Poll::Ready(flushed) = Pin::new(&mut *self.stream.lock()).poll_flush(context) else {
            // TLS buffers what its socket does not accept.
            self.peer.note_blocked();
            return Poll::Pending;
        };
        // Heads of HTTP/2 responses wait for the socket only.
        self.peer.note_flushed();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::peer::{ConnectionValue, Verdict, tests::peer};
    use std::pin::pin;
    use tokio::{io::AsyncWriteExt as _, time::timeout};

    /// Accepts everything and writes nothing, as TLS does for a while.
    struct Holding;

    impl AsyncRead for Holding {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Holding {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_tls_has_not_written_is_still_owed() {
        let peer = peer();
        let mut stream = MeteredStream::new(SharedStream::new(Holding), peer.clone());
        drop(peer.begin(true, 10));
        stream.write_all(b"response").await.unwrap();
        let mut flushing = pin!(stream.flush());
        let second = std::time::Duration::from_secs(1);
        assert!(timeout(second, flushing.as_mut()).await.is_err());
        assert_eq!(peer.check_at_once(), Verdict::Stays);
        assert_eq!(peer.value(), ConnectionValue::Owing);
    }
}
