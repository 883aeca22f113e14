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
mod single;
mod stage;
mod start;
mod trap;
mod wasmtime_hooks;

use faasw_abi::boot::FLAG_NX;
use faasw_abi::channel::Channel;
use faasw_abi::doorbell::Ring;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::RequestHead;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::Ready;
use faasw_runtime::platform::Platform as _;

use crate::host::{host_says, publish};
use crate::instance::Instance;
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

/// The one request of this instance, and the end.
fn serve(mut ready: Ready<Instance>) -> ! {
    let head = ready.platform_mut().head(Channel::INVOCATION);
    let request = match RequestHead::decode(&head) {
        Ok(request) => request,
        Err(error) => host::fatal(format_args!("the request head: {error}")),
    };
    ready.platform_mut().begin();
    let answered = ready.handle(request);
    conclude(&ready, &answered)
}

/// A command up to its func-entry point; what goes on from there has a request, which that is.
fn run(mut ready: Ready<Instance>) -> ! {
    let answered = ready.run_ahead();
    conclude(&ready, &answered)
}

/// What came of the one request.
fn conclude(ready: &Ready<Instance>, answered: &Result<(), Failure>) -> ! {
    let took = ready.platform().served_for();
    let outcome = match answered {
        Ok(()) => {
            publish!(report_len, 0);
            Outcome::Response
        }
        Err(failure) => {
            explain(failure);
            failure.outcome
        }
    };
    publish!(exec_nanoseconds, took);
    publish!(memory_peak, ready.memory_peak());
    publish!(memory_denied, u32::from(ready.memory_denied()));
    publish!(outcome, outcome as u32);
    if host_says!(tell_end) != 0 {
        host::ring_progress();
    }
    loop {
        host::ring(Ring::Done);
    }
}

/// Ends a guest whose function never got ready.
fn refuse(failure: &Failure) -> ! {
    explain(failure);
    publish!(outcome, failure.outcome as u32);
    loop {
        host::ring(Ring::Done);
    }
}

/// Says all of a failure but its outcome, which is to be seen last.
fn explain(failure: &Failure) {
    let report = host::write_report(format_args!("{}", failure.report));
    publish!(trap, failure.trap.map_or(0, |trap| trap as u32));
    publish!(exit_code, failure.exit_code);
    publish!(report_len, report);
}
