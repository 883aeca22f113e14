//! Accepting connections.

use std::{
    future::Future,
    io,
    net::IpAddr,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use faasw_pool::{Backlog, open_files};
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

/// Pause after an error of `accept`, and after an eviction for an open file that is not released
/// yet: an immediate retry would change nothing.
const REST: Duration = Duration::from_millis(50);

/// Unsent bytes of a response that the kernel accepts beyond those in flight.
const UNSENT: u32 = 256 << 10;

/// A listener that accepts connections.
pub(super) trait Listener: Send + Sync + 'static {
    type Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Accepts the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<Accepted<Self::Connection>>> + Send;
}

/// An accepted connection.
pub(super) struct Accepted<C> {
    pub(super) connection: C,
    /// The client's address, if it has one.
    pub(super) address: Option<IpAddr>,
    /// The connection's descriptor: the lowest number that was free.
    pub(super) descriptor: RawFd,
}

/// A descriptor that is closed when no other is free, so that a connection can be accepted.
struct Spare(Option<OwnedFd>);

impl Spare {
    fn new() -> Self {
        Self(open_files::spare())
    }

    /// Closes the spare descriptor. Returns whether there was one.
    fn give_up(&mut self) -> bool {
        self.0.take().is_some()
    }

    fn refill(&mut self) {
        self.0 = self.0.take().or_else(open_files::spare);
    }
}

/// Whether an error says that no file can be opened, by this process or system-wide.
fn is_out_of_files(error: &io::Error) -> bool {
    let errno = error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error);
    errno.is_some_and(|errno| [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].contains(&errno))
}

impl Listener for TcpListener {
    type Connection = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<Accepted<Self::Connection>> {
        let (connection, address) = Self::accept(self).await?;
        // Responses are written in one piece, so waiting for more would only delay them.
        connection.set_nodelay(true)?;
        // Otherwise the kernel buffers megabytes for a slow client and then accepts nothing for
        // minutes, so that the client looks stalled.
        SockRef::from(&connection).set_tcp_notsent_lowat(UNSENT)?;
        Ok(Accepted {
            descriptor: connection.as_raw_fd(),
            connection,
            address: Some(address.ip().to_canonical()),
        })
    }
}

impl Listener for UnixListener {
    type Connection = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<Accepted<Self::Connection>> {
        let (connection, _) = Self::accept(self).await?;
        Ok(Accepted {
            descriptor: connection.as_raw_fd(),
            connection,
            address: None,
        })
    }
}

/// Returns the interval of sweeps: short enough for the shortest timeout.
fn sweep_interval(limits: &Limits) -> Duration {
    const FEWEST: Duration = Duration::from_millis(10);
    const MOST: Duration = Duration::from_millis(500);
    let shortest = limits
        .request_read
        .min(limits.idle_connection)
        .min(limits.idle_client);
    (shortest / 4).clamp(FEWEST, MOST)
}

/// Serves every connection until `stop` is set or its sender is dropped, and then lets requests
/// under way finish. Connections whose descriptors reach `watermark` are accepted only if another
/// connection can be closed for each.
pub(super) async fn serve<L: Listener, H: Handler>(
    listener: L,
    handler: H,
    (limits, proxies, watermark): (Limits, Proxies, RawFd),
    backlog: Arc<Backlog>,
    mut stop: watch::Receiver<bool>,
) {
    let mut spare = Spare::new();
    let slots = Connections::new(&limits, &proxies, &backlog);
    let mut connections = JoinSet::new();
    let mut sweeps = interval(sweep_interval(&limits));
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let asked_to_stop = async move {
        // An error means that the node is gone.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let mut asked_to_stop = pin!(asked_to_stop);
    loop {
        let Accepted {
            connection,
            address,
            descriptor,
        } = tokio::select! {
            () = &mut asked_to_stop => break,
            _ = sweeps.tick(), if !slots.is_empty() => {
                slots.sweep();
                continue;
            }
            // Finished tasks are removed at once, because they keep their memory until then and the
            // next connection may be a long time coming. The runtime has reported panics.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_out_of_files(&error) && spare.give_up() => {
                    tracing::warn!(%error, "no open file is left for a connection; the node closes \
                         an idle one");
                    continue;
                }
                Err(error) => {
                    slots.make_room();
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            },
        };
        let is_scarce = descriptor >= watermark;
        if is_scarce && !slots.make_room() {
            tracing::warn!(
                "a connection was refused: the remaining open files are reserved for the operator"
            );
            drop(connection);
            spare.refill();
            continue;
        }
        // If all connections are busy, a new one is closed without a response: a response would
        // take resources that are exhausted.
        let Some(slot) = slots.admit(address) else {
            tracing::debug!("a connection was refused: there are too many");
            drop(connection);
            spare.refill();
            continue;
        };
        let handler = handler.clone();
        let serving = connection::serve(connection, address, slot, handler, &limits);
        connections.spawn(serving);
        if slots.has_closing_connections() {
            // The tasks of evicted connections run and release their files. Without this, a worker
            // accepts hundreds of connections in a burst before it runs any other task.
            tokio::task::yield_now().await;
        }
        if is_scarce {
            // The evicted connection must release its file before the next one takes another.
            let _ = tokio::time::timeout(REST, connections.join_next()).await;
        }
        spare.refill();
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

#[cfg(test)]
mod tests;
