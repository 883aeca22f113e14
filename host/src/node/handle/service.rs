//! A function as a service of the tower stack.
//!
//! The service is for embedding programs that route, limit or trace with tower's layers
//! (hyper-util, axum and tonic use them too). It only calls [`Node::invoke`].

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::Node;
use crate::message::Body;

/// A function of a node as a [`tower_service::Service`]; see [`Node::service`].
///
/// The service is always ready and never fails. Like [`Node::invoke`], it answers a failure with a
/// problem response, and a node at its capacity with 503. The function is looked up for each
/// request, so the service follows deployments and removals. Like any handle of the node, it keeps
/// the node running.
///
/// ```no_run
/// # async fn example(node: faasw::Node) -> Result<(), Box<dyn std::error::Error>> {
/// use tower::{ServiceBuilder, ServiceExt};
///
/// let hello = ServiceBuilder::new()
///     .concurrency_limit(64)
///     .map_request(|mut request: http::Request<String>| {
///         request.headers_mut().remove("cookie");
///         request
///     })
///     .service(node.service("hello"));
///
/// let request = http::Request::get("/").body(String::new())?;
/// let response = hello.oneshot(request).await?;
/// println!("{}", response.status());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FunctionService {
    node: Node,
    function: Arc<str>,
}

impl Node {
    /// Returns a function as a [`tower_service::Service`], for programs that are built with tower's
    /// layers. The function need not exist yet.
    #[must_use]
    pub fn service(&self, name: &str) -> FunctionService {
        FunctionService {
            node: self.clone(),
            function: name.into(),
        }
    }
}

impl<B> Service<Request<B>> for FunctionService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    /// Dropping it ends the function's instance.
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { node, function } = self.clone();
        Box::pin(async move { Ok(node.invoke(&function, request).await) })
    }
}
