//! The body of a self call.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::PollSender;

use crate::message::trailers;

/// Pieces that wait to be read. One, so that the sender is no faster than the reader.
const QUEUED_PIECES: usize = 1;

/// The largest piece, in bytes.
const MAX_PIECE_BYTES: usize = 64 << 10;

/// The sending end of a body. If it is dropped before it is finished, the body is broken off.
#[derive(Debug)]
pub(crate) struct SelfCallBodySender {
    pieces: PollSender<Bytes>,
    end: oneshot::Sender<Vec<u8>>,
}

/// The receiving end of a body.
#[derive(Debug)]
pub(crate) struct SelfCallBody {
    pieces: mpsc::Receiver<Bytes>,
    /// Receives the body's tail. `None` after the end.
    end: Option<oneshot::Receiver<Vec<u8>>>,
    /// Bytes that are still to come, if the length was announced.
    left: Option<u64>,
}

/// Why a body is not as it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum SelfCallBodyError {
    /// The sender was dropped, or reported that the body ends early.
    #[error("the calling function did not send all of it")]
    Unfinished,
    /// The body is longer or shorter than announced.
    #[error("its length differs from Content-Length")]
    Length,
}

/// Creates the two ends of a body. If it `is_whole`, the body is empty and complete, and there is
/// no sending end.
///
/// # Errors
/// Returns `HttpRequestBodySize` if the body is empty, but a length above 0 is announced.
pub(super) fn body_channel(
    length: Option<u64>,
    is_whole: bool,
) -> Result<(Option<SelfCallBodySender>, SelfCallBody), Failure> {
    let (sender, pieces) = mpsc::channel(QUEUED_PIECES);
    if is_whole {
        if length.is_some_and(|length| length > 0) {
            return Err(Failure::new(FailureCode::HttpRequestBodySize));
        }
        let (end, left) = (None, Some(0));
        return Ok((None, SelfCallBody { pieces, end, left }));
    }
    let (tell_end, end) = oneshot::channel();
    let sending = SelfCallBodySender {
        pieces: PollSender::new(sender),
        end: tell_end,
    };
    let sent = SelfCallBody {
        pieces,
        end: Some(end),
        left: length,
    };
    Ok((Some(sending), sent))
}

impl SelfCallBodySender {
    /// Returns how many bytes can be sent now. Stays pending if the receiving end was dropped.
    pub(super) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        match ready!(self.pieces.poll_reserve(context)) {
            Ok(()) => Poll::Ready(MAX_PIECE_BYTES),
            Err(_) => Poll::Pending,
        }
    }

    /// Sends bytes for which there was room.
    pub(super) fn send(&mut self, piece: Bytes) {
        // If the receiving end was dropped, the response tells the sender what happened.
        let _ = self.pieces.send_item(piece);
    }

    /// Ends the body with this tail.
    pub(super) fn finish(self, tail: Vec<u8>) {
        let _ = self.end.send(tail);
    }
}

impl Body for SelfCallBody {
    type Data = Bytes;
    type Error = SelfCallBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, SelfCallBodyError>>> {
        let Self { pieces, end, left } = &mut *self;
        let Some(tail) = end else {
            return Poll::Ready(None);
        };
        if let Some(piece) = ready!(pieces.poll_recv(context)) {
            if let Some(left) = left {
                match left.checked_sub(piece.len() as u64) {
                    Some(less) => *left = less,
                    None => return Poll::Ready(Some(Err(SelfCallBodyError::Length))),
                }
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let tail = ready!(Pin::new(tail).poll(context));
        *end = None;
        if left.is_some_and(|left| left > 0) {
            return Poll::Ready(Some(Err(SelfCallBodyError::Length)));
        }
        let tail = tail.ok().and_then(|tail| Tail::decode(&tail).ok());
        Poll::Ready(match tail {
            Some(Tail::Trailers(fields)) if fields.is_empty() => None,
            Some(Tail::Trailers(fields)) => Some(Ok(Frame::trailers(trailers(&fields)))),
            Some(Tail::Failed(_)) | None => Some(Err(SelfCallBodyError::Unfinished)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.end, self.left) {
            (None, _) => SizeHint::with_exact(0),
            (Some(_), Some(left)) => SizeHint::with_exact(left),
            (Some(_), None) => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use std::future::poll_fn;

    async fn read(mut body: SelfCallBody) -> Result<(Vec<u8>, Option<String>), SelfCallBodyError> {
        let (mut bytes, mut sum) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap();
                    let value = trailers.get("x-sum").unwrap();
                    sum = Some(value.to_str().unwrap().to_owned());
                }
            }
        }
        assert!(body.is_end_stream());
        Ok((bytes, sum))
    }

    /// Sends a body of three pieces with the announced length and this tail, and returns what the
    /// receiver reads.
    async fn pass(
        length: Option<u64>,
        tail: Option<Tail>,
    ) -> Result<(Vec<u8>, Option<String>), SelfCallBodyError> {
        let (sending, body) = body_channel(length, false).unwrap();
        let mut sending = sending.unwrap();
        let reading = tokio::spawn(read(body));
        for piece in [&b"one"[..], b"two", b"six"] {
            let room = poll_fn(|context| sending.poll_room(context));
            tokio::select! {
                room = room => assert_eq!(room, MAX_PIECE_BYTES),
                // The receiver has stopped reading.
                () = tokio::time::sleep(std::time::Duration::from_secs(3600)) => break,
            }
            sending.send(Bytes::from_static(piece));
        }
        match tail {
            Some(tail) => sending.finish(tail.encode()),
            None => drop(sending),
        }
        reading.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_self_call_body_arrives_unchanged_or_fails() {
        let whole = || Some(Tail::Trailers(Vec::new()));
        let sum = || Some(Tail::Trailers(vec![(b"x-sum".to_vec(), b"9".to_vec())]));
        let all = || b"onetwosix".to_vec();
        assert_eq!(pass(None, whole()).await, Ok((all(), None)));
        assert_eq!(pass(Some(9), sum()).await, Ok((all(), Some("9".into()))));
        let failed = Tail::Failed(Failure::new(FailureCode::InternalError));
        for (length, tail, error) in [
            (None, None, SelfCallBodyError::Unfinished),
            (Some(9), Some(failed), SelfCallBodyError::Unfinished),
            (Some(10), whole(), SelfCallBodyError::Length),
            (Some(8), whole(), SelfCallBodyError::Length),
            (Some(0), whole(), SelfCallBodyError::Length),
        ] {
            assert_eq!(pass(length, tail).await, Err(error), "{length:?}");
        }
    }

    #[tokio::test]
    async fn a_request_without_a_body_is_complete_at_once() {
        let (sending, body) = body_channel(None, true).unwrap();
        assert!(sending.is_none() && body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(body_channel(Some(0), true).is_ok());
        assert!(body_channel(Some(1), true).is_err());
    }
}
