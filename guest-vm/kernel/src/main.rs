//! The guest: a kernel of a few hundred lines that hosts the faasw runtime.
//!
//! It runs at privilege level 3 with its own page tables; ring 0 holds only the
//! exception stubs of [`trap`]. Life of a guest is a loop over the node's commands
//! ([`faasw_abi::command`]). When none is left it serves the request that it was
//! activated with, or rings that it stands at its [`stage`]; behind that ring it may be
//! in another VM, forked from what it was.
//!
//! - [`start`]: first instructions, memory functions, panics.
//! - [`trap`]: exceptions and Wasm traps.
//! - [`room`], [`frames`], [`paging`], [`heap`]: memory.
//! - [`wasmtime_hooks`]: what Wasmtime's custom platform calls.
//! - [`host`]: boot page, mailbox, doorbell.
//! - [`stage`]: what a guest can be, and what each command makes of it.
//! - [`serving`]: the one request, and how a guest ends.
//! - [`instance`]: clock, entropy and the runtime's platform.
//! - [`cpu`]: what the processor can do.
#![no_std]
#![no_main]

extern crate alloc;

mod cpu;
mod frames;
mod heap;
mod host;
mod instance;
mod paging;
mod room;
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

/// Where `_start` goes.
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
            stage.platform_mut().stand(ring);
        }
    }
}
