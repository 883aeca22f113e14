//! The egress processes that a backend starts.

use std::{fmt, io, os::fd::OwnedFd};

use super::system::NameFiles;
use crate::backend::BackendFuture;

/// Starts the egress processes.
pub trait EgressProcesses: fmt::Debug + Send + Sync {
    /// Starts a connector.
    fn connector(&self) -> BackendFuture<'_, io::Result<NewConnector>>;

    /// Starts a worker.
    fn worker(&self) -> BackendFuture<'_, io::Result<NewWorker>>;

    /// Opens the files that currently configure name resolution.
    fn names(&self) -> BackendFuture<'_, io::Result<NameFiles>>;
}

/// A process. Dropping it ends the process.
pub type EgressProcess = Box<dyn fmt::Debug + Send + Sync>;

/// A connector that was just started.
#[derive(Debug)]
pub struct NewConnector {
    /// The process.
    pub process: EgressProcess,
    /// The node's socket to the connector.
    pub socket: OwnedFd,
}

/// A worker that was just started.
#[derive(Debug)]
pub struct NewWorker {
    /// The process.
    pub process: EgressProcess,
    /// The node's socket to the worker.
    pub socket: OwnedFd,
    /// The connector's end of the socket on which it passes connections to the worker.
    pub passing: OwnedFd,
}
