//! The node's side of egress.
//!
//! [`Connector`] is a handle of the connector's process, [`Worker`] of a worker's process. Both are
//! created within a runtime of tokio, and report the end of their process ([`Connector::closed`],
//! [`Worker::closed`]); the caller then starts a new process. A [`Call`] has two halves; dropping
//! one means that it is no longer wanted.

mod call;
mod connector;
mod process;
mod queue;
pub(crate) mod table;
mod worker;
mod worker_state;

pub use call::{Call, Closed, Receiver, Sender};
pub use connector::{Connector, ConnectorOptions, RefusedAddress};
pub use table::Part;
pub use worker::Worker;
