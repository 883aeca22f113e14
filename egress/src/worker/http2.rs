//! An HTTP/2 connection, and its streams: one for each request.
//!
//! These bounds apply:
//!
//! - A response body is bounded by its stream's window, which is returned as the node takes the
//!   body.
//! - A request body is bounded by the server's window, and by the library's send buffer.
//! - A connection is bounded by its number of streams, and a head by its size.
//! - Small pieces are bounded by the library's budget. It suffices for the data that arrives in one
//!   turn, because calls take in at once what has arrived.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use faasw_abi::channel::HEAD_MAX;
use faasw_abi::outgoing::Failure;
use h2::client::{self, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use http::response::Parts;
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::body::BodySource;
use super::failure::{self, SendError};
use super::request::RequestHead;
use super::response::BodyFrame;
use crate::frames::{FRAME_MAX, WINDOW};

/// Most requests that share a connection. Further requests use another connection.
pub const STREAMS_MAX: usize = 32;

/// Most bytes of a response that its stream may have sent and its call has not taken: as much as
/// the call has credit for.
const STREAM_WINDOW: u32 = WINDOW as u32;

/// Most such bytes of all streams of a connection together: enough for the windows of all, so that
/// no stream waits because another stream's call takes nothing.
pub const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_MAX as u32;

/// The library cuts off a larger header list without reporting why. A head that is larger than
/// allowed, but smaller than this, is reported as too large.
const HEADER_LIST_MAX: u32 = 2 * HEAD_MAX as u32;

/// Budget for small pieces that no call has taken in yet. A piece of less than 256 bytes costs the
/// difference to 256. The budget covers as many pieces as arrive in one turn of
/// [`CountingStream`](super::stream::CountingStream), and those in the library's own buffer.
const SMALL_PIECES: usize = 4 << 20;

/// Most reset streams whose end the peer may not know of yet.
const RESET_MAX: usize = 256;

/// Stream limit of a server that has not announced one. No announced limit has this value.
pub const UNKNOWN_LIMIT: usize = usize::MAX - 1;

/// Performs the HTTP/2 handshake over `stream`. The second value drives the connection.
///
/// # Errors
/// Returns the failure if the connection cannot be used.
pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
) -> Result<(SendRequest<Bytes>, Connection<S, Bytes>), Failure> {
    client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(UNKNOWN_LIMIT)
        .max_header_list_size(HEADER_LIST_MAX)
        .max_send_buffer_size(FRAME_MAX)
        .max_concurrent_reset_streams(RESET_MAX)
        .data_frame_budget(SMALL_PIECES)
        .handshake(stream)
        .await
        .map_err(|error| failure::of_http2(&error, false))
}

/// A request that has been sent, except for the rest of its body.
pub struct SentRequest {
    response: ResponseFuture,
    sending: Option<BodySender>,
}

impl SentRequest {
    /// Sends a request.
    ///
    /// # Errors
    /// Returns why it cannot be sent. If that is the connection's fault, the error is
    /// [`is_unsent`](SendError::is_unsent), and the connection takes no more requests.
    pub fn send(
        mut sender: SendRequest<Bytes>,
        head: &RequestHead,
        source: &Rc<BodySource>,
    ) -> Result<Self, SendError> {
        let failed = |failure, is_unsent| SendError {
            failure,
            is_unsent,
            has_answer: false,
        };
        let request = head.http2_request(source.size());
        let request = request.map_err(|failure| failed(failure, false))?;
        // Trailers of HTTP/2 need not be announced.
        source.restrict_trailers(None);
        let is_whole = source.is_done();
        if is_whole {
            source.mark_ended();
        }
        let sent = sender.send_request(request, is_whole);
        let (response, stream) =
            sent.map_err(|error| failed(failure::of_http2(&error, false), true))?;
        let sending = (!is_whole).then(|| BodySender::new(source.clone(), stream));
        Ok(Self { response, sending })
    }

    /// Waits for the head of the response.
    ///
    /// # Errors
    /// Returns why there is no response.
    pub async fn response(self) -> Result<(Parts, ReceivedBody), SendError> {
        let response = self.response.await.map_err(|error| {
            let is_unsent = failure::is_unprocessed(&error);
            SendError {
                failure: failure::of_http2(&error, false),
                is_unsent,
                // Except for the end of the connection, every error belongs to this request.
                has_answer: !is_unsent && !error.is_io(),
            }
        })?;
        let (parts, body) = response.into_parts();
        let received = ReceivedBody {
            body,
            buffer: BytesMut::new(),
            end: None,
            _sending: self.sending,
        };
        Ok((parts, received))
    }
}

/// A request body that is being sent. If it is dropped before its end, and the response as well,
/// the stream is reset.
struct BodySender(AbortHandle);

impl BodySender {
    fn new(source: Rc<BodySource>, stream: SendStream<Bytes>) -> Self {
        Self(tokio::task::spawn_local(send_body(source, stream)).abort_handle())
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a body as the server accepts it. The task that waits for the response receives the error
/// if sending fails.
async fn send_body(source: Rc<BodySource>, mut stream: SendStream<Bytes>) {
    loop {
        let frame = std::future::poll_fn(|context| source.poll(context)).await;
        // An error means that the stream has ended: nothing more is to be sent.
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

/// Sends a piece as there is room for it, together with the end if that is known. Returns `None` if
/// the peer no longer accepts data.
async fn send_data(
    source: &BodySource,
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
) -> Option<()> {
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
            source.mark_ended();
        }
        stream.send_data(piece, is_last).ok()?;
    }
    Some(())
}

/// A response body that is being received. If it is dropped before its end, only its stream is
/// reset.
pub struct ReceivedBody {
    body: RecvStream,
    /// Data that was taken in and not passed on.
    buffer: BytesMut,
    /// The trailers or the failure after the data; `None` until the end has arrived.
    end: Option<Result<Option<HeaderMap>, Failure>>,
    _sending: Option<BodySender>,
}

impl ReceivedBody {
    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// Returns why the rest does not arrive.
    pub async fn next(&mut self) -> Option<Result<BodyFrame, Failure>> {
        if !self.buffer.is_empty() {
            return Some(Ok(BodyFrame::Data(self.buffer.split().freeze())));
        }
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Failure>>> {
        if self.end.is_none()
            && let Some(data) = ready!(self.poll_data(context))
        {
            return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
        }
        Poll::Ready(match self.end.replace(Ok(None)) {
            Some(Ok(Some(trailers))) => Some(Ok(BodyFrame::Trailers(trailers))),
            Some(Err(failure)) => Some(Err(failure)),
            Some(Ok(None)) | None => None,
        })
    }

    /// Returns the next piece that has arrived, which is not empty; `None` when the end is known.
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

    /// Takes in the data that has arrived, as one piece, however small the received pieces are.
    pub fn prefetch(&mut self, context: &mut Context<'_>) {
        while self.end.is_none() {
            match self.poll_data(context) {
                Poll::Ready(Some(data)) => self.buffer.extend_from_slice(&data),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// Records that this much of the body has been passed on.
    pub fn credit_passed_on(&mut self, bytes: usize) {
        // This cannot fail: the bytes have arrived, and are no more than what can be released.
        let _ = self.body.flow_control().release_capacity(bytes);
    }
}
