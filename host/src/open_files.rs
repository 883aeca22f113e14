//! How a node divides the open files of its process: a pure function from limits to counts.
//!
//! Each connection, instance and seed takes some files. If everything that the limits allow does
//! not fit, the limits are lowered at the start. So no client and no function takes the last file
//! from another (docs/decisions/0039-open-files.md). Files that are not counted here are subject to
//! the watermark of [`faasw_pool::open_files`].

use std::fmt;

use faasw_pool::{
    Finding, FindingState, PoolOptions,
    open_files::{self, DESCRIPTORS_PER_SEED, RESERVED},
};

use crate::limits::Limits;

/// Files of the node itself: standard streams, the runtime, registry, stores, spawners, listeners,
/// and the seeds that all functions share. 30 were counted after the start of a node.
const NODE: u64 = 64;

/// Sockets to egress processes: one for each of at most 128 workers, and one for the connector.
const EGRESS: u64 = 129;

/// Maximum number of connections to metrics and probes, if they have a listener.
pub(crate) const SCRAPERS: u64 = 64;

/// Additional files of a microVM that is not warm: the userfaultfd of its page faults.
const AT_WORK: u64 = 1;

/// Maximum number of zygotes while they are needed, as a multiple of `zygotes`.
const ZYGOTES_MOST: u64 = 8;

/// Divisor of the limit: the number of control groups that the spawner keeps. Its process has the
/// same limit.
const GROUPS_PART: u64 = 16;

/// The shares of clients, instances and seeds, in eighths, if the files do not suffice. What one
/// does not need goes to the others.
const EIGHTHS: [u64; 3] = [4, 3, 1];

/// Minimum number of connections, instances and seeds, however low the limit is.
const FEWEST: usize = 2;

/// The counts that a limit of open files allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    /// Maximum number of open files of the process.
    pub(crate) limit: u64,
    /// Connections of the gateway, and of the listener that redirects to it.
    pub(crate) connections: usize,
    pub(crate) connections_per_address: usize,
    /// Maximum number of concurrent requests.
    pub(crate) instances: usize,
    pub(crate) warm: usize,
    pub(crate) zygotes: usize,
    pub(crate) groups: usize,
    /// Maximum number of seeds in memory.
    pub(crate) seeds: usize,
    /// Whether any count is below the configured one.
    pub(crate) is_lowered: bool,
}

/// Divides `all` by [`EIGHTHS`]. No part exceeds what is `wanted` of it, and the rest goes to the
/// others.
fn divide(all: u64, wanted: [u64; 3]) -> [u64; 3] {
    let mut given = [0; 3];
    let mut left = all;
    let mut parts: u64 = EIGHTHS.iter().sum();
    // The part that wants the least in relation to its share comes first, so that its rest is
    // known.
    let mut order = [0, 1, 2];
    order.sort_by(|one, other| {
        let of = |place: &usize| {
            let wanted = wanted.get(*place).copied().unwrap_or_default();
            let part = EIGHTHS.get(*place).copied().unwrap_or(1);
            u128::from(wanted) * 8 / u128::from(part)
        };
        of(one).cmp(&of(other))
    });
    for place in order {
        let (Some(wanted), Some(part), Some(given)) =
            (wanted.get(place), EIGHTHS.get(place), given.get_mut(place))
        else {
            continue;
        };
        *given = (*wanted).min(left.saturating_mul(*part) / parts);
        left -= *given;
        parts -= part;
    }
    given
}

impl OpenFiles {
    /// Divides `limit` files, of which `used` are already open and not the node's, among the
    /// clients of `listeners` listeners, instances and seeds.
    pub(crate) fn new(
        limits: &Limits,
        pool: &PoolOptions,
        listeners: u64,
        (limit, used): (u64, u64),
    ) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let each = pool.confinement.descriptors();
        let (instances, warm) = (pool.max_instances as u64, pool.max_warm as u64);
        let zygote = ZYGOTES_MOST * (each + AT_WORK);
        let zygotes = (pool.zygotes as u64).saturating_mul(zygote);
        // A sixteenth of the connections may be evicted and not closed yet.
        let of_clients = (limits.connections as u64).saturating_mul(listeners);
        let of_clients = of_clients.saturating_add(of_clients / 16);
        let of_instances = (instances.saturating_mul(each + AT_WORK))
            .saturating_add(warm.saturating_mul(each))
            .saturating_add(zygotes);
        let fixed = used + NODE + EGRESS + SCRAPERS + RESERVED;
        let available = limit.saturating_sub(fixed);
        let [for_clients, for_instances, for_seeds] =
            divide(available, [of_clients, of_instances, u64::MAX]);

        let lowered = |asked: usize, fits: u64| asked.min(count(fits).max(FEWEST));
        let fits = for_clients / listeners.max(1) * 16 / 17;
        let connections = if for_clients < of_clients {
            lowered(limits.connections, fits)
        } else {
            limits.connections
        };
        // The ratio of the limit per address to all connections stays the same.
        let of_one = limits.connections_per_address as u64 * connections as u64;
        let of_one = of_one / (limits.connections as u64).max(1);
        let connections_per_address = if connections < limits.connections {
            lowered(limits.connections_per_address, of_one)
        } else {
            limits.connections_per_address
        };
        let (mut instances, mut warm, mut zygotes) =
            (pool.max_instances, pool.max_warm, pool.zygotes);
        if for_instances < of_instances {
            zygotes = zygotes.min(count(for_instances / 8 / zygote).max(1));
            let rest = for_instances.saturating_sub(zygotes as u64 * zygote);
            let half = lowered(warm, rest / 2 / each);
            let left = rest.saturating_sub(half as u64 * each);
            instances = lowered(instances, left / (each + AT_WORK));
            let left = rest.saturating_sub(instances as u64 * (each + AT_WORK));
            warm = lowered(warm, left / each);
        }
        let is_lowered = for_clients < of_clients || for_instances < of_instances;
        let groups = if is_lowered {
            pool.groups_kept.min(count(limit / GROUPS_PART))
        } else {
            pool.groups_kept
        };
        Self {
            limit,
            connections,
            connections_per_address,
            instances,
            warm,
            zygotes,
            groups,
            seeds: pool
                .max_seeds
                .min(count(for_seeds / DESCRIPTORS_PER_SEED).max(FEWEST)),
            is_lowered,
        }
    }
}

impl fmt::Display for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections ({} of one address), {} requests at once, {} warm instances, \
             {} seeds in memory",
            self.connections, self.connections_per_address, self.instances, self.warm, self.seeds
        )
    }
}

/// Divides the open files of this process, before a node opens any.
pub(crate) fn of_this_process(limits: &Limits, pool: &PoolOptions, listeners: u64) -> OpenFiles {
    let lowest = open_files::lowest_free().unwrap_or(0);
    let used = u64::try_from(lowest).unwrap_or(0);
    let limit = (open_files::limit(), used);
    OpenFiles::new(limits, pool, listeners, limit)
}

/// Reports what the default limits come to with the hard limit of open files, to which the program
/// raises its soft limit.
#[must_use]
pub fn open_files_finding() -> Finding {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    of_limit(hard)
}

fn of_limit(hard: Option<u64>) -> Finding {
    let (limits, pool) = (Limits::default(), PoolOptions::default());
    let limit = hard.unwrap_or(u64::MAX);
    let files = OpenFiles::new(&limits, &pool, 1, (limit, 0));
    let most = match hard {
        Some(hard) => format!("a node may have {hard}"),
        None => "there is no limit".to_owned(),
    };
    let (state, detail) = if files.is_lowered {
        (
            FindingState::Poor,
            format!(
                "{most}, which lowers its default limits to {files}; a higher hard limit \
                 (ulimit -Hn, LimitNOFILE of systemd) allows more"
            ),
        )
    } else {
        (
            FindingState::Good,
            format!("{most}: enough for its default limits"),
        )
    };
    Finding {
        what: "open files",
        state,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use faasw_pool::Confinement;

    use super::*;

    fn of(limit: u64) -> OpenFiles {
        let (limits, pool) = (Limits::default(), PoolOptions::default());
        OpenFiles::new(&limits, &pool, 1, (limit, 3))
    }

    /// Returns the files that everything takes in the worst case.
    fn worst(files: &OpenFiles, each: u64) -> u64 {
        let connections = files.connections as u64;
        3 + NODE
            + EGRESS
            + RESERVED
            + SCRAPERS
            + connections
            + connections / 16
            + files.instances as u64 * (each + AT_WORK)
            + files.warm as u64 * each
            + files.zygotes as u64 * ZYGOTES_MOST * (each + AT_WORK)
            + files.seeds as u64 * DESCRIPTORS_PER_SEED
    }

    #[test]
    fn everything_allowed_fits_the_open_file_limit() {
        // From this limit on, no count has to be the minimum.
        for (confinement, least) in [(Confinement::Jailed, 512), (Confinement::InProcess, 1280)] {
            let each = confinement.descriptors();
            let pool = PoolOptions {
                confinement,
                ..PoolOptions::default()
            };
            for limit in (least..20_000).step_by(37) {
                let files = OpenFiles::new(&Limits::default(), &pool, 1, (limit, 3));
                let worst = worst(&files, each);
                assert!(worst <= limit, "{worst} of {limit}: {files:?}");
                assert!(files.connections_per_address <= files.connections / 4);
            }
        }
    }

    #[test]
    fn usual_limits_lower_nothing_and_low_ones_leave_some_of_each() {
        let many = of(65_536);
        let pool = PoolOptions::default();
        assert!(!many.is_lowered);
        assert_eq!(
            (many.connections, many.connections_per_address),
            (4096, 1024)
        );
        assert_eq!(
            (many.instances, many.warm),
            (pool.max_instances, pool.max_warm)
        );
        assert!(many.seeds > 20_000);
        let few = of(1024);
        assert!(few.is_lowered);
        assert!(
            few.connections > 300 && few.connections_per_address > 75,
            "{few:?}"
        );
        assert!(
            few.instances > 25 && few.warm > 25 && few.seeds > 40,
            "{few:?}"
        );
        let none = of(10);
        assert!(none.instances >= FEWEST && none.connections >= FEWEST && none.zygotes == 1);
    }

    #[test]
    fn requested_counts_are_never_raised_and_unused_parts_are_shared() {
        let limits = Limits {
            connections: 50,
            connections_per_address: 50,
            ..Limits::default()
        };
        let pool = PoolOptions {
            max_seeds: 7,
            max_warm: 0,
            ..PoolOptions::default()
        };
        let files = OpenFiles::new(&limits, &pool, 1, (1024, 3));
        assert_eq!((files.connections, files.connections_per_address), (50, 50));
        assert_eq!((files.warm, files.seeds), (0, 7));
        assert!(files.instances > of(1024).instances);
        // A program that serves its clients itself.
        let alone = OpenFiles::new(&Limits::default(), &PoolOptions::default(), 0, (1024, 3));
        assert_eq!(alone.connections, 4096);
        assert!(alone.instances > of(1024).instances);
    }

    #[test]
    fn the_doctor_reports_the_effect_of_a_low_open_file_limit() {
        assert_eq!(of_limit(None).state, FindingState::Good);
        assert_eq!(of_limit(Some(1 << 20)).state, FindingState::Good);
        let few = of_limit(Some(1024));
        assert_eq!(few.state, FindingState::Poor);
        let says = ["1024", "LimitNOFILE", "connections", "requests at once"];
        assert!(
            says.iter().all(|word| few.detail.contains(word)),
            "{}",
            few.detail
        );
    }
}
