//! The gateway: `http://ADDRESS/NAME/…` becomes a request to the function `NAME`.
//!
//! It only finds the name and takes it off the path; everything else is the
//! node's. The admin API and metrics are never here.

use http::{HeaderValue, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use hyper::body::Incoming;

use crate::{message::Body, node::Node, problem::Problem, server::Handler};

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
        match route(request.uri()) {
            Route::Health => health(),
            Route::Nothing => no_function().response(request.method() == http::Method::HEAD),
            Route::Function { name, uri } => {
                *request.uri_mut() = uri;
                self.node.invoke(&name, request).await
            }
        }
    }
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    /// To the node itself.
    Health,
    /// To a function, which sees another URI.
    Function { name: String, uri: Uri },
    /// Nowhere: the path has no name.
    Nothing,
}

/// The first segment of the path is the name, as it is: a valid name has
/// nothing that could be percent-encoded.
fn route(uri: &Uri) -> Route {
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
                name: name.into(),
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
        ] {
            assert_eq!(route(&uri.parse().unwrap()), expected, "{uri}");
        }
    }

    #[test]
    fn paths_without_a_name_lead_nowhere() {
        for uri in ["/", "//", "//hello", "*", "host:1", "/?q"] {
            assert_eq!(route(&uri.parse().unwrap()), Route::Nothing, "{uri}");
        }
        assert_eq!(route(&"/healthz".parse().unwrap()), Route::Health);
        assert_eq!(route(&"/healthz/".parse().unwrap()), Route::Health);
    }
}
