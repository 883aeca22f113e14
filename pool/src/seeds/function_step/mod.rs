//! A function version: the inputs of its seed, and what is known about making it.

mod make;

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use faasw_abi::command::{Command, Commands};
use faasw_abi::mailbox::{CONFIGURATION_MAX, WARM_UPS_MAX};
use faasw_abi::memory_map::{LARGE_PAGE, RAM_MAX, RAM_OVERHEAD, ram_bytes};
use faasw_abi::wire::{FunctionKind, SeedConfig, SeedFiles};
use faasw_common::Lock;
use faasw_seedtree::StepDigest;
use rustix::io::Errno;

use super::spec::{ENGINE_MEMORY, EarlierBuild, FreezeReport, FunctionSpec, WarmUp};
use crate::error::{InvokeError, SeedError};
use crate::images::{ImageId, ImageIdentity, Images};
use crate::snapshots::{CodeHandle, SeedSnapshot};

/// Size limit in bytes up to which reading an image is faster than the steps that it replaces.
const QUICK_IMAGE: u64 = 8 << 20;

/// The maximum number of times that a version's image is written while the version is known: when
/// its seed is made, when the pages that requests use are known, and when those change.
const IMAGE_WRITES_MAX: u32 = 8;

/// The inputs of a function version's seed, and what is known about making it.
#[derive(Debug)]
pub struct FunctionStep {
    /// The number of this deployment in the pool.
    deployment: u64,
    spec: FunctionSpec,
    kind: FunctionKind,
    code: Arc<CodeHandle>,
    memory_limit: u64,
    ram_bytes: u64,
    config: SeedConfig,
    /// The commands for its warm-up requests.
    warm_ups: Vec<Command>,
    time_limit: Duration,
    /// The bytes that its seed takes, as an earlier making measured; 0 if unknown.
    expected_bytes: u64,
    /// The bytes of the image that its seed is read from when it is not in memory, as far as known;
    /// 0 if there is no image.
    image_bytes: AtomicU64,
    /// The file name of its image, once it has been computed.
    image_file: OnceLock<String>,
    /// How many more times its image may be written.
    image_writes: AtomicU32,
    record: Lock<MakingRecord>,
}

/// The knowledge gained by making a version's seed.
#[derive(Debug, Default)]
struct MakingRecord {
    /// Whether its warm-up requests have failed since it was deployed. Seeds are then made without
    /// them, so that no seed is delayed by them again.
    is_cold: bool,
    /// Whether it was frozen at its entry point.
    has_entered: bool,
    /// Whether its seed has been made, by this node or before.
    was_made: bool,
    /// Whether its seed was read from its image when it was last loaded.
    is_restored: bool,
    /// Whether its seed is frozen after initialisation: decided when it is first made, or known
    /// from before.
    after_init: Option<bool>,
    /// The duration of its instantiation.
    instantiation: Duration,
    /// Whether its instantiation drew entropy; `false` until that has been observed.
    drew_entropy: bool,
    /// The draws of its instantiation, by import, one line each; empty until they have been
    /// observed.
    drawn: String,
}

/// Returns the RAM of a guest whose memories may have `memory_limit` bytes.
///
/// # Errors
/// Returns [`SeedError::MemoryTooLarge`] if that is more than a guest can have.
pub(super) fn ram_of(memory_limit: u64) -> Result<u64, SeedError> {
    ram_bytes(memory_limit).ok_or(SeedError::MemoryTooLarge {
        wanted: memory_limit,
        most: RAM_MAX - RAM_OVERHEAD,
    })
}

pub(super) fn timeout_error(limit: Duration) -> SeedError {
    SeedError::Function(InvokeError::TimedOut(limit))
}

/// Returns the commands for a function's warm-up requests.
///
/// # Errors
/// Returns [`SeedError::WarmUpTooLarge`] if they do not fit a mailbox beside the other commands.
fn warm_ups(spec: &FunctionSpec) -> Result<Vec<Command>, SeedError> {
    let commands = spec
        .warm_ups
        .iter()
        .map(|WarmUp { head, body }| Command::WarmUp {
            request: head.clone(),
            body: body.to_vec(),
        });
    let commands: Vec<_> = commands.collect();
    let length = Commands::of(&commands).bytes().len();
    if length as u64 > WARM_UPS_MAX {
        return Err(SeedError::WarmUpTooLarge(length, WARM_UPS_MAX));
    }
    Ok(commands)
}

impl FunctionStep {
    /// Creates the version of the pool's deployment number `deployment`, with this code.
    ///
    /// # Errors
    /// Returns [`SeedError::MemoryTooLarge`], [`SeedError::ConfigTooLarge`] or
    /// [`SeedError::WarmUpTooLarge`] if a limit of guests is exceeded, and
    /// [`SeedError::WarmUpOfCommand`] if a command has warm-up requests.
    pub fn new(
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<CodeHandle>,
        time_limit: Duration,
        known: Option<EarlierBuild>,
        deployment: u64,
    ) -> Result<Self, SeedError> {
        let own_limit = match &spec.script {
            // The guests of a script are the engine's, whose RAM cannot shrink, and they have to
            // receive the script.
            Some(script) => spec.memory_limit.max(ENGINE_MEMORY) + script.bytes,
            None => spec.memory_limit,
        };
        // The files lie beside the function's own memory, in large pages of their own.
        let files = spec.files.as_ref().map_or(0, |files| files.bytes);
        let memory_limit = own_limit.saturating_add(files.next_multiple_of(LARGE_PAGE));
        let ram_bytes = ram_of(memory_limit)?;
        let config = SeedConfig {
            kind,
            tells_state: code.reports_state(),
            has_entry: spec.has_entry,
            memory_limit: spec.memory_limit,
            arguments: iter::once(spec.name.clone().into_bytes())
                .chain(spec.arguments.iter().cloned())
                .collect(),
            environment: spec.environment.clone(),
            configuration: spec.configuration.clone(),
            secrets: spec.secrets.clone(),
            stores: spec.stores.clone(),
            files: spec.files.as_ref().map(|files| SeedFiles {
                bytes: files.bytes,
                mount: files.mount.clone(),
                freeze_at: files.freeze_at.clone(),
            }),
        };
        let length = config.encoded_len();
        if length as u64 > CONFIGURATION_MAX {
            return Err(SeedError::ConfigTooLarge(length, CONFIGURATION_MAX));
        }
        if kind != FunctionKind::HttpComponent && !spec.warm_ups.is_empty() {
            return Err(SeedError::WarmUpOfCommand);
        }
        let expected_bytes = known.map_or(0, |known| {
            // A script's code is its engine's, and counts with the engine's seed.
            let counts = spec.script.is_none() && code.can_be_evicted();
            let code_bytes = if counts { code.bytes() } else { 0 };
            known.layer_bytes.saturating_add(code_bytes)
        });
        let record = known.map_or_else(MakingRecord::default, |known| MakingRecord {
            was_made: true,
            after_init: Some(known.after_init),
            instantiation: known.instantiation,
            ..MakingRecord::default()
        });
        Ok(Self {
            deployment,
            spec: spec.clone(),
            kind,
            code: code.clone(),
            memory_limit,
            ram_bytes,
            config,
            warm_ups: warm_ups(spec)?,
            time_limit,
            expected_bytes,
            image_bytes: AtomicU64::new(0),
            image_file: OnceLock::new(),
            image_writes: AtomicU32::new(IMAGE_WRITES_MAX),
            record: Lock::new(record),
        })
    }

    /// Returns the digest of the step. The result of an initialisation also depends on when it
    /// runs, because it may read the clock or draw random numbers. So each deployment is a step of
    /// its own, even with the same inputs as another.
    pub fn digest(&self) -> StepDigest {
        StepDigest::of(&[b"function", &self.deployment.to_le_bytes()])
    }

    /// Returns the identity of its image, if it is to have one. A seed that was made without its
    /// warm-up requests gets no image, so that it is made with them after the next start.
    ///
    /// # Errors
    /// Returns the error of computing the digest of the code.
    pub fn image(&self) -> Result<Option<ImageIdentity>, Errno> {
        let Some(id) = self.spec.image.filter(|_| !self.record.lock().is_cold) else {
            return Ok(None);
        };
        let code = self.code.digest()?;
        let (load, become_ready) = (
            self.commands_to_load(self.code.bytes()),
            self.become_ready(),
        );
        // Everything else that the image depends on is part of the version, which owns the image
        // ID.
        let purpose = [&code[..], load.bytes(), become_ready.bytes()];
        Ok(Some(ImageIdentity::function(&id, &purpose)))
    }

    /// Returns the ID of its image, if it is to have one.
    pub fn image_id(&self) -> Option<&ImageId> {
        self.spec.image.as_ref()
    }

    /// Returns the file name of its image, if it is to have one.
    pub fn image_file(&self, images: &Images) -> Option<&str> {
        let id = self.image_id()?;
        let name = self.image_file.get_or_init(|| images.file_name_of(id));
        Some(name)
    }

    /// Records that its seed was read from its image.
    pub fn was_restored(&self) {
        let mut record = self.record.lock();
        record.was_made = true;
        record.is_restored = true;
    }

    /// Returns whether its seed was read from its image when it was last loaded.
    pub fn is_restored(&self) -> bool {
        self.record.lock().is_restored
    }

    /// Returns whether its seed is read from an image when it is not in memory, as far as known.
    pub fn has_image(&self) -> bool {
        self.image_bytes.load(Ordering::Relaxed) > 0
    }

    /// Returns whether it has an image that is small enough to be read completely while requests
    /// wait.
    pub fn has_quick_image(&self) -> bool {
        (1..=QUICK_IMAGE).contains(&self.image_bytes.load(Ordering::Relaxed))
    }

    /// Records the size of its image; `None` if there is no image.
    pub fn note_image(&self, bytes: Option<u64>) {
        self.image_bytes
            .store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Takes one of the limited number of times that its image may be written. Returns `false` if
    /// none is left.
    pub fn take_image_write(&self) -> bool {
        let once_less = |left: u32| left.checked_sub(1);
        let order = Ordering::Relaxed;
        self.image_writes
            .fetch_update(order, order, once_less)
            .is_ok()
    }

    /// Returns a write that was taken, because writing the image was not tried.
    pub fn return_image_write(&self) {
        self.image_writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the function's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the commands that make a guest load it, with `code_bytes` bytes of code.
    fn commands_to_load(&self, code_bytes: u64) -> Commands {
        Commands::of(&self.load_commands(code_bytes))
    }

    fn load_commands(&self, code_bytes: u64) -> Vec<Command> {
        let config = self.config.clone();
        let ram_bytes = self.ram_bytes;
        let become_it = match self.spec.script {
            Some(_) => Command::Script { config },
            None => Command::Load { code_bytes, config },
        };
        vec![Command::Grow { ram_bytes }, become_it]
    }

    /// Returns the commands that make a guest become this function if its seed is missing. A
    /// request instantiates a function that is only loaded, but does not initialise it.
    pub fn become_ready(&self) -> Commands {
        let mut commands = self.load_commands(self.code.bytes());
        if let Some(export) = self.spec.init.clone() {
            commands.extend([Command::Instantiate, Command::Evaluate { export }]);
        }
        Commands::of(&commands)
    }

    /// Returns its compiled code, in memory or stored.
    pub fn code(&self) -> &Arc<CodeHandle> {
        &self.code
    }

    /// Returns the memory limit of its guests in bytes: all linear memories, its files, and the
    /// space that a script takes while it is loaded.
    pub fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// Returns the RAM of its guests, in bytes.
    pub fn ram_bytes(&self) -> u64 {
        self.ram_bytes
    }

    /// Returns the bytes that its seed takes, code included, as an earlier making measured; 0 if
    /// unknown.
    pub fn expected_bytes(&self) -> u64 {
        self.expected_bytes
    }

    /// Returns whether it is a script.
    pub fn is_script(&self) -> bool {
        self.spec.script.is_some()
    }

    /// Returns whether only its own seed can be forked for it: a script, or a function with files,
    /// which a guest receives before any request.
    pub fn requires_own_seed(&self) -> bool {
        self.is_script() || self.spec.files.is_some()
    }

    /// Returns whether its seed is frozen after its initialisation, if that is known.
    pub fn after_init(&self) -> Option<bool> {
        self.record.lock().after_init
    }

    /// Returns the duration of its initialisation, as far as known: of its instantiation and, if
    /// it has one, of its initialising export.
    pub fn instantiation(&self) -> Duration {
        self.record.lock().instantiation
    }

    /// Returns the report of making `frozen`.
    pub fn report(&self, frozen: &SeedSnapshot) -> FreezeReport {
        let record = self.record.lock();
        FreezeReport {
            after_init: record.after_init == Some(true),
            at_entry: record.has_entered,
            drew_entropy: record.drew_entropy,
            drawn: record.drawn.clone(),
            instantiation: record.instantiation,
            layer_bytes: frozen.bytes(),
        }
    }
}
