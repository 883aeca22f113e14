//! The guest: a kernel of a few hundred lines that hosts the faasw runtime.
//!
//! It runs at privilege level 3 with its own page tables; ring 0 holds only the
//! exception stubs of [`trap`]. Life of a guest, each arrow a ring of the
//! doorbell after which it may be in another VM:
//!
//! ```text
//! boot ─▶ Booted ─ link ─▶ Linked ─ load code ─▶ Loaded ─ instantiate ─▶ Ready ─ handle ─▶ Done
//!        level 0          level 1        level 2, early          level 2, late
//! ```
//!
//! - [`start`]: first instructions, memory functions, panics.
//! - [`trap`]: exceptions and Wasm traps.
//! - [`frames`], [`paging`], [`heap`]: memory.
//! - [`wasmtime_hooks`]: what Wasmtime's custom platform calls.
//! - [`host`]: boot page, mailbox, doorbell.
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
mod single;
mod start;
mod trap;
mod wasmtime_hooks;

use alloc::sync::Arc;
use alloc::vec;
use core::mem;
use core::ptr::{self, NonNull};

use faasw_abi::boot::{BootPage, FLAG_NX};
use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::{self, Area};
use faasw_abi::memory_map::CODE;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::{RequestHead, SeedConfig};
use faasw_runtime::failure::Failure;
use faasw_runtime::function::{Linkers, Loaded, Prepared, Ready};
use wasmtime::{CustomCodeMemory, Engine};

use crate::host::publish;
use crate::instance::Instance;

/// Where `_start` goes.
#[unsafe(no_mangle)]
extern "C" fn guest_main() -> ! {
    let boot = host::boot_page();
    host::check_boot_page(&boot);
    frames::init(boot.ram_bytes);
    paging::init(boot.flags & FLAG_NX != 0);
    let shared = share();
    let prepared = match prepare(&boot, shared) {
        Ok(prepared) => prepared,
        Err(failure) => refuse(&failure),
    };
    let ready = match instantiate(prepared) {
        Ok(ready) => ready,
        Err(failure) => refuse(&failure),
    };
    serve(ready)
}

/// The code of a function is executable where the host has put it.
struct CodeInPlace;

impl CustomCodeMemory for CodeInPlace {
    fn required_alignment(&self) -> usize {
        4096
    }

    fn publish_executable(&self, _: *const u8, _: usize) -> wasmtime::Result<()> {
        Ok(())
    }

    fn unpublish_executable(&self, _: *const u8, _: usize) -> wasmtime::Result<()> {
        Ok(())
    }
}

/// What all functions share: the levels 0 and 1.
fn share() -> (Linkers<Instance>, Instance) {
    let mut platform = Instance::new();
    ring_with_time(Ring::Booted, &platform);
    platform.resume();
    let mut settings = faasw_runtime::engine::config();
    settings.with_custom_code_memory(Some(Arc::new(CodeInPlace)));
    // SAFETY: the answers come from this CPU.
    unsafe { settings.detect_host_feature(cpu::has) };
    let linkers = Engine::new(&settings).and_then(|engine| Linkers::new(&engine));
    let linkers = match linkers {
        Ok(linkers) => linkers,
        Err(error) => host::fatal(format_args!("the engine does not start: {error:?}")),
    };
    ring_with_time(Ring::Linked, &platform);
    platform.resume();
    (linkers, platform)
}

/// Everything of a function up to its early freeze point.
fn prepare(
    boot: &BootPage,
    (linkers, platform): (Linkers<Instance>, Instance),
) -> Result<Prepared<Instance>, Failure> {
    let told = host::host_says();
    if !frames::extend(told.ram_bytes, boot.ram_bytes) {
        host::fatal(format_args!("{} bytes of RAM do not fit", told.ram_bytes));
    }
    let length = usize::try_from(told.configuration_len).unwrap_or(usize::MAX);
    let config = match SeedConfig::decode(&take_area(mailbox::CONFIGURATION, length)) {
        Ok(config) => config,
        Err(error) => host::fatal(format_args!("the configuration: {error}")),
    };
    let code = NonNull::slice_from_raw_parts(
        match NonNull::new(ptr::with_exposed_provenance_mut::<u8>(CODE as usize)) {
            Some(start) => start,
            None => host::fatal(format_args!("the code has no address")),
        },
        told.code_bytes as usize,
    );
    // SAFETY: the host has placed an artifact of the compile helper there, on a
    // page boundary, read-only and for as long as the VM lives.
    let loaded = unsafe { Loaded::from_raw(linkers.engine(), code, config.kind) }?;
    let prepared = Prepared::new(&linkers, loaded, config, platform);
    // A guest serves one function, and ends without undoing anything.
    mem::forget(linkers);
    prepared.map_err(|unready| unready.failure)
}

/// From the early freeze point to the late one.
fn instantiate(mut prepared: Prepared<Instance>) -> Result<Ready<Instance>, Failure> {
    // A request that came with the function itself is answered in one go.
    if !prepared.platform().has_request() {
        ring_with_time(Ring::Loaded, prepared.platform());
        prepared.platform_mut().resume();
    }
    let resumed = prepared.platform().age();
    let mut ready = prepared.instantiate().map_err(|unready| unready.failure)?;
    let draws = ready.draws();
    let drawn = host::write_report(format_args!("{draws}"));
    let (bits, entropy) = (draws.bits(), draws.entropy_bytes());
    publish!(draws, bits);
    publish!(entropy_drawn, u32::try_from(entropy).unwrap_or(u32::MAX));
    publish!(report_len, drawn);
    let took = ready.platform().age().saturating_sub(resumed);
    publish!(init_nanoseconds, took);
    if ready.platform().has_request() {
        // Forked before the late freeze point: the request is waiting already.
        return Ok(ready);
    }
    ring_with_time(Ring::Ready, ready.platform());
    ready.platform_mut().resume();
    Ok(ready)
}

/// The one request of this instance, and the end.
fn serve(mut ready: Ready<Instance>) -> ! {
    let length = host::host_says().request_head_len as usize;
    let request = match RequestHead::decode(&take_area(mailbox::REQUEST_HEAD, length)) {
        Ok(request) => request,
        Err(error) => host::fatal(format_args!("the request head: {error}")),
    };
    let begun = ready.platform().age();
    publish!(init_nanoseconds, begun);
    let answered = ready.handle(request);
    let ended = ready.platform().age();
    let (outcome, exit_code, report) = match &answered {
        Ok(()) => (Outcome::Response, 0, ""),
        Err(failure) => (failure.outcome, failure.exit_code, failure.report.as_str()),
    };
    let report = host::write_report(format_args!("{report}"));
    publish!(exit_code, exit_code);
    publish!(report_len, report);
    publish!(exec_nanoseconds, ended.saturating_sub(begun));
    publish!(memory_peak, ready.memory_peak());
    publish!(memory_denied, u32::from(ready.memory_denied()));
    publish!(outcome, outcome as u32);
    if host::host_says().tell_end != 0 {
        host::ring_progress();
    }
    loop {
        host::ring(Ring::Done);
    }
}

/// Ends a guest whose function never got ready.
fn refuse(failure: &Failure) -> ! {
    let report = host::write_report(format_args!("{}", failure.report));
    publish!(exit_code, failure.exit_code);
    publish!(report_len, report);
    publish!(outcome, failure.outcome as u32);
    loop {
        host::ring(Ring::Done);
    }
}

fn ring_with_time(why: Ring, platform: &Instance) {
    use faasw_runtime::platform::Platform as _;
    let now = platform.monotonic();
    publish!(monotonic_nanoseconds, now);
    host::ring(why);
}

fn take_area(area: Area, length: usize) -> alloc::vec::Vec<u8> {
    let mut bytes = vec![0; length.min(area.size as usize)];
    let read = host::read_area(area, 0, &mut bytes);
    bytes.truncate(read);
    bytes
}
