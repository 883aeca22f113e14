//! The egress processes: one connector for the node, and one worker for each function, which speaks
//! TLS and HTTP.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use faasw_egress::{
    client::{Connector, ConnectorOptions, Worker},
    frames::WorkerOptions,
};
use tokio::{
    sync::{Mutex as Turn, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::{
    processes::{EgressProcess, EgressProcesses, NewConnector, NewWorker},
    system::{NameConfig, NameConfigCache},
    worker_cell::{HANGS, VERSIONS, WorkerCandidate, WorkerCell, WorkerEnd},
};

/// Functions that make calls at the same time. Each has a process.
pub(super) const WORKERS: usize = 128;

/// The time limit for opening the files that configure name resolution.
const OPENED: Duration = Duration::from_secs(1);

/// How names are resolved.
#[derive(Debug, Default)]
pub(super) struct NameResolution {
    /// The host's configuration as it was first read.
    pub(super) system: NameConfig,
    /// Name servers in place of the host's.
    pub(super) servers: Option<Vec<SocketAddr>>,
}

/// The egress processes of a node.
#[derive(Debug)]
pub(crate) struct Egress {
    processes: Arc<dyn EgressProcesses>,
    options: ConnectorOptions,
    /// The host's configuration of names.
    name_config: Mutex<NameConfigCache>,
    servers: Option<Vec<SocketAddr>>,
    authorities: Vec<Bytes>,
    /// The connector, once there was one. The lock is held while it is started.
    connector: Turn<Option<(Connector, EgressProcess)>>,
    workers: Arc<Semaphore>,
    cells: Mutex<Vec<Weak<WorkerCell>>>,
}

impl Egress {
    /// Creates egress with at most `workers` of these processes. `authorities` are certificates in
    /// DER that are trusted besides the usual roots.
    pub(super) fn new(
        workers: usize,
        processes: Arc<dyn EgressProcesses>,
        options: ConnectorOptions,
        naming: NameResolution,
        authorities: Vec<Bytes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            processes,
            options,
            name_config: Mutex::new(NameConfigCache::new(naming.system)),
            servers: naming.servers,
            authorities,
            connector: Turn::new(None),
            workers: Arc::new(Semaphore::new(workers)),
            cells: Mutex::default(),
        })
    }

    fn name_config(&self) -> MutexGuard<'_, NameConfigCache> {
        self.name_config
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time to read the configuration of name resolution again.
    pub(super) fn is_name_config_stale(&self) -> bool {
        self.name_config().is_old()
    }

    /// Reads the configuration of name resolution again, if it is time for that, and sends it to
    /// the connector if it has changed.
    pub(super) async fn refresh_name_config(&self) {
        {
            let mut known = self.name_config();
            if !known.is_old() {
                return;
            }
            known.looks();
        }
        let late = |_| Err(io::ErrorKind::TimedOut.into());
        let files = timeout(OPENED, self.processes.names()).await;
        let taken = match files.unwrap_or_else(late) {
            Ok(files) => self.name_config().take(files),
            Err(error) => Err(error),
        };
        match taken {
            Ok(false) => {}
            Ok(true) => {
                let connector = self.connector.lock().await;
                if let Some((connector, _)) = &*connector {
                    let (hosts, servers) = self.names();
                    tracing::info!(?servers, "the configuration of name resolution has changed");
                    if let Err(error) = connector.send_names(&hosts, &servers) {
                        tracing::warn!(%error, "the connector did not receive the new \
                             configuration of name resolution");
                    }
                }
            }
            Err(error) => {
                if self.name_config().fails() {
                    tracing::warn!(%error, "the configuration of name resolution cannot be read: \
                         the previous one stays in use");
                }
            }
        }
    }

    /// Returns the hosts file and the name servers for a connector.
    fn names(&self) -> (Vec<u8>, Vec<SocketAddr>) {
        let known = self.name_config();
        let NameConfig { hosts, servers } = &known.system;
        let servers = self.servers.as_ref().unwrap_or(servers);
        (hosts.clone(), servers.clone())
    }

    /// Adds the cell of a version that makes calls.
    pub(super) fn add(&self, cell: &Arc<WorkerCell>) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if cells.len() == cells.capacity() {
            cells.retain(|cell| cell.strong_count() > 0);
        }
        cells.push(Arc::downgrade(cell));
    }

    /// Returns the connector, started if needed.
    pub(super) async fn connector(&self) -> io::Result<Connector> {
        let mut current = self.connector.lock().await;
        if let Some((connector, _)) = current.as_ref().filter(|(there, _)| !there.is_closed()) {
            return Ok(connector.clone());
        }
        if current.take().is_some() {
            tracing::warn!("the connector has ended or does not react; the node starts another");
        }
        let NewConnector { process, socket } = self.processes.connector().await?;
        let (hosts, servers) = self.names();
        let options = ConnectorOptions {
            hosts,
            servers,
            ..self.options.clone()
        };
        let connector = Connector::new(socket, &options)?;
        *current = Some((connector.clone(), process));
        Ok(connector)
    }

    /// Returns a permit for one more worker. If none is free, another worker may end for it, see
    /// [`choose_worker_to_end`].
    pub(super) fn acquire_worker_permit(&self, now: Instant) -> Option<OwnedSemaphorePermit> {
        let place = || self.workers.clone().try_acquire_owned().ok();
        place().or_else(|| {
            let cells: Vec<_> = {
                let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
                cells.iter().filter_map(Weak::upgrade).collect()
            };
            let holders: Vec<_> = cells.iter().filter_map(|cell| cell.candidate()).collect();
            let (holder, way) = choose_worker_to_end(&holders, now)?;
            for cell in &cells {
                cell.end_for_another(holder, way);
            }
            place()
        })
    }

    /// Starts a worker of a function, which is identified by its number.
    pub(super) async fn start_worker(
        &self,
        connector: &Connector,
        function: u64,
    ) -> io::Result<(Worker, EgressProcess)> {
        let NewWorker {
            process,
            socket,
            passing,
        } = self.processes.worker().await?;
        let options = WorkerOptions::default();
        let sockets = (socket, passing);
        let worker = Worker::new(sockets, connector, function, options, &self.authorities)?;
        Ok((worker, process))
    }
}

/// Returns the worker that ends for another function's worker, in this order: first, of the workers
/// without calls, the one that was used longest ago. Second, of the functions with the most
/// workers, if these are more than a change of versions takes, the worker whose calls have hung
/// longest. Third, the worker whose calls have hung longest, if that is longer than [`HANGS`]. So
/// calls that hang keep no permit from functions that can use it, however many hang; calls that
/// make progress do.
fn choose_worker_to_end(
    holders: &[WorkerCandidate],
    now: Instant,
) -> Option<(&WorkerCandidate, WorkerEnd)> {
    let unused = holders.iter().filter(|holder| holder.moved.is_none());
    if let Some(holder) = unused.min_by_key(|holder| holder.used) {
        return Some((holder, WorkerEnd::Unused));
    }
    let mut workers: HashMap<u64, usize> = HashMap::new();
    for holder in holders {
        *workers.entry(holder.function).or_default() += 1;
    }
    let most = workers
        .values()
        .copied()
        .max()
        .filter(|most| *most > VERSIONS);
    let of_most = |holder: &&WorkerCandidate| workers.get(&holder.function).copied() == most;
    if let Some(holder) = holders
        .iter()
        .filter(of_most)
        .min_by_key(|holder| holder.moved)
    {
        return Some((holder, WorkerEnd::Several));
    }
    let hangs = |holder: &&WorkerCandidate| holder.moved.is_some_and(|moved| moved + HANGS <= now);
    let longest = holders
        .iter()
        .filter(hangs)
        .min_by_key(|holder| holder.moved);
    longest.map(|holder| (holder, WorkerEnd::Hangs))
}
