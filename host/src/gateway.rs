//! The gateway: `http://ADDRESS/NAME/…` or `http://NAME.DOMAIN/…` becomes a request to
//! the function `NAME`.
//!
//! It refuses what no function should be asked, finds the function, and holds what a
//! browser keeps of the answer to that function; everything else is the node's. The
//! admin API and metrics are never here.

mod confine;
mod host;
mod redirect;
mod refusal;
mod route;

pub(crate) use redirect::Redirect;
pub(crate) use route::Sites;

use http::StatusCode;
use http::{HeaderValue, Method, Request, Response, Version, header, uri::Scheme};

use self::{
    refusal::refusal,
    route::{Place, Route},
};
use crate::{
    message::{self, Body},
    node::Node,
    problem::Problem,
    server::{Handler, Received},
};

/// Path that says whether the node is there.
pub(crate) const HEALTH: &str = "/healthz";

/// Answers the requests of the public listener.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    node: Node,
    /// That of the listener, whatever a request's target says.
    scheme: Scheme,
}

impl Gateway {
    pub(crate) fn new(node: Node, scheme: Scheme) -> Self {
        Self { node, scheme }
    }
}

impl Handler for Gateway {
    async fn answer(self, request: Request<Received>) -> Response<Body> {
        let head_only = request.method() == Method::HEAD;
        if let Some(problem) = refusal(&request) {
            let response = problem.response(head_only);
            return Box::pin(answer_here(request, response, Afterwards::Close)).await;
        }
        let route = self
            .node
            .sites()
            .route(&request, |host| self.node.function_of_host(host));
        let response = match route {
            Route::Function {
                place: Place::Path { is_bare: true, .. },
                ..
            } if request.headers().contains_key(SERVICE_WORKER) => {
                no_service_worker().response(head_only)
            }
            Route::Function { name, place } => return self.ask(&name, place, request).await,
            Route::Health => health(),
            Route::Asterisk => no_content(),
            Route::Nothing(detail) => no_function(detail).response(head_only),
        };
        Box::pin(answer_here(request, response, Afterwards::GoOn)).await
    }
}

impl Gateway {
    /// Answers with a function.
    async fn ask(self, name: &str, place: Place, mut request: Request<Received>) -> Response<Body> {
        let may_close = may_close(&request);
        let asks_first = message::asks_first(&request);
        let has_host = matches!(place, Place::Host);
        if let Place::Path { uri, .. } = place {
            *request.uri_mut() = uri;
        }
        request.extensions_mut().insert(message::Arrival {
            scheme: self.scheme,
            has_host,
        });
        let mut response = self.node.invoke(name, request).await;
        if has_host {
            confine::to_host(response.headers_mut());
        } else {
            confine::to_path(response.headers_mut(), name);
        }
        if may_close && asks_first && response.status().as_u16() >= 400 {
            close(&mut response);
        }
        response
    }
}

/// The field of requests for the script of a service worker.
const SERVICE_WORKER: &str = "service-worker";

/// One from `/NAME` would be let work on all that is beside it, `/`: browsers go by
/// the last slash. `/NAME/` has its own.
fn no_service_worker() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "service-worker-scope",
        "Not for service workers",
        "a service worker from here would work on other functions' pages; its script has to be below /NAME/",
    )
}

/// What becomes of an HTTP/1 connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    GoOn,
    Close,
}

/// Answers without a function, once the client listens.
async fn answer_here(
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
fn may_close<B>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2
}

/// Says that the connection ends. It also does behind a refusal of who asked
/// first: the body may be left out now, or come, and nobody could tell where the
/// next request begins.
fn close(response: &mut Response<Body>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
}

/// Says that the node is there.
pub(crate) fn health() -> Response<Body> {
    let mut response = Response::new(Body::from("ok\n"));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// OPTIONS of the node: which methods there are is for functions to say.
fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn no_function(detail: &'static str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown-function",
        "No such function",
        detail,
    )
}
