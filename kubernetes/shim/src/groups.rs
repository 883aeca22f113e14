//! Control groups of the host, and a container's own one, which its node may divide among its microVMs.
//!
//! With version 2, where a part of the hierarchy can be given away (cgroups(7), "Delegation of a hierarchy"), runc gives a
//! container its group only where systemd makes groups. So this is a hook of the container's, which does it in either case.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::chown,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;

use crate::error::Error;

/// Where the system's groups are.
pub const GROUPS: &str = "/sys/fs/cgroup";

/// What this program is called where it gives a container's group to the user that follows.
pub const GIVING: &str = "faasw-groups";

/// What belongs to whom a group is given to: never a file with its limits.
const GIVEN: [&str; 3] = ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];

/// What holds whoever has it to a number of groups below: all of a host have 65,535 with memory's controller.
const BOUNDS: [(&str, &str); 2] = [
    ("cgroup.max.descendants", "2048"),
    ("cgroup.max.depth", "3"),
];

/// Bytes of what the runtime says of a container at most.
const STATE_MAX: u64 = 1 << 20;

/// Whether all controllers of this host are in one hierarchy (version 2).
#[must_use]
pub fn are_unified() -> bool {
    Path::new(GROUPS).join("cgroup.controllers").exists()
}

/// Gives the group of the container that standard input tells of, as runc tells its hooks, to a user.
///
/// # Errors
/// Why it is not given: its node can do without.
pub fn give(arguments: &[OsString]) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct State {
        pid: u32,
    }
    let user = arguments
        .first()
        .and_then(|user| user.to_str()?.parse().ok());
    let user = user.ok_or_else(|| Error::Refused("a group is to be given to nobody".into()))?;
    let state = io::stdin().lock().take(STATE_MAX);
    let state: State = serde_json::from_reader(state)
        .map_err(|error| Error::Refused(format!("what the runtime says: {error}")))?;
    let file = format!("/proc/{}/cgroup", state.pid);
    let told = fs::read_to_string(&file).map_err(|error| Error::io(file, error))?;
    let group = below(Path::new(GROUPS), &told)
        .ok_or_else(|| Error::Host("the container has no group of its own".into()))?;
    divide(&group, user).map_err(|error| Error::io(group.display(), error))
}

/// The folder of a group of version 2, as the system tells a process's: never that of all.
fn below(groups: &Path, told: &str) -> Option<PathBuf> {
    let path = told.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = Path::new(path);
    let is_plain = |part| matches!(part, Component::Normal(_));
    let is_below = path.components().all(is_plain) && path.components().next().is_some();
    is_below.then(|| groups.join(path))
}

fn divide(group: &Path, user: u32) -> io::Result<()> {
    for (file, most) in BOUNDS {
        let mut file = OpenOptions::new().write(true).open(group.join(file))?;
        file.write_all(most.as_bytes())?;
    }
    for file in GIVEN {
        chown(group.join(file), Some(user), None)?;
    }
    chown(group, Some(user), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_containers_group_is_below_the_root_and_nothing_else() {
        let at = |told| below(Path::new("/g"), told);
        let own = at("1:name=systemd:/a\n0::/kubepods/pod1/c1\n");
        assert_eq!(own.unwrap(), Path::new("/g/kubepods/pod1/c1"));
        for wrong in [
            "",
            "0::/",
            "0::",
            "0::/../a",
            "0::/a/../..",
            "0:://a",
            "1:memory:/a",
        ] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_given_is_the_group_and_not_its_limits() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED (not root)");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path();
        let of = |file: &str| fs::metadata(group.join(file)).unwrap().uid();
        // What limits how it is divided comes first.
        assert!(divide(group, 1000).is_err() && of("") == 0);
        let limits = ["memory.max", "cgroup.max.descendants", "cgroup.max.depth"];
        for file in GIVEN.into_iter().chain(limits) {
            fs::write(group.join(file), "").unwrap();
        }
        divide(group, 1000).unwrap();
        assert!(GIVEN.into_iter().chain([""]).all(|file| of(file) == 1000));
        assert!(limits.into_iter().all(|file| of(file) == 0));
        let most = fs::read_to_string(group.join("cgroup.max.descendants"));
        assert_eq!(most.unwrap(), "2048");
    }
}
