//! For tests only: a guest that is led step by step to a freeze point, and a tree of seeds of any
//! depth whose steps come from a test.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::command::{Command, Commands};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::memory_map::ram_bytes;
use faasw_abi::wire::SeedConfig;
use faasw_seedtree::{Key, Owner};

use crate::error::{PlatformError, SeedError};
use crate::mailbox::{LogLines, Mailbox};
use crate::pool::{CompiledFunction, Pool};
use crate::sandboxes::{CodePages, SandboxEvent, Zygote, ZygotePool};
use crate::seeds::{
    ForkOrigin, FunctionSpec, SeedBuild, SeedBuildContext, SeedPermit, SeedPurpose, SeedSlots,
    SeedStep, Seeds, TestGuest, TestStep,
};
use crate::snapshots::{SeedSnapshot, ZygoteTemplate};

/// Returns the RAM of a guest of this function.
fn ram_of(spec: &FunctionSpec) -> Result<u64, SeedError> {
    ram_bytes(spec.memory_limit).ok_or(SeedError::MemoryTooLarge {
        wanted: spec.memory_limit,
        most: u64::MAX,
    })
}

/// Returns the command that loads this function, without anything else that a guest can have.
fn load_command(spec: &FunctionSpec, compiled: &CompiledFunction, code_bytes: u64) -> Command {
    let config = SeedConfig {
        kind: compiled.kind,
        tells_state: false,
        has_entry: false,
        memory_limit: spec.memory_limit,
        arguments: Vec::new(),
        environment: Vec::new(),
        configuration: Vec::new(),
        secrets: Vec::new(),
        stores: Vec::new(),
        files: None,
    };
    Command::Load { code_bytes, config }
}

/// A guest of a function.
#[derive(Debug)]
pub struct Steps {
    making: SeedBuild,
    ram_bytes: u64,
}

impl Steps {
    /// Forks a guest that has `least` bytes of RAM and loads the function. Its VM has all the RAM
    /// that the function may use.
    ///
    /// # Errors
    /// Returns the reason why the guest failed.
    pub async fn load(
        pool: &Pool,
        spec: &FunctionSpec,
        compiled: &CompiledFunction,
        least: u64,
    ) -> Result<Self, SeedError> {
        let ram = ram_of(spec)?;
        let (zygote_pool, linked) = (pool.zygote_pool(), pool.linked().await?);
        let code = compiled.code.get().await?;
        let mut mailbox = Mailbox::new()?;
        mailbox.put_commands(&Commands::of(&[
            Command::Grow { ram_bytes: least },
            load_command(spec, compiled, code.bytes()),
        ]))?;
        let log = LogLines::new(spec.log.clone(), 0);
        let permit = Arc::new(SeedPermit::unbounded());
        let context = SeedBuildContext {
            zygote_pool: &zygote_pool,
            permit: &permit,
        };
        let mut making = SeedBuild::fork(context, &linked, ram, mailbox, Some(&code), log).await?;
        making.reach(Doorbell::Loaded).await?;
        Ok(Self {
            making,
            ram_bytes: ram,
        })
    }

    /// Returns the RAM of its VM in bytes.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        self.ram_bytes
    }

    /// Runs commands that lead to the ready point. Returns the draws so far.
    ///
    /// # Errors
    /// Returns the reason why the guest failed.
    pub async fn go(&mut self, commands: &[Command]) -> Result<String, SeedError> {
        self.making.run_commands(commands, Doorbell::Ready).await?;
        Ok(self.making.drawn()?.drawn)
    }
}

/// A tree of seeds of one function's code, in a graph of its own, with the sandboxes of a pool.
#[derive(Debug)]
pub struct StepTree {
    zygote_pool: Arc<ZygotePool>,
    seeds: Arc<Seeds>,
    booted: Key,
    load: Vec<Command>,
    guest: Arc<TestGuest>,
}

/// The measurements of a fork.
#[derive(Clone, Copy, Debug)]
pub struct ForkMeasurement {
    /// The duration, as its sandbox measured it.
    pub took: Duration,
    /// The page faults until its guest stopped again.
    pub page_faults: u64,
    /// The windows of its seed.
    pub windows: usize,
    /// The layers of its seed.
    pub layers: usize,
    /// The number of the seed's own pages.
    pub own_pages: u64,
    /// How many steps its seed is below the seed that the zygote was specialised for, if it was.
    pub steps: Option<usize>,
    /// Whether the sandbox was ready.
    pub was_ready: bool,
}

impl StepTree {
    /// Creates a tree whose root boots.
    ///
    /// # Errors
    /// Returns an error if the pool's guests do not start, or if the function's memory is too
    /// large.
    pub async fn new(
        pool: &Pool,
        spec: &FunctionSpec,
        compiled: &CompiledFunction,
    ) -> Result<Self, SeedError> {
        let ram = ram_of(spec)?;
        let zygote_pool = pool.zygote_pool();
        // Zygotes are specialised from then on.
        pool.linked().await?;
        let slots = SeedSlots::new(1, 1);
        let seeds = Seeds::new(&zygote_pool, slots, u64::MAX.into(), None);
        let booted = seeds.define(None, Owner::Shared, SeedStep::Boot)?.key;
        let load = vec![
            Command::Link,
            Command::Grow { ram_bytes: ram },
            load_command(spec, compiled, compiled.code.bytes()),
            Command::Instantiate,
        ];
        Ok(Self {
            zygote_pool,
            seeds,
            booted,
            load,
            guest: Arc::new(TestGuest {
                code: compiled.code.clone(),
                ram_bytes: ram,
                spec: spec.clone(),
            }),
        })
    }

    /// Defines a node of `owner` below `parent`, or below the root. Below the root, its step
    /// instantiates the function; below another node, it calls `export`. Nodes with different
    /// `salt` are distinct.
    ///
    /// # Errors
    /// Returns an error if the graph rejects it.
    pub fn define(
        &self,
        parent: Option<Key>,
        owner: Owner,
        export: &str,
        salt: u64,
    ) -> Result<Key, PlatformError> {
        let commands = match parent {
            None => self.load.clone(),
            Some(_) => vec![Command::Evaluate {
                export: export.to_owned(),
            }],
        };
        let step = TestStep {
            salt,
            commands,
            to: Doorbell::Ready,
            guest: self.guest.clone(),
        };
        let recipe = SeedStep::Commands(Box::new(step));
        let parent = parent.unwrap_or(self.booted);
        let defined = self.seeds.define(Some(parent), owner, recipe)?;
        Ok(defined.key)
    }

    /// Makes a node's seed, unless it is there.
    ///
    /// # Errors
    /// Returns the reason why it cannot be made.
    pub async fn make(&self, key: Key) -> Result<(), SeedError> {
        self.seeds.obtain(key).await.map(drop)
    }

    /// Makes a node's seed in the background, unless it is there. `owner` owns the node. Runs
    /// `permitted` between the permit and the request for the seed.
    ///
    /// # Errors
    /// Returns the reason why it cannot be made.
    pub async fn prewarm_seed<F: Future<Output = ()>>(
        &self,
        (key, owner): (Key, Owner),
        permitted: impl Fn() -> F,
    ) -> Result<(), SeedError> {
        let memory = self.guest.spec.memory_limit;
        let permit = || async {
            let permit = self.seeds.background_permit(owner, memory).await;
            permitted().await;
            SeedPurpose::Background(permit)
        };
        self.seeds.obtain_for(key, permit).await.map(drop)
    }

    /// Returns whether the making of a node's seed waits for a slot.
    #[must_use]
    pub fn is_queued(&self, key: Key) -> bool {
        let progress = self.seeds.progress(key);
        progress.is_some_and(|progress| progress.queued_behind().is_some())
    }

    /// Returns how many callers wait for a node's seed.
    #[must_use]
    pub fn waiting(&self, key: Key) -> usize {
        self.seeds.waiting(key)
    }

    /// Evicts seeds without holders until the rest takes at most `budget` bytes. Returns the
    /// remaining bytes.
    pub fn fit(&self, budget: u64) -> u64 {
        self.seeds.fit_to(budget);
        self.seeds.bytes()
    }

    /// Returns how often a node's seed was forked since it was made, or `None` if it is not in
    /// memory.
    #[must_use]
    pub fn forks(&self, key: Key) -> Option<u64> {
        let (frozen, missing) = self.seeds.nearest(key)?;
        missing.is_empty().then(|| frozen.forks())
    }

    /// As [`StepTree::forks`], of the root.
    #[must_use]
    pub fn forks_of_root(&self) -> Option<u64> {
        self.forks(self.booted)
    }

    /// Forks a node's seed, in a zygote that is specialised for the seed `steps` above it or in a
    /// generic one, and makes the guest call `export`.
    ///
    /// # Errors
    /// Returns an error if the seed cannot be made, or if the guest fails.
    pub async fn fork(
        &self,
        key: Key,
        steps: Option<usize>,
        export: &str,
    ) -> Result<ForkMeasurement, SeedError> {
        let frozen = self.seeds.obtain(key).await?;
        let mut ready = self.zygote_pool.take_generic().await?;
        if let Some(steps) = steps {
            let mut line = std::iter::successors(Some(&*frozen), |at| at.parent());
            let above = line.nth(steps).cloned().ok_or_else(|| {
                PlatformError::Protocol("a seed has not so many ancestors".to_owned())
            })?;
            let template = ZygoteTemplate::new(above);
            let template = template.map_err(|error| PlatformError::System {
                what: "it is not known what to specialise it for",
                error,
            })?;
            let specialised = ready.sandbox.specialise(&template, &ready.mailbox).await?;
            specialised.map_err(PlatformError::Protocol)?;
        }
        self.run(&frozen, ready, false, export).await
    }

    /// Forks a node's seed in the sandbox that a request of its function would get, and makes the
    /// guest call `export`.
    ///
    /// # Errors
    /// Returns an error if the seed cannot be made, or if the guest fails.
    pub async fn serve(&self, key: Key, export: &str) -> Result<ForkMeasurement, SeedError> {
        let frozen = self.seeds.obtain(key).await?;
        let origin = ForkOrigin::own(frozen.clone());
        let (ready, was_ready) = self.zygote_pool.take(&frozen, origin.parent()).await?;
        self.run(&frozen, ready, was_ready, export).await
    }

    async fn run(
        &self,
        frozen: &SeedSnapshot,
        ready: Zygote,
        was_ready: bool,
        export: &str,
    ) -> Result<ForkMeasurement, SeedError> {
        let Zygote {
            mut sandbox,
            mut mailbox,
        } = ready;
        let steps = sandbox
            .specialised_for()
            .and_then(|image| image.steps_to(frozen));
        let TestGuest {
            code,
            ram_bytes,
            spec,
        } = &*self.guest;
        mailbox.put_commands(&Commands::of(&[Command::Evaluate {
            export: export.to_owned(),
        }]))?;
        let working_set = frozen.working_set().current();
        let code = code.get().await?;
        sandbox
            .fork(
                frozen,
                *ram_bytes,
                &working_set,
                &mailbox,
                Some((&code, CodePages::AsStored)),
                None,
            )
            .await?;
        sandbox.activate(1, frozen.monotonic_nanoseconds()).await?;
        let mut log = LogLines::new(spec.log.clone(), 1);
        let report = loop {
            match sandbox.next_event(None).await? {
                SandboxEvent::Progress => {}
                SandboxEvent::Rang(report) => break report,
                SandboxEvent::Failed(why) => return Err(PlatformError::Protocol(why).into()),
            }
        };
        let guest = mailbox.guest()?;
        let records = mailbox.take_log(&guest).map_err(SeedError::Function)?;
        log.take(&records);
        drop(log);
        if report.doorbell != Some(Doorbell::Ready) {
            let what = format!("it rang {:?}", report.doorbell);
            return Err(PlatformError::Protocol(what).into());
        }
        sandbox.destroy().await;
        Ok(ForkMeasurement {
            took: report.fork,
            page_faults: report.page_faults,
            windows: frozen.windows().len(),
            layers: frozen.layers().len(),
            own_pages: frozen.layer().own().count(),
            steps,
            was_ready,
        })
    }
}
