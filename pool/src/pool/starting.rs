//! How a pool starts: it starts other processes first, and waits for their work last.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use faasw_abi::isa::Isa;
use faasw_seedtree::graph::Budget;

use super::compiling::COMPILATIONS;
use super::provisioning::Provisioning;
use super::{Inner, Pool};
use crate::ablation::Mechanism;
use crate::doctor;
use crate::error::StartError;
use crate::fair_slots::FairSlots;
use crate::images::Images;
use crate::instances::{InstanceNumbers, Keeper, Polling, WarmRules};
use crate::invocation::relay_slots;
use crate::options::PoolOptions;
use crate::sandboxes::{EgressSpawner, FirstSandbox, ZygotePool, ZygotePoolOptions};
use crate::seeds::{SeedSlots, SeedTree};

/// A pool whose processes are being started. Dropping it ends them.
#[derive(Debug)]
pub struct StartingPool {
    zygote_pool: Arc<ZygotePool>,
    egress_spawner: EgressSpawner,
    first: FirstSandbox,
    isa: Isa,
    options: PoolOptions,
}

impl Pool {
    /// Begins the work that a pool's first microVM needs. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns a [`StartError`] if this host cannot run guests, as far as that is known by then;
    /// the message names the remedy.
    pub fn begin(options: PoolOptions) -> Result<StartingPool, StartError> {
        doctor::check_kvm()?;
        #[cfg(feature = "ablation")]
        Mechanism::switch_off(&options.without);
        let isa = doctor::choose_isa(options.isa)?;
        let (zygote_pool, first) = ZygotePool::start(ZygotePoolOptions {
            confinement: options.confinement,
            zygotes: options.zygotes,
            groups_kept: options.groups_kept,
            memory_bytes: options.instance_memory_bytes(),
            launcher: options.launcher.clone(),
            wall_clock: options.wall_clock,
        })?;
        Ok(StartingPool {
            egress_spawner: EgressSpawner::new(
                options.launcher.clone(),
                options.confinement.level(),
            ),
            zygote_pool,
            first,
            isa,
            options,
        })
    }

    /// Waits until the first microVM is ready, and then begins to make more ahead of requests.
    /// Before that, only seeds may be requested from the pool.
    ///
    /// # Errors
    /// Returns a [`StartError`] if this host cannot run guests; the message names the remedy. The
    /// caller must then shut the pool down.
    pub async fn started(&self) -> Result<(), StartError> {
        let first = self.inner.first.lock();
        let first = first.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(first) = first {
            first.made().await.map_err(StartError::Sandbox)?;
            // The admission depends on the spawner's report about this host, which exists now.
            self.inner.admission();
            ZygotePool::start_refill(&self.inner.zygote_pool);
            self.start_provisioning();
        }
        Ok(())
    }

    /// Begins with the seeds that all functions descend from. If there are images of them, they are
    /// read while the first microVM starts.
    pub fn begin_shared(&self) {
        self.inner.tree.begin_linked();
    }
}

impl StartingPool {
    /// Returns the pool, which uses these images. [`Pool::started`] completes its start.
    ///
    /// # Errors
    /// Returns [`StartError::Sandbox`] if two of its seeds are not distinguishable, which would be
    /// a bug.
    pub fn with(self, images: Option<Arc<Images>>) -> Result<Pool, StartError> {
        let Self {
            zygote_pool,
            egress_spawner,
            first,
            isa,
            options,
        } = self;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let rules = WarmRules {
            keep_alive: options.keep_alive,
            least: options.min_warm,
            most: options.max_warm,
            max_reuse: options.max_reuse,
            descriptors: options.confinement.descriptors(),
        };
        let poll = if Mechanism::Hot.is_off() {
            Duration::ZERO
        } else {
            options.poll
        };
        let polling = Polling::new(poll, processors);
        let keeper = Keeper::start(rules, polling, zygote_pool.account());
        let tree = SeedTree::new(
            &zygote_pool,
            keeper.clone(),
            SeedSlots::new(processors, options.max_instances),
            Budget {
                bytes: options.seed_memory,
                count: options.max_seeds,
            },
            options.function_memory,
            images,
        );
        Ok(Pool {
            inner: Arc::new(Inner {
                tree: tree.map_err(StartError::Sandbox)?,
                first: Mutex::new(Some(first)),
                zygote_pool,
                egress_spawner,
                keeper,
                provisioning: Provisioning::default(),
                isa,
                admission: OnceLock::new(),
                served: Arc::default(),
                compiling: FairSlots::new(COMPILATIONS),
                relay: relay_slots(processors),
                instance_numbers: InstanceNumbers::new(),
                processors,
                options,
            }),
        })
    }

    /// Ends the processes that [`Pool::begin`] has started, and waits until none is left.
    pub async fn stop(self) {
        drop(self.first);
        self.zygote_pool.stop().await;
    }
}
