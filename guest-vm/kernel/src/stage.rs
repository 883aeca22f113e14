//! What a guest can be, and what each command makes of it.
//!
//! The stages are types of the runtime, each made of the one before: a command at a
//! stage that it is not for ends the guest, since only the node gives commands.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::ptr::{self, NonNull};
use core::slice;

use faasw_abi::channel::Channel;
use faasw_abi::command::Command;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::files::bundle::BUNDLE_MAX;
use faasw_abi::memory_map::{CODE, LARGE_PAGE};
use faasw_abi::wire::{RequestHead, SeedConfig, SeedFiles};
use faasw_runtime::failure::Failure;
use faasw_runtime::function::{Linkers, Loaded, Prepared, Ready};
use faasw_runtime::platform::receive;
use wasmtime::{CustomCodeMemory, Engine};

use crate::instance::Instance;
use crate::{cpu, frames, host, serving};

/// How far a guest is.
pub enum Stage {
    /// It has booted: level 0.
    Booted(Instance),
    /// It has an engine and every import linked: level 1.
    Linked(Box<Linkers<Instance>>, Instance),
    /// It has a function of which nothing has run.
    Loaded(Prepared<Instance>),
    /// Its function waits for a request.
    Ready(Ready<Instance>),
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

impl Stage {
    /// What the guest rings when it stands here.
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

    /// Does a command.
    ///
    /// # Errors
    /// What the function failed of.
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
            (Self::Ready(ready), Command::Evaluate { export }) => {
                Self::Ready(evaluate(ready, &export)?)
            }
            (Self::Ready(ready), Command::Script { config }) => Self::Ready(script(ready, config)?),
            (Self::Ready(ready), Command::WarmUp { request, body }) => {
                Self::Ready(warm_up(ready, request, body)?)
            }
            (Self::Ready(ready), Command::Run) => serving::run(ready),
            (stage, command) => host::fatal(format_args!(
                "the command to {} came at the stage {:?}",
                command.name(),
                stage.ring()
            )),
        })
    }

    /// What answers a request; a function that is only loaded is instantiated for it.
    ///
    /// # Errors
    /// What the function failed of.
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

/// What all functions share.
fn link() -> Linkers<Instance> {
    let mut settings = faasw_runtime::engine::config();
    settings.with_custom_code_memory(Some(Arc::new(CodeInPlace)));
    // SAFETY: the answers come from this CPU.
    unsafe { settings.detect_host_feature(cpu::has) };
    match Engine::new(&settings).and_then(|engine| Linkers::new(&engine)) {
        Ok(linkers) => linkers,
        Err(error) => host::fatal(format_args!("the engine does not start: {error:?}")),
    }
}

/// The bundle of a function's files, which comes on a channel of its own: whole large frames of RAM
/// that nobody writes from then on, so that all of the function's instances share them.
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
    // SAFETY: the frames are new, so nothing else refers to them, zeroed, mapped writable, and
    // never given back.
    let bundle = unsafe { slice::from_raw_parts_mut(start, files.bytes as usize) };
    if !receive(platform, Channel::SCRIPT, bundle) {
        host::fatal(format_args!("files came without their length"));
    }
    bundle
}

/// Everything of a function before its own code runs.
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
    // SAFETY: the host has placed an artifact of the compile helper there, on a
    // page boundary, read-only and for as long as the VM lives.
    let loaded = unsafe { Loaded::from_raw(linkers.engine(), code, config.kind) }?;
    let files = config.files.as_ref();
    let files = files.map(|files| take_files(&mut platform, files));
    let prepared = Prepared::new(&linkers, loaded, config, files, platform);
    // A guest serves one function, and ends without undoing anything.
    mem::forget(linkers);
    prepared.map_err(|unready| unready.failure)
}

/// Runs what the function runs before any request.
fn instantiate(prepared: Prepared<Instance>) -> Result<Ready<Instance>, Failure> {
    let ready = prepared.instantiate().map_err(|unready| unready.failure)?;
    ready.platform().tell_draws(ready.draws());
    Ok(ready)
}

/// Calls an export of a function that is ready, and is so again afterwards.
fn evaluate(mut ready: Ready<Instance>, export: &str) -> Result<Ready<Instance>, Failure> {
    ready.evaluate(export)?;
    ready.platform().tell_draws(ready.draws());
    Ok(ready)
}

/// Hands a script to an engine that is ready, which is a function that is ready afterwards.
fn script(mut ready: Ready<Instance>, config: SeedConfig) -> Result<Ready<Instance>, Failure> {
    ready.take_script(config)?;
    ready.platform().tell_draws(ready.draws());
    Ok(ready)
}

/// Has a function that is ready answer a request that nobody made.
fn warm_up(
    mut ready: Ready<Instance>,
    request: RequestHead,
    body: Vec<u8>,
) -> Result<Ready<Instance>, Failure> {
    ready.warm_up(request, body)?;
    ready.platform().tell_draws(ready.draws());
    Ok(ready)
}
