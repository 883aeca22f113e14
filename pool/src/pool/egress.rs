//! The jailed processes that carry outbound calls. The embedder determines what they do.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use faasw_jail::egress::EgressRole;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use super::{Inner, Pool};
use crate::error::PlatformError;
use crate::sandboxes::Process;

/// Makes the connector and the egress workers. They end with the pool, and a worker also ends with
/// the spawner of sandboxes. None is restarted automatically.
#[derive(Clone, Debug)]
pub struct Egress {
    inner: Arc<Inner>,
}

/// A connector or a worker. Dropping it ends the process.
#[derive(Debug)]
pub struct EgressProcess {
    process: Process,
}

impl EgressProcess {
    /// Waits until the process has ended and was reaped. Returns a readable description of its end.
    /// May be called again.
    pub async fn ended(&mut self) -> String {
        match self.process.ended().await {
            Ok(exit) => exit.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

/// A worker that was just made.
#[derive(Debug)]
pub struct SpawnedWorker {
    /// The worker's process.
    pub process: EgressProcess,
    /// The stream socket to the worker.
    pub socket: OwnedFd,
    /// The connector's end of the packet socket by which connections are passed to the worker.
    pub passing: OwnedFd,
}

/// A connector that was just made.
#[derive(Debug)]
pub struct SpawnedConnector {
    /// The connector's process.
    pub process: EgressProcess,
    /// The packet socket to the connector.
    pub socket: OwnedFd,
}

impl Pool {
    /// Returns the maker of the processes that carry outbound calls.
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
    /// Opens the files that determine how this host resolves names now, `/etc/hosts` and
    /// `/etc/resolv.conf`, for reading. A missing file is `None`. This also works in a process that
    /// cannot open them any more, if it had a [`Launcher`](crate::Launcher) before.
    ///
    /// # Errors
    /// Returns an error of the operating system if a file exists and cannot be opened, or if the
    /// launcher cannot be reached.
    pub async fn names(&self) -> io::Result<[Option<OwnedFd>; 2]> {
        self.inner.egress_spawner.open_resolver_files().await
    }

    /// Makes a connector: the only kind of process that has the host's network.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if this host does not allow the connector's jail, or if the pool
    /// was shut down.
    pub async fn connector(&self) -> Result<SpawnedConnector, PlatformError> {
        let (socket, theirs) = pair(SocketType::SEQPACKET)?;
        let spawner = self.inner.egress_spawner.spawner()?;
        let fds = [theirs.as_fd()];
        let process = spawner.egress(EgressRole::Connector, &fds).await?;
        Ok(SpawnedConnector {
            process: EgressProcess { process },
            socket,
        })
    }

    /// Makes a worker. It has no network: connections are passed to it.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if this host does not allow the worker's jail, or if the pool
    /// was shut down.
    pub async fn worker(&self) -> Result<SpawnedWorker, PlatformError> {
        let (socket, theirs) = pair(SocketType::STREAM)?;
        let (passing, connections) = pair(SocketType::SEQPACKET)?;
        // The worker sends nothing to the connector.
        let silenced = rustix::net::shutdown(&connections, Shutdown::Write);
        silenced.map_err(failed)?;
        let spawner = self.inner.zygote_pool.spawner()?;
        let fds = [theirs.as_fd(), connections.as_fd()];
        let process = spawner.egress(EgressRole::Worker, &fds).await?;
        Ok(SpawnedWorker {
            process: EgressProcess { process },
            socket,
            passing,
        })
    }
}
