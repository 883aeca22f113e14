//! The responses of the liveness and readiness probes.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{message::Body, readiness::Readiness};

/// Path of the liveness probe.
pub(crate) const HEALTH: &str = "/healthz";

/// Path of the liveness probe as Kubernetes' own servers name it.
pub(crate) const LIVE: &str = "/livez";

/// Path of the readiness probe.
pub(crate) const READY: &str = "/readyz";

/// Returns the response of the liveness probe.
pub(crate) fn health() -> Response<Body> {
    one_word_response(StatusCode::OK, "ok")
}

/// Returns the response of the readiness probe.
pub(crate) fn ready(readiness: Readiness) -> Response<Body> {
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        Readiness::Starting | Readiness::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    one_word_response(status, readiness.word())
}

fn one_word_response(status: StatusCode, word: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{word}\n").into_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
