//! For benchmarks only: getting sandboxes as requests get them, without requests.

use std::sync::Arc;

use crate::error::{PlatformError, StartError};
use crate::options::PoolOptions;
use crate::pool::Pool;
pub use crate::sandboxes::SandboxCreationTimes;
use crate::sandboxes::{Zygote, ZygotePool};
use crate::snapshots::SeedSnapshot;
use crate::stats::PoolStats;

/// A pool without functions, and the seed that its zygotes are specialised for.
#[derive(Clone, Debug)]
pub struct Sandboxes {
    pool: Pool,
    zygote_pool: Arc<ZygotePool>,
    /// The seed from which functions' seeds descend.
    linked: Arc<SeedSnapshot>,
}

/// A sandbox that was taken: closed in its jail, and ready to be forked to a seed. Dropping it ends
/// it.
#[derive(Debug)]
pub struct TakenSandbox {
    ready: Zygote,
    was_ready: bool,
}

impl Sandboxes {
    /// Starts the pool. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// As [`Pool::start`], or returns [`StartError::Sandbox`] if a guest without a function does
    /// not start.
    pub async fn start(options: PoolOptions) -> Result<Self, StartError> {
        let pool = Pool::start(options).await?;
        match pool.linked().await {
            Ok(linked) => Ok(Self {
                zygote_pool: pool.zygote_pool(),
                pool,
                linked,
            }),
            Err(error) => {
                pool.shutdown().await;
                Err(StartError::Sandbox(error))
            }
        }
    }

    /// Waits until as many zygotes are ready as are wanted or can be made, all of them specialised,
    /// and no other is being made.
    pub async fn filled(&self) {
        self.zygote_pool.filled().await;
    }

    /// Takes a sandbox that is ready, or makes one.
    ///
    /// # Errors
    /// Returns an error if none can be made.
    pub async fn take(&self) -> Result<TakenSandbox, PlatformError> {
        let (ready, was_ready) = self.zygote_pool.take(&self.linked, &self.linked).await?;
        Ok(TakenSandbox { ready, was_ready })
    }

    /// Returns the statistics of the pool.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Ends every process of the pool, and waits until they are gone.
    pub async fn shutdown(&self) {
        self.pool.shutdown().await;
    }
}

impl TakenSandbox {
    /// Returns whether it was ready.
    #[must_use]
    pub fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Returns how long the steps of making it took, whenever that was, as spawner and sandbox
    /// report.
    #[must_use]
    pub fn creation_times(&self) -> SandboxCreationTimes {
        self.ready.sandbox.creation_times()
    }

    /// Ends it and waits until its process is gone and its control group has no jail.
    pub async fn end(self) {
        self.ready.sandbox.destroy().await;
    }
}
