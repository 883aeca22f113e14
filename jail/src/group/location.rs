//! Where this host lets a process make control groups (cgroups(7)).

use std::fs;
use std::path::{Path, PathBuf};

/// The version of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy for each controller.
    One,
    /// cgroup v2: a single hierarchy for all controllers.
    Two,
}

impl CgroupVersion {
    pub(super) fn memory(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// Returns the file that counts how often the kernel killed a process of a group because of its
    /// memory limit, in a line that begins with [`KILLS`].
    pub(super) fn events(self) -> &'static str {
        match self {
            Self::One => "memory.oom_control",
            Self::Two => "memory.events",
        }
    }

    pub(super) fn usage(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }
}

/// The field of [`CgroupVersion::events`] with the count.
pub(super) const KILLS: &str = "oom_kill ";

/// Where groups can be made: the folders of this process's own group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLocation {
    /// The interface.
    pub version: CgroupVersion,
    /// A folder for each hierarchy.
    pub(super) folders: Vec<PathBuf>,
}

/// The controllers that are used. Without the first two there are no groups.
pub(super) const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
pub(super) const NEEDED: usize = 2;

impl CgroupLocation {
    /// Finds the place for this process's groups.
    ///
    /// # Errors
    /// Returns the reason if there is none, for people to read.
    pub fn find() -> Result<Self, String> {
        let own = read("/proc/self/cgroup")?;
        let mounts = read("/proc/self/mountinfo")?;
        Self::read(&own, &mounts).ok_or_else(|| {
            "no control groups with the controllers memory and pids are mounted".to_owned()
        })
    }

    fn read(own: &str, mounts: &str) -> Option<Self> {
        let unified = folder(own, mounts, None).filter(|folder| {
            let offered = fs::read_to_string(folder.join("cgroup.controllers"));
            let offered = offered.unwrap_or_default();
            let mut needed = CONTROLLERS.iter().take(NEEDED);
            needed.all(|name| offered.split_whitespace().any(|other| other == *name))
        });
        if let Some(folder) = unified {
            return Some(Self {
                version: CgroupVersion::Two,
                folders: vec![folder],
            });
        }
        let folders: Vec<_> = CONTROLLERS
            .iter()
            .map_while(|controller| folder(own, mounts, Some(controller)))
            .collect();
        (folders.len() >= NEEDED).then_some(Self {
            version: CgroupVersion::One,
            folders,
        })
    }
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// Returns the folder of this process's group in the hierarchy of a controller, or in the unified
/// one.
pub(super) fn folder(own: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let group = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match controller {
            None => controllers.is_empty(),
            Some(wanted) => controllers.split(',').any(|name| name == wanted),
        };
        is_it.then_some(path)
    })?;
    mounted(mounts, controller).find_map(|(root, point)| {
        let below = Path::new(group).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

/// Returns where a controller's hierarchy, or the unified one, is mounted: the group that is the
/// root there, and the folder.
pub(super) fn mounted<'a>(
    mounts: &'a str,
    controller: Option<&str>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    mounts.lines().filter_map(move |line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ');
        let (root, point) = (before.nth(3)?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let is_it = match controller {
            None => kind == "cgroup2",
            Some(wanted) => kind == "cgroup" && options.split(',').any(|name| name == wanted),
        };
        is_it.then_some((root, point))
    })
}

/// Whether a group of version 2 has a limit in any of these files.
pub(super) fn has_limit(folder: &Path, files: &[&str]) -> bool {
    files
        .iter()
        .filter_map(|file| fs::read_to_string(folder.join(file)).ok())
        .any(|limit| !limit.trim_start().starts_with("max"))
}

/// Whether a group of version 2 has any limit.
pub(super) fn has_limits(folder: &Path) -> bool {
    has_limit(
        folder,
        &["memory.max", "memory.high", "pids.max", "cpu.max"],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "9:name=systemd:/\n8:pids:/a\n4:memory:/box/b\n2:cpu,cpuacct:/\n0::/u\n";
    const MOUNTS: &str = "\
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
33 30 0:29 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn group_folders_are_found_in_proc_files() {
        let of = |controller| folder(HYBRID, MOUNTS, controller);
        assert_eq!(
            of(Some("memory")).unwrap(),
            Path::new("/sys/fs/cgroup/memory/b")
        );
        assert_eq!(
            of(Some("pids")).unwrap(),
            Path::new("/sys/fs/cgroup/pids/a")
        );
        assert_eq!(of(Some("cpu")).unwrap(), Path::new("/sys/fs/cgroup/cpu"));
        assert_eq!(of(None).unwrap(), Path::new("/sys/fs/cgroup/unified/u"));
        assert_eq!(of(Some("rdma")), None);
        // The unified hierarchy has no controllers there, so the others are used.
        let place = CgroupLocation::read(HYBRID, MOUNTS).unwrap();
        assert_eq!(
            (place.version, place.folders.len()),
            (CgroupVersion::One, 3)
        );
        assert_eq!(CgroupLocation::read("0::/u\n", MOUNTS), None);
    }

    #[test]
    fn groups_with_limits_are_recognised() {
        let folder = std::env::temp_dir().join(format!("faasw-limits-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let mut found = vec![has_limits(&folder)];
        for (file, text) in [
            ("memory.max", "max\n"),
            ("cpu.max", "max 100000\n"),
            ("pids.max", "77\n"),
        ] {
            fs::write(folder.join(file), text).unwrap();
            found.push(has_limits(&folder));
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [false, false, false, true]);
    }
}
