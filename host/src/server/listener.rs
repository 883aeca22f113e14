//! Accepting connections.

use std::{future::Future, io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use hyper_util::server::graceful::GracefulShutdown;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{Semaphore, watch},
    task::JoinSet,
};

use super::{Handler, connection};
use crate::limits::Limits;

/// How long accepting rests after it failed: the reason is almost always that
/// descriptors have run out, which trying again at once does not change.
const REST: Duration = Duration::from_millis(50);

/// Something that accepts connections.
pub(super) trait Listener: Send + Sync + 'static {
    type Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and its other end's address where it has one.
    fn accept(&self)
    -> impl Future<Output = io::Result<(Self::Connection, Option<IpAddr>)>> + Send;
}

impl Listener for TcpListener {
    type Connection = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<(Self::Connection, Option<IpAddr>)> {
        let (connection, peer) = Self::accept(self).await?;
        // Responses are written in one piece; waiting for more only delays them.
        connection.set_nodelay(true)?;
        Ok((connection, Some(peer.ip().to_canonical())))
    }
}

impl Listener for UnixListener {
    type Connection = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<(Self::Connection, Option<IpAddr>)> {
        let (connection, _) = Self::accept(self).await?;
        Ok((connection, None))
    }
}

/// Serves every connection until told to stop, then lets requests under way finish.
pub(super) async fn serve<L: Listener, H: Handler>(
    listener: L,
    handler: H,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    let asked_to_stop = async move {
        // An error says that the node is gone.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let mut asked_to_stop = pin!(asked_to_stop);
    loop {
        let accepted = async {
            // A place first: connections that wait do so in the kernel's queue.
            let place = places.clone().acquire_owned().await;
            listener.accept().await.map(|accepted| (accepted, place))
        };
        let ((stream, peer), place) = tokio::select! {
            () = &mut asked_to_stop => break,
            accepted = accepted => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            },
        };
        let serving = connection::serve(stream, peer, handler.clone(), &limits, &graceful);
        connections.spawn(async move {
            serving.await;
            drop(place);
        });
        // What has ended is forgotten; what has panicked was reported by the runtime.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    graceful.shutdown().await;
    while connections.join_next().await.is_some() {}
}
