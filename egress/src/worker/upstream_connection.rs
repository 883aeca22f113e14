//! Upstream connections, over which requests are sent: an HTTP/1.1 connection that the request has
//! for itself for as long as it takes, or a stream of an HTTP/2 connection that it shares.

use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use faasw_abi::outgoing::Failure;
use faasw_egress_policy::Scheme;
use http::response::Parts;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::body::{BodySource, RequestBody};
use super::failure::{self, SendError};
use super::http2::ReceivedBody;
use super::request::{RequestHead, announced};
use super::response::BodyFrame;
use super::shared::{Dial, Plan, Slot};
use super::{Worker, http1, idle, tls};

/// How long a request waits for a connection that another request makes, before it makes its own.
/// The server that the other request has connected to may never answer.
const SHARED_DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection or stream that a request can be sent on.
pub enum UpstreamConnection {
    Own(http1::Connection),
    Shared(Slot),
}

/// A response body that is being received.
pub enum ResponseBody {
    Own(http1::Connection, Incoming),
    Shared {
        received: ReceivedBody,
        /// Left after the stream has ended.
        _slot: Slot,
    },
}

impl UpstreamConnection {
    /// Finds a connection for a call: an existing one, one that is being made and has room, or a
    /// new one. Also returns whether it was used before. With `than`, only a younger one fits.
    ///
    /// # Errors
    /// Returns why there is no connection.
    pub async fn find(
        worker: &Rc<Worker>,
        call: u64,
        head: &RequestHead,
        than: Option<Instant>,
    ) -> Result<(Self, bool), Failure> {
        let origin = &head.destination;
        let own = || {
            let connection = than.is_none().then(|| worker.idle.take(origin));
            connection.flatten().map(Self::Own)
        };
        if origin.scheme == Scheme::Http {
            if let Some(own) = own() {
                return Ok((own, true));
            }
            let stream = worker.connection(call).await?;
            return Ok((Self::Own(http1::Connection::over(stream).await?), false));
        }
        let mut failed = None;
        let patient_until = Instant::now() + SHARED_DIAL_TIMEOUT;
        loop {
            if let Some(slot) = Slot::take(worker, origin, than) {
                return Ok((Self::Shared(slot), true));
            }
            if let Some(own) = own() {
                return Ok((own, true));
            }
            match worker.shared.plan(worker, origin, &mut failed) {
                Plan::Wait(wait) => {
                    if timeout_at(patient_until, wait.changed()).await.is_err() {
                        // Counts as a failure of that connection.
                        failed = Some(u64::MAX);
                    }
                }
                Plan::Dial(dial) => {
                    return Ok((Self::dial(worker, call, head, dial).await?, false));
                }
            }
        }
    }

    async fn dial(
        worker: &Rc<Worker>,
        call: u64,
        head: &RequestHead,
        dial: Dial,
    ) -> Result<Self, Failure> {
        let stream = worker.connection(call).await?;
        let stream = worker.tls.connect(&head.destination.host, stream).await?;
        if tls::has_chosen_http2(&stream) {
            return dial.share(stream).await.map(Self::Shared);
        }
        let connection = http1::Connection::over(stream).await?;
        dial.mark_unshareable();
        Ok(Self::Own(connection))
    }

    /// Sends a request, and waits for the head of its response.
    ///
    /// # Errors
    /// Returns why there is no response.
    pub async fn send(
        self,
        head: &RequestHead,
        source: &Rc<BodySource>,
    ) -> Result<(Parts, ResponseBody), SendError> {
        match self {
            Self::Own(mut connection) => {
                let request = head.request(RequestBody(source.clone()), &source.trailer_names());
                source.restrict_trailers(Some(announced(request.headers())));
                let (parts, body) = connection.send(request).await?.into_parts();
                Ok((parts, ResponseBody::Own(connection, body)))
            }
            Self::Shared(slot) => {
                let (parts, received) = slot.send(head, source).await?;
                let body = ResponseBody::Shared {
                    received,
                    _slot: slot,
                };
                Ok((parts, body))
            }
        }
    }
}

impl ResponseBody {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// Returns why the rest does not arrive.
    pub async fn next(&mut self) -> Option<Result<BodyFrame, Failure>> {
        let (_, body) = match self {
            Self::Own(connection, body) => (connection, body),
            Self::Shared { received, .. } => return received.next().await,
        };
        loop {
            let frame =
                std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context));
            let frame = match frame.await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(failure::of_http(&error, true))),
            };
            match frame.into_data() {
                Ok(data) => return Some(Ok(BodyFrame::Data(data))),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Some(Ok(BodyFrame::Trailers(trailers)));
                    }
                }
            }
        }
    }

    /// Buffers the data that has arrived while its call does not take it, so that other streams on
    /// the same connection do not wait for that.
    pub fn prefetch(&mut self, context: &mut Context<'_>) {
        if let Self::Shared { received, .. } = self {
            received.prefetch(context);
        }
    }

    /// Records that this much of the body has been passed on: the upstream may send as much again.
    pub fn credit_passed_on(&mut self, bytes: usize) {
        if let Self::Shared { received, .. } = self {
            received.credit_passed_on(bytes);
        }
    }

    /// Ends the response, and makes its connection available to other requests if it can be reused.
    pub async fn leave(self, worker: &Rc<Worker>, head: RequestHead, source: &BodySource) {
        // If an HTTP/1.1 response ends before all of its request was sent, the rest stays unsent,
        // so that the connection cannot be reused. A stream ends by itself.
        if let Self::Own(connection, _) = self
            && source.is_done()
        {
            idle::keep(worker.clone(), head.destination, connection).await;
        }
    }
}
