//! How a node divides what a container may have: a pure function of limits to budgets.
//!
//! Where a limit is the kernel's, who goes over it is ended, and with `memory.oom.group` so is all
//! that is in the container. So the worst case of everything that clients, functions and their
//! memories can bring about is to fit below it (docs/decisions/0030):
//!
//! ```text
//! node + what clients and stores hold + zygotes + seeds + instances × (function's memory + 44 MiB) ≤ limit
//! ```
//!
//! Compiling comes before there are instances, and may have what they will.

use faasw_abi::{mailbox::MAILBOX_BYTES, memory_map::RAM_OVERHEAD};
use faasw_egress::frames::{LARGE_WINDOW, WINDOW};
pub use faasw_jail::group::{GroupLimits, group_limits, memory_used};
use faasw_pool::INSTANCE_MEMORY;
use thiserror::Error;

use crate::builder::NodeBuilder;

const MIB: u64 = 1 << 20;

/// Node, launcher and spawner, what all functions share, and what is not counted by itself: 17 MiB
/// are in use when nothing happens; 12 may be lines of logs that nobody takes.
const NODE: u64 = 38 * MIB;
/// What a guest can touch beside its function's memory if it does what it likes, and what it costs
/// kernel and node while it runs: 2.5 MiB were measured, and a record of 1.1 MiB may be under way
/// to a store.
const INSTANCE: u64 = RAM_OVERHEAD + MAILBOX_BYTES.next_multiple_of(MIB) + 3 * MIB;
/// Of that, what the node may have of a mailbox: what it writes first is charged to it.
const IN_NODE: u64 = 5 * MIB;
/// The processes that have connections to elsewhere, for the one function: 4.3 MiB were measured.
const EGRESS: u64 = 16 * MIB;
/// Requests to others that may be under way for each instance that fits.
const CALLS_EACH: u64 = 8;
/// What node and worker each have of the bodies of such a request, at most.
const CALL: u64 = 2 * (LARGE_WINDOW + WINDOW) as u64;
/// What HTTP holds for a connection that has sent something (docs/operating.md).
const CONNECTION: u64 = 28 << 10;
/// A zygote: its process, and what the kernel has for its VM; 1.25 MiB were
/// measured.
const ZYGOTE: u64 = 3 * MIB / 2;
/// How many times `zygotes` there are while they are needed.
const ZYGOTES_MOST: u64 = 8;
/// The least that a function's seed and code are given.
const SEEDS_LEAST: u64 = 16 * MIB;
/// Which part of what is left by others it may take, where that is more.
const SEEDS_PART: u64 = 4;
/// The most: as where nothing is derived.
const SEEDS_MOST: u64 = 4096 * MIB;
/// How many times a store's size it takes: the file rounds up, and keeps what is being replaced.
const STORE: u64 = 3;
/// The compile helper's program, and what it maps.
const HELPER: u64 = 32 * MIB;
/// What compiling may take at most.
const COMPILING_MOST: u64 = 2048 * MIB;
/// Which part of the limit each kind of buffer may take that is not asked for.
const BUFFER_PART: u64 = 64;
/// Which part of it a key-value store may hold.
const STORE_PART: u64 = 128;
/// Which part of it zygotes may take.
const ZYGOTES_PART: u64 = 16;
/// Instances for each processor: most requests wait for something.
const INSTANCES_EACH: u64 = 128;
/// The least, however little there is of a processor, where memory allows.
const INSTANCES_LEAST: u64 = 16;
const INSTANCES_MOST: u64 = 256;
const CONNECTIONS: std::ops::RangeInclusive<u64> = 64..=4096;
const UNDELIVERED: std::ops::RangeInclusive<u64> = 2 * MIB..=128 * MIB;
const STORES: std::ops::RangeInclusive<u64> = MIB..=256 * MIB;

/// What is known of a node's one function, and what is asked for instead of being derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Bytes that the function's memories may grow to.
    pub memory: u64,
    /// Whether it may make requests.
    pub has_outbound: bool,
    /// Key-value stores that it can use and that are in the node's memory.
    pub stores: u64,
    /// Requests at once.
    pub instances: Option<u64>,
    /// Instances that wait.
    pub parked: Option<u64>,
    /// Zygotes.
    pub zygotes: Option<u64>,
    /// Connections of clients.
    pub connections: Option<u64>,
    /// Bytes of seeds and their code.
    pub seeds: Option<u64>,
    /// Bytes that clients have not taken.
    pub undelivered: Option<u64>,
    /// Bytes of keys and values of each store.
    pub store_bytes: Option<u64>,
    /// Bytes that all microVMs may take.
    pub instance_memory: Option<u64>,
}

/// What a node may have of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budgets {
    /// Bytes that all of it is held to.
    pub limit: u64,
    /// Bytes that one instance comes to at worst.
    pub instance: u64,
    /// Instances that fit at their worst.
    pub fitting: u64,
    /// Requests at once: as many as fit at their worst, unless more were asked for, which are let
    /// in where the kernel holds microVMs to a group of their own.
    pub instances: u64,
    /// Instances that wait.
    pub parked: u64,
    /// Zygotes.
    pub zygotes: u64,
    /// Connections of clients.
    pub connections: u64,
    /// Requests of the function to others, at once.
    pub outbound: u64,
    /// Bytes of seeds and their code.
    pub seeds: u64,
    /// Bytes that clients have not taken; as many wait to be taken from them.
    pub undelivered: u64,
    /// Bytes of keys and values of each store.
    pub store_bytes: u64,
    /// Bytes that all microVMs and compilations may take, where a group holds them to it.
    pub instance_memory: u64,
    /// Bytes of which instances at work are given their function's memory and
    /// [`INSTANCE_MEMORY`] each, where none does: for as many as fit.
    pub admitted: u64,
    /// Bytes that compiling may take.
    pub compiling: u64,
}

/// The limit does not suffice for one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the memory limit of {} MiB does not suffice: with {} MiB for the function's memory \
     (--memory), an instance takes up to {} MiB, and the node with its buffers and seeds {} MiB. \
     It needs a limit of {} MiB",
    .limit >> 20, .memory >> 20, .instance >> 20, .others >> 20, .needed >> 20
)]
pub struct TooSmall {
    /// Bytes that there are.
    pub limit: u64,
    /// Bytes of the function's memory.
    pub memory: u64,
    /// Bytes that an instance takes at worst.
    pub instance: u64,
    /// Bytes that all else takes.
    pub others: u64,
    /// Bytes that would suffice.
    pub needed: u64,
}

/// What does not depend on how many instances there are.
struct Others {
    connections: u64,
    undelivered: u64,
    store_bytes: u64,
    zygotes: u64,
    /// All of it in bytes, but for seeds.
    bytes: u64,
}

impl Asked {
    /// What is known of a function with this much memory, where nothing is asked for.
    #[must_use]
    pub fn of_function(memory: u64) -> Self {
        Self {
            memory,
            has_outbound: false,
            stores: 1,
            instances: None,
            parked: None,
            zygotes: None,
            connections: None,
            seeds: None,
            undelivered: None,
            store_bytes: None,
            instance_memory: None,
        }
    }

    fn instance(&self) -> u64 {
        let calls = if self.has_outbound { CALLS_EACH } else { 0 };
        self.memory.saturating_add(INSTANCE + calls * CALL)
    }

    fn others(&self, limit: u64, processors: u64) -> Others {
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
            // Those that wait for clients, and those of clients.
            undelivered.saturating_mul(2),
            store_bytes.saturating_mul(STORE * self.stores),
            zygotes.saturating_mul(ZYGOTES_MOST * ZYGOTE),
        ];
        Others {
            connections,
            undelivered,
            store_bytes,
            zygotes,
            bytes: bytes.into_iter().fold(0, u64::saturating_add),
        }
    }

    /// Bytes that a limit leaves for instances; nothing where it does not reach that far.
    fn left(&self, limit: u64, processors: u64) -> u64 {
        let seeds = self.seeds.unwrap_or(SEEDS_LEAST);
        let others = self.others(limit, processors).bytes;
        limit.saturating_sub(others.saturating_add(seeds))
    }

    /// The least limit, in whole MiB, that suffices for one instance.
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

    /// Divides what there is: `limits`, or what the machine has, `machine` bytes and so many
    /// `processors`, where there are none.
    ///
    /// # Errors
    /// When that does not suffice for one instance.
    pub fn budgets(
        &self,
        limits: GroupLimits,
        (machine, processors): (u64, u64),
    ) -> Result<Budgets, TooSmall> {
        // Without a limit others have their share of the machine.
        let limit = limits.memory.unwrap_or(u64::MAX);
        let limit = limit.min(machine - machine / 8);
        let processors = processors.saturating_mul(1000);
        let processors = limits.processors.unwrap_or(processors).min(processors);
        let instance = self.instance();
        let others = self.others(limit, processors);
        let left = self.left(limit, processors);
        let most = (INSTANCES_EACH.saturating_mul(processors) / 1000)
            .clamp(INSTANCES_LEAST, INSTANCES_MOST);
        let fitting = left / instance;
        if fitting == 0 {
            return Err(TooSmall {
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
        // What is over is the seeds', but for what compiling may want.
        let over = for_microvms - fitting * instance;
        let seeds = over.min((for_microvms / SEEDS_PART).max(SEEDS_LEAST));
        let seeds = self.seeds.unwrap_or(seeds.min(SEEDS_MOST));
        // As the pool counts.
        let admitted = fitting * self.memory.saturating_add(INSTANCE_MEMORY);
        Ok(Budgets {
            limit,
            instance,
            fitting,
            instances: self.instances.unwrap_or(fitting),
            parked: self.parked.unwrap_or(fitting),
            zygotes: others.zygotes,
            connections: others.connections,
            outbound: fitting.saturating_mul(CALLS_EACH),
            seeds,
            undelivered: others.undelivered,
            store_bytes: others.store_bytes,
            // Where seeds are charged is the kernel's to say: not in this one, at worst. What the
            // node has of more instances than fit is charged to the node.
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

/// What this machine has: bytes of memory, and processors that this process may use.
#[must_use]
pub fn machine() -> (u64, u64) {
    let system = rustix::system::sysinfo();
    let bytes = system.totalram.saturating_mul(system.mem_unit.into());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (bytes, processors as u64)
}

impl NodeBuilder {
    /// Holds the node to these.
    pub fn budgets(mut self, budgets: &Budgets) -> Self {
        let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let limits = &mut self.limits;
        limits.connections = count(budgets.connections);
        limits.connections_per_address = limits.connections_per_address.min(limits.connections);
        limits.undelivered = budgets.undelivered;
        // There is one function.
        limits.undelivered_function = budgets.undelivered;
        limits.undelivered_connection = limits.undelivered_connection.min(budgets.undelivered / 8);
        limits.store_bytes = budgets.store_bytes;
        limits.compile_memory = budgets.compiling;
        limits.outbound_function = limits.outbound_function.min(count(budgets.outbound));
        // A function has no more than are left for others: the only one is to have all of its own.
        limits.outbound = limits.outbound.min(2 * limits.outbound_function);
        self.max_instances(count(budgets.instances))
            .max_parked(count(budgets.parked))
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

    const MACHINE: (u64, u64) = (32 << 30, 4);

    fn limits(mebibytes: u64, processors: Option<u64>) -> GroupLimits {
        GroupLimits {
            memory: Some(mebibytes * MIB),
            processors,
        }
    }

    fn worst(asked: &Asked, budgets: &Budgets) -> u64 {
        NODE + u64::from(asked.has_outbound) * EGRESS
            + budgets.connections * CONNECTION
            + 2 * budgets.undelivered
            + asked.stores * STORE * budgets.store_bytes
            + ZYGOTES_MOST * ZYGOTE * budgets.zygotes
            + budgets.seeds
            + budgets.fitting * budgets.instance
    }

    #[test]
    fn the_worst_case_fits_any_limit_that_is_taken() {
        for memory in [1, 16, 32, 64, 128, 500, 1024] {
            for limit in (32..512).chain((512..9000).step_by(97)) {
                for processors in [None, Some(1), Some(50), Some(1000), Some(64_000)] {
                    for (has_outbound, stores) in [(false, 1), (true, 3)] {
                        let asked = Asked {
                            has_outbound,
                            stores,
                            ..Asked::of_function(memory * MIB)
                        };
                        let limits = limits(limit, processors);
                        match asked.budgets(limits, MACHINE) {
                            Ok(budgets) => {
                                let worst = worst(&asked, &budgets);
                                assert!(worst <= limit * MIB, "{limit} {memory} {budgets:?}");
                                assert!(budgets.fitting >= 1 && budgets.seeds >= SEEDS_LEAST);
                                assert!(budgets.parked <= budgets.fitting);
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
    fn what_an_error_says_is_needed_suffices_and_no_less_does() {
        for memory in [1, 16, 128, 1024] {
            let asked = Asked::of_function(memory * MIB);
            let small = asked.budgets(limits(33, None), MACHINE).unwrap_err();
            let needed = small.needed / MIB;
            assert!(asked.budgets(limits(needed, None), MACHINE).is_ok());
            assert!(asked.budgets(limits(needed - 1, None), MACHINE).is_err());
            let text = small.to_string();
            assert!(text.contains(&format!("a limit of {needed} MiB")), "{text}");
            assert!(text.contains(&format!("with {memory} MiB")), "{text}");
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
            let asked = Asked::of_function(memory * MIB);
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
    fn without_a_limit_it_is_the_machines_less_an_eighth() {
        let asked = Asked::of_function(128 * MIB);
        let none = asked.budgets(GroupLimits::default(), MACHINE).unwrap();
        assert_eq!(none.limit, 28 << 30);
        assert_eq!((none.instances, none.connections), (160, 4096));
        // A limit above the machine is none.
        let above = asked.budgets(limits(1 << 20, Some(900_000)), MACHINE);
        assert_eq!(above.unwrap(), none);
    }

    #[test]
    fn requests_to_others_count_with_the_instances_that_make_them() {
        let without = Asked::of_function(32 * MIB);
        let asked = Asked {
            has_outbound: true,
            ..without.clone()
        };
        for (limit, fitting) in [(256, 1), (1024, 9), (16384, 180)] {
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
    fn what_is_asked_for_is_had_and_counts() {
        let asked = Asked {
            instances: Some(2),
            parked: Some(1),
            zygotes: Some(3),
            connections: Some(100),
            seeds: Some(200 * MIB),
            undelivered: Some(10 * MIB),
            store_bytes: Some(5 * MIB),
            ..Asked::of_function(64 * MIB)
        };
        let budgets = asked.budgets(limits(1024, None), MACHINE).unwrap();
        assert_eq!((budgets.instances, budgets.parked), (2, 1));
        assert_eq!((budgets.zygotes, budgets.connections), (3, 100));
        assert_eq!(budgets.seeds, 200 * MIB);
        assert_eq!((budgets.fitting, budgets.admitted), (2, 2 * 80 * MIB));
        assert!(worst(&asked, &budgets) <= 1024 * MIB);
        // More at once than fit is for a group to allow: it is not admitted without, and the node
        // has its part of them.
        for more in [20, 1000] {
            let many = Asked {
                instances: Some(more),
                ..asked.clone()
            };
            let budgets = many.budgets(limits(1024, None), MACHINE).unwrap();
            assert_eq!(budgets.instances, more);
            assert!(worst(&many, &budgets) <= 1024 * MIB, "{budgets:?}");
            let fit = Asked {
                instances: Some(budgets.fitting),
                ..asked.clone()
            };
            let fit = fit.budgets(limits(1024, None), MACHINE).unwrap();
            let kept = (more - budgets.fitting) * IN_NODE;
            let left = fit.instance_memory.saturating_sub(kept);
            assert_eq!(budgets.instance_memory, left.max(budgets.instance));
        }
        let own = Asked {
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
