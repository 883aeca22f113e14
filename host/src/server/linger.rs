//! Closing a connection so that its client hears the last answer.
//!
//! A system that closes a socket with bytes that nobody has read resets the
//! connection, and the other end may then lose what it had not read yet: the
//! answer that says why. So the end is announced first, and what still comes is
//! thrown away for a while (RFC 9112, section 9.6).

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// How long a client has to hear of the end: some round trips around the world.
const PATIENCE: Duration = Duration::from_secs(1);

/// A stream whose shutdown waits until the other end has closed, too.
pub(super) struct Lingering<S> {
    stream: S,
    closing: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            closing: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, closing } = &mut *self;
        let mut stream = Pin::new(stream);
        let patience = match closing {
            Some(patience) => patience,
            None => {
                ready!(stream.as_mut().poll_shutdown(context))?;
                closing.insert(Box::pin(sleep(PATIENCE)))
            }
        };
        let mut scratch = [0; 4096];
        while patience.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            // An error is an end, too.
            let read = ready!(stream.as_mut().poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test(start_paused = true)]
    async fn what_still_comes_is_thrown_away_until_the_client_closes() {
        let (mut client, server) = duplex(16);
        let mut server = Lingering::new(server);
        let closing = tokio::spawn(async move { server.shutdown().await });
        for _ in 0..100 {
            client.write_all(b"more and more").await.unwrap();
        }
        assert!(!closing.is_finished());
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        drop(client);
        closing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_close_is_not_waited_for_long() {
        let (client, server) = duplex(16);
        Lingering::new(server).shutdown().await.unwrap();
        drop(client);
    }
}
