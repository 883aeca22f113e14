//! What a node says of itself.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::RequestLimits;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Version of faasw.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Address of the gateway, if it has one.
    pub address: Option<SocketAddr>,
    /// Data directory.
    pub data_dir: PathBuf,
    /// Number of functions.
    pub functions: usize,
    /// Largest module that it deploys, in bytes.
    pub module_limit: usize,
    /// What holds for functions that say nothing else.
    pub defaults: FunctionLimits,
}

/// Limits that a function may set for itself, as they are where it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionLimits {
    /// Of its linear memories together, in bytes.
    pub memory: u64,
    /// Times of its requests.
    pub times: RequestLimits,
}
