//! Whether the node is there, and whether requests should come.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{message::Body, readiness::Readiness};

/// Path that says whether the node is there.
pub(crate) const HEALTH: &str = "/healthz";

/// The same by the name that Kubernetes' own servers have for it.
pub(crate) const LIVE: &str = "/livez";

/// Path that says whether requests should come.
pub(crate) const READY: &str = "/readyz";

/// Says that the node is there.
pub(crate) fn health() -> Response<Body> {
    in_a_word(StatusCode::OK, "ok")
}

/// Says whether requests should come.
pub(crate) fn ready(readiness: Readiness) -> Response<Body> {
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        Readiness::Starting | Readiness::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    in_a_word(status, readiness.word())
}

fn in_a_word(status: StatusCode, word: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{word}\n").into_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
