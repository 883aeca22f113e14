//! The listener for metrics.

use faasw_client::Problem;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use crate::{
    message::{Body, Correlation},
    node::Node,
    server::{HEALTH, Handler, LIVE, READY, RequestBodyStream, health, ready},
};

/// The media type of OpenMetrics text.
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Answers `GET /metrics`, the liveness probe and the readiness probe, and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct MetricsPage {
    node: Node,
}

impl MetricsPage {
    pub(crate) fn new(node: Node) -> Self {
        Self { node }
    }
}

impl Handler for MetricsPage {
    async fn answer(
        self,
        request: Request<RequestBodyStream>,
        correlation: Correlation,
    ) -> Response<Body> {
        let head_only = request.method() == Method::HEAD;
        let refused = |problem: Problem| problem.response(correlation.request_id, head_only);
        match request.uri().path() {
            HEALTH | LIVE => return health(),
            READY => return ready(self.node.readiness()),
            _ => {}
        }
        if request.uri().path() != "/metrics" {
            let only = "this address has /metrics, /livez, /readyz and /healthz only";
            let problem = Problem::new(StatusCode::NOT_FOUND, "unknown-path", "No such path", only);
            return refused(problem);
        }
        if request.method() != Method::GET && !head_only {
            let problem = Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "wrong-method",
                "Wrong method",
                "metrics are read with GET",
            );
            return refused(problem);
        }
        response(self.node.metrics())
    }
}

/// Returns metrics as a response.
pub(crate) fn response(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into_bytes()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, OPEN_METRICS);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
