//! Bodies that report their progress to the connection's client state.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    connections::ForwardedRequest,
    peer::request::{ActiveRequest, IncomingBody},
};
use crate::message::{Body, BodyError};

/// Maximum size of a piece in bytes: the client's timeout applies to each piece.
const PIECE: usize = 32 << 10;

/// A request's body.
#[derive(Debug)]
pub(crate) struct RequestBodyStream {
    body: Incoming,
    receiving: Option<IncomingBody>,
}

impl RequestBodyStream {
    pub(super) fn new(body: Incoming, request: &ActiveRequest) -> Self {
        let receiving = (!body.is_end_stream()).then(|| request.begin_body());
        Self { body, receiving }
    }
}

impl http_body::Body for RequestBodyStream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            if let Some(receiving) = &mut this.receiving {
                receiving.note_drained();
            }
            return Poll::Pending;
        };
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(receiving)) = (frame.data_ref(), &mut this.receiving) {
                    receiving.consumed(data.len() as u64);
                }
                if this.body.is_end_stream() {
                    this.receiving = None;
                }
            }
            Some(Err(_)) | None => this.receiving = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response, which is split into pieces if the client is watched.
#[derive(Debug)]
pub(super) struct ResponseBodyStream {
    body: Body,
    rest: Bytes,
    request: ActiveRequest,
    /// The request's count for an address behind a proxy, kept until the end of the body.
    _forwarded: Option<ForwardedRequest>,
    in_pieces: bool,
}

impl ResponseBodyStream {
    /// Returns the body of the response to `request`. With HTTP/1, the socket shows whether the
    /// client reads it. With HTTP/2, only the request for the next piece does. Until hyper polls
    /// for the first piece, the client counts as not reading.
    pub(super) fn new(
        body: Body,
        request: ActiveRequest,
        forwarded: Option<ForwardedRequest>,
        in_pieces: bool,
    ) -> Self {
        if in_pieces {
            if body.is_end_stream() {
                request.note_piece_taken()
            } else {
                request.note_piece_given()
            }
        }
        Self {
            body,
            rest: Bytes::new(),
            request,
            _forwarded: forwarded,
            in_pieces,
        }
    }
}

impl http_body::Body for ResponseBodyStream {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if !this.in_pieces {
            return Pin::new(&mut this.body).poll_frame(context);
        }
        // A poll for more means that the client has taken the previous piece.
        this.request.note_piece_taken();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        this.request.note_piece_given();
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::peer::tests::peer;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn a_watched_client_receives_pieces_with_correct_size_hints() {
        let body = Body::from(vec![b'x'; 100_000]);
        let mut body = ResponseBodyStream::new(body, peer().begin(false, 0), None, true);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(100_000));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE);
        let left = http_body::Body::size_hint(&body).exact();
        assert_eq!(left, Some(100_000 - PIECE as u64));
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!(rest.len(), 100_000 - PIECE);
    }

    #[tokio::test]
    async fn an_unwatched_client_receives_whole_frames() {
        let body = Body::from(vec![b'x'; 100_000]);
        let mut body = ResponseBodyStream::new(body, peer().begin(true, 0), None, false);
        let whole = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(whole.len(), 100_000);
    }
}
