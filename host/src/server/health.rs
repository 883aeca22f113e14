//! Whether the node is there.

use http::{HeaderValue, Response, header};

use crate::message::Body;

/// Path that says whether the node is there.
pub(crate) const HEALTH: &str = "/healthz";

/// Says that the node is there.
pub(crate) fn health() -> Response<Body> {
    let mut response = Response::new(Body::from("ok\n"));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
