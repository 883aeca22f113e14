//! The limits of memory and processors in the control groups of a process (cgroups(7), both
//! versions, also if a container sees its own group as the root).

use std::fs;
use std::path::{Path, PathBuf};

use super::location::{folder, mounted};

/// Files by which a group limits the memory of its processes; the first is that of version 1.
const FILES: [&str; 3] = ["memory.limit_in_bytes", "memory.max", "memory.high"];

/// Files with a group's current use of memory, and the fields for those pages of files in it that
/// the kernel drops when it needs memory.
const USED: [(&str, [&str; 2]); 2] = [
    (
        "memory.usage_in_bytes",
        ["total_inactive_file", "total_active_file"],
    ),
    ("memory.current", ["inactive_file", "active_file"]),
];

/// The limits of the groups of a process, including the groups above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes of memory; `None` without a limit.
    pub memory: Option<u64>,
    /// Thousandths of a processor; `None` without a limit.
    pub processors: Option<u64>,
}

/// Returns the limits of the groups of this process that it can see.
#[must_use]
pub fn group_limits() -> GroupLimits {
    match own() {
        Some((own, mounts)) => GroupLimits {
            memory: smallest(&own, &mounts),
            processors: fewest(&own, &mounts),
        },
        None => GroupLimits::default(),
    }
}

/// Returns the smallest memory limit, in bytes, of all groups of this process and those above them;
/// `None` if there is none.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    group_limits().memory
}

/// Returns the bytes of memory that are charged to the group that limits this process, without
/// pages of files that the kernel drops when it needs memory. `None` if no group limits it, because
/// the memory of a group without a limit may belong to other programs; also `None` if it is not
/// known.
#[must_use]
pub fn memory_used() -> Option<u64> {
    let (own, mounts) = own()?;
    used(&own, &mounts)
}

fn used(own: &str, mounts: &str) -> Option<u64> {
    let limiting = folders(own, mounts, "memory").filter_map(|folder| {
        let limits = FILES.iter().filter_map(|file| limit(&folder, file));
        Some((limits.min()?, folder))
    });
    let (_, folder) = limiting.min_by_key(|(limit, _)| *limit)?;
    USED.iter().find_map(|(file, dropped)| {
        let used: u64 = read(&folder.join(file))?.trim().parse().ok()?;
        let stat = read(&folder.join("memory.stat")).unwrap_or_default();
        let of = |name: &str| -> u64 {
            let line = stat
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        Some(used.saturating_sub(dropped.iter().map(|name| of(name)).sum()))
    })
}

fn own() -> Option<(String, String)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    Some((own, mounts))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Returns the folders of this process's groups and of those above them, in the hierarchy of a
/// controller and in the unified one. In a container, the path of its group is possibly not below
/// the mounted folder: then the mounted folder is that group, or one above it.
fn folders<'a>(
    own: &str,
    mounts: &'a str,
    controller: &'a str,
) -> impl Iterator<Item = PathBuf> + use<'a> {
    let found = [Some(controller), None].map(|controller| {
        folder(own, mounts, controller).or_else(|| {
            let mut all = mounted(mounts, controller);
            all.next().map(|(_, point)| PathBuf::from(point))
        })
    });
    // A folder that is not a group's has no such files, so nothing is read beyond the mount point
    // of the hierarchy.
    let ancestors =
        |folder: PathBuf| -> Vec<_> { folder.ancestors().map(Path::to_owned).collect() };
    found.into_iter().flatten().flat_map(ancestors)
}

fn smallest(own: &str, mounts: &str) -> Option<u64> {
    folders(own, mounts, "memory")
        .flat_map(|folder| FILES.map(|file| limit(&folder, file)))
        .flatten()
        .min()
}

/// Reads the limit in a file. Without a limit, version 2 writes `max`, and version 1 the largest
/// number of pages.
fn limit(folder: &Path, file: &str) -> Option<u64> {
    /// More than any machine has.
    const NONE: u64 = 1 << 62;
    let text = read(&folder.join(file))?;
    text.trim().parse().ok().filter(|limit| *limit < NONE)
}

fn fewest(own: &str, mounts: &str) -> Option<u64> {
    folders(own, mounts, "cpu")
        .filter_map(|folder| quota(&folder))
        .min()
}

/// Returns the thousandths of a processor that a group has in each period. Version 2 writes quota
/// and period to one file. Version 1 has a file for each, and -1 if there is no quota.
fn quota(folder: &Path) -> Option<u64> {
    let (quota, period) = match read(&folder.join("cpu.max")) {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?)
        }
        None => {
            let number = |file| read(&folder.join(file))?.trim().parse::<u64>().ok();
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    };
    // A value that is rounded to 0 would be taken for no processors at all.
    let thousandths = quota.checked_mul(1000)?.checked_div(period)?;
    Some(thousandths.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder of groups, mounted as the kernel would mount it, and returns the result of
    /// `read`.
    fn result_for_groups<T>(
        version: u8,
        groups: &[(&str, &str, &str)],
        read: impl Fn(&str, &str) -> T,
    ) -> T {
        let root = std::env::temp_dir().join(format!(
            "faasw-limit-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        for (group, file, text) in groups {
            let folder = root.join(group);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        }
        let point = root.display();
        let (own, mounts) = match version {
            1 => (
                "4:memory:/a/b\n2:cpu,cpuacct:/a/b\n0::/a/b\n".to_owned(),
                format!(
                    "33 30 0:29 / {point} rw - cgroup cgroup rw,memory\n\
                     34 30 0:30 / {point} rw - cgroup cgroup rw,cpu,cpuacct\n"
                ),
            ),
            // A container whose root is its own group; its path of that group is another one.
            3 => (
                "0::/../b\n".to_owned(),
                format!("33 30 0:29 /elsewhere {point}/a/b rw - cgroup2 cgroup2 rw\n"),
            ),
            _ => (
                "0::/a/b\n".to_owned(),
                format!("33 30 0:29 / {point} rw - cgroup2 cgroup2 rw\n"),
            ),
        };
        let result = read(&own, &mounts);
        fs::remove_dir_all(&root).unwrap();
        result
    }

    fn memory_of(version: u8, groups: &[(&str, &str, &str)]) -> Option<u64> {
        result_for_groups(version, groups, smallest)
    }

    #[test]
    fn memory_use_is_read_from_the_limiting_group() {
        let of = |version, groups: &[_]| result_for_groups(version, groups, used);
        let stat = (
            "a",
            "memory.stat",
            "anon 1\ninactive_file 30\nactive_file 10\n",
        );
        let (here, above) = (
            ("a/b", "memory.current", "7\n"),
            ("a", "memory.current", "100\n"),
        );
        let limits = |own, above| [("a/b", "memory.max", own), ("a", "memory.max", above)];
        let [own, none] = limits("50\n", "max\n");
        assert_eq!(of(2, &[here, above, stat, own, none]), Some(7));
        let [none, other] = limits("max\n", "90\n");
        assert_eq!(of(2, &[here, above, stat, none, other]), Some(60));
        let [own, other] = limits("max\n", "max\n");
        assert_eq!(of(2, &[here, above, stat, own, other]), None);
        let file = "memory.usage_in_bytes";
        let unlimited = ("a/b", "memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of(1, &[("a/b", file, "7\n"), unlimited]), None);
        let limit = ("a", "memory.limit_in_bytes", "90\n");
        let v1 = ("a", "memory.stat", "total_inactive_file 5\n");
        assert_eq!(
            of(1, &[("a", file, "70\n"), v1, limit, unlimited]),
            Some(65)
        );
    }

    #[test]
    fn the_smallest_processor_quota_of_all_ancestors_counts() {
        let quota = |version, groups: &[_]| result_for_groups(version, groups, fewest);
        let max = "cpu.max";
        assert_eq!(quota(2, &[("a/b", max, "max 100000\n")]), None);
        assert_eq!(quota(2, &[("a/b", max, "150000 100000\n")]), Some(1500));
        let groups = [("a/b", max, "max 100000\n"), ("a", max, "5000 100000\n")];
        assert_eq!(quota(2, &groups), Some(50));
        assert_eq!(quota(2, &[("a/b", max, "1 1000000\n")]), Some(1));
        for nonsense in ["", "max", "1", "1 0", "x 5"] {
            assert_eq!(quota(2, &[("a/b", max, nonsense)]), None, "{nonsense}");
        }
        let (of, per) = ("cpu.cfs_quota_us", "cpu.cfs_period_us");
        let none = [("a/b", of, "-1\n"), ("a/b", per, "100000\n")];
        assert_eq!(quota(1, &none), None);
        let half = [("a/b", of, "50000\n"), ("a/b", per, "100000\n")];
        assert_eq!(quota(1, &half), Some(500));
    }

    #[test]
    fn a_containers_mount_is_its_group_whatever_its_path() {
        let file = "memory.max";
        assert_eq!(memory_of(3, &[("a/b", file, "900\n")]), Some(900));
        assert_eq!(memory_of(3, &[("a/b", file, "max\n")]), None);
        let quota = result_for_groups(3, &[("a/b", "cpu.max", "20000 100000")], fewest);
        assert_eq!(quota, Some(200));
    }

    #[test]
    fn memory_used_is_less_than_the_machine_has() {
        if let Some(used) = memory_used() {
            assert!((1 << 16..1 << 50).contains(&used), "{used}");
        }
    }

    #[test]
    fn the_smallest_memory_limit_of_all_ancestors_counts() {
        let file = "memory.limit_in_bytes";
        let none = "9223372036854771712\n";
        let groups = [("a/b", file, none), ("a", file, "1000\n"), ("", file, none)];
        assert_eq!(memory_of(1, &groups), Some(1000));
        let own = [("a/b", file, "900\n"), ("a", file, "1000\n")];
        assert_eq!(memory_of(1, &own), Some(900));
        let file = "memory.max";
        let groups = [("a/b", file, "max\n"), ("a", file, "2000\n")];
        assert_eq!(memory_of(2, &groups), Some(2000));
        // A limit that only slows down also leaves no more than that.
        let high = [("a/b", "memory.high", "700\n"), ("a", file, "2000\n")];
        assert_eq!(memory_of(2, &high), Some(700));
    }

    #[test]
    fn no_limit_is_none() {
        let none = [("a/b", "memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(memory_of(1, &none), None);
        let max = [("a/b", "memory.max", "max\n"), ("a", "memory.high", "max")];
        assert_eq!(memory_of(2, &max), None);
        // The limit of a different group does not apply.
        assert_eq!(memory_of(2, &[("a/c", "memory.max", "5\n")]), None);
        assert_eq!(memory_of(2, &[("a/b", "memory.max", "nonsense")]), None);
        assert_eq!(smallest("", ""), None);
    }
}
