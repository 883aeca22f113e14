//! One connection: HTTP/1 in, responses out.

use std::{convert::Infallible, future::Future, net::IpAddr};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Handler;
use crate::{limits::Limits, message::RemoteAddress};

/// Bytes and fields of a request's head that hyper reads. Both are beyond the
/// node's own limits, so that most heads that are too large get a problem body
/// that names the limit; hyper's own answer, 431 without a body, is for the rest.
const HEAD_BYTES: usize = 128 << 10;
const HEAD_FIELDS: usize = 256;

/// Serves a connection until either side ends it.
pub(super) fn serve<S, H>(
    stream: S,
    peer: Option<IpAddr>,
    handler: H,
    limits: &Limits,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + 'static
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Handler,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(RemoteAddress(peer));
        }
        let answer = handler.clone().answer(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_read)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    async move {
        if let Err(error) = connection.await {
            // Clients that go away or break the protocol are daily business.
            tracing::debug!(%error, "a connection failed");
        }
    }
}
