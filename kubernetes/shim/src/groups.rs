//! Control groups of the host, and the delegation of a container's group to its node, which divides
//! it among its microVMs.
//!
//! Version 2 lets a part of the hierarchy be delegated (cgroups(7), "Delegation of a hierarchy").
//! runc delegates a container's group only if systemd makes the groups. Therefore a hook of the
//! container runs this program, which delegates the group in both cases.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::chown,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;

use crate::error::Error;

/// The mount point of the control group hierarchies.
pub const GROUPS: &str = "/sys/fs/cgroup";

/// The name (`argv[0]`) under which this program delegates a container's group to a user.
pub const HOOK_NAME: &str = "faasw-groups";

/// Files whose owner becomes that user. None of them holds a limit of the group.
const DELEGATED: [&str; 3] = ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];

/// Files that runc also gives away if systemd makes the groups. Their values are up to kubelet and
/// the host, so they go back to root.
const KEPT: [&str; 2] = ["memory.oom.group", "memory.reclaim"];

/// Limits on the groups below a delegated one, unless stricter limits are set. A host has at most
/// 65,535 groups with the memory controller. A node has one for each microVM, and 256 for the next
/// ones.
const BOUNDS: [(&str, u64); 2] = [("cgroup.max.descendants", 1024), ("cgroup.max.depth", 3)];

/// Maximum size of the container state that the runtime passes to the hook, in bytes.
const STATE_MAX: u64 = 1 << 20;

/// Returns whether all controllers of this host are in one hierarchy (version 2).
#[must_use]
pub fn are_unified() -> bool {
    Path::new(GROUPS).join("cgroup.controllers").exists()
}

/// Delegates a container's group to the user that the first argument names. Standard input has the
/// container's state, as runc passes it to hooks.
///
/// # Errors
/// Returns [`Error::Refused`] if the user or the state is unreadable, [`Error::Host`] if the
/// container has no group of its own, and [`Error::Io`] if a file cannot be read or changed. The
/// node also works without the delegation.
pub fn delegate(arguments: &[OsString]) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct State {
        id: String,
        pid: u32,
    }
    let user = arguments
        .first()
        .and_then(|user| user.to_str()?.parse().ok());
    let user = user.ok_or_else(|| Error::Refused("the hook's arguments name no user".into()))?;
    let state = io::stdin().lock().take(STATE_MAX);
    let state: State = serde_json::from_reader(state)
        .map_err(|error| Error::Refused(format!("the container's state: {error}")))?;
    let file = format!("/proc/{}/cgroup", state.pid);
    let cgroups = fs::read_to_string(&file).map_err(|error| Error::io(file, error))?;
    let group = below(Path::new(GROUPS), &cgroups, &state.id)
        .ok_or_else(|| Error::Host("the container has no group of its own".into()))?;
    divide(&group, user).map_err(|error| Error::io(group.display(), error))
}

/// Returns the folder of a container's group of version 2, from the contents of
/// `/proc/PID/cgroup`. The last part of the path has to contain the container's id.
fn below(groups: &Path, cgroups: &str, id: &str) -> Option<PathBuf> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = Path::new(path);
    let is_plain = |part| matches!(part, Component::Normal(_));
    let name = path.file_name()?.to_str()?;
    // runc and systemd name a group PREFIX-ID.scope.
    let of_systemd = name.strip_suffix(".scope");
    let is_own = name == id || of_systemd.is_some_and(|name| name.ends_with(&format!("-{id}")));
    (is_own && !id.is_empty() && path.components().all(is_plain)).then(|| groups.join(path))
}

fn divide(group: &Path, user: u32) -> io::Result<()> {
    for (file, most) in BOUNDS {
        let file = group.join(file);
        let stricter = fs::read_to_string(&file)?.trim().parse();
        if stricter.is_ok_and(|stricter: u64| stricter <= most) {
            continue;
        }
        write(&file, &most.to_string())?;
    }
    for file in KEPT.map(|file| group.join(file)) {
        if file.exists() {
            chown(file, Some(0), None)?;
        }
    }
    for file in DELEGATED {
        chown(group.join(file), Some(user), None)?;
    }
    chown(group, Some(user), None)
}

/// Writes to a file of a control group, which must exist.
pub(crate) fn write(file: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(file)?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn only_groups_below_the_root_are_accepted() {
        let at = |cgroups| below(Path::new("/g"), cgroups, "c1");
        let own = at("1:name=systemd:/a\n0::/kubepods/pod1/c1\n");
        assert_eq!(own.unwrap(), Path::new("/g/kubepods/pod1/c1"));
        let own = at("0::/kubepods.slice/cri-containerd-c1.scope\n");
        assert_eq!(
            own.unwrap(),
            Path::new("/g/kubepods.slice/cri-containerd-c1.scope")
        );
        for wrong in [
            "",
            "0::/",
            "0::",
            "0::/../c1",
            "0::/c1/../..",
            "0:://c1",
            "0::/kubepods/pod1",
            "0::/kubepods/c11",
            "0::/x-c1",
            "1:memory:/a",
        ] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn delegation_covers_the_group_but_not_its_limits() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED (not root)");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path();
        let of = |file: &str| fs::metadata(group.join(file)).unwrap().uid();
        // The limits on the division are set first.
        assert!(divide(group, 1000).is_err() && of("") == 0);
        let limits = ["memory.max", "cgroup.max.descendants", "cgroup.max.depth"];
        let limits = limits.into_iter().chain(KEPT);
        for file in limits.clone().chain(DELEGATED) {
            fs::write(group.join(file), "max\n").unwrap();
        }
        fs::write(group.join("cgroup.max.depth"), "2\n").unwrap();
        chown(group.join("memory.oom.group"), Some(1000), None).unwrap();
        divide(group, 1000).unwrap();
        assert!(
            DELEGATED
                .into_iter()
                .chain([""])
                .all(|file| of(file) == 1000)
        );
        assert!({ limits }.all(|file| of(file) == 0));
        let most = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert!(most("cgroup.max.descendants").starts_with("1024"));
        // A stricter limit stays.
        assert_eq!(most("cgroup.max.depth"), "2\n");
    }
}
