//! Answers without a function.

use http::{HeaderValue, Request, Response, StatusCode, Version, header};

use crate::{
    message::{self, Body},
    server::Received,
};

/// What becomes of an HTTP/1 connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    GoOn,
    Close,
}

/// Answers without a function, once the client listens.
pub(super) async fn answer_here(
    request: Request<Received>,
    mut response: Response<Body>,
    afterwards: Afterwards,
) -> Response<Body> {
    let ends = afterwards == Afterwards::Close || message::asks_first(&request);
    if ends && may_close(&request) {
        close(&mut response);
    }
    message::refuse(request).await;
    response
}

/// HTTP/2 goes on with its other streams.
pub(super) fn may_close<B>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2
}

/// Says that the connection ends. It also does behind a refusal of who asked
/// first: the body may be left out now, or come, and nobody could tell where the
/// next request begins. Of HTTP/2 it ends after what is under way.
pub(super) fn close(response: &mut Response<Body>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
}

/// OPTIONS of the node: which methods there are is for functions to say.
pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
