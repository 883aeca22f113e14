//! A connection that speaks HTTP/2, and the streams on it: one for each request.
//!
//! What is bounded, and by what: an answer's body by its stream's window, which is given back as
//! the node takes it, a request's likewise by the server's window and by what the library keeps of
//! it; a connection by how many streams it has; heads by their size; small pieces by the library's
//! budget, which is enough for what comes in a turn, since calls take in what is there at once.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use faasw_abi::channel::HEAD_MAX;
use faasw_abi::outgoing::Failure;
use faasw_egress_policy::Destination;
use h2::client::{self, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use http::response::Parts;
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::body::Source;
use super::lane::{NoAnswer, Piece};
use super::request::RequestHead;
use super::stream::Counted;
use super::usage::{UNSAID, Usage};
use super::{Worker, failure};
use crate::frames::{FRAME_MAX, WINDOW};

/// Most requests that share a connection: beyond, there is another.
pub const STREAMS_MAX: usize = 32;

/// Most bytes of an answer that its stream may have sent and nobody has taken: what its call has
/// credit for.
const STREAM_WINDOW: u32 = WINDOW as u32;

/// Likewise of all streams of a connection: none waits because another's call takes nothing.
pub const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_MAX as u32;

/// The library cuts off what is larger without a word on why; what is larger than a head may be is
/// told below that.
const HEADER_LIST_MAX: u32 = 2 * HEAD_MAX as u32;

/// What small pieces may take that nobody has taken in, each as much as it is smaller than 256
/// bytes: as many as come in a turn of [`Counted`], and the library's own buffer.
const SMALL_PIECES: usize = 4 << 20;

/// Streams whose end the other side may not have heard of yet.
const RESET_MAX: usize = 256;

/// A connection; dropped by all who share it, it is closed.
pub struct Connection {
    /// When it was made.
    pub made: Instant,
    /// Who uses it.
    pub usage: Rc<Usage>,
    sender: SendRequest<Bytes>,
    task: AbortHandle,
}

impl Connection {
    /// Speaks HTTP/2 over `stream`, to `origin`.
    ///
    /// # Errors
    /// When it is of no use.
    pub async fn over<S>(
        worker: &Rc<Worker>,
        origin: &Destination,
        stream: S,
    ) -> Result<Rc<Self>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let received = Rc::new(Cell::new(0));
        let handshake = client::Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(UNSAID)
            .max_header_list_size(HEADER_LIST_MAX)
            .max_send_buffer_size(FRAME_MAX)
            .max_concurrent_reset_streams(RESET_MAX)
            .data_frame_budget(SMALL_PIECES)
            .handshake(Counted::new(stream, received.clone()));
        let (sender, connection) = handshake
            .await
            .map_err(|error| failure::of_http2(&error, false))?;
        let usage = Rc::new(Usage::new(received));
        let driven = drive(worker.clone(), origin.clone(), usage.clone(), connection);
        Ok(Rc::new(Self {
            made: Instant::now(),
            usage,
            sender,
            task: tokio::task::spawn_local(driven).abort_handle(),
        }))
    }

    /// Whether the other side takes requests, as far as is known.
    pub fn is_usable(&self) -> bool {
        // Another handle has no stream that waits, and fails where the other side goes away.
        let mut sender = self.sender.clone();
        let ready = sender.poll_ready(&mut Context::from_waker(std::task::Waker::noop()));
        !self.task.is_finished() && matches!(ready, Poll::Ready(Ok(())))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Moves what is on a connection until it ends, or has been idle for too long. Whoever waits for an
/// answer is told of an error by its stream.
async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    worker: Rc<Worker>,
    origin: Destination,
    usage: Rc<Usage>,
    mut connection: client::Connection<Counted<S>, Bytes>,
) {
    let shared = &worker.shared;
    let ended = std::future::poll_fn(|context| {
        let polled = Pin::new(&mut connection).poll(context);
        let most = connection.max_concurrent_send_streams();
        if usage.allow(most) {
            shared.has_room_for(&origin, most);
        }
        if usage.is_flooded() {
            Poll::Ready(())
        } else {
            polled.map(|_| ())
        }
    });
    tokio::select! {
        () = ended => {}
        () = usage.idle_for(shared.idle_time) => {}
    }
    shared.forget(&origin, &usage);
}

/// A place on a connection: one request's.
pub struct Slot {
    worker: Rc<Worker>,
    origin: Destination,
    connection: Rc<Connection>,
}

impl Slot {
    /// One on that connection, which has room.
    pub fn new(worker: &Rc<Worker>, origin: &Destination, connection: &Rc<Connection>) -> Self {
        connection.usage.enter();
        Self {
            worker: worker.clone(),
            origin: origin.clone(),
            connection: connection.clone(),
        }
    }

    /// One on any to `origin` that has room; with `than`, on a younger one.
    pub fn take(worker: &Rc<Worker>, origin: &Destination, than: Option<Instant>) -> Option<Self> {
        let connection = worker.shared.take(origin, than)?;
        Some(Self::new(worker, origin, &connection))
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn send(
        self,
        head: &RequestHead,
        source: &Rc<Source>,
    ) -> Result<(Parts, Received), NoAnswer> {
        let request = head.http2_request(source.size());
        let request = request.map_err(|failure| NoAnswer {
            failure,
            is_unsent: false,
            has_answer: false,
        })?;
        // Trailers need not be announced.
        source.is_sent_with(None);
        let is_whole = source.is_done();
        if is_whole {
            source.ends();
        }
        let sent = self
            .connection
            .sender
            .clone()
            .send_request(request, is_whole);
        let (answer, stream) = sent.map_err(|error| {
            let usage = &self.connection.usage;
            self.worker.shared.forget(&self.origin, usage);
            NoAnswer {
                failure: failure::of_http2(&error, false),
                is_unsent: true,
                has_answer: false,
            }
        })?;
        let sending = (!is_whole).then(|| Sending::new(source.clone(), stream));
        let answer = answer.await.map_err(|error| {
            let is_unsent = failure::is_unprocessed(&error);
            NoAnswer {
                failure: failure::of_http2(&error, false),
                is_unsent,
                // All else but the connection's end is said to this request.
                has_answer: !is_unsent && !error.is_io(),
            }
        })?;
        let (parts, body) = answer.into_parts();
        let received = Received {
            body,
            buffer: BytesMut::new(),
            end: None,
            _sending: sending,
            _slot: self,
        };
        Ok((parts, received))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let shared = &self.worker.shared;
        shared.left(&self.worker, &self.origin, &self.connection);
    }
}

/// A request's body on its way. Dropped before its end, and with its answer, the stream is reset.
struct Sending(AbortHandle);

impl Sending {
    fn new(source: Rc<Source>, stream: SendStream<Bytes>) -> Self {
        Self(tokio::task::spawn_local(send_body(source, stream)).abort_handle())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a body as the server takes it. Whoever waits for the answer is told where that fails.
async fn send_body(source: Rc<Source>, mut stream: SendStream<Bytes>) {
    loop {
        let frame = std::future::poll_fn(|context| source.poll(context)).await;
        // An error is of a stream that has ended: nothing more is to be sent.
        let _ = match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                let data = source.join(data);
                match send_data(&source, &mut stream, data).await {
                    Some(()) if source.is_done() => return,
                    Some(()) => continue,
                    None => return,
                }
            }
            Some(Ok(Err(frame))) => match frame.into_trailers() {
                Ok(trailers) => stream.send_trailers(trailers),
                Err(_) => continue,
            },
            Some(Err(_)) => return stream.send_reset(Reason::CANCEL),
            None => stream.send_data(Bytes::new(), true),
        };
        return;
    }
}

/// Sends a piece as there is room for it, with the end where that is known. `None` when nobody
/// takes it.
async fn send_data(source: &Source, stream: &mut SendStream<Bytes>, mut data: Bytes) -> Option<()> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = match stream.capacity() {
            0 => std::future::poll_fn(|context| stream.poll_capacity(context))
                .await?
                .ok()?,
            room => room,
        };
        let piece = data.split_to(room.min(data.len()));
        let is_last = data.is_empty() && source.is_done();
        if is_last {
            source.ends();
        }
        stream.send_data(piece, is_last).ok()?;
    }
    Some(())
}

/// An answer's body, on its way. Dropped before its end, its stream is reset, and nothing else.
pub struct Received {
    body: RecvStream,
    /// What was taken in, and not passed on.
    buffer: BytesMut,
    /// What is behind it.
    end: Option<Result<Option<HeaderMap>, Failure>>,
    _sending: Option<Sending>,
    _slot: Slot,
}

impl Received {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Why the rest does not come.
    pub async fn next(&mut self) -> Option<Result<Piece, Failure>> {
        if !self.buffer.is_empty() {
            return Some(Ok(Piece::Data(self.buffer.split().freeze())));
        }
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Piece, Failure>>> {
        if self.end.is_none()
            && let Some(data) = ready!(self.poll_data(context))
        {
            return Poll::Ready(Some(Ok(Piece::Data(data))));
        }
        Poll::Ready(match self.end.replace(Ok(None)) {
            Some(Ok(Some(trailers))) => Some(Ok(Piece::Trailers(trailers))),
            Some(Err(failure)) => Some(Err(failure)),
            Some(Ok(None)) | None => None,
        })
    }

    /// The next piece that has come, which is not empty; `None` when the end is known.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let failed = |error| failure::of_http2(&error, true);
        loop {
            match ready!(self.body.poll_data(context)) {
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => return Poll::Ready(Some(data)),
                Some(Err(error)) => {
                    self.end = Some(Err(failed(error)));
                    return Poll::Ready(None);
                }
                None => break,
            }
        }
        let trailers = ready!(self.body.poll_trailers(context));
        self.end = Some(trailers.map_err(failed));
        Poll::Ready(None)
    }

    /// Takes in what is there: in one piece, however small those are that it came in.
    pub fn take_in(&mut self, context: &mut Context<'_>) {
        while self.end.is_none() {
            match self.poll_data(context) {
                Poll::Ready(Some(data)) => self.buffer.extend_from_slice(&data),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// That much of it has been passed on.
    pub fn passed_on(&mut self, bytes: usize) {
        // It is of what has come: less than what is to be given back.
        let _ = self.body.flow_control().release_capacity(bytes);
    }
}
