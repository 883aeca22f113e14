//! How functions reach out: two kinds of process, and the node's side of both.
//!
//! ```text
//!             orders                    connections
//!   node ◀───────────────▶ connector ────────────────▶ worker ◀──▶ upstream
//!     ▲                                                  ▲
//!     └────────────────────── frames ────────────────────┘
//! ```
//!
//! - The *connector*, one of a node, resolves names, filters addresses and connects. It parses
//!   nothing that an upstream says, but for servers of names.
//! - A *worker*, one of each function in use, speaks TLS and HTTP over connections that it is
//!   given. It makes no socket, and holds nothing of any other function.
//! - The node checks what is granted, and moves bytes. It parses nothing of an upstream, and takes
//!   no word of a worker for granted.
//!
//! Either process may die at any time: calls under way fail, and whoever owns it is told.
//!
//! - [`client`]: the node's side.
//! - [`frames`]: what node and worker say to each other.
//! - [`orders`]: what node and connector do.
//! - `connector`, `worker`: the two processes; `jail`: what they may do. With the feature `program`
//!   only, for a node carries the program as a file.
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

/// What connector and worker run on: one thread. To be made before the jail is closed, and before
/// any descriptor: what making it takes is then nothing that the filter has to allow, whatever
/// features of tokio a build has.
///
/// # Errors
/// The system's.
#[cfg(feature = "program")]
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
}

/// Ends this process with the first panic, in whichever task: what is left of it would keep the
/// node waiting.
#[cfg(feature = "program")]
fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::exit(101);
    }));
}
