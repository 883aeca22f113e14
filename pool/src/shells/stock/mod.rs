//! Shells made ahead of need.
//!
//! Making a VM takes far longer than forking into one, so some are kept ready
//! (Catalyzer's sandbox Zygotes, §4.2; AFaaS §4.2), and as soon as there is a seed that
//! functions descend from they are preset with it. They are made one at a time, when
//! nothing else wants to run; how many follows demand ([`Watermarks`]).

mod watermarks;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faasw_text::Line;
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::watermarks::Watermarks;
use super::confinement::{Confinement, Maker};
use super::groups::Groups;
use super::launcher::Launcher;
use super::shell::Shell;
use super::spawner::Spawner;
use super::threads::Threads;
use super::wall_clock::WallClock;
use crate::error::{PlatformError, StartError};
use crate::mailbox::Mailbox;
use crate::snapshots::{Frozen, Template};
use crate::stats::{GroupStats, MemoryStats, StockStats};

/// How often presetting may fail in a row before it is given up: a system that is short
/// of something recovers.
const FAILURES_MAX: u32 = 5;

/// What a stock is told when it starts.
#[derive(Debug)]
pub struct StockRules {
    /// What is round each microVM.
    pub confinement: Confinement,
    /// Shells kept ready when there is little to do.
    pub shells_ready: usize,
    /// Control groups that are kept for the next cells.
    pub groups_kept: usize,
    /// Bytes that all microVMs may take together.
    pub memory_bytes: u64,
    /// What starts spawners; `None` for this process itself.
    pub launcher: Option<Arc<Launcher>>,
    /// What guests take for the time of day.
    pub wall_clock: WallClock,
}

/// A shell that holds no function, and the mailbox of whatever it becomes.
#[derive(Debug)]
pub struct Ready {
    /// The shell.
    pub shell: Shell,
    /// The mailbox; nothing is in it.
    pub mailbox: Mailbox,
}

impl Ready {
    /// A bare one.
    ///
    /// # Errors
    /// When it cannot be made.
    async fn make(maker: &Maker, wall_clock: WallClock) -> Result<Self, PlatformError> {
        let mailbox = Mailbox::new()?;
        let shell = Shell::make(maker, wall_clock).await?;
        Ok(Self { shell, mailbox })
    }

    /// One that nobody waits for, preset if there is a template. The inner error says
    /// why it cannot be preset.
    ///
    /// # Errors
    /// When it cannot be made.
    async fn make_ahead(
        maker: &Maker,
        wall_clock: WallClock,
        template: Option<&Template>,
    ) -> Result<Result<Self, String>, PlatformError> {
        let mailbox = Mailbox::new()?;
        let shell = Shell::make_ahead(maker, wall_clock, template, &mailbox).await?;
        Ok(shell.map(|shell| Self { shell, mailbox }))
    }

    /// Presets one that is bare. The inner error says why it cannot be.
    ///
    /// # Errors
    /// When its shell is gone.
    async fn preset(mut self, template: &Template) -> Result<Result<Self, String>, PlatformError> {
        let done = self.shell.preset(template, &self.mailbox).await?;
        Ok(done.map(|()| self))
    }
}

/// The stock, and who fills it.
#[derive(Debug)]
pub struct Stock {
    /// Started when it is first needed.
    spawner: Mutex<Option<Arc<Spawner>>>,
    launcher: Option<Arc<Launcher>>,
    /// What shells are instead of processes, where that was asked for.
    threads: Option<Arc<Threads>>,
    forbidden_calls: Arc<AtomicU64>,
    groups: Arc<Groups>,
    wall_clock: WallClock,
    ready: Mutex<VecDeque<Ready>>,
    watermarks: Mutex<Watermarks>,
    /// Instances that found a shell ready.
    hits: AtomicU64,
    /// Instances that had one made.
    misses: AtomicU64,
    /// What shells are preset with, once it is there.
    template: Mutex<Option<Template>>,
    stopped: AtomicBool,
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
    /// A stock that keeps at least `rules.shells_ready` shells. Must be called inside a
    /// tokio runtime.
    ///
    /// The first shell is made at once: what this host does not allow is to be known
    /// then.
    ///
    /// # Errors
    /// When KVM does not answer, the spawner cannot be started, or no shell can be made.
    pub async fn start(rules: StockRules) -> Result<Arc<Self>, StartError> {
        let (low, wall_clock) = (rules.shells_ready, rules.wall_clock);
        let forbidden_calls = Arc::new(AtomicU64::new(0));
        let groups = Arc::new(Groups::new(rules.groups_kept, rules.memory_bytes));
        let (spawner, threads) = match rules.confinement {
            Confinement::Jailed => {
                let launcher = rules.launcher.as_deref();
                let spawner = Spawner::start(launcher, forbidden_calls.clone(), groups.clone());
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
            threads,
            forbidden_calls,
            groups,
            wall_clock,
            ready: Mutex::default(),
            watermarks: Mutex::new(Watermarks::new(low, Instant::now())),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            template: Mutex::default(),
            stopped: AtomicBool::new(false),
            changed: Arc::new(Notify::new()),
            #[cfg(feature = "measuring")]
            filled: Notify::new(),
            runtime: Handle::current(),
        });
        let first = stock.make_bare().await.map_err(StartError::Shell)?;
        match low {
            0 => first.shell.destroy().await,
            _ => lock(&stock.ready).push_back(first),
        }
        tokio::spawn(refill(Arc::downgrade(&stock)));
        Ok(stock)
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
        let started = Spawner::start(launcher, self.forbidden_calls.clone(), self.groups.clone());
        let started = started.map_err(|error| PlatformError::System {
            what: "the spawner process could not be started",
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        Ok(spawner.insert(started).clone())
    }

    /// Who makes shells.
    ///
    /// # Errors
    /// When the spawner is gone and no other can be started.
    fn maker(&self) -> Result<Maker, PlatformError> {
        match &self.threads {
            Some(threads) => Ok(Maker::Threads(threads.clone())),
            None => Ok(Maker::Spawner(self.spawner()?)),
        }
    }

    /// Has shells preset with `frozen` from now on, those that are ready, too.
    pub fn preset_with(&self, frozen: Arc<Frozen>) {
        match Template::new(frozen) {
            Ok(template) => *lock(&self.template) = Some(template),
            Err(error) => tracing::warn!(error = %Line(error), "shells are not preset"),
        }
        self.changed.notify_one();
    }

    /// A shell that can be forked to `seed`, and whether it was ready or is made now.
    ///
    /// # Errors
    /// When none can be made.
    pub async fn take(&self, seed: &Frozen) -> Result<(Ready, bool), PlatformError> {
        // Also replaces a spawner that is gone, and with it its dead shells.
        self.maker()?;
        let (ready, left) = {
            let mut all = lock(&self.ready);
            // Those that are preset first: they are the sooner ready.
            let ready = pop(&mut all, |shell| shell.is_preset_for(seed))
                .or_else(|| pop(&mut all, |shell| !shell.is_preset()));
            (ready, all.len())
        };
        let left = ready.is_some().then_some(left);
        lock(&self.watermarks).take(left, Instant::now());
        self.changed.notify_one();
        match ready {
            Some(ready) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                Ok((ready, true))
            }
            None => Ok((self.make().await?, false)),
        }
    }

    /// A shell that is not preset, for making a seed.
    ///
    /// # Errors
    /// When none can be made.
    pub async fn take_bare(&self) -> Result<Ready, PlatformError> {
        self.maker()?;
        let ready = pop(&mut lock(&self.ready), |shell| !shell.is_preset());
        self.changed.notify_one();
        match ready {
            Some(ready) => Ok(ready),
            None => self.make_bare().await,
        }
    }

    /// A bare shell that is made now, for an instance that waits for it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn make(&self) -> Result<Ready, PlatformError> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.make_bare().await
    }

    async fn make_bare(&self) -> Result<Ready, PlatformError> {
        Ready::make(&self.maker()?, self.wall_clock).await
    }

    /// Shells that are ready now.
    pub fn ready(&self) -> usize {
        lock(&self.ready).len()
    }

    /// How many of those were preset.
    pub fn preset(&self) -> usize {
        let ready = lock(&self.ready);
        ready.iter().filter(|ready| ready.shell.is_preset()).count()
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
            misses: self.misses.load(Ordering::Relaxed),
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

    /// Waits until as many shells are ready as are wanted, or can be made, and no other is
    /// being made.
    #[cfg(feature = "measuring")]
    pub async fn filled(&self) {
        let mut filled = std::pin::pin!(self.filled.notified());
        // Whoever refills looks once more, and says so.
        filled.as_mut().enable();
        self.changed.notify_one();
        filled.await;
    }

    /// How many processes were ended for a system call that their cell does not allow.
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

    /// Ends the shells that are ready.
    fn clear(&self) {
        lock(&self.ready).clear();
    }

    /// Makes what is missing and ends what is too much; says when to look again, if
    /// nobody takes one before.
    async fn fill(&self) -> Result<Option<Instant>, PlatformError> {
        let mut failures = 0;
        loop {
            let (wanted, next) = {
                let mut watermarks = lock(&self.watermarks);
                let next = watermarks.decay(Instant::now());
                (watermarks.wanted(), next)
            };
            let template = lock(&self.template).clone();
            let bare = {
                let mut ready = lock(&self.ready);
                while ready.len() > wanted {
                    // Its end is the spawner's work, and nobody waits for it.
                    ready.pop_front();
                }
                let is_full = ready.len() == wanted;
                let bare = (is_full && template.is_some())
                    .then(|| pop(&mut ready, |shell| !shell.is_preset()))
                    .flatten();
                if bare.is_none() && ready.len() == wanted {
                    return Ok(next);
                }
                bare
            };
            let made = match (bare, &template) {
                (Some(bare), Some(template)) => bare.preset(template).await?,
                (_, template) => {
                    let maker = self.maker()?;
                    Ready::make_ahead(&maker, self.wall_clock, template.as_ref()).await?
                }
            };
            let made = match made {
                Ok(made) => made,
                Err(why) => {
                    failures += 1;
                    tracing::warn!(why = %Line(why), failures, "a shell could not be preset");
                    if failures == FAILURES_MAX {
                        tracing::error!("shells are not preset any more");
                        *lock(&self.template) = None;
                    }
                    continue;
                }
            };
            failures = 0;
            let mut ready = lock(&self.ready);
            // Whoever stops empties the stock after saying so.
            if self.stopped.load(Ordering::Acquire) {
                return Err(PlatformError::SpawnerGone);
            }
            ready.push_back(made);
        }
    }
}

/// Takes the first shell out that `suits` and has not ended while it waited.
fn pop(ready: &mut VecDeque<Ready>, suits: impl Fn(&Shell) -> bool) -> Option<Ready> {
    loop {
        let place = ready.iter().position(|ready| suits(&ready.shell))?;
        let mut found = ready.remove(place)?;
        if found.shell.check_alive() {
            return Some(found);
        }
    }
}

/// Keeps the stock filled for as long as it exists.
async fn refill(stock: Weak<Stock>) {
    loop {
        let Some(stock) = stock.upgrade() else { return };
        let next = match stock.fill().await {
            Ok(next) => next,
            Err(error) => {
                if stock.stopped.load(Ordering::Acquire) {
                    return;
                }
                // The next request makes its own shell and reports what is wrong.
                tracing::warn!(error = %Line(error), "no shell could be made ahead");
                None
            }
        };
        #[cfg(feature = "measuring")]
        stock.filled.notify_waiters();
        // Waits without keeping the stock alive: whoever drops it notifies.
        let changed = stock.changed.clone();
        drop(stock);
        match next {
            // Late or early makes no difference.
            Some(next) => {
                let _ = timeout_at(next, changed.notified()).await;
            }
            None => changed.notified().await,
        }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}
