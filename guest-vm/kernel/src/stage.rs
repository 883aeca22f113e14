//! The stages of a guest, and the commands that lead from one to another.
//!
//! The stages are types of the runtime, each made from the one before. A command at a wrong stage
//! ends the guest, since only the node sends commands.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem;
use core::ptr::{self, NonNull};
use core::slice;

use faasw_abi::channel::Channel;
use faasw_abi::command::Command;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::files::bundle::BUNDLE_MAX;
use faasw_abi::memory_map::{CODE, LARGE_PAGE};
use faasw_abi::wire::{SeedConfig, SeedFiles};
use faasw_runtime::failure::Failure;
use faasw_runtime::function::{Linkers, Loaded, Prepared, Ready};
use faasw_runtime::platform::{Platform as _, fill};
use wasmtime::{CustomCodeMemory, Engine};

use crate::instance::Instance;
use crate::{cpu, frames, host, serving};

/// The stage of a guest.
pub enum Stage {
    /// The guest has booted: level 0.
    Booted(Instance),
    /// The guest has an engine, and every import is linked: level 1.
    Linked(Box<Linkers<Instance>>, Instance),
    /// The guest has a function, none of whose code has run.
    Loaded(Prepared<Instance>),
    /// The function waits for a request.
    Ready(Ready<Instance>),
}

/// Code memory that is executable where the host has placed it.
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

impl Stage {
    /// Returns the doorbell of this stage.
    pub fn ring(&self) -> Doorbell {
        match self {
            Self::Booted(_) => Doorbell::Booted,
            Self::Linked(..) => Doorbell::Linked,
            Self::Loaded(_) => Doorbell::Loaded,
            Self::Ready(_) => Doorbell::Ready,
        }
    }

    pub fn platform(&self) -> &Instance {
        match self {
            Self::Booted(platform) | Self::Linked(_, platform) => platform,
            Self::Loaded(prepared) => prepared.platform(),
            Self::Ready(ready) => ready.platform(),
        }
    }

    pub fn platform_mut(&mut self) -> &mut Instance {
        match self {
            Self::Booted(platform) | Self::Linked(_, platform) => platform,
            Self::Loaded(prepared) => prepared.platform_mut(),
            Self::Ready(ready) => ready.platform_mut(),
        }
    }

    /// Executes a command.
    ///
    /// # Errors
    /// Returns the function's failure, if the function cannot be loaded or its code fails.
    pub fn step(self, command: Command) -> Result<Self, Failure> {
        Ok(match (self, command) {
            (Self::Booted(platform), Command::Link) => Self::Linked(Box::new(link()), platform),
            (stage, Command::Grow { ram_bytes }) => {
                if !frames::extend(ram_bytes) {
                    host::fatal(format_args!("{ram_bytes} bytes of RAM do not fit"));
                }
                stage
            }
            (Self::Linked(linkers, platform), Command::Load { code_bytes, config }) => {
                Self::Loaded(load(linkers, platform, code_bytes, config)?)
            }
            (Self::Loaded(prepared), Command::Instantiate) => Self::Ready(instantiate(prepared)?),
            (Self::Ready(mut ready), Command::Evaluate { export }) => {
                ready.evaluate(&export)?;
                Self::Ready(with_draws_reported(ready))
            }
            (Self::Ready(mut ready), Command::Script { config }) => {
                let bytes = ready.script_length()?;
                let files = config.files.as_ref();
                let files = files.map(|files| take_files(ready.platform_mut(), files));
                ready.take_script(bytes, config, files)?;
                Self::Ready(with_draws_reported(ready))
            }
            (Self::Ready(mut ready), Command::WarmUp { request, body }) => {
                ready.warm_up(request, body)?;
                Self::Ready(with_draws_reported(ready))
            }
            (Self::Ready(ready), Command::Run) => serving::run(ready),
            (stage, command) => host::fatal(format_args!(
                "the command to {} came at the stage {:?}",
                command.name(),
                stage.ring()
            )),
        })
    }

    /// Returns the function that answers a request. A function that is only loaded is instantiated
    /// first.
    ///
    /// # Errors
    /// Returns the function's failure, if its instantiation fails.
    pub fn ready(self) -> Result<Ready<Instance>, Failure> {
        match self {
            Self::Ready(ready) => Ok(ready),
            Self::Loaded(prepared) => instantiate(prepared),
            stage => host::fatal(format_args!(
                "a request came at the stage {:?}",
                stage.ring()
            )),
        }
    }
}

/// Makes the engine and the linkers, which all functions share.
fn link() -> Linkers<Instance> {
    let mut settings = faasw_runtime::engine::config();
    settings.with_custom_code_memory(Some(Arc::new(CodeInPlace)));
    // SAFETY: `cpu::has` reports the features of this CPU.
    unsafe { settings.detect_host_feature(cpu::has) };
    match Engine::new(&settings).and_then(|engine| Linkers::new(&engine)) {
        Ok(linkers) => linkers,
        Err(error) => host::fatal(format_args!("the engine does not start: {error:?}")),
    }
}

/// Receives the bundle of a function's files, on a channel of its own, whose head was read before.
/// A script follows it there.
/// The bundle is in whole large frames of RAM that are never written again, so that all of the
/// function's instances share them.
fn take_files(platform: &mut Instance, files: &SeedFiles) -> &'static [u8] {
    let frames = if files.bytes <= BUNDLE_MAX {
        frames::large_run(files.bytes.div_ceil(LARGE_PAGE))
    } else {
        None
    };
    let Some(frames) = frames else {
        host::fatal(format_args!("{} bytes of files do not fit", files.bytes));
    };
    let start = ptr::with_exposed_provenance_mut::<u8>(frames.address() as usize);
    // SAFETY: the frames are new, so nothing else refers to them. They are zeroed, mapped writable,
    // and never freed.
    let bundle = unsafe { slice::from_raw_parts_mut(start, files.bytes as usize) };
    if !fill(platform, Channel::SCRIPT, bundle) {
        host::fatal(format_args!("the files are incomplete"));
    }
    bundle
}

/// Loads a function: everything before its own code runs.
fn load(
    linkers: Box<Linkers<Instance>>,
    mut platform: Instance,
    code_bytes: u64,
    config: SeedConfig,
) -> Result<Prepared<Instance>, Failure> {
    let code = NonNull::slice_from_raw_parts(
        match NonNull::new(ptr::with_exposed_provenance_mut::<u8>(CODE as usize)) {
            Some(start) => start,
            None => host::fatal(format_args!("the code has no address")),
        },
        code_bytes as usize,
    );
    // SAFETY: the host has placed an artifact of the compile helper there, on a page boundary and
    // read-only, for the VM's lifetime.
    let loaded = unsafe { Loaded::from_raw(linkers.engine(), code, config.kind) }?;
    let files = config.files.as_ref();
    let files = files.map(|files| {
        // The length of the script that follows: none.
        platform.head(Channel::SCRIPT);
        take_files(&mut platform, files)
    });
    let prepared = Prepared::new(&linkers, loaded, config, files, platform);
    // A guest serves one function, and ends without any destructors.
    mem::forget(linkers);
    prepared.map_err(|unready| unready.failure)
}

/// Instantiates the function, which runs the code that it runs before any request.
fn instantiate(prepared: Prepared<Instance>) -> Result<Ready<Instance>, Failure> {
    let ready = prepared.instantiate().map_err(|unready| unready.failure)?;
    Ok(with_draws_reported(ready))
}

/// Reports the draws of a function whose code has run.
fn with_draws_reported(ready: Ready<Instance>) -> Ready<Instance> {
    ready.platform().report_draws(ready.draws());
    ready
}
