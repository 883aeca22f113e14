//! Closing a connection so that its client receives the last response.
//!
//! If a socket is closed with unread bytes, the kernel resets the connection. The other end may
//! then lose what it has not read yet: the response that gives the reason. So the end is announced
//! first, and bytes that still arrive are discarded for a while (RFC 9112, section 9.6).

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::timeout,
};

use super::peer::FAREWELL;

/// A stream that its server cannot close by dropping it. For example, hyper drops the stream
/// without a word after CONNECT.
pub(super) struct SharedStream<S>(Arc<Mutex<S>>);

impl<S> Clone for SharedStream<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> SharedStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    /// Returns the stream, which no other caller uses meanwhile.
    pub(super) fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shuts down the sending side, and waits a while for the other end to do the same.
    pub(super) async fn close(&self) {
        let closing = async {
            // An error ends the connection, too.
            let shut = poll_fn(|context| Pin::new(&mut *self.lock()).poll_shutdown(context));
            if shut.await.is_ok() {
                let _ = poll_fn(|context| poll_discard(&mut *self.lock(), context)).await;
            }
        };
        let _ = timeout(FAREWELL, closing).await;
    }
}

/// Discards all bytes that arrive, until the other end sends no more.
pub(super) fn poll_discard<S: AsyncRead + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let mut scratch = [0; 4096];
    loop {
        let mut scratch = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut scratch))?;
        if scratch.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test(start_paused = true)]
    async fn bytes_after_the_response_are_discarded_until_the_client_closes() {
        let (mut peer, server) = duplex(16);
        let closing = tokio::spawn(async move { SharedStream::new(server).close().await });
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
        SharedStream::new(server).close().await;
        drop(peer);
    }
}
