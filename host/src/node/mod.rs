//! The node: functions in, responses out.
//!
//! [`Node`] is what embedding programs, the gateway and the admin API hold; all
//! three go the same way. [`NodeBuilder`](crate::NodeBuilder) starts one. `core` holds
//! what all ways through it share, `deploy`, `rollback` and `invoke` are the ways through it;
//! by `replace` a version takes another one's place.
//!
//! - `deployments` bounds how many deployments there are at once, and lists them.
//! - `engines` has what runs scripts, in its `engine_table`; `images` describes seeds on disk.
//! - `secrets` has what requests need to know; `spec` has what seeds are made of.
//! - `sharing` has what other nodes of the host may find; `inside` carries calls between functions.
//! - `tree` describes all seeds; `tend` does the node's work in the background.

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
mod inside;
mod invoke;
mod outbound;
mod replace;
mod rollback;
mod secrets;
mod service;
mod sharing;
mod spec;
mod stores;
mod table;
mod tend;
mod tree;
mod warm_up;

pub(crate) use self::core::{Core, Machinery, Registered, Storage, Telling};
#[cfg(feature = "fuzzing")]
pub(crate) use self::deploy::{export_note, note_of};
pub use handle::Node;
pub use secrets::SecretError;
pub use service::FunctionService;
