//! A connection that starts with a TLS handshake.
//!
//! The handshake happens when the connection's task first reads it, so it has the task, the slot
//! and the timeout of its connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{FallibleAccept, TlsAcceptor, server};

use super::config::{BUFFER, Tls};
use crate::server::linger::poll_discard;

/// The server's side of a TLS connection.
pub(in crate::server) struct TlsStream<S>(State<S>);

enum State<S> {
    // Boxed: rustls has a kilobyte for each connection.
    /// Until the handshake is complete.
    Handshake(Box<FallibleAccept<S>>),
    Open(Box<server::TlsStream<S>>),
    /// The handshake failed. The client may still send, and must have time to read the alert with
    /// the reason.
    Refused(S),
    /// The connection is not used any more.
    Closed,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    pub(super) fn new(stream: S, tls: &Tls) -> Self {
        let acceptor = TlsAcceptor::from(tls.config.clone());
        let handshake = acceptor.accept_with(stream, |session| {
            session.set_buffer_limit(Some(BUFFER));
        });
        Self(State::Handshake(Box::new(handshake.into_fallible())))
    }

    /// Returns the open connection. An error is reported once, later calls return `NotConnected`.
    fn poll_open(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<&mut server::TlsStream<S>>> {
        if let State::Handshake(handshake) = &mut self.0 {
            match ready!(Pin::new(handshake).poll(context)) {
                Ok(open) => self.0 = State::Open(Box::new(open)),
                Err((error, stream)) => {
                    self.0 = State::Refused(stream);
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match &mut self.0 {
            State::Open(open) => Ok(open),
            _ => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let State::Refused(stream) = &mut self.0 {
            // These bytes came outside of TLS.
            return poll_discard(stream, context);
        }
        let open = ready!(self.poll_open(context))?;
        Pin::new(open).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let open = ready!(self.poll_open(context))?;
        Pin::new(open).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let open = ready!(self.poll_open(context))?;
        Pin::new(open).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            State::Open(open) => Pin::new(open).poll_flush(context),
            State::Refused(stream) => Pin::new(stream).poll_flush(context),
            // Nothing was written.
            State::Handshake(_) | State::Closed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            State::Open(open) => Pin::new(open).poll_shutdown(context),
            State::Refused(stream) => Pin::new(stream).poll_shutdown(context),
            State::Handshake(_) | State::Closed => {
                // A client that has not completed the handshake in time has received nothing that
                // could be lost.
                self.0 = State::Closed;
                Poll::Ready(Ok(()))
            }
        }
    }
}
