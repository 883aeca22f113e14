//! What a pool tells of itself.

/// How many microVMs there are, by what they do, and what functions hold in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Shells made ahead that hold no function yet.
    pub shells: usize,
    /// How many of those are images of what functions descend from.
    pub preset: usize,
    /// How many of those are wanted, and how often one was there.
    pub stock: StockStats,
    /// Control groups of cells.
    pub groups: GroupStats,
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
    /// What [`PoolOptions::seed_memory`](crate::PoolOptions::seed_memory) allows.
    pub seed_budget: u64,
    /// What [`PoolOptions::function_memory`](crate::PoolOptions::function_memory) allows.
    pub function_budget: u64,
}

/// How shells are made ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockStats {
    /// Shells that are to be ready now, by demand.
    pub wanted: usize,
    /// Shells that are to be ready when there is little to do
    /// ([`PoolOptions::shells_ready`]).
    ///
    /// [`PoolOptions::shells_ready`]: crate::PoolOptions::shells_ready
    pub low: usize,
    /// Shells that are to be ready at most.
    pub high: usize,
    /// Instances, ever, for which a shell was ready.
    pub hits: u64,
    /// Instances, ever, that had to wait until a shell was made, because none was ready.
    pub misses: u64,
}

/// How the control groups of cells are used: those of shells and of the compile helper.
/// All zero where there are none, as for [`Confinement::InProcess`].
///
/// [`Confinement::InProcess`]: crate::Confinement::InProcess
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Groups that wait for a cell.
    pub free: u64,
    /// Groups that have one.
    pub used: u64,
    /// Groups that may wait ([`PoolOptions::groups_kept`]).
    ///
    /// [`PoolOptions::groups_kept`]: crate::PoolOptions::groups_kept
    pub free_max: u64,
    /// Cells, ever, that got a group that had waited.
    pub hits: u64,
    /// Cells, ever, that had a group made for them.
    pub misses: u64,
}
