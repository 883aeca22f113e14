//! Making the seed of a function.
//!
//! A guest is booted in a layer of its own, loads the compiled code and
//! instantiates the function; then its vCPU's state is taken, its process ends,
//! and the layer is sealed. By the freeze policy that is done either after
//! instantiation or, in a second boot, before it: what an initialisation drew
//! from the random generator would otherwise be every request's.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::{DRAW_ENTROPY, DRAW_INSECURE, REQUEST_HEAD};
use faasw_abi::memory_map::{RAM_MAX, RAM_OVERHEAD, ram_bytes};
use faasw_abi::wire::{FunctionKind, SeedConfig};
use faasw_fri::messages::{EXTENTS_MAX, VcpuState};
use faasw_seedtree::{Layer, LayerBuilder, Level};

use crate::boot_image;
use crate::code::Code;
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::function::{FreezePolicy, FreezeReport, FunctionSpec};
use crate::log_lines::LogLines;
use crate::mailbox::Mailbox;
use crate::parking::Parking;
use crate::run;
use crate::shell::Shell;
use crate::stock::Stock;
use crate::working_set::WorkingSet;

/// A function's seed. Clones share it.
#[derive(Clone, Debug)]
pub struct Seed {
    frozen: Arc<faasw_seedtree::Seed<VcpuState>>,
    code: Arc<Code>,
    working_set: Arc<WorkingSet>,
    parking: Arc<Parking>,
}

impl Seed {
    pub(crate) fn layer(&self) -> &Layer {
        &self.frozen.layer
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    pub(crate) fn working_set(&self) -> &WorkingSet {
        &self.working_set
    }

    pub(crate) fn parking(&self) -> &Arc<Parking> {
        &self.parking
    }

    pub(crate) fn state(&self) -> VcpuState {
        self.frozen.state
    }

    pub(crate) fn monotonic_nanoseconds(&self) -> u64 {
        self.frozen.monotonic_nanoseconds
    }
}

/// Makes a seed as the function's freeze policy says.
///
/// # Errors
/// When the function fails to load or instantiate within `time_limit`;
/// platform errors.
pub async fn make(
    stock: &Stock,
    parking: Arc<Parking>,
    spec: &FunctionSpec,
    kind: FunctionKind,
    code: &Arc<Code>,
    time_limit: Duration,
) -> Result<(Seed, FreezeReport), SeedError> {
    let ram = ram_bytes(spec.memory_limit).ok_or(SeedError::MemoryTooLarge {
        wanted: spec.memory_limit,
        most: RAM_MAX - RAM_OVERHEAD,
    })?;
    let config = SeedConfig {
        kind,
        memory_limit: spec.memory_limit,
        arguments: vec![spec.name.clone().into_bytes()],
        environment: spec.environment.clone(),
    }
    .encode();
    if config.len() as u64 > REQUEST_HEAD.size {
        return Err(SeedError::ConfigTooLarge(config.len(), REQUEST_HEAD.size));
    }
    let boot = || async {
        tokio::time::timeout(time_limit, Booted::start(stock, spec, ram, &config, code))
            .await
            .map_err(|_| SeedError::Function(InvokeError::TimedOut(time_limit)))?
    };
    let mut booted = boot().await?;
    let instantiated = tokio::time::timeout(time_limit, booted.instantiate())
        .await
        .map_err(|_| SeedError::Function(InvokeError::TimedOut(time_limit)))??;
    let after_init = match spec.freeze {
        FreezePolicy::AfterInit => true,
        FreezePolicy::BeforeInit => false,
        FreezePolicy::Auto => !instantiated.drew_entropy,
    };
    if !after_init {
        // The first boot has shown that the function can be instantiated, and
        // what that draws; a seed without it takes another.
        booted = boot().await?;
    }
    let (layer, state, monotonic_nanoseconds) = booted.freeze().await?;
    let report = FreezeReport {
        after_init,
        drew_entropy: instantiated.drew_entropy,
        drawn: instantiated.drawn,
        instantiation: instantiated.took,
        layer_bytes: layer.data_bytes(),
    };
    let seed = Seed {
        frozen: Arc::new(faasw_seedtree::Seed {
            level: Level::Function,
            layer,
            state,
            monotonic_nanoseconds,
        }),
        code: code.clone(),
        working_set: Arc::default(),
        parking,
    };
    Ok((seed, report))
}

/// What an instantiation did.
struct Instantiated {
    drew_entropy: bool,
    drawn: String,
    took: Duration,
}

/// A guest at one of its freeze points.
struct Booted {
    shell: Shell,
    mailbox: Mailbox,
    ram: LayerBuilder,
    log: LogLines,
}

fn function(error: InvokeError) -> SeedError {
    match error {
        InvokeError::Platform(error) => SeedError::Platform(error),
        other => SeedError::Function(other),
    }
}

fn system(error: rustix::io::Errno) -> SeedError {
    SeedError::Platform(PlatformError::System {
        what: "the seed's memory could not be made",
        error,
    })
}

impl Booted {
    /// Boots a guest up to the early freeze point.
    async fn start(
        stock: &Stock,
        spec: &FunctionSpec,
        ram_bytes: u64,
        config: &[u8],
        code: &Code,
    ) -> Result<Self, SeedError> {
        let ram = LayerBuilder::new("faasw-layer", ram_bytes).map_err(system)?;
        let state = boot_image::write(&ram, code.bytes()).map_err(system)?;
        let mailbox = Mailbox::new()?;
        mailbox.put_head(config).map_err(function)?;
        let (shell, _) = stock.take().await?;
        shell.boot(&ram, &mailbox, code, state).await?;
        shell.activate(0, 0).await?;
        let mut booted = Self {
            shell,
            mailbox,
            ram,
            log: LogLines::new(spec.log.clone(), 0),
        };
        booted.reach(Ring::Loaded).await?;
        Ok(booted)
    }

    /// Goes on to the late freeze point.
    async fn instantiate(&mut self) -> Result<Instantiated, SeedError> {
        self.shell.resume().await?;
        self.reach(Ring::Ready).await?;
        let guest = self.mailbox.guest()?;
        Ok(Instantiated {
            drew_entropy: guest.draws & (DRAW_ENTROPY | DRAW_INSECURE) != 0,
            drawn: self.mailbox.report(&guest).map_err(function)?,
            took: Duration::from_nanos(guest.init_nanoseconds),
        })
    }

    async fn reach(&mut self, wanted: Ring) -> Result<(), SeedError> {
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

    /// Takes the vCPU's state and seals the memory.
    async fn freeze(self) -> Result<(Layer, VcpuState, u64), SeedError> {
        let monotonic = self.mailbox.guest()?.monotonic_nanoseconds;
        let state = self.shell.seal().await?;
        let layer = self.ram.freeze(EXTENTS_MAX).map_err(system)?;
        Ok((layer, state, monotonic))
    }
}
