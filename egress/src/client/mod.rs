//! The node's side: what has connections made, and calls done.
//!
//! [`Connector`] is a handle of the connector's process, [`Worker`] one of a worker's; both are
//! made within a runtime of tokio, and end with their process: [`Connector::closed`],
//! [`Worker::closed`]. Whoever starts the processes starts them anew then. A [`Call`] has two
//! halves; what is dropped of it is not wanted any more.

mod call;
mod connector;
mod listens;
mod queue;
pub(crate) mod table;
mod worker;

pub use call::{Call, Closed, Part, Receiver, RefusedAddress, Sender};
pub use connector::{Connector, ConnectorOptions};
pub use worker::Worker;
