//! Making the seed of a function.
//!
//! A guest is booted in a layer of its own, loads the compiled code and
//! instantiates the function; then its vCPU's state is taken, its process ends,
//! and the layer is sealed. By the freeze policy that is done either after
//! instantiation or, in a second boot, before it: what an initialisation drew
//! from the random generator would otherwise be every request's.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::{DRAW_ENTROPY, DRAW_INSECURE, REQUEST_HEAD};
use faasw_abi::memory_map::{PAGE, RAM_MAX, RAM_OVERHEAD, ram_bytes};
use faasw_abi::wire::{FunctionKind, SeedConfig};
use faasw_fri::messages::{EXTENTS_MAX, VcpuState, WRITE_SET_MAX};
use faasw_seedtree::{Extent, Layer, LayerBuilder, Level, coalesce};

use crate::boot_image;
use crate::code::Code;
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::function::{FreezePolicy, FreezeReport, FunctionSpec};
use crate::log_lines::LogLines;
use crate::mailbox::Mailbox;
use crate::run;
use crate::shell::Shell;
use crate::stock::Stock;

/// A function's seed. Clones share it.
#[derive(Clone, Debug)]
pub struct Seed {
    frozen: Arc<faasw_seedtree::Seed<VcpuState>>,
    code: Arc<Code>,
    write_set: WriteSet,
}

/// The pages that instances of a seed write, as the first of them did. Clones
/// share it. Empty until then.
#[derive(Clone, Debug, Default)]
pub struct WriteSet(Arc<OnceLock<Vec<Extent>>>);

/// Most pages of a write set: what a request writes beyond that is its own
/// doing, and is not to cost every other one.
const WRITE_SET_PAGES: u64 = 2048;

impl WriteSet {
    /// The stretches, in order.
    pub fn stretches(&self) -> &[Extent] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    /// Whether an instance should be asked.
    pub fn is_unknown(&self) -> bool {
        self.0.get().is_none()
    }

    /// Takes what a shell says that its instance has written, as far as that
    /// makes sense in `ram_bytes` of memory.
    pub fn learn(&self, told: &[Extent], ram_bytes: u64) {
        let mut pages = 0;
        let mut end = 0;
        let sound: Vec<Extent> = told
            .iter()
            .copied()
            .take_while(|stretch| {
                let sound = end <= stretch.start
                    && stretch.start < stretch.end
                    && stretch.end <= ram_bytes
                    && stretch.start.is_multiple_of(PAGE)
                    && stretch.end.is_multiple_of(PAGE);
                end = stretch.end;
                pages += stretch.bytes() / PAGE;
                sound && pages <= WRITE_SET_PAGES
            })
            .collect();
        let joined = coalesce(&sound, PAGE, WRITE_SET_MAX);
        // Joining takes gaps in; a set that grew too much by it is none.
        let joined_pages: u64 = joined.iter().map(|stretch| stretch.bytes() / PAGE).sum();
        let _ = self.0.set(if joined_pages <= WRITE_SET_PAGES {
            joined
        } else {
            Vec::new()
        });
    }
}

impl Seed {
    pub(crate) fn layer(&self) -> &Layer {
        &self.frozen.layer
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    pub(crate) fn write_set(&self) -> &WriteSet {
        &self.write_set
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
        write_set: WriteSet::default(),
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
        let shell = stock.take().await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent {
            start: start * PAGE,
            end: end * PAGE,
        }
    }

    fn learnt(told: &[Extent]) -> Vec<Extent> {
        let set = WriteSet::default();
        assert!(set.is_unknown());
        set.learn(told, 10_000 * PAGE);
        assert!(!set.is_unknown());
        set.stretches().to_vec()
    }

    #[test]
    fn a_write_set_is_what_makes_sense_of_what_was_told() {
        let good = [extent(1, 3), extent(5, 6)];
        assert_eq!(learnt(&good), good);
        assert_eq!(learnt(&[]), []);
        for lie in [extent(2, 4), extent(9, 7), extent(9_999, 10_001)] {
            assert_eq!(learnt(&[extent(1, 3), lie]), [extent(1, 3)]);
        }
        let odd = Extent {
            start: 1,
            end: PAGE,
        };
        assert_eq!(learnt(&[odd]), []);
    }

    #[test]
    fn a_write_set_is_bounded() {
        assert_eq!(learnt(&[extent(0, 2048)]), [extent(0, 2048)]);
        assert_eq!(learnt(&[extent(0, 2049)]), []);
        let scattered: Vec<_> = (0..100).map(|at| extent(at * 2, at * 2 + 1)).collect();
        assert_eq!(learnt(&scattered).len(), WRITE_SET_MAX);
        let far: Vec<_> = (0..100).map(|at| extent(at * 99, at * 99 + 1)).collect();
        assert_eq!(learnt(&far), []);
    }
}
