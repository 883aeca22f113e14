//! The gateway: `http://ADDRESS/NAME/…` or `http://NAME.DOMAIN/…` becomes a request to the function
//! `NAME`.
//!
//! The gateway rejects requests that no function should receive, finds the function, and confines
//! what a browser stores of the response to that function. The node does everything else. The admin
//! API and metrics are never served here.

mod answer;
mod confine;
mod host;
mod redirect;
mod rejection;
mod route;

pub(crate) use redirect::Redirect;
pub(crate) use route::Sites;

use std::sync::Arc;

use faasw_client::Problem;
use http::{Method, Request, Response, StatusCode, Version, header, uri::Scheme};

use self::{
    answer::{ConnectionFate, answer_without_function, close, may_close, no_content},
    rejection::rejection,
    route::{Route, Site},
};
use crate::{
    message::{self, Body, Correlation, ForwardedPrefix, RequestRecorder},
    node::Node,
    readiness::Readiness,
    server::{Handler, RequestBodyStream, health},
};

/// Answers the requests of the public listener.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    node: Node,
    sites: Arc<Sites>,
    /// The scheme of the listener, whatever a request's target says.
    scheme: Scheme,
}

impl Gateway {
    /// Returns a gateway to the functions of `node`, found by `sites`.
    pub(crate) fn new(node: Node, sites: Arc<Sites>, scheme: Scheme) -> Self {
        Self {
            node,
            sites,
            scheme,
        }
    }
}

impl Handler for Gateway {
    fn follow(
        &self,
        request: &Request<RequestBodyStream>,
        correlation: &Correlation,
    ) -> Option<Box<RequestRecorder>> {
        self.node.parts.dispatcher.follow(request, correlation)
    }

    async fn answer(
        self,
        request: Request<RequestBodyStream>,
        correlation: Correlation,
    ) -> Response<Body> {
        let follow = self.follow(&request, &correlation);
        let head_only = request.method() == Method::HEAD;
        let refused = |problem: Problem| problem.response(correlation.request_id, head_only);
        // Rejected requests return early, so that the future of an invocation does not contain a
        // rejection.
        if let Some(problem) = rejection(&request) {
            let (response, fate) = (refused(problem), ConnectionFate::Close);
            let response = Box::pin(answer_without_function(request, response, fate)).await;
            return Body::record(follow, response);
        }
        let owner = |host: &str| self.node.parts.functions.of_host(host);
        let response = match self.sites.route(&request, owner) {
            Route::Function {
                site: Site::Path { is_bare: true, .. },
                ..
            } if request.headers().contains_key(SERVICE_WORKER) => refused(no_service_worker()),
            Route::Function { name, site } => {
                return self
                    .invoke_function(&name, site, request, &correlation, follow)
                    .await;
            }
            Route::Health => health(),
            Route::Asterisk => no_content(),
            Route::Nothing(detail) => refused(no_function(detail)),
        };
        let fate = ConnectionFate::GoOn;
        let response = Box::pin(answer_without_function(request, response, fate)).await;
        Body::record(follow, response)
    }
}

impl Gateway {
    /// Answers a request with a function.
    async fn invoke_function(
        self,
        name: &str,
        site: Site,
        mut request: Request<RequestBodyStream>,
        correlation: &Correlation,
        follow: Option<Box<RequestRecorder>>,
    ) -> Response<Body> {
        let may_close = may_close(&request);
        let expects_continue = message::expects_continue(&request);
        let has_host = matches!(site, Site::Host);
        if let Site::Path { uri, .. } = site {
            *request.uri_mut() = uri;
        }
        request.extensions_mut().insert(message::Arrival {
            scheme: self.scheme,
            has_host,
        });
        let prefix = request.extensions().get::<ForwardedPrefix>().cloned();
        let is_http1 = request.version() < Version::HTTP_2;
        let dispatcher = &self.node.parts.dispatcher;
        let mut response = dispatcher.invoke(name, request, correlation, follow).await;
        if is_http1 && let Some(length) = announced(&response) {
            response = response.map(|body| body.announcing(length));
        }
        if has_host {
            confine::to_host(response.headers_mut());
        } else {
            let outer = prefix
                .map(|ForwardedPrefix(outer)| outer)
                .unwrap_or_default();
            confine::to_path(response.headers_mut(), &outer, name);
        }
        let is_unread = may_close && expects_continue && response.status().as_u16() >= 400;
        // A client that keeps its connection to a stopping node would send requests over it until
        // the end, and be refused then. It must reconnect, so that a load balancer selects another
        // node.
        if is_unread || self.node.readiness() == Readiness::Stopping {
            close(&mut response);
        }
        response
    }
}

/// Returns the length that a 304 announces for the content that its client has.
fn announced(response: &Response<Body>) -> Option<u64> {
    let length = response.headers().get(header::CONTENT_LENGTH)?;
    match response.status() {
        // The node has written the field itself.
        StatusCode::NOT_MODIFIED => length.to_str().ok()?.parse().ok(),
        _ => None,
    }
}

/// The field of requests for the script of a service worker.
const SERVICE_WORKER: &str = "service-worker";

/// Returns the problem that rejects a service worker from `/NAME`. Browsers derive its scope from
/// the last slash, so it would control everything below `/`. A service worker from `/NAME/` has the
/// function's own scope.
fn no_service_worker() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "service-worker-scope",
        "Not for service workers",
        "a service worker from here would work on other functions' pages; its script has to be \
         below /NAME/",
    )
}

fn no_function(detail: &'static str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown-function",
        "No such function",
        detail,
    )
}
