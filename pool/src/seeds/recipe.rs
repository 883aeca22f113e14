//! How each seed is made of its parent.
//!
//! A recipe is a step of the tree: booting a guest, linking all imports, loading and
//! instantiating a language engine (`engine`) or a function version (`version`).

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

use super::engine::EngineVersion;
use super::making::{Making, MakingContext};
use super::own_log::own_log;
use super::spec::{FunctionSpec, Known};
use super::version::Version;
use crate::error::{PlatformError, SeedError};
use crate::images::{ImageOf, Images};
use crate::mailbox::Mailbox;
use crate::snapshots::{Code, Frozen, KeptCode};

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

/// RAM of a guest without a function.
fn least_ram() -> u64 {
    ram_bytes(0).unwrap_or(0)
}

impl Recipe {
    /// That of a function version, the pool's `deployment`th.
    ///
    /// # Errors
    /// When its memory or configuration is more than a guest can have.
    pub fn function(
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<KeptCode>,
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

    /// What there may be an image of: nothing for what is to have none.
    ///
    /// # Errors
    /// The system's.
    pub fn image(&self) -> Result<Option<ImageOf>, Errno> {
        match self {
            Self::Boot | Self::Link => Ok(Some(ImageOf::shared(self.name()))),
            Self::Engine(engine) => engine.image().map(Some),
            Self::Function(version) => version.image(),
            #[cfg(feature = "trial")]
            Self::Commands(_) => Ok(None),
        }
    }

    /// What the file of its image is called, as far as that is known without a look at any code.
    pub fn image_file<'a>(&'a self, images: &Images) -> Option<Cow<'a, str>> {
        match self {
            Self::Boot | Self::Link => {
                let of = ImageOf::shared(self.name());
                Some(images.file_name(&of).into())
            }
            Self::Engine(engine) => {
                let of = engine.known_image()?;
                Some(images.file_name(&of).into())
            }
            Self::Function(version) => version.image_file(images).map(Cow::Borrowed),
            #[cfg(feature = "trial")]
            Self::Commands(_) => None,
        }
    }

    /// What sandboxes and people call it.
    pub fn name(&self) -> &str {
        match self {
            Self::Boot => "guest",
            Self::Link => "linkers",
            Self::Engine(engine) => engine.name(),
            Self::Function(version) => version.name(),
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

    /// The code that its instances run, wherever that is; none where no function's has run.
    pub fn code(&self) -> Option<&Arc<KeptCode>> {
        match self {
            Self::Boot | Self::Link => None,
            Self::Engine(engine) => Some(engine.code()),
            Self::Function(version) => Some(version.code()),
            // It has it itself.
            #[cfg(feature = "trial")]
            Self::Commands(_) => None,
        }
    }

    /// Has what it made keep the code that its instances run. A script's is its engine's, which
    /// counts it.
    pub fn gives_code(&self, frozen: &Frozen, code: Arc<Code>) {
        let is_script = self.version().is_some_and(|version| version.is_script());
        let counted = self.code().filter(|_| !is_script);
        frozen.state().hold(code, counted.cloned());
    }

    /// Bytes of memory of the function that it makes; 0 for what all functions share.
    pub fn memory(&self) -> u64 {
        self.version().map_or(0, |version| version.memory_limit())
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
            Self::Function(version) if !version.is_fed() => {
                mailbox.put_commands(&version.become_ready())
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
    /// When a function fails to load or instantiate in time; platform errors.
    pub async fn make(
        &self,
        context: MakingContext<'_>,
        parent: Option<&Arc<Frozen>>,
    ) -> Result<Frozen, SeedError> {
        match (self, parent) {
            (Self::Function(version), Some(parent)) => version.make(context, parent).await,
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

async fn boot(context: MakingContext<'_>) -> Result<Frozen, SeedError> {
    let mut making = Making::boot(context, least_ram(), own_log()).await?;
    making.reach(Doorbell::Booted).await?;
    making.freeze().await
}

async fn link(context: MakingContext<'_>, parent: &Arc<Frozen>) -> Result<Frozen, SeedError> {
    let mut mailbox = Mailbox::new()?;
    Recipe::Link.command(&mut mailbox)?;
    let mut making = Making::fork(context, parent, least_ram(), mailbox, None, own_log()).await?;
    making.reach(Doorbell::Linked).await?;
    making.freeze().await
}
