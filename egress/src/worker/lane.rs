//! What a request goes over: a connection of HTTP/1.1 that is its own for as long as it takes, or a
//! stream of a connection of HTTP/2 that it shares.

use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::outgoing::Failure;
use faasw_egress_policy::Scheme;
use http::HeaderMap;
use http::response::Parts;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::body::{RequestBody, Source};
use super::request::{RequestHead, announced};
use super::shared::{Dial, Plan};
use super::{Worker, failure, http1, http2, idle, tls};

/// How long a request waits for a connection that another one makes, before it makes its own: whom
/// that one has met may never answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A place to send a request from.
pub enum Lane {
    Own(http1::Connection),
    Shared(http2::Slot),
}

/// Why there is no answer.
pub struct NoAnswer {
    pub failure: Failure,
    /// Whether the request has not been sent at all, or the other side says that it has not looked
    /// at it.
    pub is_unsent: bool,
    /// Whether any of the answer has come, or a reset in its place.
    pub has_answer: bool,
}

/// An answer's body, on its way.
pub enum Answering {
    Own(http1::Connection, Incoming),
    Shared(http2::Received),
}

/// What comes next of a body.
pub enum Piece {
    Data(Bytes),
    /// The last.
    Trailers(HeaderMap),
}

impl Lane {
    /// Finds one for a call: one that is there, one that is being made and has room for it, or a
    /// new one. Whether it was used before. With `than`, one that is younger.
    ///
    /// # Errors
    /// Why there is none.
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
        let patient_until = Instant::now() + PATIENCE;
        loop {
            if let Some(slot) = http2::Slot::take(worker, origin, than) {
                return Ok((Self::Shared(slot), true));
            }
            if let Some(own) = own() {
                return Ok((own, true));
            }
            match worker.shared.plan(worker, origin, &mut failed) {
                Plan::Wait(wait) => {
                    if timeout_at(patient_until, wait.changed()).await.is_err() {
                        // As if that one had failed.
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
            let connection = http2::Connection::over(worker, &head.destination, stream).await?;
            return Ok(Self::Shared(dial.shares(connection)));
        }
        let connection = http1::Connection::over(stream).await?;
        dial.shares_nothing();
        Ok(Self::Own(connection))
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn send(
        self,
        head: &RequestHead,
        source: &Rc<Source>,
    ) -> Result<(Parts, Answering), NoAnswer> {
        match self {
            Self::Own(mut connection) => {
                let request = head.request(RequestBody(source.clone()), &source.trailer_names());
                source.is_sent_with(Some(announced(request.headers())));
                let (parts, body) = connection.send(request).await?.into_parts();
                Ok((parts, Answering::Own(connection, body)))
            }
            Self::Shared(slot) => {
                let (parts, received) = slot.send(head, source).await?;
                Ok((parts, Answering::Shared(received)))
            }
        }
    }
}

impl Answering {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Why the rest does not come.
    pub async fn next(&mut self) -> Option<Result<Piece, Failure>> {
        let (_, body) = match self {
            Self::Own(connection, body) => (connection, body),
            Self::Shared(received) => return received.next().await,
        };
        loop {
            let frame =
                std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context));
            let frame = match frame.await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(failure::of_http(&error, true))),
            };
            match frame.into_data() {
                Ok(data) => return Some(Ok(Piece::Data(data))),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Some(Ok(Piece::Trailers(trailers)));
                    }
                }
            }
        }
    }

    /// Takes in what is there, as long as nobody takes what came before: others on the same
    /// connection are not to wait for that.
    pub fn take_in(&mut self, context: &mut Context<'_>) {
        if let Self::Shared(received) = self {
            received.take_in(context);
        }
    }

    /// That much of it has been passed on: the upstream may send as much again.
    pub fn passed_on(&mut self, bytes: usize) {
        if let Self::Shared(received) = self {
            received.passed_on(bytes);
        }
    }

    /// The answer is over: what it came over is for others, if it can be.
    pub async fn leave(self, worker: &Rc<Worker>, head: RequestHead, source: &Source) {
        // An answer of HTTP/1.1 that comes before its request is all there leaves the rest unsent.
        // A stream ends by itself.
        if let Self::Own(connection, _) = self
            && source.is_done()
        {
            idle::keep(worker.clone(), head.destination, connection).await;
        }
    }
}
