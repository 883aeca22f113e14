//! The Function Runtime Interface: the messages between node, spawner and sandboxes.
//!
//! Every message is one packet of a `SOCK_SEQPACKET` Unix socket: a header, and a body whose size
//! its kind fixes. Descriptors travel only downwards, to the spawner and to sandboxes. The one
//! exception is a descriptor that a sandbox sends when it is born ([`messages::SandboxStarted`]).
//! After that, the node receives messages of a sandbox without a buffer for descriptors, so none
//! can arrive.
//!
//! ```text
//!   node ── SpawnSandbox, SpawnHelper, Kill … ▶ spawner     (descriptors attached)
//!   node ◀── Spawned, SpawnFailed, Ended ──── spawner
//!   node ── Specialise, Fork, Activate, Seal … ─▶ sandbox    (descriptors attached)
//!   node ◀── SandboxStarted, Prepared, Forked, Rang, Sealed, Failed ── sandbox
//! ```
//!
//! `destroy` is not a message: a sandbox is killed by its parent, whatever it does. The design's
//! `create` is [`messages::SpawnSandbox`]; a boot is a fork of a layer that holds a fresh guest
//! image, mapped shared instead of private.

#![deny(unsafe_code)]

pub mod control;
pub mod messages;
pub mod shared_page;
mod socket;
pub mod userfault;

pub use messages::{Kind, Message};
pub use socket::{FDS_MAX, FriError, Packet, pair, receive, receive_from_untrusted, send};
