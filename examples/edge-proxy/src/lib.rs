//! A reverse proxy on pingora that runs Wasm functions in microVMs.
//!
//! [`Edge`] is the proxy. By a request's path it forwards, lets a function of
//! an embedded node answer, or lets one rewrite the heads of the request on its
//! way to the upstream and of the response on its way back. `answer` carries
//! bodies between clients and functions, [`Listening`] puts a proxy on a socket.

mod answer;
mod listening;

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

pub use listening::Listening;

/// Tells a rewriting function what it is shown: the head of a `request` or of a
/// `response`.
const PHASE: HeaderName = HeaderName::from_static("x-edge-phase");

/// Tells a rewriting function the status of the response that it is shown.
const STATUS: HeaderName = HeaderName::from_static("x-edge-status");

/// What a function does for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers; the upstream hears nothing.
    Answer,
    /// It is shown the head of the request, then the head of the upstream's
    /// response. With status 204 the fields of its answer go onto what it was
    /// shown: each takes the place of those of its name, one without a value
    /// only takes them off. With any other status its answer to a request is
    /// the client's, and its answer to a response is a failure of the proxy.
    Rewrite,
}

/// A part of the proxy's paths, and the function that serves it.
#[derive(Clone, Debug)]
pub struct Route {
    /// How its paths begin, by whole segments: `/a` has `/a` and `/a/b`, not
    /// `/ab`. It is compared with what clients write: `/%61` is another path.
    pub prefix: String,
    /// What the function does.
    pub role: Role,
    /// The function's name on the node.
    pub function: String,
}

/// The proxy: of the routes that have a request's path the one with the longest
/// prefix decides, and what no route has is forwarded.
#[derive(Debug)]
pub struct Edge {
    /// Runs the functions.
    pub node: Node,
    /// Where requests are forwarded to, over plain HTTP.
    pub upstream: SocketAddr,
    /// In any order.
    pub routes: Vec<Route>,
}

/// A request that a function rewrites.
#[derive(Debug)]
pub struct Rewriting {
    function: String,
    /// What goes onto the request to the upstream.
    fields: HeaderMap,
}

/// Puts a function's fields onto a message. A macro, because pingora's requests
/// and responses share no trait.
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
    /// Nothing, unless the request is on a rewriting route.
    type CTX = Option<Rewriting>;

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
            answer::by_function(session, &self.node, &route.function, head).await?;
            return Ok(true);
        }
        head.headers.remove(STATUS);
        let answer = self.show("request", head, &route.function).await;
        if answer.status() != StatusCode::NO_CONTENT {
            answer::with(session, answer).await?;
            return Ok(true);
        }
        *rewriting = Some(Rewriting {
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
            // Also `OPTIONS *`, which has no path.
            "" => true,
            prefix => path
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        };
        let routes = self.routes.iter().filter(has);
        routes.max_by_key(|route| route.prefix.len())
    }

    /// Shows a head to a rewriting function, as one without a body.
    async fn show(&self, phase: &'static str, mut head: Parts, function: &str) -> Response<Body> {
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove(TRANSFER_ENCODING);
        head.headers.insert(PHASE, HeaderValue::from_static(phase));
        let request = Request::from_parts(head, Empty::<Bytes>::new());
        self.node.invoke(function, request).await
    }
}

/// The head of a client's request, as the node takes it.
fn head(session: &Session) -> Parts {
    let mut head = session.req_header().as_owned_parts();
    let client = session.client_addr().and_then(|address| address.as_inet());
    if let Some(client) = client {
        head.extensions.insert(RemoteAddress(client.ip()));
    }
    head
}
