//! Outbound calls of functions: two kinds of process, and the node's side of both.
//!
//! ```text
//!             orders                    connections
//!   node ◀───────────────▶ connector ────────────────▶ worker ◀──▶ upstream
//!     ▲                                                  ▲
//!     └────────────────────── frames ────────────────────┘
//! ```
//!
//! - The *connector*, one per node, resolves names, filters addresses and connects. It parses
//!   nothing that an upstream sends, except the answers of name servers.
//! - A *worker*, one for each function in use, speaks TLS and HTTP over connections that it
//!   receives. It creates no socket, and holds no data of any other function.
//! - The node checks grants and moves bytes. It parses nothing that an upstream sends, and
//!   validates everything that a worker sends.
//!
//! Either process may die at any time. Its calls under way then fail, and its owner is notified.
//!
//! - [`client`]: the node's side.
//! - [`frames`]: the protocol between node and worker.
//! - [`orders`]: the protocol between node and connector.
//! - `connector`, `worker`: the two processes; `jail`: their confinement. They exist only with the
//!   feature `program`, because a node carries the program as a file.
//!
//! See `docs/decisions/0026-reaching-out.md`.

#![deny(unsafe_code)]

pub mod client;
#[cfg(feature = "program")]
pub mod connector;
mod credit;
pub mod frames;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "program")]
pub mod jail;
pub mod orders;
mod packet;
#[cfg(feature = "program")]
pub mod worker;

/// A violation of a protocol, which no correct peer commits: its process is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer violates the protocol")]
pub struct ProtocolViolation;

impl From<ProtocolViolation> for std::io::Error {
    fn from(violation: ProtocolViolation) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, violation)
    }
}

/// Builds the single-threaded runtime of connector and worker.
///
/// Must be called before the jail is closed and before any other descriptor is opened. The filter
/// then need not allow the system calls that build a runtime, whatever features of tokio a build
/// has.
///
/// # Errors
/// Returns the system's error if the runtime cannot be built.
#[cfg(feature = "program")]
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
}

/// Ends this process at the first panic in any task: a process that continued without that task
/// would keep the node waiting.
#[cfg(feature = "program")]
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
}
