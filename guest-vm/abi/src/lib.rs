//! Everything that both sides of the VM boundary agree on.
//!
//! The host side (pool, sandbox) and the guest side (kernel, runtime) are built
//! apart, from different workspaces; this crate is the only thing they share.
//! It is `no_std`, allocates nothing that a peer's length could size, and every
//! layout in it is pinned by a compile-time assertion.
//!
//! - [`memory_map`]: where things are in guest-physical space.
//! - [`pages`]: guest-physical memory by its pages.
//! - [`boot`]: the page through which the host tells the guest who it is.
//! - [`clock`]: what that page makes of the guest's clocks.
//! - [`command`]: what the node has a guest do before a request.
//! - [`configuration`]: the interfaces by which components read theirs.
//! - [`mailbox`]: the only memory that both sides write.
//! - [`channel`]: what passes through it, and where.
//! - [`doorbell`]: the port the guest rings and what each ring means.
//! - [`files`]: a function's files, as they are sent and as its guests have them.
//! - [`isa`]: the instruction sets that functions are compiled for.
//! - [`wire`]: how request and response heads are spelled as bytes.
//! - [`ring`]: where the bytes of a body lie in the mailbox.
//! - [`script`]: a script's files, as they are sent.
//! - [`state`]: what an initialised function has become, as it is told.
//! - [`outgoing`]: requests that a function makes.
//! - [`secrets`]: secrets, as they come with an invocation.
//! - [`store`]: records of key-value stores.
//! - [`outcome`]: how a run of a function can end.
//! - [`trap`]: which trap ended it, where one did.
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
/// Raise it with every change of a layout or of a meaning; a guest that finds
/// another number in its boot page refuses to start.
pub const ABI_VERSION: u32 = 16;
