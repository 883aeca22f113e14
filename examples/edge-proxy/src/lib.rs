//! A reverse proxy on pingora that runs Wasm functions in microVMs.
//!
//! [`Edge`] is the proxy. A request's path decides what happens: the proxy forwards the request, a
//! function of an embedded node answers it, or a function rewrites the heads of the request to the
//! upstream and of its response. `answer` streams bodies between clients and functions,
//! [`EdgeService`] serves a proxy on a socket.

mod answer;
mod edge_service;

use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use faasw::{Body, Node, RemoteAddress};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
    request::Parts,
};
use http_body_util::Empty;
use pingora::{
    Error, ErrorType, Result,
    http::{RequestHeader, ResponseHeader},
    proxy::{ProxyHttp, Session},
    upstreams::peer::HttpPeer,
};

pub use edge_service::EdgeService;

/// Field that informs a rewriting function which head it receives: of a `request` or a `response`.
const PHASE: HeaderName = HeaderName::from_static("x-edge-phase");

/// Field that has the status of the response, for a rewriting function.
const STATUS: HeaderName = HeaderName::from_static("x-edge-status");

/// The role of a function for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The function answers; the upstream gets nothing.
    Answer,
    /// The function receives the head of the request, then the head of the upstream's response.
    /// With status 204, the fields of its answer are added to the message that it received. Each
    /// field replaces all fields of its name; an empty value only removes them. With any other
    /// status, the client gets its answer to a request, and its answer to a response fails the
    /// client's request.
    Rewrite,
}

/// A set of paths, and the function that serves them.
#[derive(Clone, Debug)]
pub struct Route {
    /// The prefix of the paths, by whole segments: `/a` matches `/a` and `/a/b`, not `/ab`. Paths
    /// are compared as clients write them: `/%61` does not match `/a`.
    pub prefix: String,
    /// The function's role.
    pub role: Role,
    /// The function's name on the node.
    pub function: String,
}

/// The proxy. Of the routes that match a request's path, the one with the longest prefix decides.
/// Requests without a matching route are forwarded.
#[derive(Debug)]
pub struct Edge {
    /// The node that runs the functions.
    pub node: Node,
    /// The server to which requests are forwarded over plain HTTP.
    pub upstream: SocketAddr,
    /// The routes, in any order.
    pub routes: Vec<Route>,
}

/// A request that a function rewrites.
#[derive(Debug)]
pub struct RewriteContext {
    function: String,
    /// The fields to add to the request to the upstream.
    fields: HeaderMap,
}

/// Adds a function's fields to a message. This is a macro, because pingora's requests and responses
/// share no trait.
macro_rules! put {
    ($fields:expr, $message:expr) => {
        for name in $fields.keys() {
            $message.remove_header(name);
        }
        for (name, value) in $fields.iter().filter(|(_, value)| !value.is_empty()) {
            $message.append_header(name, value)?;
        }
    };
}

#[async_trait]
impl ProxyHttp for Edge {
    /// `None`, unless the request is on a rewriting route.
    type CTX = Option<RewriteContext>;

    fn new_ctx(&self) -> Self::CTX {
        None
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        rewriting: &mut Self::CTX,
    ) -> Result<bool> {
        let Some(route) = self.route(session.req_header().uri.path()) else {
            return Ok(false);
        };
        let mut head = head(session);
        if route.role == Role::Answer {
            answer::call_function(session, &self.node, &route.function, head).await?;
            return Ok(true);
        }
        head.headers.remove(STATUS);
        let answer = self.show("request", head, &route.function).await;
        if answer.status() != StatusCode::NO_CONTENT {
            answer::send(session, answer).await?;
            return Ok(true);
        }
        *rewriting = Some(RewriteContext {
            function: route.function.clone(),
            fields: answer.into_parts().0.headers,
        });
        Ok(false)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        request: &mut RequestHeader,
        rewriting: &mut Self::CTX,
    ) -> Result<()> {
        if let Some(rewriting) = rewriting {
            put!(rewriting.fields, request);
        }
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        rewriting: &mut Self::CTX,
    ) -> Result<()> {
        let Some(rewriting) = rewriting.as_ref() else {
            return Ok(());
        };
        if response.status.is_informational() {
            return Ok(());
        }
        let mut head = head(session);
        head.headers = response.headers.clone();
        head.headers.insert(STATUS, response.status.as_u16().into());
        let answer = self.show("response", head, &rewriting.function).await;
        if answer.status() != StatusCode::NO_CONTENT {
            let why = format!(
                "the function {} answered a response with {}",
                rewriting.function,
                answer.status()
            );
            return Error::e_explain(ErrorType::HTTPStatus(502), why);
        }
        put!(answer.headers(), response);
        Ok(())
    }
}

impl Edge {
    fn route(&self, path: &str) -> Option<&Route> {
        let has = |route: &&Route| match route.prefix.trim_end_matches('/') {
            // Also matches `OPTIONS *`, which has no path.
            "" => true,
            prefix => path
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        };
        let routes = self.routes.iter().filter(has);
        routes.max_by_key(|route| route.prefix.len())
    }

    /// Sends a head to a rewriting function, as a message without a body.
    async fn show(&self, phase: &'static str, mut head: Parts, function: &str) -> Response<Body> {
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove(TRANSFER_ENCODING);
        head.headers.insert(PHASE, HeaderValue::from_static(phase));
        let request = Request::from_parts(head, Empty::<Bytes>::new());
        self.node.invoke(function, request).await
    }
}

/// Returns the head of a client's request in the node's type.
fn head(session: &Session) -> Parts {
    let mut head = session.req_header().as_owned_parts();
    let client = session.client_addr().and_then(|address| address.as_inet());
    if let Some(client) = client {
        head.extensions.insert(RemoteAddress(client.ip()));
    }
    head
}
