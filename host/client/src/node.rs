//! The description of a node.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::RequestLimits;

/// The description of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The version of faasw.
    pub version: String,
    /// The process id.
    pub pid: u32,
    /// The address of the gateway, if it has one.
    pub address: Option<SocketAddr>,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The number of functions.
    pub functions: usize,
    /// The maximum size of a module in bytes.
    pub module_limit: usize,
    /// The maximum size of a deployment's options in bytes of JSON. Required: a node without it
    /// would ignore the field that carries the options.
    pub options_limit: usize,
    /// The limits of functions that do not set their own.
    pub defaults: FunctionLimits,
}

/// The defaults of limits that a function may set for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionLimits {
    /// The limit of all its linear memories together in bytes.
    pub memory: u64,
    /// The time limits of its requests.
    pub times: RequestLimits,
}
