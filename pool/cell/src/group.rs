//! Control groups: what a cell may use of memory, processors and processes, held to
//! by the kernel (cgroups(7), both versions).
//!
//! Each cell is born in a group of its own and never leaves it. Groups are made by
//! number and stay for the next cell of that number, up to a bound (AFaaS §4.2 pools
//! them: making one takes far longer than forking); one that memory is still charged to
//! is made anew, and what was charged goes to the group above, which is the node's.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

pub use crate::kept::GroupCounts;
use crate::kept::Kept;

/// Bytes that a VM takes in the kernel beside its guest's memory, and its process: what
/// groups allow for.
pub const VM_OVERHEAD: u64 = 64 << 20;

/// What a cell may have until it is known what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Bytes of memory, none of which goes to swap.
    pub memory: u64,
    /// Threads and processes.
    pub processes: u64,
    /// Weight among groups when processors are short; 100 is usual.
    pub weight: u64,
}

/// Which interface the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// One for all of them.
    Two,
}

impl Version {
    fn memory(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::One => "memory.usage_in_bytes",
            Self::Two => "memory.current",
        }
    }
}

/// Where groups can be made: the folders of this process's own group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The interface.
    pub version: Version,
    /// A folder for each hierarchy.
    folders: Vec<PathBuf>,
}

/// Controllers that are used. Without the first two there are no groups.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
const NEEDED: usize = 2;
/// Which of them is about processors.
const PROCESSORS: usize = 2;

/// Weight of all cells together for each processor; one process weighs 100.
const WEIGHT: u64 = 400;
/// Most that the kernel takes.
const WEIGHT_MAX: u64 = 10_000;

/// Bytes that may stay charged to a group that is used again.
const CLEAN: u64 = 1 << 20;

/// Groups that wait for a cell, unless told otherwise: as many as a node has requests
/// at once, unless that is told otherwise.
pub const FREE_MAX: usize = 256;

/// What every folder of ours is called, before what names its process.
const PREFIX: &str = "faasw-";

impl Place {
    /// Looks for it.
    ///
    /// # Errors
    /// Why there is none, for people to read.
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
                version: Version::Two,
                folders: vec![folder],
            });
        }
        let folders: Vec<_> = CONTROLLERS
            .iter()
            .map_while(|controller| folder(own, mounts, Some(controller)))
            .collect();
        (folders.len() >= NEEDED).then_some(Self {
            version: Version::One,
            folders,
        })
    }
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// The folder of this process's group in the hierarchy of a controller, or in the
/// unified one.
fn folder(own: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let group = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match controller {
            None => controllers.is_empty(),
            Some(wanted) => controllers.split(',').any(|name| name == wanted),
        };
        is_it.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ');
        let (root, point) = (before.nth(3)?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let is_it = match controller {
            None => kind == "cgroup2",
            Some(wanted) => kind == "cgroup" && options.split(',').any(|name| name == wanted),
        };
        let below = Path::new(group).strip_prefix(root).ok()?;
        is_it.then(|| Path::new(point).join(below))
    })
}

/// A hierarchy's folder with the groups of one process.
#[derive(Debug)]
struct Hierarchy {
    /// The folder that ours is in.
    above: OwnedFd,
    ours: OwnedFd,
}

/// The groups that one process makes for its cells.
#[derive(Debug)]
pub struct Groups {
    version: Version,
    name: String,
    hierarchies: Vec<Hierarchy>,
    share: Share,
    /// Some of an ended process's groups still have processes that are ending.
    has_left: Cell<bool>,
    kept: RefCell<Kept>,
}

/// A group of one cell, open for it to be born into.
#[derive(Debug)]
pub struct Group {
    version: Version,
    folders: Vec<OwnedFd>,
}

fn open_folder(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    crate::out_of_the_way(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

fn make_folder(at: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(at, path, Mode::RWXU | Mode::RGRP | Mode::XGRP) {
        Ok(()) | Err(Errno::EXIST) => open_folder(at, path),
        Err(errno) => Err(errno),
    }
}

fn put(folder: BorrowedFd<'_>, file: &str, value: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, file, flags, Mode::empty())?;
    rustix::io::write(file, value.as_bytes()).map(|_| ())
}

fn get(folder: BorrowedFd<'_>, file: &str) -> Result<u64, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, file, flags, Mode::empty())?;
    let mut text = [0; 32];
    let length = rustix::io::read(file, &mut text)?;
    let text = text.get(..length).unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    text.trim().parse().map_err(|_| Errno::INVAL)
}

impl Groups {
    /// Makes the folder for a process's groups, and removes those of processes that
    /// have ended without doing so. It is made below the process's own group, or, with
    /// version 2, where a group with processes can have none below that account for
    /// anything, below the nearest one above that allows it; but never past a group that
    /// limits what is in it, which is to hold for cells, too.
    ///
    /// # Errors
    /// What this host does not allow, for people to read.
    pub fn prepare(place: &Place, share: Share) -> Result<Self, String> {
        let own = Self::below(place, share);
        let (Err(why), Version::Two, [folder]) = (&own, place.version, place.folders.as_slice())
        else {
            return own;
        };
        let above = folder
            .ancestors()
            .take_while(|folder| !has_limits(folder))
            .filter_map(Path::parent)
            .take_while(|folder| folder.join("cgroup.controllers").exists());
        let place = |folder: &Path| Place {
            version: Version::Two,
            folders: vec![folder.to_owned()],
        };
        above
            .map(|folder| Self::below(&place(folder), share))
            .find_map(Result::ok)
            .ok_or_else(|| why.clone())
    }

    fn below(place: &Place, share: Share) -> Result<Self, String> {
        let name = format!("{PREFIX}{}", own_name().map_err(|error| error.to_string())?);
        let mut groups = Self {
            version: place.version,
            name,
            hierarchies: Vec::new(),
            share,
            has_left: Cell::new(true),
            kept: RefCell::new(Kept::new(FREE_MAX)),
        };
        // What cannot be used is to be known now, and leaves nothing.
        let made = groups.make(place);
        made.inspect_err(|_| groups.remove())?;
        Ok(groups)
    }

    fn make(&mut self, place: &Place) -> Result<(), String> {
        for path in &place.folders {
            let told = |errno: Errno| format!("{}: {errno}", path.display());
            let above = open_folder(rustix::fs::CWD, path.as_path()).map_err(told)?;
            if self.version == Version::Two {
                delegate(above.as_fd()).map_err(told)?;
            }
            let ours = make_folder(above.as_fd(), &self.name).map_err(told)?;
            self.hierarchies.push(Hierarchy { above, ours });
            if let (Version::Two, Some(made)) = (self.version, self.hierarchies.last()) {
                delegate(made.ours.as_fd()).map_err(told)?;
            }
        }
        self.remove_left();
        self.weigh();
        self.open(0).map_err(|errno| errno.to_string())?;
        self.kept.borrow_mut().add(0);
        Ok(())
    }

    /// Has all cells together weigh as several processes on each processor: to the
    /// scheduler a group is one among the node's own threads, and a request that has
    /// begun is to be done before others begin.
    fn weigh(&self) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let weight = (WEIGHT * processors).min(WEIGHT_MAX);
        let folder = match self.version {
            Version::One => self.hierarchies.get(PROCESSORS),
            Version::Two => self.hierarchies.first(),
        };
        if let Some(folder) = folder {
            put_weight(self.version, folder.ours.as_fd(), weight);
        }
    }

    /// The interface that is used.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The number of a group that waits for a cell.
    #[must_use]
    pub fn free(&self) -> Option<u32> {
        self.kept.borrow().first()
    }

    /// How groups are used.
    #[must_use]
    pub fn counts(&self) -> GroupCounts {
        self.kept.borrow().counts()
    }

    /// Keeps at most so many groups for the next cells, and removes what is too much.
    pub fn keep(&self, free_max: usize) {
        let surplus = self.kept.borrow_mut().limit(free_max);
        for number in surplus {
            self.remove_one(number);
        }
    }

    /// The group with this number, made if it is not there, with the usual share. It is
    /// the cell's that is born into it until [`Groups::give_back`].
    ///
    /// # Errors
    /// The system's.
    pub fn group(&self, number: u32) -> Result<Group, Errno> {
        let group = self.open(number)?;
        self.kept.borrow_mut().take(number);
        Ok(group)
    }

    fn open(&self, number: u32) -> Result<Group, Errno> {
        self.remove_left();
        let name = number.to_string();
        let mut folders = Vec::with_capacity(self.hierarchies.len());
        for hierarchy in &self.hierarchies {
            folders.push(make_folder(hierarchy.ours.as_fd(), &name)?);
        }
        let group = Group {
            version: self.version,
            folders,
        };
        group.set(self.share)?;
        Ok(group)
    }

    /// Sets what the group may have of memory.
    ///
    /// # Errors
    /// The system's, as when there is no such group.
    pub fn limit_memory(&self, number: u32, bytes: u64) -> Result<(), Errno> {
        let folder = self.hierarchies.first().ok_or(Errno::NOENT)?;
        let file = format!("{number}/{}", self.version.memory());
        put(folder.ours.as_fd(), &file, &bytes.to_string())
    }

    /// Takes back a group whose cell has ended, or never was. It is kept for the next one
    /// unless there are enough, or something is still charged to it: that is left to the
    /// group above.
    pub fn give_back(&self, number: u32) {
        let mut kept = self.kept.borrow_mut();
        if !kept.release(number) {
            return;
        }
        match kept.has_room() && self.is_clean(number) {
            true => kept.add(number),
            false => self.remove_one(number),
        }
    }

    fn is_clean(&self, number: u32) -> bool {
        let usage = self.hierarchies.first().map(|memory| {
            let file = format!("{number}/{}", self.version.usage());
            get(memory.ours.as_fd(), &file)
        });
        // One whose account cannot be read is used again: it may be that all are so.
        !matches!(usage, Some(Ok(usage)) if usage > CLEAN)
    }

    fn remove_one(&self, number: u32) {
        for hierarchy in &self.hierarchies {
            remove(hierarchy.ours.as_fd(), &number.to_string());
        }
    }

    /// Removes what processes have left that ended without removing it, as soon as
    /// that can be.
    fn remove_left(&self) {
        if !self.has_left.replace(false) {
            return;
        }
        for hierarchy in &self.hierarchies {
            let above = hierarchy.above.as_fd();
            for name in folders(above) {
                let owner = name.strip_prefix(PREFIX);
                if owner.is_some_and(|owner| !is_alive(owner))
                    && let Ok(folder) = open_folder(above, &*name)
                {
                    remove_below(folder.as_fd());
                    self.has_left
                        .set(self.has_left.get() | !remove(above, &name));
                }
            }
        }
    }

    /// Removes all groups. Their cells must have ended.
    pub fn remove(&self) {
        self.remove_left();
        for hierarchy in &self.hierarchies {
            remove_below(hierarchy.ours.as_fd());
            remove(hierarchy.above.as_fd(), &self.name);
        }
    }
}

/// Whether a group of version 2 holds what is in it to anything.
fn has_limits(folder: &Path) -> bool {
    ["memory.max", "memory.high", "pids.max", "cpu.max"]
        .iter()
        .filter_map(|file| fs::read_to_string(folder.join(file)).ok())
        .any(|limit| !limit.trim_start().starts_with("max"))
}

/// Without effect where the kernel does not account for processors.
fn put_weight(version: Version, folder: BorrowedFd<'_>, weight: u64) {
    let _ = match version {
        Version::One => {
            let shares = weight.saturating_mul(1024) / 100;
            put(folder, "cpu.shares", &shares.to_string())
        }
        Version::Two => put(folder, "cpu.weight", &weight.to_string()),
    };
}

/// Lets groups below have the controllers that are used.
fn delegate(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    for (index, controller) in CONTROLLERS.iter().enumerate() {
        match put(folder, "cgroup.subtree_control", &format!("+{controller}")) {
            // Processors are shared out evenly then.
            Err(_) if index >= NEEDED => {}
            done => done?,
        }
    }
    Ok(())
}

/// Names of the folders in a folder.
fn folders(folder: BorrowedFd<'_>) -> Vec<String> {
    let Ok(entries) = rustix::fs::Dir::read_from(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type() == FileType::Directory)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn remove_below(folder: BorrowedFd<'_>) {
    for name in folders(folder) {
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            remove(folder, &name);
        }
    }
}

/// Says whether it is gone. A group with processes in it stays.
fn remove(at: BorrowedFd<'_>, name: &str) -> bool {
    match rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => true,
        Err(_) => false,
    }
}

/// The namespace that a process's number is of, the number, and when it began: numbers
/// are used again.
fn own_name() -> io::Result<String> {
    let number = rustix::process::getpid().as_raw_nonzero().get();
    let began = began(number).ok_or(io::ErrorKind::NotFound)?;
    Ok(format!("{}-{number}-{began}", own_namespace()?))
}

fn own_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Of what is not ours, or of another namespace, nobody here can tell: then it lives.
fn is_alive(owner: &str) -> bool {
    let mut parts = owner.split('-').map(str::parse::<u64>);
    let (Some(Ok(namespace)), Some(Ok(number)), Some(Ok(began_at)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return true;
    };
    let number = i32::try_from(number).unwrap_or(i32::MAX);
    own_namespace().ok() != Some(namespace) || began(number) == Some(began_at)
}

/// When a process began, in the system's ticks (proc_pid_stat(5), fields 3 and 22);
/// `None` when it has ended, reaped or not.
fn began(number: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let behind_name = stat.rsplit_once(')')?.1;
    let mut fields = behind_name.split_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(began)
}

impl Group {
    /// Sets what it may use.
    ///
    /// # Errors
    /// The system's.
    pub fn set(&self, share: Share) -> Result<(), Errno> {
        // Each file is where its controller is; the unified hierarchy has all.
        let [memory, processes, processors] = match (self.version, self.folders.as_slice()) {
            (Version::Two, [all]) => [Some(all), Some(all), Some(all)],
            (_, folders) => [folders.first(), folders.get(1), folders.get(2)],
        };
        let (Some(memory), Some(processes)) = (memory, processes) else {
            return Err(Errno::NOENT);
        };
        let bytes = share.memory.to_string();
        put(memory.as_fd(), self.version.memory(), &bytes)?;
        put(processes.as_fd(), "pids.max", &share.processes.to_string())?;
        // Some kernels do not account for swap, or shares of processors.
        let _ = match self.version {
            Version::One => put(memory.as_fd(), "memory.swappiness", "0"),
            Version::Two => put(memory.as_fd(), "memory.swap.max", "0"),
        };
        if let Some(processors) = processors {
            put_weight(self.version, processors.as_fd(), share.weight);
        }
        Ok(())
    }

    /// The descriptor that a process can be cloned into the group with
    /// (`CLONE_INTO_CGROUP`); none where it has to enter by itself.
    pub(crate) fn birthplace(&self) -> Option<&OwnedFd> {
        match self.version {
            Version::One => None,
            Version::Two => self.folders.first(),
        }
    }

    /// Moves the calling process in, where it was not born here.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        match self.version {
            Version::One => self
                .folders
                .iter()
                .try_for_each(|folder| put(folder.as_fd(), "cgroup.procs", "0")),
            Version::Two => Ok(()),
        }
    }
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
    fn folders_are_found_where_the_system_says_they_are() {
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
        // Nothing with controllers is there, so the old ones are taken.
        let place = Place::read(HYBRID, MOUNTS).unwrap();
        assert_eq!((place.version, place.folders.len()), (Version::One, 3));
        assert_eq!(Place::read("0::/u\n", MOUNTS), None);
    }

    #[test]
    fn groups_that_limit_are_told_from_those_that_do_not() {
        let folder = std::env::temp_dir().join(format!("faasw-limits-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let mut told = vec![has_limits(&folder)];
        for (file, text) in [
            ("memory.max", "max\n"),
            ("cpu.max", "max 100000\n"),
            ("pids.max", "77\n"),
        ] {
            fs::write(folder.join(file), text).unwrap();
            told.push(has_limits(&folder));
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(told, [false, false, false, true]);
    }

    #[test]
    fn only_folders_of_ended_processes_are_left_over() {
        let own = own_name().unwrap();
        assert!(is_alive(&own));
        assert!(!is_alive(&format!("{own}1")));
        let namespace = own_namespace().unwrap();
        assert!(!is_alive(&format!("{namespace}-2147483647-1")));
        // Numbers of another namespace say nothing here.
        assert!(is_alive(&format!("{}-2147483647-1", namespace + 1)));
        assert!(is_alive("somebody-elses") && is_alive("else"));
    }
}
