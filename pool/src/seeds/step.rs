//! For tests alone: a step of the tree that does what a test says.

use std::sync::Arc;

use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Doorbell;
use faasw_seedtree::StepDigest;

use super::making::{Making, MakingContext};
use super::spec::FunctionSpec;
use crate::error::SeedError;
use crate::mailbox::{LogLines, Mailbox};
use crate::snapshots::{Frozen, KeptCode};

/// What a guest of a tree of a test does, and what tells it from others.
#[derive(Debug)]
pub struct Step {
    /// Tells equal ones apart.
    pub salt: u64,
    /// What it does.
    pub commands: Vec<Command>,
    /// Where it stands then.
    pub to: Doorbell,
    /// Whose it is.
    pub guest: Arc<Guest>,
}

/// What all guests of a tree have.
#[derive(Debug)]
pub struct Guest {
    /// Its code.
    pub code: Arc<KeptCode>,
    /// Bytes of its RAM.
    pub ram_bytes: u64,
    /// Where it logs, and what else there is of a function.
    pub spec: FunctionSpec,
}

impl Step {
    /// What it has a guest do.
    pub fn commands(&self) -> Commands {
        Commands::of(&self.commands)
    }

    pub fn digest(&self) -> StepDigest {
        StepDigest::of(&[&self.salt.to_le_bytes(), self.commands().bytes()])
    }

    pub async fn make(
        &self,
        context: MakingContext<'_>,
        parent: &Arc<Frozen>,
    ) -> Result<Frozen, SeedError> {
        let mut mailbox = Mailbox::new()?;
        mailbox.put_commands(&self.commands())?;
        let Guest {
            code,
            ram_bytes,
            spec,
        } = &*self.guest;
        let log = LogLines::new(spec.log.clone(), 0);
        let code = code.get().await?;
        let code = Some(&*code);
        let mut making = Making::fork(context, parent, *ram_bytes, mailbox, code, log).await?;
        making.reach(self.to).await?;
        making.freeze().await
    }
}
