//! The guest: a kernel of a few hundred lines that hosts the faasw runtime.
//!
//! The guest runs at privilege level 3 with its own page tables; ring 0 holds only the exception
//! stubs of [`trap`]. The life of a guest is a loop over the node's commands
//! ([`faasw_abi::command`]). When none is left, the guest serves the request that came with its
//! activation. Without a request it rings the doorbell of its [`stage`]; after that ring it may be
//! in another VM, forked from its former state.
//!
//! - [`start`]: first instructions, memory functions, panics.
//! - [`trap`]: exceptions and Wasm traps.
//! - [`free_ram`], [`frames`], [`paging`], [`heap`]: memory.
//! - [`wasmtime_hooks`]: what Wasmtime's custom platform calls.
//! - [`host`]: boot page, mailbox, doorbell.
//! - [`stage`]: the stages of a guest, and the commands that lead from one to another.
//! - [`serving`]: the only request of a guest, and the end of the guest.
//! - [`instance`]: clock, entropy and the runtime's platform.
//! - [`cpu`]: the features of the processor.
#![no_std]
#![no_main]

extern crate alloc;

mod cpu;
mod frames;
mod free_ram;
mod heap;
mod host;
mod instance;
mod paging;
mod serving;
mod single;
mod stage;
mod start;
mod trap;
mod wasmtime_hooks;

use faasw_abi::boot::FLAG_NX;

use crate::instance::Instance;
use crate::serving::{refuse, serve};
use crate::stage::Stage;

/// The first Rust function, which `_start` calls.
#[unsafe(no_mangle)]
extern "C" fn guest_main() -> ! {
    let boot = host::boot_page();
    host::check_boot_page(&boot);
    frames::init(boot.ram_bytes);
    paging::init(boot.flags & FLAG_NX != 0);
    let mut stage = Stage::Booted(Instance::new());
    loop {
        if let Some(command) = stage.platform_mut().next_command() {
            stage = match stage.step(command) {
                Ok(stage) => stage,
                Err(failure) => refuse(&failure),
            };
            stage.platform_mut().command_done();
        } else if stage.platform().has_request() {
            match stage.ready() {
                Ok(ready) => serve(ready),
                Err(failure) => refuse(&failure),
            }
        } else {
            let ring = stage.ring();
            stage.platform_mut().ring_at_freeze_point(ring);
        }
    }
}
