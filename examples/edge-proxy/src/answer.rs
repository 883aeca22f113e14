//! Responses to clients. Bodies are streamed in both directions at once, so that neither a client
//! nor a function waits for the other longer than HTTP requires.

use std::{convert::Infallible, pin::pin};

use bytes::Bytes;
use faasw::{Body, Node};
use http::{Method, Request, Response, StatusCode, Version, header, request, response};
use http_body::Body as _;
use http_body_util::{
    BodyExt as _,
    channel::{Channel, Sender},
};
use pingora::{
    Error, ErrorType, Result,
    http::{RequestHeader, ResponseHeader},
    proxy::Session,
};

/// Responds with a function's answer to the request. If the client disconnects, this returns early,
/// which ends the function's microVM.
pub async fn call_function(
    session: &mut Session,
    node: &Node,
    function: &str,
    head: request::Parts,
) -> Result<()> {
    if head.headers.contains_key(header::EXPECT) {
        session.write_continue_response().await?;
    }
    let (sender, body) = Channel::new(1);
    let mut upload = Upload {
        function: Some(sender),
        piece: None,
    };
    let mut invocation = pin!(node.invoke(function, Request::from_parts(head, body)));
    let response = loop {
        tokio::select! {
            response = &mut invocation => break response,
            step = upload.step(session), if upload.is_running() => step?,
        }
    };
    respond(session, response, upload).await
}

/// Sends a response that does not need the rest of the request.
pub async fn send(session: &mut Session, response: Response<Body>) -> Result<()> {
    respond(session, response, Upload::default()).await
}

async fn respond(
    session: &mut Session,
    response: Response<Body>,
    mut upload: Upload,
) -> Result<()> {
    let (head, body) = response.into_parts();
    let head = with_framing(head, &body, session.req_header())?;
    session
        .write_response_header(Box::new(head), body.is_end_stream())
        .await?;
    let mut body = pin!(body);
    loop {
        tokio::select! {
            frame = body.frame() => {
                let Some(frame) = frame else {
                    return session.write_response_body(None, true).await;
                };
                let frame = frame
                    .map_err(|error| Error::explain(ErrorType::InternalError, error.to_string()))?;
                // Trailers are dropped, because pingora sends none over HTTP/1.
                if let Ok(data) = frame.into_data() {
                    session.write_response_body(Some(data), false).await?;
                }
            }
            step = upload.step(session), if upload.is_running() => step?,
        }
    }
}

/// A request's body on its way to a function.
#[derive(Default)]
struct Upload {
    /// `None` once the body has ended, or the function has stopped reading it.
    function: Option<Sender<Bytes, Infallible>>,
    /// A piece that the client has sent and the function has not received yet.
    piece: Option<Bytes>,
}

impl Upload {
    fn is_running(&self) -> bool {
        self.function.is_some()
    }

    /// Passes on one piece. No data is lost if the future is dropped.
    async fn step(&mut self, session: &mut Session) -> Result<()> {
        if self.piece.is_none() {
            self.piece = session.read_request_body().await?;
        }
        let taken = match (&mut self.function, &self.piece) {
            (Some(function), Some(piece)) => function.send_data(piece.clone()).await.is_ok(),
            _ => false,
        };
        self.piece = None;
        if !taken {
            self.function = None;
        }
        Ok(())
    }
}

/// Adds framing to a function's response head: functions do not frame messages, and pingora leaves
/// this to its caller.
fn with_framing(
    head: response::Parts,
    body: &Body,
    request: &RequestHeader,
) -> Result<ResponseHeader> {
    let has_body = request.method != Method::HEAD
        && !matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
    let mut head = ResponseHeader::from(head);
    if has_body && !head.headers.contains_key(header::CONTENT_LENGTH) {
        match body.size_hint().exact() {
            Some(length) => head.insert_header(header::CONTENT_LENGTH, length)?,
            None if request.version == Version::HTTP_11 => {
                head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
            }
            // The end of the connection ends the body.
            None => {}
        }
    }
    Ok(head)
}
