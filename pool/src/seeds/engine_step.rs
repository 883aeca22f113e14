//! A language engine, and the step that makes its seed.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::wire::{FunctionKind, SeedConfig};
use faasw_seedtree::StepDigest;
use rustix::io::Errno;
use tokio::time::timeout;

use super::function_step::{ram_of, timeout_error};
use super::own_log::own_log;
use super::seed_build::{SeedBuild, SeedBuildContext};
use super::spec::ENGINE_MEMORY;
use crate::error::SeedError;
use crate::images::ImageIdentity;
use crate::mailbox::Mailbox;
use crate::snapshots::{CodeDigest, CodeHandle, SeedSnapshot};

/// An engine's code and settings, and the step that makes its seed.
#[derive(Debug)]
pub struct EngineStep {
    name: String,
    number: u64,
    code: Arc<CodeHandle>,
    ram_bytes: u64,
    config: SeedConfig,
    time_limit: Duration,
}

impl EngineStep {
    /// Creates an engine with this code, with the pool's deployment number `number`.
    ///
    /// # Errors
    /// None is expected, because its memory fits a guest.
    pub fn new(
        name: &str,
        number: u64,
        code: &Arc<CodeHandle>,
        time_limit: Duration,
    ) -> Result<Self, SeedError> {
        let ram_bytes = ram_of(ENGINE_MEMORY)?;
        let config = SeedConfig {
            kind: FunctionKind::HttpComponent,
            tells_state: false,
            has_entry: false,
            memory_limit: ENGINE_MEMORY,
            arguments: vec![name.as_bytes().to_vec()],
            environment: Vec::new(),
            configuration: Vec::new(),
            secrets: Vec::new(),
            stores: Vec::new(),
            files: None,
        };
        Ok(Self {
            name: name.to_owned(),
            number,
            code: code.clone(),
            ram_bytes,
            config,
            time_limit,
        })
    }

    /// Returns the digest of the step. Its seed depends on when it is made, as that of a function
    /// does, so each deployment is a step of its own.
    pub fn digest(&self) -> StepDigest {
        StepDigest::of(&[b"engine", &self.number.to_le_bytes()])
    }

    /// Returns the identity of its image.
    ///
    /// # Errors
    /// Returns the error of computing the digest of the code.
    pub fn image(&self) -> Result<ImageIdentity, Errno> {
        Ok(self.image_of(&self.code.digest()?))
    }

    /// Returns the identity of its image, if that is known without reading its code.
    pub fn known_image(&self) -> Option<ImageIdentity> {
        let digest = self.code.known_digest()?;
        Some(self.image_of(&digest))
    }

    fn image_of(&self, digest: &CodeDigest) -> ImageIdentity {
        let commands = self.commands(self.code.bytes());
        ImageIdentity::engine(digest, commands.bytes())
    }

    /// Returns the commands that make a guest become this engine, with `code_bytes` bytes of code.
    fn commands(&self, code_bytes: u64) -> Commands {
        let (ram_bytes, config) = (self.ram_bytes, self.config.clone());
        Commands::of(&[
            Command::Grow { ram_bytes },
            Command::Load { code_bytes, config },
            Command::Instantiate,
        ])
    }

    /// Returns its compiled code, in memory or stored.
    pub fn code(&self) -> &Arc<CodeHandle> {
        &self.code
    }

    /// Returns the name of its seed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it has this code.
    pub fn is_of(&self, code: &Arc<CodeHandle>) -> bool {
        let own = &self.code;
        let known = || {
            own.known_digest()
                .filter(|_| own.can_be_evicted() && code.can_be_evicted())
        };
        Arc::ptr_eq(own, code) || known().is_some_and(|own| code.known_digest() == Some(own))
    }

    /// Makes its seed. Entropy drawn by an engine would be shared by all requests of all scripts.
    ///
    /// # Errors
    /// Returns an error if the engine cannot be instantiated in time, if it draws entropy, or if
    /// the platform fails.
    pub async fn make(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<SeedSnapshot, SeedError> {
        let making = async {
            let mut mailbox = Mailbox::new()?;
            let code = self.code.get().await?;
            mailbox.put_commands(&self.commands(code.bytes()))?;
            let (ram, code) = (self.ram_bytes, Some(&*code));
            let mut making =
                SeedBuild::fork(context, parent, ram, mailbox, code, own_log()).await?;
            making.reach(Doorbell::Ready).await?;
            let report = making.drawn()?;
            if report.drew_entropy {
                return Err(SeedError::EngineDrew(report.describe_draws()));
            }
            making.freeze().await
        };
        let made = timeout(self.time_limit, making).await;
        made.unwrap_or_else(|_| Err(timeout_error(self.time_limit)))
    }
}
