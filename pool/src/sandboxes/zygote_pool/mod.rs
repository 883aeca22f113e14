//! The zygote pool: a stock of zygotes, which are made in the background.
//!
//! Making a VM takes far longer than forking into one, so some zygotes are kept ready (Catalyzer's
//! sandbox Zygotes, §3.4; AFaaS §4.2). As soon as there is a seed that functions descend from,
//! zygotes are specialised for it, or for others that are forked from often ([`targets`]).
//! Zygotes are made one at a time, when nothing else wants to run (`refill`); their number follows
//! demand ([`Watermarks`]).

mod fault_support;
mod first_sandbox;
mod refill;
mod targets;
mod watermarks;
mod zygote;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faasw_common::Lock;
use faasw_jail::Network;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::fault_support::FaultSupport;
pub use self::first_sandbox::FirstSandbox;
use self::watermarks::Watermarks;
use self::zygote::ReadyZygotes;
pub use self::zygote::Zygote;
use super::group_account::GroupAccount;
use super::launcher::Launcher;
use super::sandbox_maker::SandboxMaker;
use super::spawner::Spawner;
use super::spawner_slot::SpawnerSlot;
use super::threads::Threads;
use super::wall_clock::WallClock;
use crate::confinement::Confinement;
use crate::error::{PlatformError, StartError};
use crate::open_files;
use crate::snapshots::{ParentRef, SeedSnapshot, is_fully_loaded};
use crate::stats::{GroupStats, MemoryStats, ZygotePoolStats};

/// The settings of a zygote pool.
#[derive(Debug)]
pub struct ZygotePoolOptions {
    /// The confinement of each sandbox.
    pub confinement: Confinement,
    /// The number of zygotes kept ready when the load is low.
    pub zygotes: usize,
    /// The number of idle control groups that are kept for future jails.
    pub groups_kept: usize,
    /// The memory limit in bytes of all sandboxes together.
    pub memory_bytes: u64,
    /// The launcher that starts spawners; with `None`, this process starts them.
    pub launcher: Option<Arc<Launcher>>,
    /// The source of the guests' time of day.
    pub wall_clock: WallClock,
}

/// The zygotes of a pool, and the means to make them.
#[derive(Debug)]
pub struct ZygotePool {
    spawner: SpawnerSlot,
    /// The threads that are used instead of processes, if the options ask for that.
    threads: Option<Arc<Threads>>,
    groups: Arc<GroupAccount>,
    wall_clock: WallClock,
    ready: Lock<ReadyZygotes>,
    watermarks: Lock<Watermarks>,
    /// The number of instances that found a zygote ready.
    hits: AtomicU64,
    /// The number of those whose zygote was specialised for exactly the seed that
    /// [`ZygotePool::take`] was called with as `parent`.
    near: AtomicU64,
    /// The number of instances for which a sandbox was made.
    misses: AtomicU64,
    /// The number of zygotes that could not be specialised.
    specialise_failures: AtomicU64,
    /// The number of seeds for which zygotes are no longer specialised.
    abandoned: AtomicU64,
    stopped: AtomicBool,
    /// The capabilities that the first sandbox has reported.
    fault_support: FaultSupport,
    changed: Arc<Notify>,
    /// Notified when nothing is being made.
    #[cfg(feature = "measuring")]
    filled: Notify,
}

impl ZygotePool {
    /// Creates a zygote pool that keeps at least `options.zygotes` zygotes. Must be called inside a
    /// Tokio runtime.
    ///
    /// The first sandbox is made at once, to learn early what this host does not allow. Others are
    /// made once [`ZygotePool::start_refill`] is called.
    ///
    /// # Errors
    /// Returns an error if KVM does not answer, or if the spawner cannot be started.
    pub fn start(options: ZygotePoolOptions) -> Result<(Arc<Self>, FirstSandbox), StartError> {
        let (low, wall_clock) = (options.zygotes, options.wall_clock);
        if let Some(loss) = options.confinement.loss() {
            tracing::warn!("{loss}");
        }
        let groups = Arc::new(GroupAccount::new(options.groups_kept, options.memory_bytes));
        let level = options.confinement.level();
        let spawner = SpawnerSlot::new(options.launcher, Network::Empty, level, groups.clone());
        let threads = match options.confinement {
            Confinement::Jailed | Confinement::Reduced => {
                spawner.fill().map_err(StartError::Spawner)?;
                None
            }
            // Only the compile helper needs a spawner then.
            Confinement::InProcess => Some(Threads::prepare().map_err(StartError::KvmBroken)?),
        };
        let zygote_pool = Arc::new(Self {
            spawner,
            threads,
            groups,
            wall_clock,
            ready: Lock::default(),
            watermarks: Lock::new(Watermarks::new(low, Instant::now())),
            hits: AtomicU64::new(0),
            near: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            specialise_failures: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            fault_support: FaultSupport::unknown(),
            changed: Arc::new(Notify::new()),
            #[cfg(feature = "measuring")]
            filled: Notify::new(),
        });
        let first = Self::make_first(&zygote_pool, low > 0);
        Ok((zygote_pool, first))
    }

    /// Keeps as many zygotes ready from now on as are wanted. To be called once, inside a Tokio
    /// runtime.
    pub fn start_refill(zygote_pool: &Arc<Self>) {
        tokio::spawn(Self::refill(Arc::downgrade(zygote_pool)));
    }

    /// Returns whether guests may start before all of their memory is present: their sandboxes'
    /// page faults can be answered, and the kernel allocates only the requested pages of a layer.
    /// Returns false until the first sandbox has reported.
    pub fn reports_faults(&self) -> bool {
        self.fault_support.has_faults()
    }

    /// Waits until the first sandbox was made or could not be made, and then returns the result
    /// of [`Self::reports_faults`].
    pub async fn wait_for_fault_support(&self) -> bool {
        self.fault_support.wait().await
    }

    /// Returns the spawner, or starts another one if the last has ended.
    ///
    /// # Errors
    /// Returns an error if it cannot be started, or [`PlatformError::SpawnerGone`] after
    /// [`Self::stop`].
    pub fn spawner(&self) -> Result<Arc<Spawner>, PlatformError> {
        self.spawner.get(|| {
            tracing::warn!("the spawner has ended; starting another");
            if self.threads.is_none() {
                self.clear();
            }
        })
    }

    /// Returns the maker of sandboxes.
    ///
    /// # Errors
    /// Returns an error if the spawner is gone and no other can be started.
    fn maker(&self) -> Result<SandboxMaker, PlatformError> {
        match &self.threads {
            Some(threads) => Ok(SandboxMaker::Threads(threads.clone())),
            None => Ok(SandboxMaker::Spawner(self.spawner()?)),
        }
    }

    /// Sets the seed from which functions descend: zygotes are specialised for it from now on,
    /// including those that are ready.
    pub fn set_base(&self, frozen: &Arc<SeedSnapshot>) {
        self.ready.lock().set_base(frozen, Instant::now());
        self.changed.notify_one();
    }

    /// Returns a sandbox that can be forked to `seed`, and whether it was ready or is made now.
    /// `parent` is the seed's parent, or the seed itself. If it is fully loaded, this records a
    /// fork of one of its children, so that zygotes are specialised for it.
    ///
    /// # Errors
    /// Returns an error if none can be made.
    pub async fn take(
        &self,
        seed: &SeedSnapshot,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<(Zygote, bool), PlatformError> {
        // This also replaces a spawner that is gone, and with it its dead zygotes.
        self.maker()?;
        let is_loaded = is_fully_loaded(parent);
        let (parent, now) = (ParentRef::of(parent), Instant::now());
        let (ready, left) = {
            let mut ready_zygotes = self.ready.lock();
            // No zygote is specialised for a seed that is not completely loaded.
            if is_loaded {
                ready_zygotes.record_fork(&parent, now);
            }
            let ready = ready_zygotes.take(seed);
            (ready, ready_zygotes.len())
        };
        let left = ready.is_some().then_some(left);
        self.watermarks.lock().take(left, now);
        self.changed.notify_one();
        match ready {
            Some(ready) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                let is_near = ready.sandbox.specialised_for() == Some(&parent);
                self.near.fetch_add(is_near.into(), Ordering::Relaxed);
                Ok((ready, true))
            }
            None => Ok((self.make().await?, false)),
        }
    }

    /// Returns a generic sandbox, for making a seed. If the first sandbox is still being made,
    /// waits for it.
    ///
    /// # Errors
    /// Returns an error if none can be made.
    pub async fn take_generic(&self) -> Result<Zygote, PlatformError> {
        self.fault_support.wait().await;
        self.maker()?;
        let ready = self.ready.lock().take_generic();
        self.changed.notify_one();
        match ready {
            Some(ready) => Ok(ready),
            None => self.make_generic().await,
        }
    }

    /// Ends the zygotes that are specialised for seeds which have left the graph, so that their
    /// memory is freed.
    pub fn forget(&self, gone: &[Arc<SeedSnapshot>]) {
        if gone.is_empty() {
            return;
        }
        let gone: Vec<ParentRef> = gone.iter().map(ParentRef::of).collect();
        let ended = self.ready.lock().forget(&gone);
        if !ended.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Makes a generic zygote for an instance that waits for it.
    ///
    /// # Errors
    /// Returns [`PlatformError::OpenFiles`] if only the open files are left that are reserved for
    /// the operator; other errors if it cannot be made.
    pub async fn make(&self) -> Result<Zygote, PlatformError> {
        if open_files::are_scarce() {
            tracing::warn!(
                limit = open_files::limit(),
                "no microVM is made: the remaining open files are reserved for the operator; raise \
                 the hard limit (ulimit -Hn, LimitNOFILE of systemd)"
            );
            return Err(PlatformError::OpenFiles);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.make_generic().await
    }

    async fn make_generic(&self) -> Result<Zygote, PlatformError> {
        Zygote::make(&self.maker()?, self.wall_clock).await
    }

    /// Returns the number of zygotes that are ready now.
    pub fn ready(&self) -> usize {
        self.ready.lock().len()
    }

    /// Returns how many of those are specialised.
    pub fn specialised(&self) -> usize {
        self.ready.lock().specialised()
    }

    /// Returns the number of zygotes wanted, and how often one was ready.
    pub fn stats(&self) -> ZygotePoolStats {
        let (wanted, (low, high)) = {
            let watermarks = self.watermarks.lock();
            (watermarks.wanted(), watermarks.bounds())
        };
        ZygotePoolStats {
            wanted,
            low,
            high,
            hits: self.hits.load(Ordering::Relaxed),
            near: self.near.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            specialise_failures: self.specialise_failures.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
            parents: self.ready.lock().parents(),
        }
    }

    /// Returns the use of control groups.
    pub fn groups(&self) -> GroupStats {
        self.groups.stats()
    }

    /// Returns the memory that all sandboxes take.
    pub fn memory(&self) -> MemoryStats {
        self.groups.memory()
    }

    /// Returns the account of control groups and memory.
    pub fn account(&self) -> Arc<GroupAccount> {
        self.groups.clone()
    }

    /// Waits until as many zygotes are ready as are wanted or can be made, and no other is being
    /// made.
    #[cfg(feature = "measuring")]
    pub async fn filled(&self) {
        let mut filled = std::pin::pin!(self.filled.notified());
        // The filling task checks once more, and then notifies.
        filled.as_mut().enable();
        self.changed.notify_one();
        filled.await;
    }

    /// Returns how many processes were killed for a system call that their jail does not allow.
    pub fn forbidden_calls(&self) -> u64 {
        self.spawner.forbidden_calls()
    }

    /// Ends all threads, and the spawner with every process that it made; waits until they are
    /// gone. No others are made afterwards.
    pub async fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let spawner = self.spawner.close();
        self.clear();
        if let Some(threads) = &self.threads {
            threads.stop().await;
        }
        if let Some(spawner) = spawner {
            spawner.stop().await;
        }
    }

    /// Ends the zygotes that are ready.
    fn clear(&self) {
        let all = self.ready.lock().clear();
        drop(all);
    }
}

impl Drop for ZygotePool {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}
