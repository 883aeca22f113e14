//! The settings of a pool.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use faasw_abi::isa::Isa;
use faasw_jail::group::FREE_MAX;

#[cfg(feature = "ablation")]
use crate::ablation::Mechanism;
use crate::confinement::Confinement;
use crate::images::Images;
use crate::memory;
use crate::sandboxes::{Launcher, WallClock};

/// The settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The confinement of each sandbox. Anything but [`Confinement::Jailed`] has to be chosen here.
    /// If the host does not allow it, the pool never falls back to less confinement.
    pub confinement: Confinement,
    /// The number of zygotes kept ready when the load is low. Up to eight times as many are kept
    /// while the load needs them.
    pub zygotes: usize,
    /// The number of idle control groups that are kept for future jails. With 0, each jail gets a
    /// new group. No effect on hosts without control groups.
    pub groups_kept: usize,
    /// The maximum number of instances at work, from the start of a request until its instance is
    /// warm or gone. A request waits a moment for a free permit before it is rejected.
    pub max_instances: usize,
    /// The instruction set of compiled functions; `None` selects the best that this CPU has.
    pub isa: Option<Isa>,
    /// The CPU time limit for compiling a function.
    pub compile_cpu: Duration,
    /// The limit of private memory for compiling a function, in bytes.
    pub compile_memory: u64,
    /// The wall time limit for instantiating a function when it is deployed.
    pub instantiation_time: Duration,
    /// How long an instance stays warm without a request.
    pub keep_alive: Duration,
    /// How long an instance may poll for its next request before it is warm, with the vCPU in the
    /// guest. It does so if its function's requests usually arrive within that time and a processor
    /// is free. Zero disables polling.
    pub poll: Duration,
    /// The number of instances that each function has at all times, warm or at work. They are made
    /// ahead of requests once the function is provided for
    /// ([`Pool::provision`](crate::Pool::provision)), which happens at the latest when it is
    /// called, as far as all budgets allow.
    pub min_warm: usize,
    /// The maximum number of warm instances of all functions together.
    pub max_warm: usize,
    /// The budget in bytes for the seeds of all functions and for their code that is stored
    /// elsewhere as well. The least valuable seeds are evicted, and are made again when they are
    /// used.
    pub seed_memory: u64,
    /// The maximum number of functions' seeds in memory. Each seed takes
    /// [`DESCRIPTORS_PER_SEED`](crate::open_files::DESCRIPTORS_PER_SEED) open files of this
    /// process.
    pub max_seeds: usize,
    /// The budget in bytes that one function may hold in memory between requests, all its versions
    /// together: its seeds, their code, and the private pages of its warm instances. The account
    /// relies on the reports of sandboxes and is not a measurement; the kernel's memory for each VM
    /// and process comes on top. If a function exceeds the budget, its warm instances are ended
    /// first, then its seeds are evicted.
    pub function_memory: u64,
    /// The limit in bytes for the processes of all sandboxes and compilations together, seeds
    /// included. `None` selects the memory of the machine, or the limit of this process's control
    /// groups, less a reserve for this process. Each instance takes at most its function's memory
    /// and [`VM_OVERHEAD`](faasw_jail::group::VM_OVERHEAD). On hosts with control groups, the
    /// kernel enforces the limit.
    pub instance_memory: Option<u64>,
    /// The worst-case memory in bytes of all instances at work, where no control group limits them
    /// together; `None` selects [`PoolOptions::instance_memory`]. The worst case of an instance is
    /// its function's memory and [`INSTANCE_MEMORY`](crate::INSTANCE_MEMORY).
    pub admitted_memory: Option<u64>,
    /// The store for seeds that are not in memory; with `None`, such seeds are made again.
    pub images: Option<Arc<Images>>,
    /// The launcher that starts spawners; with `None`, this process starts them.
    pub launcher: Option<Arc<Launcher>>,
    /// The source of the guests' time of day, read each time that a guest runs. It must not block.
    /// Tests inject their own.
    pub wall_clock: WallClock,
    /// The maximum number of requests that one instance serves, each from its seed's exact state.
    /// With 1, every request gets a new fork.
    pub max_reuse: u32,
    /// The mechanisms that are switched off for a benchmark, in all pools of this process.
    #[cfg(feature = "ablation")]
    pub without: Vec<Mechanism>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            confinement: Confinement::Jailed,
            zygotes: 4,
            groups_kept: FREE_MAX,
            max_instances: 256,
            isa: None,
            compile_cpu: Duration::from_secs(120),
            compile_memory: 2 << 30,
            instantiation_time: Duration::from_secs(60),
            keep_alive: Duration::from_secs(60),
            poll: Duration::ZERO,
            min_warm: 0,
            max_warm: 512,
            max_reuse: 10_000,
            seed_memory: 4 << 30,
            max_seeds: usize::MAX,
            function_memory: 1 << 30,
            instance_memory: None,
            admitted_memory: None,
            images: None,
            launcher: None,
            wall_clock: SystemTime::now,
            #[cfg(feature = "ablation")]
            without: Vec::new(),
        }
    }
}

impl PoolOptions {
    /// Returns the limit in bytes for all sandboxes together: the configured limit, or the memory
    /// that this machine has for them.
    #[must_use]
    pub fn instance_memory_bytes(&self) -> u64 {
        self.instance_memory.unwrap_or_else(memory::for_instances)
    }
}
