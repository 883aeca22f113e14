//! The body of a response.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use faasw_pool::{InvokeError, ParcelError, ResponsePart, ResponseStream, Sealing};
use http::{HeaderMap, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use thiserror::Error;
use tokio::sync::Semaphore;

use super::{access::RequestRecorder, export::ExportStream, fields, timing};

/// The reason why a body was cut off. What came before is incomplete.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The response of a function was cut off.
    #[error("the response was cut off: {0}")]
    Response(InvokeError),
    /// An export was cut off.
    #[error("the export was cut off: {0}")]
    Export(ParcelError),
}

/// The body of a response, or an export. Read it as an [`http_body::Body`].
///
/// The body is produced while it is read, and no faster. Dropping a response's body ends the
/// function's instance, unless all bytes that its `Content-Length` announces were read: then the
/// function runs to its end.
#[derive(Debug, Default)]
pub struct Body {
    content: Content,
    /// The access record, which is reported when the body is dropped, if the request is followed.
    follow: Option<Box<RequestRecorder>>,
}

#[derive(Debug, Default)]
enum Content {
    #[default]
    Empty,
    Whole {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    Stream(Streamed),
    Export(ExportStream),
    /// No content, although the message announces the length of a content.
    Announced(u64),
}

/// A response that is still being produced.
#[derive(Debug)]
struct Streamed {
    /// The stream, until it has ended.
    parts: Option<ResponseStream>,
    /// Bytes of the announced length that are still to come.
    left: Option<u64>,
    /// Whether the client requested `Server-Timing` as a trailer.
    timing: bool,
}

impl Streamed {
    /// Returns the next frame; `None` after the last.
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(parts) = &mut self.parts else {
            return Poll::Ready(None);
        };
        let part = ready!(parts.poll_part(context));
        let is_last = !matches!(part, Some(Ok(ResponsePart::Data(_))));
        let frame = part.and_then(|part| {
            let frame = part.and_then(|part| frame(part, &mut self.left, self.timing));
            frame.transpose()
        });
        // A stream that breaks off is not drained.
        if is_last || matches!(frame, Some(Err(_))) {
            self.parts = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Response)))
    }
}

/// Lets the function run to its end if all announced bytes were read: a client that reads no
/// further then has not disconnected.
impl Drop for Streamed {
    fn drop(&mut self) {
        if self.left == Some(0)
            && let Some(parts) = self.parts.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(drain_to_end(parts));
        }
    }
}

/// Waits for the end after the last announced byte. Stops if more bytes arrive.
async fn drain_to_end(mut parts: ResponseStream) {
    let mut next = async || std::future::poll_fn(|context| parts.poll_part(context)).await;
    while let Some(Ok(ResponsePart::Data(bytes))) = next().await {
        if !bytes.is_empty() {
            return;
        }
    }
}

impl Body {
    /// Returns a body without content.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Makes an HTTP/1 server send the `Content-Length` of a 304. The server drops the field if the
    /// body is known to be empty, and writes it if the body claims that length. hyper never writes
    /// content after a 304. Over HTTP/2 it keeps the field of an empty body.
    pub(crate) fn announcing(mut self, length: u64) -> Self {
        if matches!(self.content, Content::Empty) {
            self.content = Content::Announced(length);
        }
        self
    }

    pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Content::Whole { bytes, trailers }.into()
    }

    /// Returns a body that arrives part by part. `length` is its length in bytes, if it is known.
    pub(crate) fn stream(parts: ResponseStream, length: Option<u64>, timing: bool) -> Self {
        let parts = Some(parts);
        let left = length;
        Content::Stream(Streamed {
            parts,
            left,
            timing,
        })
        .into()
    }

    /// Returns an export that is made as it is read. Each piece takes a permit of `turns`.
    pub(crate) fn export(export: Sealing, turns: Arc<Semaphore>) -> Self {
        Content::Export(ExportStream::new(export, turns)).into()
    }

    /// Attaches an access record to the body of a response, if the request is followed.
    pub(crate) fn record(
        follow: Option<Box<RequestRecorder>>,
        mut response: Response<Self>,
    ) -> Response<Self> {
        if let Some(mut follow) = follow {
            follow.set_response(&response);
            let body = response.body_mut();
            follow.count_body_bytes(0, body.is_fully_passed_on());
            body.follow = Some(follow);
        }
        response
    }

    /// Whether all announced bytes were passed on, so that the end is known without reading
    /// further.
    fn is_fully_passed_on(&self) -> bool {
        let has_nothing_left = matches!(
            &self.content,
            Content::Stream(Streamed { left: Some(0), .. }) | Content::Announced(_)
        );
        has_nothing_left || http_body::Body::is_end_stream(self)
    }

    /// Returns the whole content if it is in memory already, as for short responses of functions
    /// and for problems.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Empty | Content::Announced(_) => Some(&[]),
            Content::Whole { bytes, .. } => Some(bytes),
            Content::Stream(_) | Content::Export(_) => None,
        }
    }

    /// Waits for the whole content. Its size is limited only by the function's response or by the
    /// image.
    ///
    /// # Errors
    /// Returns [`BodyError`] if the body is cut off.
    pub async fn into_bytes(self) -> Result<Bytes, BodyError> {
        Ok(self.collect().await?.to_bytes())
    }
}

impl From<Content> for Body {
    fn from(content: Content) -> Self {
        Self {
            content,
            follow: None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::whole(bytes, None)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let next = match &mut self.content {
            Content::Empty | Content::Announced(_) => None,
            Content::Whole { bytes, trailers } => {
                if bytes.is_empty() {
                    trailers
                        .take()
                        .map(|trailers| Ok(Frame::trailers(trailers)))
                } else {
                    Some(Ok(Frame::data(std::mem::take(bytes))))
                }
            }
            Content::Stream(streamed) => ready!(streamed.poll_frame(context)),
            Content::Export(export) => ready!(export.poll_piece(context))
                .map(|piece| piece.map(Frame::data).map_err(BodyError::Export)),
        };
        if !matches!(&next, Some(Ok(frame)) if frame.is_data()) {
            self.content = Content::Empty;
        }
        // A body that breaks off never ends, so its record is reported at once.
        let breaks_off = matches!(next, Some(Err(_)));
        if let Some(mut follow) = self.follow.take().filter(|_| !breaks_off) {
            let data = match &next {
                Some(Ok(frame)) => frame.data_ref(),
                _ => None,
            };
            follow.count_body_bytes(data.map_or(0, Bytes::len), self.is_fully_passed_on());
            self.follow = Some(follow);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Whole { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
            Content::Stream(_) | Content::Announced(_) => false,
            Content::Export(export) => export.bytes_left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            // With an exact size, HTTP/1 would have no place for trailers.
            Content::Whole {
                bytes,
                trailers: Some(_),
            } => {
                let mut hint = SizeHint::new();
                hint.set_lower(bytes.len() as u64);
                hint
            }
            Content::Whole { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(Streamed { left, .. }) => {
                left.map_or_else(SizeHint::new, SizeHint::with_exact)
            }
            Content::Export(export) => SizeHint::with_exact(export.bytes_left()),
            Content::Announced(length) => SizeHint::with_exact(*length),
        }
    }
}

/// Converts a part to a frame; `None` if the body ends without trailers.
fn frame(
    part: ResponsePart,
    left: &mut Option<u64>,
    with_timing: bool,
) -> Result<Option<Frame<Bytes>>, InvokeError> {
    match part {
        ResponsePart::Data(bytes) => {
            if let Some(left) = left {
                *left = left
                    .checked_sub(bytes.len() as u64)
                    .ok_or_else(|| wrong_length("its body is longer than its content-length"))?;
            }
            Ok(Some(Frame::data(bytes)))
        }
        ResponsePart::End { trailers, timing } => {
            if left.is_some_and(|left| left > 0) {
                return Err(wrong_length("its body is shorter than its content-length"));
            }
            let mut fields = fields::trailers(&trailers);
            if with_timing {
                timing::add_server_timing(&mut fields, &timing);
            }
            Ok((!fields.is_empty()).then(|| Frame::trailers(fields)))
        }
    }
}

fn wrong_length(report: &str) -> InvokeError {
    InvokeError::BadResponse {
        report: report.into(),
    }
}
