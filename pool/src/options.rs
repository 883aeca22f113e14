//! What a pool is told when it starts.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use faasw_abi::isa::Isa;
use faasw_jail::group::FREE_MAX;

#[cfg(feature = "ablation")]
use crate::ablation::Mechanism;
use crate::images::Images;
use crate::memory;
use crate::sandboxes::{Confinement, Launcher, WallClock};

/// How a pool is set up.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What is round each microVM. Anything but [`Confinement::Jailed`] has to be asked
    /// for here: nothing takes its place where the host does not allow it.
    pub confinement: Confinement,
    /// Sandboxes kept ready when there is little to do. Up to eight times as many are kept
    /// while that many are needed.
    pub zygotes: usize,
    /// Control groups that are kept for the next jails while they have none; 0 makes a
    /// group for each. Without effect where the host has no groups.
    pub groups_kept: usize,
    /// Most instances at once, from their request's begin until they are parked or
    /// gone. A request waits a moment for room before it is refused.
    pub max_instances: usize,
    /// Instruction set of compiled functions; `None` for the best this CPU has.
    pub isa: Option<Isa>,
    /// CPU time that compiling a function may take.
    pub compile_cpu: Duration,
    /// Memory of its own that compiling a function may take, in bytes.
    pub compile_memory: u64,
    /// Wall time that instantiating a function may take when it is deployed.
    pub instantiation_time: Duration,
    /// How long an instance stays parked that no request takes.
    pub keep_alive: Duration,
    /// How long an instance may look for its next request by itself before it is parked, with the
    /// vCPU in the guest, where its function's requests come within that and there is a processor
    /// to spare; zero for never.
    pub poll: Duration,
    /// Instances that each function has at all times, parked or at work: made ahead of requests
    /// once it is provided for ([`Pool::provide`](crate::Pool::provide)), which it is at the latest
    /// when it is called, as far as they fit all budgets.
    pub min_parked: usize,
    /// Most instances parked at once, of all functions together.
    pub max_parked: usize,
    /// Bytes that the seeds of functions may take together, and their code that is stored
    /// somewhere; those worth least are evicted, and are made again when they are used.
    pub seed_memory: u64,
    /// Seeds of functions that may be in memory at once: each takes
    /// [`OF_A_SEED`](crate::open_files::OF_A_SEED) open files of this program.
    pub max_seeds: usize,
    /// Bytes that one function may hold in memory between requests, all its versions
    /// together: its seeds and their code, and the private pages of its parked instances. It is an
    /// account of what sandboxes tell, not a measurement: what the kernel has for each VM
    /// and process comes on top. Over it parked instances end, then seeds are evicted.
    pub function_memory: u64,
    /// Bytes that the processes of all microVMs and compilations may take together, seeds
    /// included; `None` for what the machine has, or the control groups that this process
    /// is in allow, less a reserve for this process. What each instance can take at most
    /// is its function's memory and
    /// [`VM_OVERHEAD`](faasw_jail::group::VM_OVERHEAD). Where the host has control groups,
    /// the kernel holds them to it.
    pub instance_memory: Option<u64>,
    /// Bytes that instances at work may come to at worst where no control group holds them
    /// together; `None` for [`PoolOptions::instance_memory`]. An instance comes to its function's
    /// memory and [`INSTANCE_MEMORY`](crate::INSTANCE_MEMORY).
    pub admitted_memory: Option<u64>,
    /// Where seeds are kept that are not in memory; `None` where they are made again.
    pub images: Option<Arc<Images>>,
    /// What starts spawners; `None` for this process itself.
    pub launcher: Option<Arc<Launcher>>,
    /// What guests take for the time of day, read each time that one is let run; must not
    /// block. Tests inject one.
    pub wall_clock: WallClock,
    /// Most requests that one instance serves, each from its seed's exact state;
    /// 1 forks for every request.
    pub max_reuse: u32,
    /// What is switched off for a benchmark; in all pools of this process.
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
            min_parked: 0,
            max_parked: 512,
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
    /// Bytes that all microVMs may take together: what was asked for, or what this
    /// machine has for them.
    #[must_use]
    pub fn instance_memory_bytes(&self) -> u64 {
        self.instance_memory.unwrap_or_else(memory::for_instances)
    }
}
