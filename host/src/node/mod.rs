//! The node: deploys functions and answers requests.
//!
//! [`Node`] is the handle for embedding programs, the gateway and the admin API, which all use the
//! same paths. [`NodeBuilder`](crate::NodeBuilder) starts one. `core` holds the state that all
//! paths share. `deploy`, `rollback` and `invoke` are these paths. `replace` makes a version the
//! current one of its function.
//!
//! - `deployments` bounds the number of simultaneous deployments and lists them.
//! - `engines` manages the language engines in its `engine_table`; `images` describes seeds on
//!   disk.
//! - `secrets` holds the secrets of requests; `spec` makes the specifications of seeds.
//! - `sharing` describes what other nodes of the host may use; `self_calls` makes self calls.
//! - `tree` describes all seeds; `startup_warmup` does the node's work in the background.

mod carried;
mod core;
mod deploy;
mod deployments;
mod engine_table;
mod engines;
mod function;
mod handle;
mod images;
mod info;
mod invoke;
mod outbound;
mod replace;
mod rollback;
mod secrets;
mod self_calls;
mod service;
mod sharing;
mod spec;
mod startup_warmup;
mod stores;
mod table;
mod tree;
mod warm_up;

pub(crate) use self::core::{Core, Machinery, RegisteredFunctions, ReportOptions, Storage};
#[cfg(feature = "fuzzing")]
pub(crate) use self::deploy::{export_note, note_of};
pub use handle::Node;
pub use secrets::SecretError;
pub use service::FunctionService;
