//! Responses that come from the node instead of a function.

use http::{HeaderValue, Request, Response, StatusCode, Version, header};

use crate::{
    message::{self, Body},
    server::RequestBodyStream,
};

/// The fate of an HTTP/1 connection after a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionFate {
    GoOn,
    Close,
}

/// Responds without a function, once the client is ready to read.
pub(super) async fn answer_without_function(
    request: Request<RequestBodyStream>,
    mut response: Response<Body>,
    afterwards: ConnectionFate,
) -> Response<Body> {
    let ends = afterwards == ConnectionFate::Close || message::expects_continue(&request);
    if ends && may_close(&request) {
        close(&mut response);
    }
    message::refuse(request).await;
    response
}

/// Whether the connection may close after a response: an HTTP/2 connection continues with its other
/// streams.
pub(super) fn may_close<B>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2
}

/// Announces the end of the connection. The connection also ends after a rejected request that
/// waited for `100-continue`. Its client may omit the body or send it, so the start of the next
/// request is unknown. An HTTP/2 connection ends after the requests that are under way.
pub(super) fn close(response: &mut Response<Body>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
}

/// Responds to OPTIONS of the node: functions define which methods there are.
pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
