//! The Function Runtime Interface: what node, spawner and shells say to each other.
//!
//! Every message is one packet of a `SOCK_SEQPACKET` Unix socket: a header and
//! a body whose size its kind fixes. Descriptors travel only downwards, to the
//! spawner and to shells, but for one that a shell hands over when it is born
//! ([`messages::Born`]); whoever reads from a shell later gives the kernel no room
//! for descriptors, so none can arrive.
//!
//! ```text
//!   node ── SpawnShell, SpawnHelper, Kill … ▶ spawner      (descriptors attached)
//!   node ◀── Spawned, SpawnFailed, Ended ──── spawner
//!   node ── Preset, Fork, Activate, Seal … ─▶ shell        (descriptors attached)
//!   node ◀── Born, Prepared, Forked, Rang, Sealed, Failed ── shell
//! ```
//!
//! `destroy` is no message: a shell is killed by its parent, whatever it does.
//! The design's `create` is [`messages::SpawnShell`]; a boot is a fork of a
//! layer that holds a fresh guest image, mapped shared instead of private.

#![deny(unsafe_code)]

pub mod control;
pub mod messages;
pub mod shared_page;
mod socket;
pub mod userfault;

pub use messages::{Kind, Message};
pub use socket::{FDS_MAX, FriError, Packet, pair, receive, receive_from_untrusted, send};
