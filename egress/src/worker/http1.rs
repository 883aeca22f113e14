//! A connection that speaks HTTP/1.1: one request's at a time.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use faasw_abi::channel::HEAD_MAX;
use faasw_abi::outgoing::Failure;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::body::RequestBody;
use super::failure;
use super::lane::NoAnswer;
use super::response::FIELDS_MAX;
use super::stream::Counted;

/// A connection; dropped, it is closed.
pub struct Connection {
    /// When it was made.
    pub made: Instant,
    sender: SendRequest<RequestBody>,
    received: Rc<Cell<u64>>,
    task: JoinHandle<()>,
    closed: watch::Receiver<bool>,
}

impl Connection {
    /// Speaks HTTP/1.1 over `stream`.
    ///
    /// # Errors
    /// When it is of no use.
    pub async fn over<S>(stream: S) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let received = Rc::new(Cell::new(0));
        let stream = Counted::new(stream, received.clone());
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
