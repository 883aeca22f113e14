//! An HTTP/1.1 connection, which carries one request at a time.

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
use super::failure::{self, SendError};
use super::response::FIELDS_MAX;
use super::stream::CountingStream;

/// A connection. Dropping it closes it.
pub struct Connection {
    /// When it was made.
    pub made: Instant,
    sender: SendRequest<RequestBody>,
    received: Rc<Cell<u64>>,
    task: JoinHandle<()>,
    closed: watch::Receiver<bool>,
}

impl Connection {
    /// Sets up an HTTP/1.1 connection over `stream`.
    ///
    /// # Errors
    /// Returns the failure if the connection cannot be used.
    pub async fn over<S>(stream: S) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let received = Rc::new(Cell::new(0));
        let stream = CountingStream::new(stream, received.clone());
        // The buffer holds a head of the size that can be passed to the function, and no more.
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
            // `sender` reports an error to the task that waits for a response.
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

    /// Returns whether a request can be sent now, as far as is known.
    pub fn is_ready(&self) -> bool {
        self.sender.is_ready() && !*self.closed.borrow()
    }

    /// Waits until another request can be sent. Returns false if none can.
    pub async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Waits until the connection is closed.
    pub fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut closed = self.closed.clone();
        async move {
            // If the sender is gone, the connection is closed, too.
            let _ = closed.wait_for(|closed| *closed).await;
        }
    }

    /// Sends a request, and waits for the head of its response.
    ///
    /// # Errors
    /// Returns why there is no response.
    pub async fn send(
        &mut self,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, SendError> {
        let before = self.received.get();
        let sent = self.sender.try_send_request(request).await;
        sent.map_err(|mut error| {
            let has_answer = self.received.get() > before;
            SendError {
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
