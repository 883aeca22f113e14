//! Serving one connection: HTTP/1 or HTTP/2 requests in, responses out.

use std::{convert::Infallible, future::Future, net::IpAddr, pin::pin, sync::Arc};

use faasw_client::Problem;
use faasw_common::text::Line;
use http::{Method, Request, Response, StatusCode, Version, header::CONNECTION};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    Handler,
    bodies::{RequestBodyStream, ResponseBodyStream},
    connections::{ConnectionSlot, Connections},
    linger::SharedStream,
    metered::MeteredStream,
    peer::Peer,
};
use crate::{
    limits::Limits,
    message::{
        Body, Connection, Correlation, ForwardedPrefix, RemoteAddress, forwarded_for, head_cost,
        head_size, refuse, sent_id,
    },
};

/// Bytes and fields of a request's head that hyper reads. Both exceed the node's own limits, so
/// that most heads that are too large get a problem body that names the limit. Larger heads get
/// hyper's own 431 without a body.
const HEAD_BYTES: usize = 128 << 10;
const HEAD_FIELDS: usize = 256;

/// Maximum number of concurrent requests on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// Bytes that a client may send on an HTTP/2 stream, and on the whole connection, before they are
/// read.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
/// Bytes of a response that hyper buffers beyond what the client's HTTP/2 window allows.
const SEND_BUFFER: usize = 64 << 10;

/// Serves a connection until either side ends it, or until it is evicted. Clients use HTTP/2 by
/// starting with it (RFC 9113, section 3.3); offers to upgrade to it are ignored.
pub(super) fn serve<S, H>(
    stream: S,
    address: Option<IpAddr>,
    slot: ConnectionSlot,
    handler: H,
    limits: &Limits,
) -> impl Future<Output = ()> + Send + 'static
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Handler,
{
    let peer = slot.peer().clone();
    let service = {
        let (peer, connections) = (peer.clone(), slot.connections().clone());
        service_fn(move |request: Request<Incoming>| {
            let (handler, peer) = (handler.clone(), peer.clone());
            let connections = connections.clone();
            async move {
                let answer = answer(handler, request, &peer, address, &connections).await;
                Ok::<_, Infallible>(answer)
            }
        })
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The sweep enforces the timeout of heads: hyper's timeout would count idle time, too.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.idle_connection)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEAD_BYTES as u32);
    let stream = SharedStream::new(stream);
    let served = MeteredStream::new(stream.clone(), peer.clone());
    let connection = builder
        .serve_connection(TokioIo::new(served), service)
        .into_owned();
    async move {
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = peer.closed() => return,
            () = peer.finished() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    () = peer.closed() => return,
                }
            }
        };
        if let Err(error) = ended {
            // Clients often disconnect or break the protocol.
            tracing::debug!(error = %Line(error), "a connection failed");
        }
        tokio::select! {
            () = stream.close() => {}
            () = peer.closed() => {}
        }
        drop(slot);
    }
}

/// Answers one request, once the client has read enough of its earlier responses.
async fn answer<H: Handler>(
    handler: H,
    request: Request<Incoming>,
    peer: &Arc<Peer>,
    address: Option<IpAddr>,
    connections: &Arc<Connections>,
) -> Response<ResponseBodyStream> {
    let is_http2 = request.version() == Version::HTTP_2;
    // With HTTP/1, all bytes that were read before belong to this request.
    let head = if is_http2 {
        head_size(request.headers()) as u64
    } else {
        0
    };
    let under_way = peer.begin(!is_http2, head);
    let mut request = request.map(|body| RequestBodyStream::new(body, &under_way));
    peer.backlog.has_room().await;
    let proxy = address.filter(|address| connections.is_proxy(*address));
    let given_id = proxy
        .filter(|_| connections.trusts_proxy_ids())
        .and_then(|_| sent_id(request.headers()));
    let correlation = Correlation::new(request.headers(), given_id);
    let client = proxy
        .and_then(|_| forwarded_for(request.headers(), |address| connections.is_proxy(address)));
    let prefix = proxy
        .filter(|_| connections.trusts_proxy_prefixes())
        .and_then(|_| ForwardedPrefix::of(request.headers()));
    if let Some(prefix) = prefix {
        request.extensions_mut().insert(prefix);
    }
    if let Some(address) = client.or(address) {
        request.extensions_mut().insert(RemoteAddress(address));
    }
    let mut forwarded = None;
    if let Some(client) = client {
        forwarded = connections.forwarded(client);
        if forwarded.is_none() {
            let follow = handler.follow(&request, &correlation);
            let refused = Box::pin(too_many_requests(request, &correlation)).await;
            let refused = Body::record(follow, refused);
            return refused.map(|body| ResponseBodyStream::new(body, under_way, None, is_http2));
        }
    }
    let connection = Connection(peer.backlog.clone());
    request.extensions_mut().insert(connection);
    let mut answer = handler.answer(request, correlation).await;
    // HTTP/2 has no such field: it ends the connection by a frame, and its other streams continue.
    if is_http2 && answer.headers_mut().remove(CONNECTION).is_some() {
        peer.finish();
    }
    correlation.write_response_id(answer.headers_mut());
    peer.begin_response(head_cost(answer.headers())).await;
    answer.map(|body| ResponseBodyStream::new(body, under_way, forwarded, is_http2))
}

/// Answers a request of an address that has too many requests under way.
async fn too_many_requests<B: http_body::Body>(
    request: Request<B>,
    correlation: &Correlation,
) -> Response<Body> {
    let head_only = request.method() == Method::HEAD;
    refuse(request).await;
    let mut problem = Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too-many-requests",
        "Too many requests at once",
        "this address has as many requests under way as one may have",
    );
    problem.retry_after = Some(1);
    let mut response = problem.response::<Body>(correlation.request_id, head_only);
    correlation.write_response_id(response.headers_mut());
    response
}
