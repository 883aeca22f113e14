//! Closing a connection so that its client hears the last answer.
//!
//! A system that closes a socket with bytes that nobody has read resets the
//! connection, and the other end may then lose what it had not read yet: the
//! answer that says why. So the end is announced first, and what still comes is
//! thrown away for a while (RFC 9112, section 9.6).

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};

use super::peer::FAREWELL;

/// A stream that whoever serves it cannot close by dropping it: hyper does so
/// without a word after CONNECT, for one.
pub(super) struct Kept<S>(Arc<Mutex<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> Kept<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    /// Another handle of the same stream.
    pub(super) fn handle(&self) -> Self {
        Self(self.0.clone())
    }

    /// Says that nothing more comes, and waits a while for the other end to do so.
    pub(super) async fn close(mut self) {
        let mut scratch = [0; 4096];
        let closing = async {
            // An error is an end, too.
            if self.shutdown().await.is_ok() {
                while matches!(self.read(&mut scratch).await, Ok(count) if count > 0) {}
            }
        };
        let _ = timeout(FAREWELL, closing).await;
    }

    fn stream(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Kept<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Kept<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream()).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test(start_paused = true)]
    async fn what_still_comes_is_thrown_away_until_the_client_closes() {
        let (mut peer, server) = duplex(16);
        let closing = tokio::spawn(Kept::new(server).close());
        for _ in 0..100 {
            peer.write_all(b"more and more").await.unwrap();
        }
        assert!(!closing.is_finished());
        assert_eq!(peer.read(&mut [0]).await.unwrap(), 0);
        drop(peer);
        closing.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_close_is_not_waited_for_long() {
        let (peer, server) = duplex(16);
        Kept::new(server).close().await;
        drop(peer);
    }
}
