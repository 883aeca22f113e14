//! The properties of jails that the kernel shows to root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use faasw_jail::group::{CgroupLocation, Groups, Share, VM_OVERHEAD};

/// Whether this user may inspect other users' processes. Prints a notice if not.
pub fn may_look() -> bool {
    let is_root = is_root();
    if !is_root {
        eprintln!(
            "NOT ROOT: the tests of this file are ignored, for they look into other users' \
             processes"
        );
    }
    is_root
}

/// Whether jails have control groups here. Prints a notice if not.
pub fn have_groups() -> bool {
    let share = Share {
        memory: VM_OVERHEAD,
        processes: 1,
        weight: 100,
    };
    let groups = CgroupLocation::find().and_then(|place| Groups::prepare(&place, share));
    match groups {
        Ok(groups) => {
            groups.remove();
            true
        }
        Err(why) => {
            eprintln!("WITHOUT CONTROL GROUPS: tests that are about them are ignored. {why}");
            false
        }
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    })
}

pub fn status(pid: u32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(field).collect()
}

pub fn namespace(pid: &str, kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap()
}

/// Returns the last number: the process's ID in its own namespace.
pub fn inner_number(status: &BTreeMap<String, String>) -> &str {
    status["NSpid"].split_whitespace().last().unwrap()
}

pub fn user(pid: u32) -> u32 {
    let ids: BTreeSet<u32> = ["Uid", "Gid"]
        .iter()
        .flat_map(|kind| {
            let status = status(pid);
            let ids = status[*kind].split_whitespace();
            ids.map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
        })
        .collect();
    assert_eq!(ids.len(), 1, "one number for every kind: {ids:?}");
    *ids.first().unwrap()
}

/// Asserts the properties of every jail without network.
pub fn assert_closed(pid: u32) {
    assert_closed_but_for_its_network(pid);
    let own = pid.to_string();
    assert_ne!(namespace(&own, "net"), namespace("self", "net"));
}

/// Asserts the properties of every jail.
pub fn assert_closed_but_for_its_network(pid: u32) {
    assert_powerless(pid);
    assert_eq!(inner_number(&status(pid)), "1");
    let own = pid.to_string();
    for kind in ["user", "pid", "mnt", "uts", "ipc"] {
        assert_ne!(namespace(&own, kind), namespace("self", kind), "{kind}");
    }
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    assert_eq!(mounts.lines().count(), 1, "{mounts}");
    assert!(
        mounts.contains("faasw-jail") && mounts.contains(" ro,"),
        "{mounts}"
    );
    let root = format!("/proc/{pid}/root/");
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
}

/// Asserts the properties of a jail of the reduced level that root made: the host's namespaces, a
/// root directory without a name, and the rest as in every jail.
pub fn assert_reduced(pid: u32) {
    assert_powerless(pid);
    let own = pid.to_string();
    for kind in ["user", "pid", "mnt", "uts", "ipc", "net"] {
        assert_eq!(namespace(&own, kind), namespace("self", kind), "{kind}");
    }
    let root = format!("/proc/{pid}/root");
    let name = fs::read_link(&root).unwrap();
    let name = name.to_str().unwrap();
    assert!(
        name.contains("faasw-root-") && name.ends_with("(deleted)"),
        "{name}"
    );
    // The kernel creates no files in it, not even for root.
    let made = fs::File::create(format!("{root}/x")).map(|_| ());
    assert_eq!(made.unwrap_err().raw_os_error(), Some(libc::ENOENT));
}

/// Asserts what jails of both levels have in common: no privileges, no supplementary groups, a
/// filter, and a user of their own whose processes only root may inspect.
fn assert_powerless(pid: u32) {
    let status = status(pid);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
    assert_eq!(status["NoNewPrivs"], "1");
    assert_eq!(status["Seccomp"], "2");
    assert_eq!(status["Groups"], "");
    assert!(user(pid) >= 1 << 16, "a number that nobody has");
    let first_to_go = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(first_to_go.trim(), "1000");
    // Only root may look into a process that cannot be dumped.
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(format!("/proc/{pid}/fd")).unwrap().uid(), 0);
}

pub fn descriptors(pid: u32) -> BTreeMap<u32, String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    entries
        .flatten()
        .map(|entry| {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            let target = fs::read_link(entry.path()).unwrap();
            (number, target.to_string_lossy().into_owned())
        })
        .collect()
}

pub fn soft_limit(pid: u32, name: &str) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
    let mut rest = line[name.len()..].split_whitespace();
    rest.next().unwrap().to_owned()
}

/// Returns the paths of a process's control groups that are ours, one for each hierarchy.
pub fn groups(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let ours = text.lines().filter(|line| line.contains("/faasw-"));
    ours.map(str::to_owned).collect()
}

/// Returns the weight of a process's control group, of either version; `None` if the process has
/// ended.
pub fn weight(pid: u32) -> Option<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines()
        .find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let (file, is_it): (_, fn(&str) -> bool) = match controllers {
                "" => ("cpu.weight", |kind| kind.starts_with("cgroup2 ")),
                _ if controllers.split(',').any(|name| name == "cpu") => ("cpu.shares", |kind| {
                    let options = kind.rsplit(' ').next().unwrap_or_default();
                    kind.starts_with("cgroup ") && options.split(',').any(|name| name == "cpu")
                }),
                _ => return None,
            };
            mounts.lines().find_map(|mount| {
                let (before, kind) = mount.split_once(" - ")?;
                let mut before = before.split(' ').skip(3);
                let (root, point) = (before.next()?, before.next()?);
                let below = Path::new(path).strip_prefix(root).ok()?;
                let file = Path::new(point).join(below).join(file);
                is_it(kind).then(|| fs::read_to_string(file).ok())?
            })
        })?
        .trim()
        .parse()
        .ok()
}

pub fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let name = |path: PathBuf| {
        fs::read_to_string(path.join("comm"))
            .unwrap()
            .trim()
            .to_owned()
    };
    tasks.flatten().map(|task| name(task.path())).collect()
}

/// Returns how many filters a process has; `None` if it has ended.
pub fn filters(pid: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
    field("Seccomp_filters:")?.trim().parse().ok()
}

/// Whether one of our directories is left in the hierarchies of these groups.
pub fn is_left(groups: &[String]) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    groups.iter().any(|group| {
        let path = group.splitn(3, ':').nth(2).unwrap();
        let ours = Path::new(path).parent().unwrap().file_name().unwrap();
        mounts
            .lines()
            .filter(|line| line.contains(" - cgroup"))
            .filter_map(|line| line.split(' ').nth(4))
            .any(|point| has_below(Path::new(point), ours, 4))
    })
}

fn has_below(folder: &Path, name: &std::ffi::OsStr, depth: u32) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.any(|entry| {
        entry.file_name() == name || depth > 0 && has_below(&entry.path(), name, depth - 1)
    })
}
