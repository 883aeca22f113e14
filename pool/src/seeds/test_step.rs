//! For tests only: a step of the tree whose commands come from a test.

use std::sync::Arc;

use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Doorbell;
use faasw_seedtree::StepDigest;

use super::seed_build::{SeedBuild, SeedBuildContext};
use super::spec::FunctionSpec;
use crate::error::SeedError;
use crate::mailbox::{LogLines, Mailbox};
use crate::snapshots::{CodeHandle, SeedSnapshot};

/// The commands of a guest in a test's tree, and their identity.
#[derive(Debug)]
pub struct TestStep {
    /// Distinguishes steps with equal commands.
    pub salt: u64,
    /// The commands.
    pub commands: Vec<Command>,
    /// The freeze point that they lead to.
    pub to: Doorbell,
    /// The guest that runs them.
    pub guest: Arc<TestGuest>,
}

/// The properties that all guests of a tree share.
#[derive(Debug)]
pub struct TestGuest {
    /// The code.
    pub code: Arc<CodeHandle>,
    /// The RAM in bytes.
    pub ram_bytes: u64,
    /// The log, and the other inputs of a function.
    pub spec: FunctionSpec,
}

impl TestStep {
    /// Returns the commands.
    pub fn commands(&self) -> Commands {
        Commands::of(&self.commands)
    }

    pub fn digest(&self) -> StepDigest {
        StepDigest::of(&[&self.salt.to_le_bytes(), self.commands().bytes()])
    }

    pub async fn make(
        &self,
        context: SeedBuildContext<'_>,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<SeedSnapshot, SeedError> {
        let mut mailbox = Mailbox::new()?;
        mailbox.put_commands(&self.commands())?;
        let TestGuest {
            code,
            ram_bytes,
            spec,
        } = &*self.guest;
        let log = LogLines::new(spec.log.clone(), 0);
        let code = code.get().await?;
        let code = Some(&*code);
        let mut making = SeedBuild::fork(context, parent, *ram_bytes, mailbox, code, log).await?;
        making.reach(self.to).await?;
        making.freeze().await
    }
}
