//! Zygotes of need.
//!
//! Making a VM takes far longer than forking into one, so some are kept ready
//! (Catalyzer's sandbox Zygotes, §4.2; AFaaS §4.2), and as soon as there is a seed that
//! functions descend from they are preset with it, or with others that are forked from
//! often ([`shelves`]). They are made one at a time, when nothing else wants to run
//! (`filling`); how many follows demand ([`Watermarks`]).

mod filling;
mod first;
mod ready;
mod shelves;
mod watermarks;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_jail::{ConfinementLevel, Network};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::first::First;
use self::first::Told;
use self::ready::Kept;
pub use self::ready::Ready;
use self::watermarks::Watermarks;
use super::confinement::{Confinement, Maker};
use super::groups::Groups;
use super::launcher::Launcher;
use super::spawner::Spawner;
use super::threads::Threads;
use super::wall_clock::WallClock;
use crate::error::{PlatformError, StartError};
use crate::open_files;
use crate::snapshots::{Frozen, Parent, is_whole};
use crate::stats::{GroupStats, MemoryStats, StockStats};

/// What a stock is told when it starts.
#[derive(Debug)]
pub struct StockRules {
    /// What is round each microVM.
    pub confinement: Confinement,
    /// Sandboxes kept ready when there is little to do.
    pub zygotes: usize,
    /// Control groups that are kept for the next jails.
    pub groups_kept: usize,
    /// Bytes that all microVMs may take together.
    pub memory_bytes: u64,
    /// What starts spawners; `None` for this process itself.
    pub launcher: Option<Arc<Launcher>>,
    /// What guests take for the time of day.
    pub wall_clock: WallClock,
}

/// The stock, and who fills it.
#[derive(Debug)]
pub struct Stock {
    /// Started when it is first needed.
    spawner: Mutex<Option<Arc<Spawner>>>,
    launcher: Option<Arc<Launcher>>,
    /// The confinement level of jails.
    level: ConfinementLevel,
    /// What sandboxes are instead of processes, where that was asked for.
    threads: Option<Arc<Threads>>,
    forbidden_calls: Arc<AtomicU64>,
    groups: Arc<Groups>,
    wall_clock: WallClock,
    kept: Mutex<Kept>,
    watermarks: Mutex<Watermarks>,
    /// Instances that found a sandbox ready.
    hits: AtomicU64,
    /// Those that found one which was preset for them and the likes of them.
    near: AtomicU64,
    /// Instances that had one made.
    misses: AtomicU64,
    /// Sandboxes that could not be preset.
    preset_failures: AtomicU64,
    /// Seeds that sandboxes are not preset with any more.
    abandoned: AtomicU64,
    stopped: AtomicBool,
    /// By the first sandbox.
    told: Told,
    changed: Arc<Notify>,
    /// Nothing is being made.
    #[cfg(feature = "measuring")]
    filled: Notify,
    /// Where the pool was started: whoever calls may have another.
    runtime: Handle,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stock {
    /// A stock that keeps at least `rules.zygotes` sandboxes. Must be called inside a
    /// tokio runtime.
    ///
    /// The first sandbox is made at once: what this host does not allow is to be known when that is
    /// there. Others are made once [`Stock::start_filling`] is called.
    ///
    /// # Errors
    /// When KVM does not answer, or the spawner cannot be started.
    pub fn begin(rules: StockRules) -> Result<(Arc<Self>, First), StartError> {
        let (low, wall_clock) = (rules.zygotes, rules.wall_clock);
        if let Some(loss) = rules.confinement.loss() {
            tracing::warn!("{loss}");
        }
        let forbidden_calls = Arc::new(AtomicU64::new(0));
        let groups = Arc::new(Groups::new(rules.groups_kept, rules.memory_bytes));
        let level = rules.confinement.level();
        let (spawner, threads) = match rules.confinement {
            Confinement::Jailed | Confinement::Reduced => {
                let launcher = rules.launcher.as_deref();
                let spawner = Spawner::start(
                    launcher,
                    (Network::Empty, level),
                    forbidden_calls.clone(),
                    groups.clone(),
                );
                (Some(spawner.map_err(StartError::Spawner)?), None)
            }
            // Nothing but the compile helper needs a spawner then.
            Confinement::InProcess => {
                let threads = Threads::prepare().map_err(StartError::KvmBroken)?;
                (None, Some(threads))
            }
        };
        let stock = Arc::new(Self {
            spawner: Mutex::new(spawner),
            launcher: rules.launcher,
            level,
            threads,
            forbidden_calls,
            groups,
            wall_clock,
            kept: Mutex::default(),
            watermarks: Mutex::new(Watermarks::new(low, Instant::now())),
            hits: AtomicU64::new(0),
            near: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            preset_failures: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            told: Told::nothing(),
            changed: Arc::new(Notify::new()),
            #[cfg(feature = "measuring")]
            filled: Notify::new(),
            runtime: Handle::current(),
        });
        let first = Self::make_first(&stock, low > 0);
        Ok((stock, first))
    }

    /// Has as many sandboxes ready from now on as are wanted. To be called once, inside a tokio
    /// runtime.
    pub fn start_filling(stock: &Arc<Self>) {
        tokio::spawn(Self::refill(Arc::downgrade(stock)));
    }

    /// Whether guests may begin before all of their memory is there: their sandboxes' page faults
    /// can be answered, and the system makes no more of a layer than what is asked for. Not before
    /// the first sandbox has told.
    pub fn tells_faults(&self) -> bool {
        self.told.has_faults()
    }

    /// The same, once the first sandbox was made, or could not be.
    pub async fn will_tell_faults(&self) -> bool {
        self.told.wait().await
    }

    /// The spawner; another one when the last has ended.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawner(&self) -> Result<Arc<Spawner>, PlatformError> {
        let mut spawner = lock(&self.spawner);
        if self.stopped.load(Ordering::Acquire) {
            return Err(PlatformError::SpawnerGone);
        }
        match spawner.as_ref() {
            Some(spawner) if !spawner.is_gone() => return Ok(spawner.clone()),
            Some(_) => tracing::warn!("the spawner has ended; starting another"),
            None => {}
        }
        if self.threads.is_none() {
            self.clear();
        }
        let _on_the_pools_own = self.runtime.enter();
        let launcher = self.launcher.as_deref();
        let started = Spawner::start(
            launcher,
            (Network::Empty, self.level),
            self.forbidden_calls.clone(),
            self.groups.clone(),
        );
        let started = started.map_err(|error| PlatformError::System {
            what: "the spawner process could not be started",
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        Ok(spawner.insert(started).clone())
    }

    /// Who makes sandboxes.
    ///
    /// # Errors
    /// When the spawner is gone and no other can be started.
    fn maker(&self) -> Result<Maker, PlatformError> {
        match &self.threads {
            Some(threads) => Ok(Maker::Threads(threads.clone())),
            None => Ok(Maker::Spawner(self.spawner()?)),
        }
    }

    /// Functions descend from `frozen`: sandboxes are preset with it from now on, those that
    /// are ready, too.
    pub fn set_base(&self, frozen: &Arc<Frozen>) {
        lock(&self.kept).set_base(frozen, Instant::now());
        self.changed.notify_one();
    }

    /// A sandbox that can be forked to `seed`, and whether it was ready or is made now. Those
    /// that are preset with `parent` are counted on for more of this kind: it is what the
    /// seed descends from, or the seed itself.
    ///
    /// # Errors
    /// When none can be made.
    pub async fn take(
        &self,
        seed: &Frozen,
        parent: &Arc<Frozen>,
    ) -> Result<(Ready, bool), PlatformError> {
        // Also replaces a spawner that is gone, and with it its dead sandboxes.
        self.maker()?;
        let is_whole = is_whole(parent);
        let (parent, now) = (Parent::of(parent), Instant::now());
        let (ready, left) = {
            let mut kept = lock(&self.kept);
            // None is preset with what is not there yet.
            if is_whole {
                kept.note(&parent, now);
            }
            let ready = kept.take(seed);
            (ready, kept.len())
        };
        let left = ready.is_some().then_some(left);
        lock(&self.watermarks).take(left, now);
        self.changed.notify_one();
        match ready {
            Some(ready) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                let is_near = ready.sandbox.image() == Some(&parent);
                self.near.fetch_add(is_near.into(), Ordering::Relaxed);
                Ok((ready, true))
            }
            None => Ok((self.make().await?, false)),
        }
    }

    /// A sandbox that is not preset, for making a seed: the first one, if that is on its way.
    ///
    /// # Errors
    /// When none can be made.
    pub async fn take_bare(&self) -> Result<Ready, PlatformError> {
        self.told.wait().await;
        self.maker()?;
        let ready = lock(&self.kept).take_bare();
        self.changed.notify_one();
        match ready {
            Some(ready) => Ok(ready),
            None => self.make_bare().await,
        }
    }

    /// These seeds have left the graph: whatever is preset with them ends, and lets their
    /// memory go.
    pub fn forget(&self, gone: &[Arc<Frozen>]) {
        if gone.is_empty() {
            return;
        }
        let gone: Vec<Parent> = gone.iter().map(Parent::of).collect();
        let ended = lock(&self.kept).forget(&gone);
        if !ended.is_empty() {
            self.changed.notify_one();
        }
    }

    /// A generic zygote that is made now, for an instance that waits for it.
    ///
    /// # Errors
    /// [`PlatformError::OpenFiles`] if only those open files are left that are kept for the
    /// operator; others when it cannot be made.
    pub async fn make(&self) -> Result<Ready, PlatformError> {
        if open_files::are_scarce() {
            tracing::warn!(
                limit = open_files::limit(),
                "no microVM is made: the open files that are left are kept for the operator; \
                 raise the hard limit (ulimit -Hn, LimitNOFILE of systemd)"
            );
            return Err(PlatformError::OpenFiles);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.make_bare().await
    }

    async fn make_bare(&self) -> Result<Ready, PlatformError> {
        Ready::make(&self.maker()?, self.wall_clock).await
    }

    /// Sandboxes that are ready now.
    pub fn ready(&self) -> usize {
        lock(&self.kept).len()
    }

    /// How many of those were preset.
    pub fn preset(&self) -> usize {
        lock(&self.kept).preset()
    }

    /// How many are wanted, and how often one was there.
    pub fn stats(&self) -> StockStats {
        let (wanted, (low, high)) = {
            let watermarks = lock(&self.watermarks);
            (watermarks.wanted(), watermarks.bounds())
        };
        StockStats {
            wanted,
            low,
            high,
            hits: self.hits.load(Ordering::Relaxed),
            near: self.near.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            preset_failures: self.preset_failures.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
            parents: lock(&self.kept).parents(),
        }
    }

    /// How control groups are used.
    pub fn groups(&self) -> GroupStats {
        self.groups.stats()
    }

    /// What all microVMs take of memory.
    pub fn memory(&self) -> MemoryStats {
        self.groups.memory()
    }

    /// Where that is told.
    pub fn account(&self) -> Arc<Groups> {
        self.groups.clone()
    }

    /// Waits until as many sandboxes are ready as are wanted, or can be made, and no other is
    /// being made.
    #[cfg(feature = "measuring")]
    pub async fn filled(&self) {
        let mut filled = std::pin::pin!(self.filled.notified());
        // Whoever refills looks once more, and says so.
        filled.as_mut().enable();
        self.changed.notify_one();
        filled.await;
    }

    /// How many processes were ended for a system call that their jail does not allow.
    pub fn forbidden_calls(&self) -> u64 {
        self.forbidden_calls.load(Ordering::Relaxed)
    }

    /// Ends all threads, and the spawner with every process that it made; waits until
    /// they are gone. There will be no others.
    pub async fn stop(&self) {
        let spawner = {
            // Under the lock, so that nobody is in the middle of starting one.
            let spawner = lock(&self.spawner);
            self.stopped.store(true, Ordering::Release);
            spawner.clone()
        };
        self.clear();
        if let Some(threads) = &self.threads {
            threads.stop().await;
        }
        if let Some(spawner) = spawner {
            spawner.stop().await;
        }
    }

    /// Ends the sandboxes that are ready.
    fn clear(&self) {
        let all = lock(&self.kept).clear();
        drop(all);
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}
