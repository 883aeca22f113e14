//! Language engines: components that take scripts.
//!
//! An engine is instantiated once, and its seed is what the seeds of all its scripts are made
//! of (AFaaS §4.3, Catalyzer §4.3). It has run nobody's script, so that all may share it.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Ring;
use faasw_abi::wire::{FunctionKind, SeedConfig};
use faasw_seedtree::graph::Slot;
use faasw_seedtree::{Key, Owner, StepDigest};
use rustix::io::Errno;
use tokio::time::timeout;

use super::graph::Seeds;
use super::making::Making;
use super::recipe::{Recipe, own_log};
use super::version::{ram_of, too_late};
use crate::error::SeedError;
use crate::images::ImageOf;
use crate::mailbox::Mailbox;
use crate::shells::Stock;
use crate::snapshots::{Frozen, KeptCode, describe};
use crate::stats::SeedInfo;

/// What the memories of an engine may have before it has a script.
pub const ENGINE_MEMORY: u64 = 128 << 20;

/// How many ancestors an engine has.
const LEVEL: u8 = 2;

/// An engine, and how its seed is made.
#[derive(Debug)]
pub struct EngineVersion {
    name: String,
    number: u64,
    code: Arc<KeptCode>,
    ram_bytes: u64,
    config: SeedConfig,
    time_limit: Duration,
}

impl EngineVersion {
    /// The pool's `number`th deployment, which is this code.
    ///
    /// # Errors
    /// None that is to be expected: its memory fits a guest.
    pub fn new(
        name: &str,
        number: u64,
        code: &Arc<KeptCode>,
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

    /// What tells it from all other steps: its seed depends on when it is made, as that of a
    /// function does.
    pub fn digest(&self) -> StepDigest {
        StepDigest::of(&[b"engine", &self.number.to_le_bytes()])
    }

    /// What its image is called.
    ///
    /// # Errors
    /// The system's.
    pub fn image(&self) -> Result<ImageOf, Errno> {
        let digest = self.code.digest()?;
        let commands = self.commands(self.code.bytes());
        Ok(ImageOf::engine(&digest, commands.bytes()))
    }

    /// What has a guest become it, whose code has so many bytes.
    fn commands(&self, code_bytes: u64) -> Commands {
        let (ram_bytes, config) = (self.ram_bytes, self.config.clone());
        Commands::of(&[
            Command::Grow { ram_bytes },
            Command::Load { code_bytes, config },
            Command::Instantiate,
        ])
    }

    /// Its compiled code, wherever that is.
    pub fn code(&self) -> &Arc<KeptCode> {
        &self.code
    }

    /// What it is called among seeds.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes its seed. What an engine draws, each request of any script would have.
    ///
    /// # Errors
    /// When it cannot be instantiated in time, or draws; platform errors.
    pub async fn make(&self, stock: &Stock, parent: &Arc<Frozen>) -> Result<Frozen, SeedError> {
        let making = async {
            let mut mailbox = Mailbox::new()?;
            let code = self.code.get().await?;
            mailbox.put_commands(&self.commands(code.bytes()))?;
            let (ram, code) = (self.ram_bytes, Some(&*code));
            let mut making = Making::fork(stock, parent, ram, mailbox, code, own_log()).await?;
            making.reach(Ring::Ready).await?;
            let did = making.drawn()?;
            if did.drew_entropy {
                return Err(SeedError::EngineDrew(did.told()));
            }
            making.freeze().await
        };
        let made = timeout(self.time_limit, making).await;
        made.unwrap_or_else(|_| Err(too_late(self.time_limit)))
    }
}

/// An engine in the tree. Its seed may be evicted while none of its scripts has one.
#[derive(Debug)]
pub struct LanguageEngine {
    version: Arc<EngineVersion>,
    key: Key,
    slot: Slot<Frozen>,
    seeds: Arc<Seeds>,
}

impl Drop for LanguageEngine {
    fn drop(&mut self) {
        self.seeds.forget(self.key);
    }
}

impl LanguageEngine {
    /// An engine whose seed is made of `parent`.
    ///
    /// # Errors
    /// When the graph does not take it.
    pub(super) fn new(
        seeds: &Arc<Seeds>,
        parent: Key,
        version: EngineVersion,
    ) -> Result<Self, SeedError> {
        let version = Arc::new(version);
        let recipe = Recipe::Engine(version.clone());
        let defined = seeds.define(Some(parent), Owner::Shared, recipe)?;
        Ok(Self {
            version,
            key: defined.key,
            slot: defined.slot,
            seeds: seeds.clone(),
        })
    }

    /// Its seed's name.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Whether it is this code.
    pub(super) fn is_of(&self, code: &Arc<KeptCode>) -> bool {
        let own = self.code();
        let known = || {
            own.known_digest()
                .filter(|_| own.may_leave() && code.may_leave())
        };
        Arc::ptr_eq(own, code) || known().is_some_and(|own| code.known_digest() == Some(own))
    }

    /// Its compiled code, which its scripts share.
    pub(super) fn code(&self) -> &Arc<KeptCode> {
        self.version.code()
    }

    /// Whether its seed is in memory. It may not be made yet, or have been evicted.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.slot.get().is_some()
    }

    /// What its seed says of itself.
    pub(super) fn describe(&self) -> SeedInfo {
        let frozen = self.slot.get();
        let described = frozen.map(|frozen| describe("", &frozen));
        SeedInfo {
            name: self.version.name.clone(),
            level: LEVEL,
            is_shared: true,
            ..described.unwrap_or_default()
        }
    }
}
