//! The processes that functions reach out by, in their jails: whoever owns them says what they do.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use faasw_jail::egress::Kind;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use super::{Inner, Pool};
use crate::error::PlatformError;
use crate::sandboxes::Process;

/// Makes connector and workers. They end with the pool, and a worker with the spawner of sandboxes;
/// none is made again by itself.
#[derive(Clone, Debug)]
pub struct Egress {
    inner: Arc<Inner>,
}

/// A connector or a worker. Dropping it ends it.
#[derive(Debug)]
pub struct EgressProcess {
    process: Process,
}

impl EgressProcess {
    /// Waits until it has ended, and was reaped; says how, for people to read. May be asked again.
    pub async fn ended(&mut self) -> String {
        match self.process.ended().await {
            Ok(exit) => exit.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

/// A worker that was just made.
#[derive(Debug)]
pub struct Worker {
    /// The process.
    pub process: EgressProcess,
    /// The socket to it: a stream.
    pub socket: OwnedFd,
    /// Where connections are passed to it, in packets: the connector's end.
    pub passing: OwnedFd,
}

/// A connector that was just made.
#[derive(Debug)]
pub struct Connector {
    /// The process.
    pub process: EgressProcess,
    /// The socket to it, of packets.
    pub socket: OwnedFd,
}

impl Pool {
    /// What makes the processes that functions reach out by.
    #[must_use]
    pub fn egress(&self) -> Egress {
        Egress {
            inner: self.inner.clone(),
        }
    }
}

fn pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd), PlatformError> {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    pair.map_err(failed)
}

fn failed(error: Errno) -> PlatformError {
    PlatformError::System {
        what: "sockets could not be made",
        error,
    }
}

impl Egress {
    /// What says how this host resolves names now: `/etc/hosts` and `/etc/resolv.conf`, where they
    /// are, to be read: also for a process that cannot open them any more, if it had a
    /// [`Launcher`](crate::Launcher) before.
    ///
    /// # Errors
    /// The system's, or when one is there and cannot be opened.
    pub async fn names(&self) -> io::Result<[Option<OwnedFd>; 2]> {
        self.inner.outside.names().await
    }

    /// Makes a connector: the one kind of process that has the host's network.
    ///
    /// # Errors
    /// When this host does not allow its jail, or the pool was shut down.
    pub async fn connector(&self) -> Result<Connector, PlatformError> {
        let (socket, theirs) = pair(SocketType::SEQPACKET)?;
        let spawner = self.inner.outside.spawner()?;
        let fds = [theirs.as_fd()];
        let process = spawner.egress(Kind::Connector, &fds).await?;
        Ok(Connector {
            process: EgressProcess { process },
            socket,
        })
    }

    /// Makes a worker, which has no network: connections are passed to it.
    ///
    /// # Errors
    /// When this host does not allow its jail, or the pool was shut down.
    pub async fn worker(&self) -> Result<Worker, PlatformError> {
        let (socket, theirs) = pair(SocketType::STREAM)?;
        let (passing, connections) = pair(SocketType::SEQPACKET)?;
        // It has nothing to say to the connector.
        let silenced = rustix::net::shutdown(&connections, Shutdown::Write);
        silenced.map_err(failed)?;
        let spawner = self.inner.stock.spawner()?;
        let fds = [theirs.as_fd(), connections.as_fd()];
        let process = spawner.egress(Kind::Worker, &fds).await?;
        Ok(Worker {
            process: EgressProcess { process },
            socket,
            passing,
        })
    }
}
