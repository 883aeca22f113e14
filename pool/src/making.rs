//! Making seeds: running a guest up to a freeze point, and freezing it there.
//!
//! Level 0 boots in a layer of its own. Every other seed is made by a guest that
//! is forked from its parent and goes on to the next point; its layer is what it
//! changed (AFaaS §4.1, multi-level fork).

use std::time::Duration;

use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::{DRAW_ENTROPY, DRAW_INSECURE};
use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::ROOT_MAX;
use faasw_seedtree::{Layer, LayerBuilder, Level, Seed, sound};
use std::sync::Arc;

use crate::boot_image;
use crate::code::Code;
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::frozen::Frozen;
use crate::log_lines::LogLines;
use crate::mailbox::Mailbox;
use crate::run;
use crate::shell::Shell;
use crate::stock::{Ready, Stock};
use crate::working_set::PageSets;

/// What an instantiation did.
pub struct Instantiated {
    /// It drew random bytes of any kind.
    pub drew_entropy: bool,
    /// What it drew, by import, one line each.
    pub drawn: String,
    /// How long it took.
    pub took: Duration,
}

/// What a guest runs in that is to be frozen.
enum Memory {
    /// A layer that it fills itself.
    Root(LayerBuilder),
    /// Its parent's, and pages of its own.
    Child { parent: Arc<Frozen>, ram_bytes: u64 },
}

/// A guest on its way to a freeze point.
pub struct Making {
    shell: Shell,
    mailbox: Mailbox,
    memory: Memory,
    log: LogLines,
}

fn function(error: InvokeError) -> SeedError {
    match error {
        InvokeError::Platform(error) => SeedError::Platform(error),
        other => SeedError::Function(other),
    }
}

fn system(error: rustix::io::Errno) -> PlatformError {
    PlatformError::System {
        what: "a seed's memory could not be made",
        error,
    }
}

impl Making {
    /// Boots a guest.
    ///
    /// # Errors
    /// Platform errors.
    pub async fn boot(stock: &Stock, ram_bytes: u64, log: LogLines) -> Result<Self, PlatformError> {
        let ram = LayerBuilder::new("faasw-level-0", ram_bytes).map_err(system)?;
        let state = boot_image::write(&ram).map_err(system)?;
        let Ready { mut shell, mailbox } = stock.take_bare().await?;
        shell.boot(&ram, &mailbox, &state).await?;
        shell.activate(0, 0).await?;
        Ok(Self {
            shell,
            mailbox,
            memory: Memory::Root(ram),
            log,
        })
    }

    /// Forks a guest of `parent` that is to become a seed.
    ///
    /// # Errors
    /// Platform errors.
    pub async fn fork(
        stock: &Stock,
        parent: &Arc<Frozen>,
        ram_bytes: u64,
        mailbox: Mailbox,
        code: Option<&Code>,
        log: LogLines,
    ) -> Result<Self, PlatformError> {
        // Whatever was preset would count as the seed's own.
        let Ready { mut shell, .. } = stock.take_bare().await?;
        parent.count_fork();
        shell
            .fork(parent, ram_bytes, &PageSets::default(), &mailbox, code)
            .await?;
        shell.activate(0, parent.seed.monotonic_nanoseconds).await?;
        Ok(Self {
            shell,
            mailbox,
            memory: Memory::Child {
                parent: parent.clone(),
                ram_bytes,
            },
            log,
        })
    }

    /// Follows the guest to a freeze point.
    ///
    /// # Errors
    /// What it died of instead.
    pub async fn reach(&mut self, wanted: Ring) -> Result<(), SeedError> {
        let stop = run::next_stop(&mut self.shell, &mut self.mailbox, &mut self.log).await;
        let ring = stop.map_err(function)?;
        if ring == wanted {
            return Ok(());
        }
        // A guest that is done already says what its function died of.
        let guest = self.mailbox.guest()?;
        Err(match (ring, run::outcome(&self.mailbox, &guest)) {
            (Ring::Done, Err(error)) => function(error),
            _ => SeedError::Function(InvokeError::GuestFailed(format!(
                "it rang {ring:?} instead of {wanted:?}"
            ))),
        })
    }

    /// Goes on from the early freeze point of a function to the late one.
    ///
    /// # Errors
    /// What the function died of.
    pub async fn instantiate(&mut self) -> Result<Instantiated, SeedError> {
        self.shell.resume().await?;
        self.reach(Ring::Ready).await?;
        let guest = self.mailbox.guest()?;
        Ok(Instantiated {
            drew_entropy: guest.draws & (DRAW_ENTROPY | DRAW_INSECURE) != 0,
            drawn: self.mailbox.report(&guest).map_err(function)?,
            took: Duration::from_nanos(guest.init_nanoseconds),
        })
    }

    /// Freezes the guest where it stands.
    ///
    /// # Errors
    /// Platform errors.
    pub async fn freeze(self, level: Level) -> Result<Frozen, PlatformError> {
        let monotonic_nanoseconds = self.mailbox.guest()?.monotonic_nanoseconds;
        let (layer, state, parent) = match self.memory {
            Memory::Root(ram) => {
                let (state, _) = self.shell.seal(None).await?;
                (ram.freeze(ROOT_MAX).map_err(system)?, state, None)
            }
            Memory::Child { parent, ram_bytes } => {
                let name = format!("faasw-level-{}", level.number());
                let ram = LayerBuilder::new(&name, ram_bytes).map_err(system)?;
                let (state, told) = self.shell.seal(Some(&ram)).await?;
                if sound(&told, PAGE, ram_bytes) != told {
                    let what = "a new layer's extents make no sense";
                    return Err(PlatformError::Protocol(what.to_owned()));
                }
                let layer: Layer = ram.freeze_at(told).map_err(system)?;
                (layer, state, Some(parent.seed.clone()))
            }
        };
        Frozen::new(Seed {
            level,
            parent,
            layer,
            state,
            monotonic_nanoseconds,
        })
        .map_err(system)
    }
}
