//! The bodies of a request and of its response, as streams.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use faasw_abi::wire::Pair;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::mpsc;

use crate::error::{ClientError, InvokeError};
use crate::sink::Timing;

/// The body that a client sends after the head of its request.
pub type RequestBody = UnsyncBoxBody<Bytes, ClientError>;

/// A part of a response's body.
#[derive(Debug)]
pub enum ResponsePart {
    /// Bytes.
    Data(Bytes),
    /// The end of the body: nothing follows.
    End {
        /// The trailers as the function made them, not validated.
        trailers: Vec<Pair>,
        /// Where the time went, as far as it is known by now.
        timing: Timing,
    },
}

/// How many parts wait for a slow client. With [`PART_BYTES`] this is the room that a response has
/// in addition to its ring.
pub(super) const PARTS: usize = 8;

/// The most bytes of a part.
pub(crate) const PART_BYTES: usize = 64 << 10;

/// The body of a response that is still being made. Dropping it ends the instance.
#[derive(Debug)]
pub struct ResponseStream {
    parts: mpsc::Receiver<Result<ResponsePart, InvokeError>>,
    ended: bool,
}

/// The sending end of a [`ResponseStream`].
pub(crate) type PartSender = mpsc::Sender<Result<ResponsePart, InvokeError>>;

pub(crate) fn channel() -> (PartSender, ResponseStream) {
    let (sender, parts) = mpsc::channel(PARTS);
    let stream = ResponseStream {
        parts,
        ended: false,
    };
    (sender, stream)
}

impl ResponseStream {
    /// Returns the next part, and `None` after [`ResponsePart::End`] or an error.
    pub fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<ResponsePart, InvokeError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let part = std::task::ready!(self.parts.poll_recv(context));
        let part = part.unwrap_or_else(|| {
            // The task that makes the parts always sends how they end.
            Err(InvokeError::GuestFailed("nobody follows it".to_owned()))
        });
        self.ended = !matches!(part, Ok(ResponsePart::Data(_)));
        Poll::Ready(Some(part))
    }
}

/// The body of a response.
#[derive(Debug)]
pub enum ReplyBody {
    /// The whole body: the function finished before anything had to be sent.
    Whole {
        /// The bytes of the body.
        bytes: Bytes,
        /// The trailers as the function made them, not validated.
        trailers: Vec<Pair>,
    },
    /// A body that is still being made.
    Stream(ResponseStream),
}

/// A frame of a request's body.
pub(crate) enum RequestFrame {
    /// Bytes, possibly none.
    Data(Bytes),
    /// The end of the body, with its trailers.
    End(Vec<Pair>),
}

/// Receives a request's body frame by frame.
#[derive(Debug)]
pub struct IncomingBody {
    body: Option<RequestBody>,
}

impl IncomingBody {
    pub(crate) fn new(body: RequestBody) -> Self {
        let is_whole = http_body::Body::is_end_stream(&body);
        Self {
            body: (!is_whole).then_some(body),
        }
    }

    /// Returns whether the end has been received.
    pub(crate) fn has_ended(&self) -> bool {
        self.body.is_none()
    }

    /// Returns the next frame. Pends for ever after the end.
    pub(crate) async fn next(&mut self) -> Result<RequestFrame, ClientError> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Returns the next frame if it has arrived.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<RequestFrame, ClientError>> {
        let Some(body) = &mut self.body else {
            return Poll::Pending;
        };
        let frame = std::task::ready!(http_body::Body::poll_frame(Pin::new(body), context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Ok(RequestFrame::Data(data)),
                Err(frame) => {
                    self.body = None;
                    Ok(RequestFrame::End(trailers(frame)))
                }
            },
            Some(Err(error)) => Err(error),
            None => {
                self.body = None;
                Ok(RequestFrame::End(Vec::new()))
            }
        })
    }
}

fn trailers(frame: Frame<Bytes>) -> Vec<Pair> {
    let Ok(fields) = frame.into_trailers() else {
        return Vec::new();
    };
    fields
        .iter()
        .map(|(name, value)| (name.as_str().into(), value.as_bytes().into()))
        .collect()
}
