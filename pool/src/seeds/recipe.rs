//! How each seed is made of its parent.
//!
//! A recipe is a step of the tree: booting a guest, linking all imports, loading and
//! instantiating a language engine or a function version, or handing an engine a script. What is learnt of a step while it is done, where a
//! function's seed is frozen above all, is kept here, for all who want the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::CONFIGURATION_MAX;
use faasw_abi::memory_map::{RAM_MAX, RAM_OVERHEAD, ram_bytes};
use faasw_abi::wire::{FunctionKind, SeedConfig};
use faasw_seedtree::StepDigest;
use faasw_text::Line;
use tokio::time::timeout;

use super::engine::{ENGINE_MEMORY, EngineVersion};
use super::making::{Feed, Instantiated, Making};
use super::spec::{FreezePolicy, FreezeReport, FunctionSpec, Known, Script};
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::mailbox::{LogLines, Mailbox};
use crate::shells::Stock;
use crate::sink::{LogSink, LogStream};
use crate::snapshots::{Code, Frozen};

/// How long a step that runs no tenant's code may take.
const OWN_TIMEOUT: Duration = Duration::from_secs(30);

/// A step of the tree.
#[derive(Debug)]
pub enum Recipe {
    /// A guest boots.
    Boot,
    /// It makes the engine and links every import.
    Link,
    /// It becomes a language engine, which all its scripts share.
    Engine(Arc<EngineVersion>),
    /// It becomes a function version.
    Function(Arc<Version>),
    /// It does what a test says.
    #[cfg(feature = "trial")]
    Commands(Box<super::step::Step>),
}

/// What a function version's seed is made of, and what is known of making it.
#[derive(Debug)]
pub struct Version {
    /// Its number among those of the pool.
    deployment: u64,
    spec: FunctionSpec,
    code: Arc<Code>,
    memory_limit: u64,
    ram_bytes: u64,
    /// What has a guest load it.
    load: Commands,
    /// What has a guest become it where its seed is missing: a request instantiates what is
    /// only loaded, but does not initialise.
    become_ready: Commands,
    time_limit: Duration,
    learnt: Mutex<Learnt>,
}

/// What making a version's seed has told.
#[derive(Debug, Default)]
struct Learnt {
    /// Where it is frozen: decided when it is made first, or known from before.
    after_init: Option<bool>,
    /// What instantiating it takes.
    instantiation: Duration,
    /// Whether instantiating it drew entropy; `false` as long as that was not seen.
    drew_entropy: bool,
    /// What it drew, by import, one line each; empty as long as that was not seen.
    drawn: String,
}

/// Takes what a guest without a function says, which is nothing.
#[derive(Debug)]
struct OwnLog;

impl LogSink for OwnLog {
    fn line(&self, _: u64, _: LogStream, line: &[u8]) {
        tracing::warn!(line = %Line(String::from_utf8_lossy(line)), "a guest without a function speaks");
    }
}

pub(super) fn own_log() -> LogLines {
    LogLines::new(Arc::new(OwnLog), 0)
}

/// RAM of a guest whose memories may have so many bytes.
///
/// # Errors
/// When that is more than a guest can have.
pub(super) fn ram_of(memory_limit: u64) -> Result<u64, SeedError> {
    ram_bytes(memory_limit).ok_or(SeedError::MemoryTooLarge {
        wanted: memory_limit,
        most: RAM_MAX - RAM_OVERHEAD,
    })
}

/// RAM of a guest without a function.
fn least_ram() -> u64 {
    ram_bytes(0).unwrap_or(0)
}

pub(super) fn too_late(limit: Duration) -> SeedError {
    SeedError::Function(InvokeError::TimedOut(limit))
}

impl Recipe {
    /// That of a function version, the pool's `deployment`th.
    ///
    /// # Errors
    /// When its memory or configuration is more than a guest can have.
    pub fn function(
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<Code>,
        time_limit: Duration,
        known: Option<Known>,
        deployment: u64,
    ) -> Result<Self, SeedError> {
        let version = Version::new(spec, kind, code, time_limit, known, deployment)?;
        Ok(Self::Function(Arc::new(version)))
    }

    /// What it does, for the tree. Two steps of one digest do the same.
    pub fn digest(&self) -> StepDigest {
        match self {
            Self::Boot => StepDigest::of(&[b"boot"]),
            Self::Link => StepDigest::of(&[b"link"]),
            Self::Engine(engine) => engine.digest(),
            Self::Function(version) => version.digest(),
            #[cfg(feature = "trial")]
            Self::Commands(step) => step.digest(),
        }
    }

    /// What shells and people call it.
    pub fn name(&self) -> &str {
        match self {
            Self::Boot => "guest",
            Self::Link => "linkers",
            Self::Engine(engine) => engine.name(),
            Self::Function(version) => &version.spec.name,
            #[cfg(feature = "trial")]
            Self::Commands(_) => "step",
        }
    }

    /// The function version, if it is one.
    pub fn version(&self) -> Option<&Arc<Version>> {
        match self {
            Self::Function(version) => Some(version),
            _ => None,
        }
    }

    /// Whether its seed stays for ever: what no function can do without.
    pub fn is_pinned(&self) -> bool {
        matches!(self, Self::Boot | Self::Link)
    }

    /// Has a guest of its parent do it, through its mailbox, before it serves a request
    /// (best-effort fork, AFaaS §4.1).
    ///
    /// # Errors
    /// When the commands do not fit, or there is more to it than commands; the system's.
    pub fn command(&self, mailbox: &mut Mailbox) -> Result<(), PlatformError> {
        match self {
            Self::Boot => Ok(()),
            Self::Link => mailbox.put_commands(&Commands::of(&[Command::Link])),
            Self::Function(version) if !version.is_script() => {
                mailbox.put_commands(&version.become_ready)
            }
            Self::Engine(_) | Self::Function(_) => Err(PlatformError::Protocol(
                "a script is taken before any request".to_owned(),
            )),
            #[cfg(feature = "trial")]
            Self::Commands(step) => mailbox.put_commands(&step.commands()),
        }
    }

    /// Runs a guest of `parent` through the step, and freezes it.
    ///
    /// # Errors
    /// When a function fails to load or instantiate in time; platform errors.
    pub async fn make(
        &self,
        stock: &Stock,
        parent: Option<&Arc<Frozen>>,
    ) -> Result<Frozen, SeedError> {
        match (self, parent) {
            (Self::Function(version), Some(parent)) => {
                let made = timeout(version.time_limit, version.make(stock, parent)).await;
                made.unwrap_or_else(|_| Err(too_late(version.time_limit)))
            }
            (Self::Engine(engine), Some(parent)) => engine.make(stock, parent).await,
            #[cfg(feature = "trial")]
            (Self::Commands(step), Some(parent)) => step.make(stock, parent).await,
            (Self::Boot, _) => in_time("booting a guest", boot(stock)).await,
            (Self::Link, Some(parent)) => in_time("linking", link(stock, parent)).await,
            (_, None) => {
                let what = "a step without a parent".to_owned();
                Err(PlatformError::Protocol(what).into())
            }
        }
    }
}

async fn in_time(
    what: &'static str,
    work: impl Future<Output = Result<Frozen, SeedError>>,
) -> Result<Frozen, SeedError> {
    let limit = OWN_TIMEOUT;
    match timeout(limit, work).await {
        // No tenant had any part in it.
        Ok(made) => made.map_err(|error| match error {
            SeedError::Platform(error) => error.into(),
            other => PlatformError::Protocol(other.to_string()).into(),
        }),
        Err(_) => Err(PlatformError::TimedOut { what, limit }.into()),
    }
}

async fn boot(stock: &Stock) -> Result<Frozen, SeedError> {
    let mut making = Making::boot(stock, least_ram(), own_log()).await?;
    making.reach(Ring::Booted).await?;
    making.freeze().await
}

async fn link(stock: &Stock, parent: &Arc<Frozen>) -> Result<Frozen, SeedError> {
    let mut mailbox = Mailbox::new()?;
    Recipe::Link.command(&mut mailbox)?;
    let mut making = Making::fork(stock, parent, least_ram(), mailbox, None, own_log()).await?;
    making.reach(Ring::Linked).await?;
    making.freeze().await
}

/// What was drawn, in a line.
pub(super) fn told(did: &Instantiated) -> String {
    did.drawn.trim().lines().collect::<Vec<_>>().join("; ")
}

impl Version {
    fn new(
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<Code>,
        time_limit: Duration,
        known: Option<Known>,
        deployment: u64,
    ) -> Result<Self, SeedError> {
        let memory_limit = match &spec.script {
            // Its guests are an engine's, whose RAM does not become less, and have to
            // receive it.
            Some(script) => spec.memory_limit.max(ENGINE_MEMORY) + script.files.len() as u64,
            None => spec.memory_limit,
        };
        let ram_bytes = ram_of(memory_limit)?;
        let config = SeedConfig {
            kind,
            tells_state: code.tells_state(),
            memory_limit: spec.memory_limit,
            arguments: vec![spec.name.clone().into_bytes()],
            environment: spec.environment.clone(),
        };
        let length = config.encoded_len();
        if length as u64 > CONFIGURATION_MAX {
            return Err(SeedError::ConfigTooLarge(length, CONFIGURATION_MAX));
        }
        let code_bytes = code.bytes();
        let become_it = match spec.script {
            Some(_) => Command::Script { config },
            None => Command::Load { code_bytes, config },
        };
        let mut commands = vec![Command::Grow { ram_bytes }, become_it];
        let load = Commands::of(&commands);
        if let Some(export) = spec.init.clone() {
            commands.extend([Command::Instantiate, Command::Evaluate { export }]);
        }
        let learnt = known.map_or_else(Learnt::default, |known| Learnt {
            after_init: Some(known.after_init),
            instantiation: known.instantiation,
            ..Learnt::default()
        });
        Ok(Self {
            deployment,
            spec: spec.clone(),
            code: code.clone(),
            memory_limit,
            ram_bytes,
            load,
            become_ready: Commands::of(&commands),
            time_limit,
            learnt: Mutex::new(learnt),
        })
    }

    /// What an initialisation makes depends on when it runs, too: it may read the clock, or
    /// draw. So each deployment is a step of its own, whatever others are made of.
    fn digest(&self) -> StepDigest {
        StepDigest::of(&[b"function", &self.deployment.to_le_bytes()])
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its compiled code.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Bytes that its guests may come to have for it: all its linear memories, and what a
    /// script takes on its way.
    pub fn memory_limit(&self) -> u64 {
        self.memory_limit
    }

    /// RAM of its guests, in bytes.
    pub fn ram_bytes(&self) -> u64 {
        self.ram_bytes
    }

    /// Whether it is a script, which only its own seed can be forked for.
    pub fn is_script(&self) -> bool {
        self.spec.script.is_some()
    }

    /// Where its seed is frozen, if that is known: after its initialisation or before.
    pub fn after_init(&self) -> Option<bool> {
        self.learnt().after_init
    }

    /// What its initialisation takes, as far as that is known.
    pub fn instantiation(&self) -> Duration {
        self.learnt().instantiation
    }

    /// What was found out while `frozen` was made.
    pub fn report(&self, frozen: &Frozen) -> FreezeReport {
        let learnt = self.learnt();
        FreezeReport {
            after_init: learnt.after_init == Some(true),
            drew_entropy: learnt.drew_entropy,
            drawn: learnt.drawn.clone(),
            instantiation: learnt.instantiation,
            layer_bytes: frozen.bytes(),
        }
    }

    async fn make(&self, stock: &Stock, parent: &Arc<Frozen>) -> Result<Frozen, SeedError> {
        if let Some(script) = &self.spec.script {
            return self.take_script(stock, parent, script).await;
        }
        let mut making = self.load(stock, parent).await?;
        if let Some(export) = &self.spec.init {
            self.initialise(&mut making, export).await?;
            return making.freeze().await;
        }
        if self.after_init() != Some(false) {
            let did = making.instantiate().await?;
            let after_init = match self.spec.freeze {
                FreezePolicy::AfterInit => true,
                FreezePolicy::BeforeInit => false,
                FreezePolicy::Auto => !did.drew_entropy,
            };
            self.learn(&did, after_init);
            if self.after_init() == Some(false) {
                // That has shown that the function can be instantiated, and what
                // that draws; a seed without it takes another guest.
                making = self.load(stock, parent).await?;
            }
        }
        making.freeze().await
    }

    /// Hands an engine its script. What that draws would be in the seed, and so in all
    /// requests; but clocks are read by many, who mean nothing by it.
    async fn take_script(
        &self,
        stock: &Stock,
        parent: &Arc<Frozen>,
        script: &Script,
    ) -> Result<Frozen, SeedError> {
        let log = LogLines::new(self.spec.log.clone(), 0);
        let mut mailbox = Mailbox::new()?;
        mailbox.put_commands(&self.load)?;
        let feed = Feed::open(script.files.clone(), &mut mailbox).map_err(SeedError::Function)?;
        let (ram, code) = (self.ram_bytes, Some(self.code()));
        let making = Making::fork(stock, parent, ram, mailbox, code, log).await?;
        let mut making = making.giving(feed);
        making.reach(Ring::Ready).await?;
        let did = making.drawn()?;
        if did.drew_entropy && self.spec.freeze != FreezePolicy::AfterInit {
            return Err(SeedError::ScriptDrew(told(&did)));
        }
        self.learn(&did, true);
        making.freeze().await
    }

    /// Has it initialise itself. What that draws would be in the seed, and so in all requests.
    async fn initialise(&self, making: &mut Making, export: &str) -> Result<(), SeedError> {
        let instantiated = making.instantiate().await?;
        let mut did = making.evaluate(export).await?;
        // Many read clocks while they are instantiated, and mean nothing by it: Go does.
        let draws = did.drew_entropy || did.read_clock && !instantiated.read_clock;
        if draws && self.spec.freeze != FreezePolicy::AfterInit {
            return Err(SeedError::InitDrew {
                export: export.to_owned(),
                drawn: told(&did),
            });
        }
        did.took += instantiated.took;
        self.learn(&did, true);
        Ok(())
    }

    fn learn(&self, did: &Instantiated, after_init: bool) {
        let mut learnt = self.learnt();
        learnt.after_init = Some(after_init);
        learnt.instantiation = did.took;
        learnt.drew_entropy = did.drew_entropy;
        learnt.drawn.clone_from(&did.drawn);
    }

    /// A guest at the early freeze point.
    async fn load(&self, stock: &Stock, parent: &Arc<Frozen>) -> Result<Making, SeedError> {
        let log = LogLines::new(self.spec.log.clone(), 0);
        let mut mailbox = Mailbox::new()?;
        mailbox.put_commands(&self.load)?;
        let (ram, code) = (self.ram_bytes, Some(self.code()));
        let mut making = Making::fork(stock, parent, ram, mailbox, code, log).await?;
        making.reach(Ring::Loaded).await?;
        Ok(making)
    }

    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
