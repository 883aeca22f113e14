//! Loading a script into a language engine, which thereby becomes the script's function.
//!
//! The script arrives as one piece on a channel of its own, before any request. The guest wipes its
//! own copy of the script, or the function's seed would hold it twice.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;
use core::hint;

use faasw_abi::channel::Channel;
use faasw_abi::outcome::Outcome;
use faasw_abi::script::{self, ENGINE_VERSION, File, SCRIPT_EXPORT, SCRIPT_INIT, SCRIPT_MAX};
use faasw_abi::wire::{SeedConfig, SeedFiles};
use wasmtime::component::{ComponentType, Lift, TypedFunc};

use super::{Instance, Ready, exported};
use crate::failure::Failure;
use crate::files::Files;
use crate::platform::{Platform, fill};

/// The error of an engine about a script.
#[derive(ComponentType, Lift)]
#[component(record)]
struct ScriptError {
    message: String,
    file: Option<String>,
    line: Option<u32>,
    stack: String,
}

/// The script's bytes, while they are needed.
struct Wiped(Vec<u8>);

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.fill(0);
        // Keeps the compiler from removing the wipe.
        hint::black_box(&self.0);
    }
}

impl<P: Platform> Ready<P> {
    /// Returns the length of the script that arrives on [`Channel::SCRIPT`]. It is read before
    /// anything else that arrives there.
    ///
    /// # Errors
    /// Returns a [`Failure`] if no valid length arrives.
    pub fn script_length(&mut self) -> Result<usize, Failure> {
        let head = self.platform_mut().head(Channel::SCRIPT);
        let bytes = head.try_into().map(u64::from_le_bytes).ok();
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes
            .filter(|bytes| *bytes <= SCRIPT_MAX)
            .ok_or_else(|| Failure::new(Outcome::GuestFailed, "the script has no length"))
    }

    /// Passes the script of `bytes` bytes that arrives on [`Channel::SCRIPT`] to the function,
    /// which is a language engine, and configures it by `config`. `files` is the bundle that
    /// `config` announces, if it does; it arrives before the script.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the script or the bundle is malformed, or if the function is no
    /// engine, uses more memory than `config` permits, rejects the script, or traps. It must not be
    /// used any more then.
    pub fn take_script(
        &mut self,
        bytes: usize,
        mut config: SeedConfig,
        files: Option<&'static [u8]>,
    ) -> Result<(), Failure> {
        let files = files.zip(config.files.take());
        let script = self.receive_script(bytes);
        let script_files = script::read(&script.0)
            .map_err(|error| Failure::new(Outcome::LoadFailed, format!("{error}")))?;
        let Instance::Component(instance) = self.instance else {
            return Err(Failure::new(
                Outcome::LoadFailed,
                "a module cannot be a language engine",
            ));
        };
        let too_large = self.store.data_mut().become_function(config).err();
        if let Some(error) = too_large {
            return Err(Failure::load(&error.into(), None));
        }
        if let Some((bundle, SeedFiles { mount, .. })) = files {
            let refused = |report| Failure::new(Outcome::LoadFailed, report);
            let state = self.store.data_mut();
            let own = state
                .files
                .get_or_insert_with(|| Box::new(Files::of_engine()));
            let path = mount.clone();
            let mounted = own.mount(bundle, mount);
            mounted.map_err(|error| refused(format!("{error}")))?;
            let attached = state.file_system().attach();
            attached.map_err(|error| {
                refused(format!(
                    "the files cannot be at {path} ({error:?}), perhaps because the engine has \
                     its own there: choose another path with --files DIR:/PATH"
                ))
            })?;
        }
        let interface = format!("{SCRIPT_EXPORT}@{ENGINE_VERSION}");
        let init = exported(&mut self.store, instance, &interface, SCRIPT_INIT)
            .map_err(|error| Failure::load(&error, None))?;
        self.init(&init, &script_files)
    }

    fn init(
        &mut self,
        init: &TypedFunc<(&[File<'_>],), (Result<(), ScriptError>,)>,
        files: &[File<'_>],
    ) -> Result<(), Failure> {
        match init.call(&mut self.store, (files,)) {
            Ok((Ok(()),)) => Ok(()),
            Ok((Err(error),)) => Err(Failure::new(Outcome::LoadFailed, error.report())),
            Err(error) => Err(Failure::run(&error, &self.store.data().memory)),
        }
    }

    fn receive_script(&mut self, bytes: usize) -> Wiped {
        // The full size is allocated at once, because a vector that grows leaves copies behind.
        let mut script = Wiped(vec![0; bytes]);
        // If bytes are missing, the script is malformed.
        fill(self.platform_mut(), Channel::SCRIPT, &mut script.0);
        script
    }
}

impl ScriptError {
    /// Returns the error as text for the deploying client.
    fn report(&self) -> String {
        let mut report = String::new();
        // Writing to a string cannot fail.
        if let Some(file) = &self.file {
            let _ = write!(report, "{file}:");
            if let Some(line) = self.line {
                let _ = write!(report, "{line}:");
            }
            report.push(' ');
        }
        report.push_str(&self.message);
        for line in self.stack.lines() {
            let _ = write!(report, "\n  {line}");
        }
        report
    }
}
