//! A connection that speaks HTTP/1.1.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use faasw_abi::channel::HEAD_MAX;
use faasw_abi::outgoing::Failure;
use faasw_egress_policy::{Destination, Scheme};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::body::RequestBody;
use super::failure;
use super::tls::Tls;

/// Most fields of an answer.
const FIELDS_MAX: usize = 256;

/// A connection; dropped, it is closed.
pub struct Connection {
    /// When it was made.
    pub made: Instant,
    sender: SendRequest<RequestBody>,
    received: Rc<Cell<u64>>,
    task: JoinHandle<()>,
    closed: watch::Receiver<bool>,
}

/// Why there is no answer.
pub struct NoAnswer {
    pub failure: Failure,
    /// Whether the request has not been sent at all.
    pub is_unsent: bool,
    /// Whether a byte of the answer has come.
    pub has_answer: bool,
}

impl Connection {
    /// Speaks TLS, where it is to, and HTTP.
    ///
    /// # Errors
    /// When the other side does not.
    pub async fn new(stream: TcpStream, to: &Destination, tls: &Tls) -> Result<Self, Failure> {
        match to.scheme {
            Scheme::Http => Self::over(stream).await,
            Scheme::Https => Self::over(tls.connect(&to.host, stream).await?).await,
        }
    }

    async fn over<S: AsyncRead + AsyncWrite + Unpin + 'static>(stream: S) -> Result<Self, Failure> {
        let received = Rc::new(Cell::new(0));
        let stream = Counted {
            stream,
            received: received.clone(),
        };
        // Room for a head that is as large as the function can be told of, and no more.
        let handshake = http1::Builder::new()
            .max_headers(FIELDS_MAX)
            .max_buf_size(HEAD_MAX as usize)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = match handshake.await {
            Ok(both) => both,
            Err(error) => return Err(failure::of_http(&error, false)),
        };
        let (closing, closed) = watch::channel(false);
        let task = tokio::task::spawn_local(async move {
            // Whoever waits for an answer is told of an error by `sender`.
            let _ = connection.await;
            closing.send_replace(true);
        });
        Ok(Self {
            made: Instant::now(),
            sender,
            received,
            task,
            closed,
        })
    }

    /// Whether a request can be sent now, as far as is known.
    pub fn is_ready(&self) -> bool {
        self.sender.is_ready() && !*self.closed.borrow()
    }

    /// Waits until another request can be sent; false when none can.
    pub async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Waits until it is closed.
    pub fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut closed = self.closed.clone();
        async move {
            // Without a sender it is closed, too.
            let _ = closed.wait_for(|closed| *closed).await;
        }
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn send(
        &mut self,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, NoAnswer> {
        let before = self.received.get();
        let sent = self.sender.try_send_request(request).await;
        sent.map_err(|mut error| {
            let has_answer = self.received.get() > before;
            NoAnswer {
                is_unsent: error.take_message().is_some(),
                failure: failure::of_http(error.error(), has_answer),
                has_answer,
            }
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A stream that counts what is received.
struct Counted<S> {
    stream: S,
    received: Rc<Cell<u64>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let more = buffer.filled().len() - before;
        self.received.set(self.received.get() + more as u64);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
