//! The gateway: `http://ADDRESS/NAME/…` becomes a request to the function `NAME`.
//!
//! It refuses what no function should be asked, finds the name and takes it off
//! the path; everything else is the node's. The admin API and metrics are never here.

mod refusal;

use http::StatusCode;
use http::{HeaderValue, Method, Request, Response, Uri, Version, header, uri::PathAndQuery};
use hyper::body::Incoming;

use self::refusal::refusal;
use crate::{
    message::{self, Body},
    node::Node,
    problem::Problem,
    server::Handler,
};

/// Answers the requests of the public listener.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    node: Node,
}

impl Gateway {
    pub(crate) fn new(node: Node) -> Self {
        Self { node }
    }
}

impl Handler for Gateway {
    async fn answer(self, mut request: Request<Incoming>) -> Response<Body> {
        let head_only = request.method() == Method::HEAD;
        if let Some(problem) = refusal(&request) {
            return answer_here(request, problem.response(head_only), Afterwards::Close).await;
        }
        let response = match route(request.uri()) {
            Route::Function { name, uri } => {
                *request.uri_mut() = uri;
                let may_close = may_close(&request);
                let asks_first = message::asks_first(&request);
                let mut response = self.node.invoke(&name, request).await;
                if may_close && asks_first && response.status().as_u16() >= 400 {
                    close(&mut response);
                }
                return response;
            }
            Route::Health => health(),
            Route::Asterisk => no_content(),
            Route::Nothing => no_function().response(head_only),
        };
        answer_here(request, response, Afterwards::GoOn).await
    }
}

/// What becomes of an HTTP/1 connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    GoOn,
    Close,
}

/// Answers without a function, once the client listens.
async fn answer_here(
    request: Request<Incoming>,
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

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    /// To the node itself.
    Health,
    /// To the node as a whole (RFC 9112, section 3.2.4).
    Asterisk,
    /// To a function, which sees another URI.
    Function { name: String, uri: Uri },
    /// Nowhere: the path has no name.
    Nothing,
}

/// The first segment of the path is the name. A valid name has nothing that need
/// be percent-encoded, but may be (RFC 3986, section 2.3).
fn route(uri: &Uri) -> Route {
    if uri.path() == "*" {
        return Route::Asterisk;
    }
    let Some(path) = uri.path().strip_prefix('/').filter(|path| !path.is_empty()) else {
        return Route::Nothing;
    };
    let (name, rest) = match path.find('/') {
        Some(slash) => path.split_at(slash),
        None => (path, "/"),
    };
    match name {
        "" => Route::Nothing,
        "healthz" if rest == "/" => Route::Health,
        name => match without_name(uri, rest) {
            Some(uri) => Route::Function {
                name: percent_encoding::percent_decode_str(name)
                    .decode_utf8_lossy()
                    .into_owned(),
                uri,
            },
            None => Route::Nothing,
        },
    }
}

/// The URI with another path: scheme, authority and query stay.
fn without_name(uri: &Uri, path: &str) -> Option<Uri> {
    let path_and_query = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path_and_query.ok()?);
    Uri::from_parts(parts).ok()
}

fn health() -> Response<Body> {
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

fn no_function() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown-function",
        "No such function",
        "the path names no function: it begins with /NAME/",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, uri: &str) -> Route {
        Route::Function {
            name: name.into(),
            uri: uri.parse().unwrap(),
        }
    }

    #[test]
    fn the_name_is_taken_off_the_path() {
        for (uri, expected) in [
            ("/hello", function("hello", "/")),
            ("/hello/", function("hello", "/")),
            ("/hello?a=b", function("hello", "/?a=b")),
            ("/hello//x/../y?a?b/c", function("hello", "//x/../y?a?b/c")),
            ("/hello/%2e%2e/x", function("hello", "/%2e%2e/x")),
            (
                "http://host:1/hello/x",
                function("hello", "http://host:1/x"),
            ),
            ("/healthz/x", function("healthz", "/x")),
            ("/%68ello/%68", function("hello", "/%68")),
            ("/a%2Fb/x", function("a/b", "/x")),
        ] {
            assert_eq!(route(&uri.parse().unwrap()), expected, "{uri}");
        }
    }

    #[test]
    fn paths_without_a_name_lead_nowhere() {
        for uri in ["/", "//", "//hello", "host:1", "/?q"] {
            assert_eq!(route(&uri.parse().unwrap()), Route::Nothing, "{uri}");
        }
        assert_eq!(route(&"*".parse().unwrap()), Route::Asterisk);
        assert_eq!(route(&"/healthz".parse().unwrap()), Route::Health);
        assert_eq!(route(&"/healthz/".parse().unwrap()), Route::Health);
    }
}
