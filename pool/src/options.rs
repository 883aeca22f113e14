//! What a pool is told when it starts, and what it tells of itself.

use std::time::{Duration, SystemTime};

use faasw_abi::isa::Isa;

#[cfg(feature = "ablation")]
use crate::ablation::Mechanism;
use crate::confinement::Confinement;
use crate::wall_clock::WallClock;

/// How a pool is set up.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What is round each microVM. Anything but [`Confinement::Jailed`] has to be asked
    /// for here: nothing takes its place where the host does not allow it.
    pub confinement: Confinement,
    /// Shells kept ready when there is little to do. Up to eight times as many are kept
    /// while that many are needed.
    pub shells_ready: usize,
    /// Most instances at once, from their request's begin until they are parked or
    /// gone. A request waits a moment for room before it is refused.
    pub max_instances: usize,
    /// Instruction set of compiled functions; `None` for the best this CPU has.
    pub isa: Option<Isa>,
    /// CPU time that compiling a function may take.
    pub compile_cpu: Duration,
    /// Address space that compiling a function may take, in bytes.
    pub compile_memory: u64,
    /// Wall time that instantiating a function may take when it is deployed.
    pub instantiation_time: Duration,
    /// How long an instance stays parked that no request takes.
    pub keep_alive: Duration,
    /// Instances of each function that stay parked all the same, once it was
    /// called.
    pub min_parked: usize,
    /// Most instances parked at once, of all functions together.
    pub max_parked: usize,
    /// Bytes that the seeds of functions may take together; those worth least
    /// give way, and are made again when they are used.
    pub seed_memory: u64,
    /// Bytes that one function may hold in memory between requests, all its versions
    /// together: its seeds, and the private pages of its parked instances. It is an
    /// account of what shells tell, not a measurement: what the kernel has for each VM
    /// and process comes on top. Over it parked instances end, then seeds give way.
    pub function_memory: u64,
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
            shells_ready: 4,
            max_instances: 256,
            isa: None,
            compile_cpu: Duration::from_secs(120),
            compile_memory: 2 << 30,
            instantiation_time: Duration::from_secs(60),
            keep_alive: Duration::from_secs(60),
            min_parked: 0,
            max_parked: 512,
            max_reuse: 10_000,
            seed_memory: 4 << 30,
            function_memory: 1 << 30,
            wall_clock: SystemTime::now,
            #[cfg(feature = "ablation")]
            without: Vec::new(),
        }
    }
}

/// How many microVMs there are, by what they do, and what functions hold in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Shells made ahead that hold no function yet.
    pub shells: usize,
    /// How many of those are images of what functions descend from.
    pub preset: usize,
    /// Instances that wait for a request of their function.
    pub parked: usize,
    /// Instances at work, being reset or being ended.
    pub busy: usize,
    /// Processes that were ended, ever, for a system call that their cell does not
    /// allow: somebody broke out of a microVM or of the compiler.
    pub forbidden_calls: u64,
    /// Bytes of the layers of functions' seeds.
    pub seed_bytes: u64,
    /// Bytes of the private pages of parked instances, as their shells told them.
    pub parked_bytes: u64,
    /// What [`PoolOptions::seed_memory`] allows.
    pub seed_budget: u64,
    /// What [`PoolOptions::function_memory`] allows.
    pub function_budget: u64,
}
