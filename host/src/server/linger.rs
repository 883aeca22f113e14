//! Closing a connection so that its client receives the last response.
//!
//! If a socket is closed with unread bytes, the kernel resets the connection. The other end may
//! then lose what it has not read yet: the response that gives the reason. So the end is announced
//! first, and bytes that still arrive are discarded for a while (RFC 9112, section 9.6).

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

/// A stream that its server cannot close by dropping it. For example, hyper drops the stream
/// without a word after CONNECT.
pub(super) struct LingeringStream<S>(Arc<Mutex<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> LingeringStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    /// Returns another handle to the same stream.
    pub(super) fn handle(&self) -> Self {
        Self(self.0.clone())
    }

    /// Shuts down the sending side, and waits a while for the other end to do the same.
    pub(super) async fn close(mut self) {
        let mut scratch = [0; 4096];
        let closing = async {
            // An error ends the connection, too.
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
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
    async fn bytes_after_the_response_are_discarded_until_the_client_closes() {
        let (mut peer, server) = duplex(16);
        let closing = tokio::spawn(LingeringStream::new(server).close());
        for _ in 0..100 {
            peer.write_all(b"more and more").await.unwrap();
        }
        assert!(!closing.is_finished());
        assert_eq!(peer.read(&mut [0]).await.unwrap(), 0);
        drop(peer);
        closing.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn closing_does_not_wait_long_for_the_client() {
        let (peer, server) = duplex(16);
        LingeringStream::new(server).close().await;
        drop(peer);
    }
}
