//! Accepting connections.

use std::{future::Future, io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use faasw_pool::Backlog;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{
    Handler, connection,
    connections::{Connections, Proxies},
};
use crate::limits::Limits;

/// How long accepting rests after it failed: the reason is almost always that
/// descriptors have run out, which trying again at once does not change.
const REST: Duration = Duration::from_millis(50);

/// Bytes that the system takes of a response beyond what is on its way.
const UNSENT: u32 = 256 << 10;

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
        let (connection, address) = Self::accept(self).await?;
        // Responses are written in one piece; waiting for more only delays them.
        connection.set_nodelay(true)?;
        // Else a system that holds megabytes for a slow client says for minutes that it
        // takes nothing more, and the client is taken for a stalled one.
        SockRef::from(&connection).set_tcp_notsent_lowat(UNSENT)?;
        Ok((connection, Some(address.ip().to_canonical())))
    }
}

impl Listener for UnixListener {
    type Connection = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<(Self::Connection, Option<IpAddr>)> {
        let (connection, _) = Self::accept(self).await?;
        Ok((connection, None))
    }
}

/// How often connections are looked at: often enough for the shortest of their limits.
fn sweep_interval(limits: &Limits) -> Duration {
    const FEWEST: Duration = Duration::from_millis(10);
    const MOST: Duration = Duration::from_millis(500);
    let shortest = limits
        .request_read
        .min(limits.idle_connection)
        .min(limits.idle_client);
    (shortest / 4).clamp(FEWEST, MOST)
}

/// Serves every connection until told to stop, then lets requests under way finish.
pub(super) async fn serve<L: Listener, H: Handler>(
    listener: L,
    handler: H,
    (limits, proxies): (Limits, Proxies),
    backlog: Arc<Backlog>,
    mut stop: watch::Receiver<bool>,
) {
    let slots = Connections::new(&limits, &proxies, &backlog);
    let mut connections = JoinSet::new();
    let mut sweeps = interval(sweep_interval(&limits));
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let asked_to_stop = async move {
        // An error says that the node is gone.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let mut asked_to_stop = pin!(asked_to_stop);
    loop {
        let (stream, address) = tokio::select! {
            () = &mut asked_to_stop => break,
            _ = sweeps.tick(), if !slots.is_empty() => {
                slots.sweep();
                continue;
            }
            // What has ended is forgotten at once: until then it keeps its memory, and the
            // next connection may be long in coming. What has panicked was reported by the
            // runtime.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            },
        };
        // Where everybody has something to do, who is new does not even hear of it: an
        // answer would take what there is not.
        let Some(slot) = slots.admit(address) else {
            tracing::debug!("a connection was refused: there are too many");
            continue;
        };
        let handler = handler.clone();
        connections.spawn(connection::serve(stream, address, slot, handler, &limits));
    }
    drop(listener);
    slots.finish();
    loop {
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { break },
            _ = sweeps.tick() => slots.sweep(),
        }
    }
}
