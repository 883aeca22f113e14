//! A container's own group, if it was delegated to the container to be divided (cgroups(7),
//! delegation).

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::CWD;

use super::{
    CgroupLocation, CgroupVersion, WEIGHT, delegate_controllers, for_processors, open_folder,
};

/// The name of the group to which the container's processes move.
const NODE: &str = "node";

/// How often the move is tried: a program that is executed in a container, such as a probe, may be
/// in its group for a moment.
const TRIES: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(20);

/// Allows groups for jails in the group of this process's container. With version 2, a group that
/// has processes can have no groups below it that account for anything. So this process moves to a
/// group below, which has no limits of its own. The container's limits still hold for it. If the
/// move is impossible, there are no groups for jails, and
/// [`Groups::prepare`](super::Groups::prepare) reports that.
///
/// Does this only in the root of a namespace of control groups, if no other process is in it and
/// this user may write to it: on a host, this program must not divide groups.
pub fn delegate_container_group() {
    let Some(own) = of_container() else {
        return;
    };
    for _ in 0..TRIES {
        match move_below(&own, std::process::id()) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(BETWEEN);
            }
            _ => return,
        }
    }
}

/// Returns this process's group if that is the root of a namespace, and not the host's.
fn of_container() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let place = CgroupLocation::find().ok()?;
    let (CgroupVersion::Two, [folder]) = (place.version, place.folders.as_slice()) else {
        return None;
    };
    // The host's root has no such file.
    let is_container =
        own.lines().any(|line| line == "0::/") && folder.join("cgroup.type").exists();
    is_container.then(|| folder.clone())
}

fn move_below(group: &Path, process: u32) -> io::Result<()> {
    // Only a user to which the group was delegated can write to both files.
    for file in ["cgroup.procs", "cgroup.subtree_control"] {
        fs::File::options().write(true).open(group.join(file))?;
    }
    let (node, process) = (group.join(NODE), process.to_string());
    let of = |group: &Path| fs::read_to_string(group.join("cgroup.procs"));
    let has_moved = of(&node).is_ok_and(|there| there.lines().any(|one| one == process));
    if !has_moved {
        if of(group)?.trim() != process {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        match fs::create_dir(&node) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let entered = fs::write(node.join("cgroup.procs"), &process);
        entered.inspect_err(|_| drop(fs::remove_dir(&node)))?;
    }
    // Without controllers there, this program cannot use it as a group.
    delegate_controllers(open_folder(CWD, group)?.as_fd())?;
    // This group counts as one beside those of all jails, however many threads it has: replies to
    // clients and probes must not starve.
    let _ = fs::write(node.join("cpu.weight"), for_processors(WEIGHT).to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that waits until it is ended.
    struct Waiting(Child);

    impl Waiting {
        fn begin() -> Self {
            let mut command = Command::new("cat");
            let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
            Self(command.spawn().unwrap())
        }

        fn enter(self, group: &Path) -> Self {
            fs::write(group.join("cgroup.procs"), self.0.id().to_string()).unwrap();
            self
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A group of this test's own, as a container would have it.
    struct Container(PathBuf);

    impl Drop for Container {
        fn drop(&mut self) {
            let _ = fs::remove_dir(self.0.join(NODE));
            let _ = fs::remove_dir(&self.0);
        }
    }

    #[test]
    fn the_only_process_of_a_delegated_group_moves_below_it() {
        let own = CgroupLocation::find().ok().filter(|place| {
            place.version == CgroupVersion::Two && rustix::process::geteuid().is_root()
        });
        let Some(own) = own else {
            eprintln!("SKIPPED (no control groups of version 2, or not root)");
            return;
        };
        let name = format!("faasw-way-{}", std::process::id());
        let container = Container(own.folders[0].join(name));
        let group = &container.0;
        fs::create_dir(group).unwrap();
        let first = Waiting::begin().enter(group);
        let number = first.0.id();
        // A second process is in the group.
        let other = Waiting::begin().enter(group);
        assert!(move_below(group, number).is_err() && !group.join(NODE).exists());
        drop(other);
        move_below(group, number).unwrap();
        let there = |group: &Path| fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert_eq!(there(group), "");
        assert_eq!(there(&group.join(NODE)).trim(), number.to_string());
        let controllers = fs::read_to_string(group.join(NODE).join("cgroup.controllers"));
        assert!(controllers.unwrap().contains("memory"));
        // A second call changes nothing, and a process that is not in the group is not moved.
        move_below(group, number).unwrap();
        assert!(move_below(group, std::process::id()).is_err());
    }

    #[test]
    fn a_folder_that_is_no_group_is_refused() {
        assert!(move_below(Path::new("/proc/self"), std::process::id()).is_err());
    }
}
