//! One connection: HTTP/1 or HTTP/2 in, responses out.

use std::{
    convert::Infallible,
    future::Future,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Request, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;

use super::{
    Handler,
    activity::{Activity, Watched},
    linger::Kept,
};
use crate::{limits::Limits, message::RemoteAddress};

/// Bytes and fields of a request's head that hyper reads. Both are beyond the
/// node's own limits, so that most heads that are too large get a problem body
/// that names the limit; hyper's own answer, 431 without a body, is for the rest.
const HEAD_BYTES: usize = 128 << 10;
const HEAD_FIELDS: usize = 256;

/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;

/// Serves a connection until either side ends it. HTTP/2 is spoken by those who
/// begin with it (RFC 9113, section 3.3); offers to upgrade to it are ignored.
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
    let begun = Arc::new(AtomicBool::new(false));
    let has_begun = begun.clone();
    let activity = Activity::new();
    let watching = activity.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        begun.store(true, Ordering::Relaxed);
        if let Some(peer) = peer {
            request.extensions_mut().insert(RemoteAddress(peer));
        }
        let watched = (request.version() == Version::HTTP_2).then(|| activity.begin());
        let answer = handler.clone().answer(request);
        async {
            let answer = answer.await;
            Ok::<_, Infallible>(answer.map(|body| Watched::new(body, watched)))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_read)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.request_read)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES as u32);
    // A client that takes nothing must not hold a response for ever.
    let stream = Kept::new(stream);
    let mut served = TimeoutStream::new(stream.handle());
    served.set_write_timeout(Some(limits.idle_client));
    let connection = builder
        .serve_connection(TokioIo::new(Box::pin(served)), service)
        .into_owned();
    let connection = graceful.watch(connection);
    let (patience, stalled) = (limits.request_read, limits.idle_client);
    let serving = async move {
        let mut connection = std::pin::pin!(connection);
        // Which version a client speaks is read without a time limit of hyper's.
        let first = tokio::time::timeout(patience, connection.as_mut()).await;
        let ended = match first {
            Ok(ended) => ended,
            Err(_) if has_begun.load(Ordering::Relaxed) => tokio::select! {
                ended = connection => ended,
                () = watching.rest(stalled, patience) => {
                    tracing::debug!("a client neither takes nor asks");
                    return;
                }
            },
            Err(_) => {
                tracing::debug!("a client said nothing for too long");
                return;
            }
        };
        if let Err(error) = ended {
            // Clients that go away or break the protocol are daily business.
            tracing::debug!(%error, "a connection failed");
        }
    };
    async move {
        serving.await;
        stream.close().await;
    }
}
