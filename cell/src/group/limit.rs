//! What the control groups that a process is in leave it of memory (cgroups(7), both
//! versions).

use std::fs;
use std::path::Path;

use super::place::folder;

/// Files by which a group limits the memory of what is in it; the first is that of
/// version 1.
const FILES: [&str; 3] = ["memory.limit_in_bytes", "memory.max", "memory.high"];

/// The smallest limit of memory, in bytes, of all groups that this process is in and
/// those above them; `None` when there is none.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    smallest(&own, &mounts)
}

fn smallest(own: &str, mounts: &str) -> Option<u64> {
    let folders = [Some("memory"), None].map(|controller| folder(own, mounts, controller));
    // A folder that is not a group's has no such file, so that nothing is read beyond
    // where the hierarchy is mounted.
    folders
        .iter()
        .flatten()
        .flat_map(|folder| folder.ancestors())
        .flat_map(|folder| FILES.map(|file| limit(folder, file)))
        .flatten()
        .min()
}

/// What a file says, if that is a limit: version 2 writes `max` where there is none,
/// version 1 the largest number of pages.
fn limit(folder: &Path, file: &str) -> Option<u64> {
    /// More than any machine has.
    const NONE: u64 = 1 << 62;
    let text = fs::read_to_string(folder.join(file)).ok()?;
    text.trim().parse().ok().filter(|limit| *limit < NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of groups, as the system would mount it.
    fn told(version: u8, groups: &[(&str, &str, &str)]) -> Option<u64> {
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
                "4:memory:/a/b\n0::/a/b\n".to_owned(),
                format!("33 30 0:29 / {point} rw - cgroup cgroup rw,memory\n"),
            ),
            _ => (
                "0::/a/b\n".to_owned(),
                format!("33 30 0:29 / {point} rw - cgroup2 cgroup2 rw\n"),
            ),
        };
        let told = smallest(&own, &mounts);
        fs::remove_dir_all(&root).unwrap();
        told
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let file = "memory.limit_in_bytes";
        let none = "9223372036854771712\n";
        let groups = [("a/b", file, none), ("a", file, "1000\n"), ("", file, none)];
        assert_eq!(told(1, &groups), Some(1000));
        let own = [("a/b", file, "900\n"), ("a", file, "1000\n")];
        assert_eq!(told(1, &own), Some(900));
        let file = "memory.max";
        let groups = [("a/b", file, "max\n"), ("a", file, "2000\n")];
        assert_eq!(told(2, &groups), Some(2000));
        // One that slows down what is over it leaves no more than that, either.
        let high = [("a/b", "memory.high", "700\n"), ("a", file, "2000\n")];
        assert_eq!(told(2, &high), Some(700));
    }

    #[test]
    fn no_limit_is_none() {
        let none = [("a/b", "memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(told(1, &none), None);
        let max = [("a/b", "memory.max", "max\n"), ("a", "memory.high", "max")];
        assert_eq!(told(2, &max), None);
        // Another group's limit is not ours.
        assert_eq!(told(2, &[("a/c", "memory.max", "5\n")]), None);
        assert_eq!(told(2, &[("a/b", "memory.max", "nonsense")]), None);
        assert_eq!(smallest("", ""), None);
    }
}
