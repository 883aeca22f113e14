//! Everything on which both sides of the VM boundary agree.
//!
//! The host side (pool, sandbox) and the guest side (kernel, runtime) are built separately, from
//! different workspaces. This crate is the only code that they share. It is `no_std` and never
//! sizes an allocation by a length that a peer sent. Compile-time assertions pin every layout in
//! it.
//!
//! - [`memory_map`]: the layout of guest-physical memory.
//! - [`pages`]: pages of guest-physical memory, ranges and sets of them.
//! - [`boot`]: the page through which the host identifies the instance to the guest.
//! - [`clock`]: the guest's clocks, computed from that page.
//! - [`command`]: the commands that the node sends to a guest before a request.
//! - [`configuration`]: the interfaces by which components read their configuration.
//! - [`mailbox`]: the only memory that both sides write.
//! - [`channel`]: the messages that pass through the mailbox, and their positions.
//! - [`doorbell`]: the port that the guest rings, and the meaning of each ring.
//! - [`files`]: a function's files, in the upload and in its guests.
//! - [`isa`]: the instruction sets that functions are compiled for.
//! - [`wire`]: the encoding of request and response heads.
//! - [`ring`]: the positions of a body's bytes in the mailbox.
//! - [`script`]: a script's files in the upload.
//! - [`state`]: the state of an initialised function, as the guest sends it.
//! - [`outgoing`]: requests that a function makes.
//! - [`secrets`]: secrets, which arrive with an invocation.
//! - [`store`]: records of key-value stores.
//! - [`outcome`]: how a run of a function can end.
//! - [`trap`]: the kind of the trap that ended a run.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod area;
pub mod boot;
pub mod channel;
pub mod clock;
pub mod command;
pub mod configuration;
pub mod doorbell;
pub mod entry;
pub mod files;
pub mod isa;
pub mod mailbox;
pub mod memory_map;
pub mod outcome;
pub mod outgoing;
pub mod pages;
pub mod ring;
pub mod script;
pub mod secrets;
pub mod state;
pub mod store;
pub mod trap;
pub mod wire;

/// Version of everything in this crate.
///
/// Raise it with every change of a layout or of a meaning. A guest that finds another number in its
/// boot page refuses to start.
pub const ABI_VERSION: u32 = 17;
