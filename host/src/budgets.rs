//! How a node divides the resources of a container: a pure function from limits to budgets. Such a
//! node serves a single function (`faasw pod`).
//!
//! If a process exceeds a memory limit of the kernel, the kernel kills it, and with
//! `memory.oom.group` everything else in the container. So the most memory that clients and the
//! function can occupy must fit below the limit (docs/decisions/0030):
//!
//! ```text
//! node + buffers of clients + stores + zygotes + seeds
//!     + instances × (function's memory + 44 MiB + page tables) ≤ limit
//! ```
//!
//! Compiling happens before there are instances, and may use their memory.

use faasw_abi::{mailbox::MAILBOX_BYTES, memory_map::RAM_OVERHEAD};
use faasw_egress::frames::{LARGE_WINDOW, WINDOW};
pub use faasw_jail::group::{GroupLimits, group_limits, memory_used};
use faasw_pool::INSTANCE_MEMORY;
use thiserror::Error;

use crate::builder::NodeBuilder;

const MIB: u64 = 1 << 20;

/// Bytes of node, launcher and spawner, of what all functions share, and of what is not counted
/// separately. An idle node uses 17 MiB; up to 12 MiB may be log lines that are not read.
const NODE: u64 = 36 * MIB;
/// Bytes that a guest can touch besides its function's memory.
const GUEST: u64 = RAM_OVERHEAD + MAILBOX_BYTES.next_multiple_of(MIB);
/// Bytes that an instance costs kernel and node, whatever its memory: 1.1 MiB of the kernel's and
/// 0.7 MiB of its process's own were measured, and a record of 1.1 MiB may be on its way to a
/// store.
const INSTANCE: u64 = 3 * MIB;
/// Divisor of the bytes that a guest can touch: the page tables for them, those of its process and
/// those of its VM. 5.2 MiB were measured of the kernel's for a guest that has touched 512 MiB.
const PAGE_TABLES: u64 = 128;
/// The part of an instance that the kernel may charge to the node: it charges the pages of a
/// mailbox to the process that writes them first.
const IN_NODE: u64 = 5 * MIB;
/// Bytes of the egress processes of the only function: 4.3 MiB were measured.
const EGRESS: u64 = 16 * MIB;
/// Concurrent outbound calls for each instance that fits.
const CALLS_EACH: u64 = 8;
/// Bytes that node and egress worker each hold of the bodies of an outbound call, at most.
const CALL: u64 = 2 * (LARGE_WINDOW + WINDOW) as u64;
/// Bytes that HTTP holds for a connection that has sent something (docs/operating.md).
const CONNECTION: u64 = 28 << 10;
/// Bytes of a zygote, that is of its process and of the kernel's part of its VM: 1.25 MiB were
/// measured.
const ZYGOTE: u64 = 3 * MIB / 2;
/// Maximum number of zygotes while they are needed, as a multiple of `zygotes`.
const ZYGOTES_MOST: u64 = 8;
/// Minimum bytes for a function's seed and code.
const SEEDS_LEAST: u64 = 16 * MIB;
/// Divisor of the bytes that the node, its buffers, stores and zygotes leave. Seeds get at most
/// this part, or the minimum if that is larger.
const SEEDS_PART: u64 = 4;
/// Maximum bytes for seeds: the default of a node without derived budgets.
const SEEDS_MOST: u64 = 4096 * MIB;
/// Bytes that a store takes, as a multiple of its size: the file rounds up, and keeps what is being
/// replaced.
const STORE: u64 = 3;
/// Bytes of the compile helper's program and of its mappings.
const HELPER: u64 = 32 * MIB;
/// Maximum bytes for compiling.
const COMPILING_MOST: u64 = 2048 * MIB;
/// Divisor of the limit: the part for each kind of buffer that is not configured.
const BUFFER_PART: u64 = 64;
/// Divisor of the limit: the part for key-value stores.
const STORE_PART: u64 = 128;
/// Divisor of the limit: the part for zygotes.
const ZYGOTES_PART: u64 = 16;
/// Instances for each processor: most requests wait for something.
const INSTANCES_EACH: u64 = 128;
/// Minimum number of instances where memory allows it, however small the share of a processor is.
const INSTANCES_LEAST: u64 = 16;
const INSTANCES_MOST: u64 = 256;
const CONNECTIONS: std::ops::RangeInclusive<u64> = 64..=4096;
const UNDELIVERED: std::ops::RangeInclusive<u64> = 2 * MIB..=128 * MIB;
const STORES: std::ops::RangeInclusive<u64> = MIB..=256 * MIB;

/// The known properties of a node's one function, and the values that are configured instead of
/// derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetInputs {
    /// Bytes that the function's memories may grow to.
    pub memory: u64,
    /// Whether the function may make outbound calls.
    pub has_outbound: bool,
    /// Number of key-value stores that the function can use and that the node holds in memory.
    pub stores: u64,
    /// Maximum number of concurrent requests.
    pub instances: Option<u64>,
    /// Maximum number of warm instances.
    pub warm: Option<u64>,
    /// Number of zygotes.
    pub zygotes: Option<u64>,
    /// Maximum number of client connections.
    pub connections: Option<u64>,
    /// Bytes for seeds and their code.
    pub seeds: Option<u64>,
    /// Bytes that clients have not read yet.
    pub undelivered: Option<u64>,
    /// Bytes of keys and values of each store.
    pub store_bytes: Option<u64>,
    /// Bytes that all microVMs may take.
    pub instance_memory: Option<u64>,
}

/// The budgets of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budgets {
    /// Bytes that everything together must fit.
    pub limit: u64,
    /// Bytes of one instance in the worst case.
    pub instance: u64,
    /// Number of instances that fit in their worst case.
    pub fitting: u64,
    /// Maximum number of concurrent requests: as many as fit in their worst case, unless more are
    /// configured. More are admitted if the kernel limits microVMs by a control group of their own.
    pub instances: u64,
    /// Maximum number of warm instances.
    pub warm: u64,
    /// Number of zygotes.
    pub zygotes: u64,
    /// Maximum number of client connections.
    pub connections: u64,
    /// Maximum number of concurrent outbound calls of the function.
    pub outbound: u64,
    /// Bytes for seeds and their code.
    pub seeds: u64,
    /// Bytes that clients have not read yet. As many bytes from clients may wait for instances.
    pub undelivered: u64,
    /// Bytes of keys and values of each store.
    pub store_bytes: u64,
    /// Bytes that all microVMs and compilations may take, if a control group limits them.
    pub instance_memory: u64,
    /// Bytes for instances at work if no control group limits them: the function's memory and
    /// [`INSTANCE_MEMORY`] for each instance that fits.
    pub admitted: u64,
    /// Bytes that compiling may take.
    pub compiling: u64,
}

/// The error if the memory limit does not suffice for one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the memory limit of {} MiB does not suffice: with {} MiB for the function's memory \
     (--memory), an instance takes up to {} MiB, and the node with its buffers and seeds {} MiB. \
     It needs a limit of {} MiB",
    .limit >> 20, .memory >> 20, .instance >> 20, .others >> 20, .needed >> 20
)]
pub struct LimitTooSmall {
    /// The limit in bytes.
    pub limit: u64,
    /// Bytes of the function's memory.
    pub memory: u64,
    /// Bytes of one instance in the worst case.
    pub instance: u64,
    /// Bytes of the node, its buffers and seeds, without the instance.
    pub others: u64,
    /// The limit in bytes that would suffice.
    pub needed: u64,
}

/// The resources of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Bytes of memory.
    pub memory: u64,
    /// Number of processors that this process may use.
    pub processors: u64,
}

impl Machine {
    /// Returns the resources of this machine.
    #[must_use]
    pub fn this() -> Self {
        let system = rustix::system::sysinfo();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            memory: system.totalram.saturating_mul(system.mem_unit.into()),
            processors: processors as u64,
        }
    }
}

/// The budgets that do not depend on the number of instances.
struct FixedBudgets {
    connections: u64,
    undelivered: u64,
    store_bytes: u64,
    zygotes: u64,
    /// Bytes of the node and of these budgets together, without seeds.
    bytes: u64,
}

impl BudgetInputs {
    /// Returns the defaults for a function with this much memory, with nothing configured.
    #[must_use]
    pub fn of_function(memory: u64) -> Self {
        Self {
            memory,
            stores: 1,
            ..Self::default()
        }
    }

    fn instance(&self) -> u64 {
        let calls = if self.has_outbound { CALLS_EACH } else { 0 };
        let guest = self.memory.saturating_add(GUEST);
        let costs = guest / PAGE_TABLES + INSTANCE + calls * CALL;
        guest.saturating_add(costs)
    }

    fn others(&self, limit: u64, processors: u64) -> FixedBudgets {
        let part = limit / BUFFER_PART;
        let within = |range: &std::ops::RangeInclusive<u64>, value: u64| {
            value.clamp(*range.start(), *range.end())
        };
        let connections = within(&CONNECTIONS, part / CONNECTION);
        let connections = self.connections.unwrap_or(connections);
        let undelivered = self.undelivered.unwrap_or(within(&UNDELIVERED, part));
        let store_bytes = self
            .store_bytes
            .unwrap_or(within(&STORES, limit / STORE_PART / self.stores.max(1)));
        let affordable = limit / ZYGOTES_PART / (ZYGOTE * ZYGOTES_MOST);
        let zygotes = processors.div_ceil(1000).min(affordable).clamp(1, 4);
        let zygotes = self.zygotes.unwrap_or(zygotes);
        let bytes = [
            NODE,
            if self.has_outbound { EGRESS } else { 0 },
            connections.saturating_mul(CONNECTION),
            // The bytes that wait for clients, and the bytes from clients.
            undelivered.saturating_mul(2),
            store_bytes.saturating_mul(STORE * self.stores),
            zygotes.saturating_mul(ZYGOTES_MOST * ZYGOTE),
        ];
        FixedBudgets {
            connections,
            undelivered,
            store_bytes,
            zygotes,
            bytes: bytes.into_iter().fold(0, u64::saturating_add),
        }
    }

    /// Returns the bytes that a limit leaves for instances; 0 if it leaves none.
    fn left(&self, limit: u64, processors: u64) -> u64 {
        let seeds = self.seeds.unwrap_or(SEEDS_LEAST);
        let others = self.others(limit, processors).bytes;
        limit.saturating_sub(others.saturating_add(seeds))
    }

    /// Returns the smallest limit, in whole MiB, that suffices for one instance.
    fn needed(&self, processors: u64) -> u64 {
        let suffices = |limit: u64| self.left(limit, processors) >= self.instance();
        let (mut too_small, mut enough) = (0, MIB);
        while !suffices(enough) && enough < 1 << 50 {
            (too_small, enough) = (enough, enough * 2);
        }
        while enough - too_small > MIB {
            let middle = (too_small + (enough - too_small) / 2).next_multiple_of(MIB);
            if !suffices(middle) {
                too_small = middle;
            } else if middle < enough {
                enough = middle;
            } else {
                break;
            }
        }
        enough
    }

    /// Divides the resources of the container. Without `limits` they are those of the machine.
    ///
    /// # Errors
    /// Returns [`LimitTooSmall`] if the memory does not suffice for one instance.
    pub fn budgets(&self, limits: GroupLimits, machine: Machine) -> Result<Budgets, LimitTooSmall> {
        // An eighth of the machine is left to other programs.
        let limit = limits.memory.unwrap_or(u64::MAX);
        let limit = limit.min(machine.memory - machine.memory / 8);
        let processors = machine.processors.saturating_mul(1000);
        let processors = limits.processors.unwrap_or(processors).min(processors);
        let instance = self.instance();
        let others = self.others(limit, processors);
        let left = self.left(limit, processors);
        let most = (INSTANCES_EACH.saturating_mul(processors) / 1000)
            .clamp(INSTANCES_LEAST, INSTANCES_MOST);
        let fitting = left / instance;
        if fitting == 0 {
            return Err(LimitTooSmall {
                limit,
                memory: self.memory,
                instance,
                others: others
                    .bytes
                    .saturating_add(self.seeds.unwrap_or(SEEDS_LEAST)),
                needed: self.needed(processors),
            });
        }
        let fitting = fitting.min(self.instances.unwrap_or(most));
        let for_microvms = limit - others.bytes;
        // The rest is for seeds, as far as compiling does not need it.
        let over = for_microvms - fitting * instance;
        let seeds = over.min((for_microvms / SEEDS_PART).max(SEEDS_LEAST));
        let seeds = self.seeds.unwrap_or(seeds.min(SEEDS_MOST));
        // This sum follows the pool's accounting.
        let admitted = fitting * self.memory.saturating_add(INSTANCE_MEMORY);
        Ok(Budgets {
            limit,
            instance,
            fitting,
            instances: self.instances.unwrap_or(fitting),
            warm: self.warm.unwrap_or(fitting),
            zygotes: others.zygotes,
            connections: others.connections,
            outbound: fitting.saturating_mul(CALLS_EACH),
            seeds,
            undelivered: others.undelivered,
            store_bytes: others.store_bytes,
            // The kernel decides which group seeds are charged to: in the worst case not this one.
            // The node's part of instances beyond those that fit is charged to the node.
            instance_memory: self.instance_memory.unwrap_or_else(|| {
                let crowd = self.instances.unwrap_or(0).saturating_sub(fitting);
                let left = (for_microvms - seeds).saturating_sub(crowd.saturating_mul(IN_NODE));
                left.max(instance)
            }),
            admitted: self.instance_memory.unwrap_or(admitted),
            compiling: limit
                .saturating_sub(NODE + HELPER)
                .clamp(MIB, COMPILING_MOST),
        })
    }
}

impl NodeBuilder {
    /// Applies these budgets to the node.
    pub fn budgets(mut self, budgets: &Budgets) -> Self {
        let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let limits = &mut self.limits;
        limits.connections = count(budgets.connections);
        limits.connections_per_address = limits.connections_per_address.min(limits.connections);
        limits.undelivered = budgets.undelivered;
        // There is only one function.
        limits.undelivered_function = budgets.undelivered;
        limits.undelivered_connection = limits.undelivered_connection.min(budgets.undelivered / 8);
        limits.store_bytes = budgets.store_bytes;
        limits.compile_memory = budgets.compiling;
        limits.outbound_function = limits.outbound_function.min(count(budgets.outbound));
        // A function may use no more than it leaves to others. Twice its own limit lets the only
        // function use all of it.
        limits.outbound = limits.outbound.min(2 * limits.outbound_function);
        self.max_instances(count(budgets.instances))
            .max_warm(count(budgets.warm))
            .zygotes(count(budgets.zygotes))
            .seed_memory(budgets.seeds)
            .function_memory(budgets.limit)
            .instance_memory(budgets.instance_memory)
            .admitted_memory(budgets.admitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        memory: 32 << 30,
        processors: 4,
    };

    fn limits(mebibytes: u64, processors: Option<u64>) -> GroupLimits {
        GroupLimits {
            memory: Some(mebibytes * MIB),
            processors,
        }
    }

    fn worst(asked: &BudgetInputs, budgets: &Budgets) -> u64 {
        NODE + u64::from(asked.has_outbound) * EGRESS
            + budgets.connections * CONNECTION
            + 2 * budgets.undelivered
            + asked.stores * STORE * budgets.store_bytes
            + ZYGOTES_MOST * ZYGOTE * budgets.zygotes
            + budgets.seeds
            + budgets.fitting * budgets.instance
    }

    #[test]
    fn the_worst_case_fits_every_accepted_limit() {
        for memory in [1, 16, 32, 64, 128, 500, 1024] {
            for limit in (32..512).chain((512..9000).step_by(97)) {
                for processors in [None, Some(1), Some(50), Some(1000), Some(64_000)] {
                    for (has_outbound, stores) in [(false, 1), (true, 3)] {
                        let asked = BudgetInputs {
                            has_outbound,
                            stores,
                            ..BudgetInputs::of_function(memory * MIB)
                        };
                        let limits = limits(limit, processors);
                        match asked.budgets(limits, MACHINE) {
                            Ok(budgets) => {
                                let worst = worst(&asked, &budgets);
                                assert!(worst <= limit * MIB, "{limit} {memory} {budgets:?}");
                                assert!(budgets.fitting >= 1 && budgets.seeds >= SEEDS_LEAST);
                                assert!(budgets.warm <= budgets.fitting);
                                assert!(budgets.compiling < limit * MIB);
                                let held = budgets.fitting * budgets.instance;
                                assert!(budgets.instance_memory >= held);
                            }
                            Err(small) => {
                                assert!(small.needed > limit * MIB, "{small:?}");
                                assert_eq!(small.needed % MIB, 0);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_limit_that_an_error_names_is_the_smallest_that_suffices() {
        for memory in [1, 16, 128, 1024] {
            let asked = BudgetInputs::of_function(memory * MIB);
            let small = asked.budgets(limits(33, None), MACHINE).unwrap_err();
            let needed = small.needed / MIB;
            assert!(asked.budgets(limits(needed, None), MACHINE).is_ok());
            assert!(asked.budgets(limits(needed - 1, None), MACHINE).is_err());
            let text = small.to_string();
            assert!(text.contains(&format!("a limit of {needed} MiB")), "{text}");
            assert!(text.contains(&format!("with {memory} MiB")), "{text}");
        }
    }

    /// Kibibytes in the kernel and of the process's own, by the guest's memory in mebibytes. The
    /// guest had touched all of it (AMD EPYC, `kvm-pvm`, Linux 6.18, control groups of version 1).
    #[test]
    fn an_instance_is_charged_at_least_what_was_measured() {
        const RECORD: u64 = 1126;
        for (memory, measured) in [(16, 1260 + 688), (128, 2070 + 688), (512, 5315 + 688)] {
            let charged = BudgetInputs::of_function(memory * MIB).instance();
            let guest = memory * MIB + GUEST;
            assert!(charged >= guest + ((measured + RECORD) << 10), "{memory}");
        }
    }

    #[test]
    fn budgets_of_usual_limits() {
        // Limit, thousandths of a processor, memory: instances that fit, at once, zygotes,
        // connections.
        for (limit, processors, memory, fitting, instances, zygotes, connections) in [
            (128, Some(500), 1, 1, 1, 1, 73),
            (256, Some(500), 128, 1, 1, 1, 146),
            (256, Some(50), 16, 2, 2, 1, 146),
            (512, Some(1000), 32, 5, 5, 1, 292),
            (1024, Some(2000), 128, 5, 5, 2, 585),
            (4096, None, 128, 21, 21, 4, 2340),
            (16384, None, 16, 256, 256, 4, 4096),
        ] {
            let asked = BudgetInputs::of_function(memory * MIB);
            let budgets = asked.budgets(limits(limit, processors), MACHINE).unwrap();
            assert_eq!(
                (
                    budgets.fitting,
                    budgets.instances,
                    budgets.zygotes,
                    budgets.connections
                ),
                (fitting, instances, zygotes, connections),
                "{limit} {memory}"
            );
        }
    }

    #[test]
    fn without_a_limit_seven_eighths_of_the_machine_are_used() {
        let asked = BudgetInputs::of_function(128 * MIB);
        let none = asked.budgets(GroupLimits::default(), MACHINE).unwrap();
        assert_eq!(none.limit, 28 << 30);
        assert_eq!((none.instances, none.connections), (158, 4096));
        // A limit above the machine's memory has no effect.
        let above = asked.budgets(limits(1 << 20, Some(900_000)), MACHINE);
        assert_eq!(above.unwrap(), none);
    }

    #[test]
    fn outbound_calls_count_in_the_memory_of_their_instances() {
        let without = BudgetInputs::of_function(32 * MIB);
        let asked = BudgetInputs {
            has_outbound: true,
            ..without.clone()
        };
        for (limit, fitting) in [(256, 1), (1024, 9), (16384, 179)] {
            let budgets = asked.budgets(limits(limit, None), MACHINE).unwrap();
            assert_eq!(budgets.fitting, fitting, "{limit}");
            let more = budgets.instance - without.instance();
            assert_eq!(more, 10 * MIB);
            assert!(worst(&asked, &budgets) <= limit * MIB);
            let held = NodeBuilder::default().budgets(&budgets).limits;
            assert_eq!(held.outbound_function as u64, (8 * fitting).min(256));
            assert_eq!(held.outbound, 2 * held.outbound_function);
        }
    }

    #[test]
    fn configured_values_are_kept_and_counted() {
        let asked = BudgetInputs {
            instances: Some(2),
            warm: Some(1),
            zygotes: Some(3),
            connections: Some(100),
            seeds: Some(200 * MIB),
            undelivered: Some(10 * MIB),
            store_bytes: Some(5 * MIB),
            ..BudgetInputs::of_function(64 * MIB)
        };
        let budgets = asked.budgets(limits(1024, None), MACHINE).unwrap();
        assert_eq!((budgets.instances, budgets.warm), (2, 1));
        assert_eq!((budgets.zygotes, budgets.connections), (3, 100));
        assert_eq!(budgets.seeds, 200 * MIB);
        assert_eq!((budgets.fitting, budgets.admitted), (2, 2 * 80 * MIB));
        assert!(worst(&asked, &budgets) <= 1024 * MIB);
        // More concurrent requests than fit are admitted only if a control group limits microVMs.
        // The node's part of these is charged to the node.
        for more in [20, 1000] {
            let many = BudgetInputs {
                instances: Some(more),
                ..asked.clone()
            };
            let budgets = many.budgets(limits(1024, None), MACHINE).unwrap();
            assert_eq!(budgets.instances, more);
            assert!(worst(&many, &budgets) <= 1024 * MIB, "{budgets:?}");
            let fit = BudgetInputs {
                instances: Some(budgets.fitting),
                ..asked.clone()
            };
            let fit = fit.budgets(limits(1024, None), MACHINE).unwrap();
            let kept = (more - budgets.fitting) * IN_NODE;
            let left = fit.instance_memory.saturating_sub(kept);
            assert_eq!(budgets.instance_memory, left.max(budgets.instance));
        }
        let own = BudgetInputs {
            instance_memory: Some(300 * MIB),
            ..asked
        };
        let budgets = own.budgets(limits(1024, None), MACHINE).unwrap();
        assert_eq!(
            (budgets.instance_memory, budgets.admitted),
            (300 * MIB, 300 * MIB)
        );
    }
}
