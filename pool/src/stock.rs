//! Shells made ahead of need.
//!
//! Making a VM takes far longer than forking into one, so a few are kept ready
//! (Catalyzer's sandbox Zygotes, §4.2; AFaaS §4.2). A shell that was taken is
//! replaced in the background, one at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::{PlatformError, StartError};
use crate::shell::Shell;
use crate::spawner::Spawner;
use crate::wall_clock::WallClock;

/// The stock, and the spawner that fills it.
#[derive(Debug)]
pub struct Stock {
    spawner: Mutex<Arc<Spawner>>,
    forbidden_calls: Arc<AtomicU64>,
    ready: Mutex<VecDeque<Shell>>,
    wanted: usize,
    stopped: AtomicBool,
    taken: Notify,
    wall_clock: WallClock,
    /// Where the pool was started: whoever calls may have another.
    runtime: Handle,
}

impl Stock {
    /// A stock that keeps `wanted` shells ready, whose guests get their time of day from
    /// `wall_clock`. Must be called inside a tokio runtime.
    ///
    /// The first shell is made at once: what this host does not allow is to be known
    /// then.
    ///
    /// # Errors
    /// When the spawner cannot be started, or no shell can be made.
    pub async fn start(wanted: usize, wall_clock: WallClock) -> Result<Arc<Self>, StartError> {
        let forbidden_calls = Arc::new(AtomicU64::new(0));
        let stock = Arc::new(Self {
            spawner: Mutex::new(
                Spawner::start(forbidden_calls.clone()).map_err(StartError::Spawner)?,
            ),
            forbidden_calls,
            ready: Mutex::new(VecDeque::new()),
            wanted,
            stopped: AtomicBool::new(false),
            taken: Notify::new(),
            wall_clock,
            runtime: Handle::current(),
        });
        let first = stock.make().await.map_err(StartError::Shell)?;
        match wanted {
            0 => first.destroy().await,
            _ => stock.lock().push_back(first),
        }
        tokio::spawn(refill(Arc::downgrade(&stock)));
        Ok(stock)
    }

    /// The spawner; another one when the last has ended.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawner(&self) -> Result<Arc<Spawner>, PlatformError> {
        let mut spawner = self.spawner.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::Acquire) {
            return Err(PlatformError::SpawnerGone);
        }
        if spawner.is_gone() {
            tracing::warn!("the spawner has ended; starting another");
            self.clear();
            let _on_the_pools_own = self.runtime.enter();
            *spawner = Spawner::start(self.forbidden_calls.clone())
                .map_err(|_| PlatformError::SpawnerGone)?;
        }
        Ok(spawner.clone())
    }

    /// A shell, and whether it was ready or is made now.
    ///
    /// # Errors
    /// When none can be made.
    pub async fn take(&self) -> Result<(Shell, bool), PlatformError> {
        // Also replaces a spawner that is gone, and with it its dead shells.
        let spawner = self.spawner()?;
        let ready = self.pop();
        self.taken.notify_one();
        match ready {
            Some(shell) => Ok((shell, true)),
            None => Ok((Shell::make(&spawner, self.wall_clock).await?, false)),
        }
    }

    /// A shell that is made now.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn make(&self) -> Result<Shell, PlatformError> {
        Shell::make(&self.spawner()?, self.wall_clock).await
    }

    /// The next shell that has not ended while it waited.
    fn pop(&self) -> Option<Shell> {
        let mut ready = self.lock();
        loop {
            let mut shell = ready.pop_front()?;
            if shell.is_there() {
                return Some(shell);
            }
        }
    }

    /// Shells that are ready now.
    pub fn ready(&self) -> usize {
        self.lock().len()
    }

    /// How many processes were ended for a system call that their cell does not allow.
    pub fn forbidden_calls(&self) -> u64 {
        self.forbidden_calls.load(Ordering::Relaxed)
    }

    /// Ends the spawner, and with it every process that it made. There will be no
    /// other.
    pub async fn stop(&self) {
        let spawner = {
            // Under the lock, so that nobody is in the middle of starting one.
            let spawner = self.spawner.lock().unwrap_or_else(PoisonError::into_inner);
            self.stopped.store(true, Ordering::Release);
            spawner.clone()
        };
        self.clear();
        spawner.stop().await;
    }

    /// Ends the shells that are ready.
    fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Shell>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fill(&self) -> Result<(), PlatformError> {
        while self.lock().len() < self.wanted {
            let shell = Shell::make(&self.spawner()?, self.wall_clock).await?;
            let mut ready = self.lock();
            // Whoever stops empties the stock after saying so.
            if self.stopped.load(Ordering::Acquire) {
                return Err(PlatformError::SpawnerGone);
            }
            ready.push_back(shell);
        }
        Ok(())
    }
}

/// Keeps the stock filled for as long as it exists.
async fn refill(stock: Weak<Stock>) {
    loop {
        let Some(stock) = stock.upgrade() else { return };
        if let Err(error) = stock.fill().await {
            if stock.stopped.load(Ordering::Acquire) {
                return;
            }
            // The next request makes its own shell and reports what is wrong.
            tracing::warn!(%error, "no shell could be made ahead");
        }
        // Waits without keeping the stock alive: whoever drops it notifies.
        let taken = stock.clone();
        drop(stock);
        taken.taken.notified().await;
    }
}
