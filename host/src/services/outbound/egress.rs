//! The processes that make functions' requests: one that connects, and one for each function that speaks.

use std::{
    fmt, io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use faasw_egress::{
    client::{Connector, ConnectorOptions, Worker},
    frames::WorkerOptions,
};
use tokio::sync::{Mutex as Turn, OwnedSemaphorePermit, Semaphore};

use super::slot::Slot;
use crate::backend::Running;

/// Functions whose requests are made at once: each has a process.
const WORKERS: usize = 128;

/// Starts the processes.
pub trait Processes: fmt::Debug + Send + Sync {
    /// Starts a connector.
    fn connector(&self) -> Running<'_, io::Result<NewConnector>>;

    /// Starts a worker.
    fn worker(&self) -> Running<'_, io::Result<NewWorker>>;
}

/// A process: dropping it ends it.
pub type Process = Box<dyn fmt::Debug + Send + Sync>;

/// A connector that was just started.
#[derive(Debug)]
pub struct NewConnector {
    /// The process.
    pub process: Process,
    /// To the connector.
    pub socket: OwnedFd,
}

/// A worker that was just started.
#[derive(Debug)]
pub struct NewWorker {
    /// The process.
    pub process: Process,
    /// To the worker.
    pub socket: OwnedFd,
    /// On which a connector passes it connections: the connector's end.
    pub passing: OwnedFd,
}

/// The processes of a node.
#[derive(Debug)]
pub(crate) struct Egress {
    processes: Arc<dyn Processes>,
    options: ConnectorOptions,
    authorities: Vec<Bytes>,
    /// Once there was one; held by who starts it.
    connector: Turn<Option<(Connector, Process)>>,
    workers: Arc<Semaphore>,
    slots: Mutex<Vec<Weak<Slot>>>,
}

impl Egress {
    /// Egress by these processes. `authorities` are certificates in DER that are trusted besides the usual roots.
    pub(crate) fn new(
        processes: Arc<dyn Processes>,
        options: ConnectorOptions,
        authorities: Vec<Bytes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            processes,
            options,
            authorities,
            connector: Turn::new(None),
            workers: Arc::new(Semaphore::new(WORKERS)),
            slots: Mutex::default(),
        })
    }

    /// There is one more version whose requests are made.
    pub(super) fn add(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() == slots.capacity() {
            slots.retain(|slot| slot.strong_count() > 0);
        }
        slots.push(Arc::downgrade(slot));
    }

    /// The connector, which is started if it is not there.
    pub(super) async fn connector(&self) -> io::Result<Connector> {
        let mut current = self.connector.lock().await;
        if let Some((connector, _)) = current.as_ref().filter(|(there, _)| !there.is_closed()) {
            return Ok(connector.clone());
        }
        let NewConnector { process, socket } = self.processes.connector().await?;
        let connector = Connector::new(socket, &self.options)?;
        *current = Some((connector.clone(), process));
        Ok(connector)
    }

    /// A place for one more worker: for that of the function whose worker was used longest ago, if there is no
    /// other.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = || self.workers.clone().try_acquire_owned().ok();
        place().or_else(|| {
            let slots: Vec<_> = {
                let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
                slots.iter().filter_map(Weak::upgrade).collect()
            };
            let unused = |slot: &Arc<Slot>| Some((slot.unused_since()?, slot.clone()));
            let oldest = slots.iter().filter_map(unused);
            let (used, slot) = oldest.min_by_key(|(used, _)| *used)?;
            slot.end_unused(used);
            place()
        })
    }

    /// Starts a worker.
    pub(super) async fn start_worker(
        &self,
        connector: &Connector,
    ) -> io::Result<(Worker, Process)> {
        let NewWorker {
            process,
            socket,
            passing,
        } = self.processes.worker().await?;
        let options = WorkerOptions::default();
        let worker = Worker::new(socket, passing, connector, options, &self.authorities)?;
        Ok((worker, process))
    }
}
