//! The steps that make each seed of its parent.
//!
//! A step boots a guest, links all imports, or loads and instantiates a language engine
//! (`engine_step`) or a function version (`function_step`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::memory_map::ram_bytes;
use faasw_abi::wire::FunctionKind;
use faasw_seedtree::StepDigest;
use rustix::io::Errno;
use tokio::time::timeout;

use super::engine_step::EngineStep;
use super::function_step::FunctionStep;
use super::own_log::own_log;
use super::seed_build::{SeedBuild, SeedBuildContext};
use super::spec::{EarlierBuild, FunctionSpec};
use crate::error::{PlatformError, SeedError};
use crate::images::{ImageIdentity, Images};
use crate::mailbox::Mailbox;
use crate::snapshots::{Code, CodeHandle, SeedSnapshot};

/// The time limit of a step that runs no tenant's code.
const OWN_TIMEOUT: Duration = Duration::from_secs(30);

/// A step of the tree.
#[derive(Debug)]
pub enum SeedStep {
    /// Boots a guest.
    Boot,
    /// Makes the Wasm engine and links every import.
    Link,
    /// Instantiates a language engine, which all its scripts share.
    Engine(Arc<EngineStep>),
    /// Makes a function version.
    Function(Arc<FunctionStep>),
    /// Runs the commands of a test.
    #[cfg(feature = "trial")]
    Commands(Box<super::test_step::TestStep>),
}

/// Returns the RAM of a guest without a function.
fn least_ram() -> u64 {
    ram_bytes(0).unwrap_or(0)
}

impl SeedStep {
    /// Returns the step of a function version, with the pool's deployment number `deployment`.
    ///
    /// # Errors
    /// Returns an error if the function's memory, configuration or warm-up requests exceed the
    /// limits of a guest, or if a command has warm-up requests.
    pub fn function(
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<CodeHandle>,
        time_limit: Duration,
        known: Option<EarlierBuild>,
        deployment: u64,
    ) -> Result<Self, SeedError> {
        let step = FunctionStep::new(spec, kind, code, time_limit, known, deployment)?;
        Ok(Self::Function(Arc::new(step)))
    }

    /// Returns the digest of the step, for the tree. Two steps with the same digest do the same.
    pub fn digest(&self) -> StepDigest {
        match self {
            Self::Boot => StepDigest::of(&[b"boot"]),
            Self::Link => StepDigest::of(&[b"link"]),
            Self::Engine(engine) => engine.digest(),
            Self::Function(step) => step.digest(),
            #[cfg(feature = "trial")]
            Self::Commands(step) => step.digest(),
        }
    }

    /// Returns the identity of the seed's image; `None` if it is to have no image.
    ///
    /// # Errors
    /// Returns the error of computing the digest of the code.
    pub fn image(&self) -> Result<Option<ImageIdentity>, Errno> {
        match self {
            Self::Boot | Self::Link => Ok(Some(ImageIdentity::shared(self.name()))),
            Self::Engine(engine) => engine.image().map(Some),
            Self::Function(step) => step.image(),
            #[cfg(feature = "trial")]
            Self::Commands(_) => Ok(None),
        }
    }

    /// Returns the file name of its image, if that is known without reading any code.
    pub fn image_file<'a>(&'a self, images: &Images) -> Option<Cow<'a, str>> {
        match self {
            Self::Boot | Self::Link => {
                let of = ImageIdentity::shared(self.name());
                Some(images.file_name(&of).into())
            }
            Self::Engine(engine) => {
                let of = engine.known_image()?;
                Some(images.file_name(&of).into())
            }
            Self::Function(step) => step.image_file(images).map(Cow::Borrowed),
            #[cfg(feature = "trial")]
            Self::Commands(_) => None,
        }
    }

    /// Returns the name of the seed, for logs and listings.
    pub fn name(&self) -> &str {
        match self {
            Self::Boot => "guest",
            Self::Link => "linkers",
            Self::Engine(engine) => engine.name(),
            Self::Function(step) => step.name(),
            #[cfg(feature = "trial")]
            Self::Commands(_) => "step",
        }
    }

    /// Returns the function version, if it is one.
    pub fn function_step(&self) -> Option<&Arc<FunctionStep>> {
        match self {
            Self::Function(step) => Some(step),
            _ => None,
        }
    }

    /// Returns the code that its instances run, in memory or stored; `None` for the booted guest
    /// and the linked imports, which have run no function's or language engine's code.
    pub fn code(&self) -> Option<&Arc<CodeHandle>> {
        match self {
            Self::Boot | Self::Link => None,
            Self::Engine(engine) => Some(engine.code()),
            Self::Function(step) => Some(step.code()),
            // The step holds its code itself.
            #[cfg(feature = "trial")]
            Self::Commands(_) => None,
        }
    }

    /// Makes the seed hold the code that its instances run. A script's code is its engine's, and
    /// counts with the engine's seed.
    pub fn attach_code(&self, frozen: &SeedSnapshot, code: Arc<Code>) {
        let is_script = self.function_step().is_some_and(|step| step.is_script());
        let counted = self.code().filter(|_| !is_script);
        frozen.state().hold(code, counted.cloned());
    }

    /// Returns the memory limit in bytes of the function that it makes; 0 for seeds that all
    /// functions share.
    pub fn memory(&self) -> u64 {
        self.function_step().map_or(0, |step| step.memory_limit())
    }

    /// Returns whether its seed stays forever, because no function can do without it.
    pub fn is_pinned(&self) -> bool {
        matches!(self, Self::Boot | Self::Link)
    }

    /// Writes the commands of this step into the mailbox of a guest of its parent, which runs them
    /// before it serves a request (best-effort fork, AFaaS §4.3).
    ///
    /// # Errors
    /// Returns an error if the commands do not fit, if the step needs more than commands, or if the
    /// mailbox cannot be written.
    pub fn write_commands(&self, mailbox: &mut Mailbox) -> Result<(), PlatformError> {
        match self {
            Self::Boot => Ok(()),
            Self::Link => mailbox.put_commands(&Commands::of(&[Command::Link])),
            Self::Function(step) if !step.requires_own_seed() => {
                mailbox.put_commands(&step.become_ready())
            }
            Self::Engine(_) | Self::Function(_) => Err(PlatformError::Protocol(
                "a script and files are taken before any request".to_owned(),
            )),
            #[cfg(feature = "trial")]
            Self::Commands(step) => mailbox.put_commands(&step.commands()),
        }
    }

    /// Runs a guest of `parent` through the step, and freezes it.
    ///
    /// # Errors
    /// Returns an error if a function fails to load or instantiate in time, or if the platform
    /// fails.
    pub async fn make(
        &self,
        context: SeedBuildContext<'_>,
        parent: Option<&Arc<SeedSnapshot>>,
    ) -> Result<SeedSnapshot, SeedError> {
        match (self, parent) {
            (Self::Function(step), Some(parent)) => step.make(context, parent).await,
            (Self::Engine(engine), Some(parent)) => engine.make(context, parent).await,
            #[cfg(feature = "trial")]
            (Self::Commands(step), Some(parent)) => step.make(context, parent).await,
            (Self::Boot, _) => in_time("booting a guest", boot(context)).await,
            (Self::Link, Some(parent)) => in_time("linking", link(context, parent)).await,
            (_, None) => {
                let what = "a step without a parent".to_owned();
                Err(PlatformError::Protocol(what).into())
            }
        }
    }
}

async fn in_time(
    what: &'static str,
    work: impl Future<Output = Result<SeedSnapshot, SeedError>>,
) -> Result<SeedSnapshot, SeedError> {
    let limit = OWN_TIMEOUT;
    match timeout(limit, work).await {
        // No tenant's code took part in it.
        Ok(made) => made.map_err(|error| match error {
            SeedError::Platform(error) => error.into(),
            other => PlatformError::Protocol(other.to_string()).into(),
        }),
        Err(_) => Err(PlatformError::TimedOut { what, limit }.into()),
    }
}

async fn boot(context: SeedBuildContext<'_>) -> Result<SeedSnapshot, SeedError> {
    let mut making = SeedBuild::boot(context, least_ram(), own_log()).await?;
    making.reach(Doorbell::Booted).await?;
    making.freeze().await
}

async fn link(
    context: SeedBuildContext<'_>,
    parent: &Arc<SeedSnapshot>,
) -> Result<SeedSnapshot, SeedError> {
    let mut mailbox = Mailbox::new()?;
    SeedStep::Link.write_commands(&mut mailbox)?;
    let mut making =
        SeedBuild::fork(context, parent, least_ram(), mailbox, None, own_log()).await?;
    making.reach(Doorbell::Linked).await?;
    making.freeze().await
}
