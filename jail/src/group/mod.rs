//! Control groups: a jail's limits of memory, processors and processes, which the kernel enforces
//! (cgroups(7), both versions).
//!
//! Each jail is created in a group of its own. Groups are made by number and stay for the next jail
//! of that number, up to a bound (AFaaS §4.2 pools them: making one takes far longer than forking).
//! If memory is still charged to a group, it is made anew, and the charge goes to the group above,
//! which is the node's.

mod background;
mod delegate;
mod free_list;
mod limit;
mod location;
mod owner;

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use self::background::BackgroundGroups;
pub use self::delegate::delegate_container_group;
pub use self::free_list::GroupCounts;
use self::free_list::GroupFreeList;
pub use self::limit::{GroupLimits, group_limits, memory_limit, memory_used};
use self::location::{CONTROLLERS, KILLS, NEEDED, has_limits};
pub use self::location::{CgroupLocation, CgroupVersion};
use self::owner::{is_alive, own_name};
use crate::descriptors::dup_to_high_fd;

/// Bytes that a VM and its process take in the kernel in addition to the guest's memory; groups
/// allow for them.
pub const VM_OVERHEAD: u64 = 64 << 20;

/// The limits of a jail until its purpose is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Bytes of memory, none of which goes to swap.
    pub memory: u64,
    /// Threads and processes.
    pub processes: u64,
    /// Weight among groups when processors are short, at most [`WEIGHT_FULL`].
    pub weight: u64,
}

/// The weight of a sandbox's group before it is divided. It is the kernel's maximum, which leaves
/// the most room to divide it by the number of a function's sandboxes.
pub const WEIGHT_FULL: u64 = WEIGHT_MAX;

/// The index of the controller of processors.
const PROCESSORS: usize = 2;

/// Weight of all jails together for each processor; one process weighs 100.
const WEIGHT: u64 = 400;

/// [`WEIGHT`] while several functions contend for processors: as much as one process for each
/// processor, so that the node forwards requests and responses without waiting.
const WEIGHT_CONTENDED: u64 = 100;
/// The largest weight that the kernel accepts.
const WEIGHT_MAX: u64 = 10_000;

/// The most bytes that may stay charged to a group that is used again.
const CLEAN: u64 = 1 << 20;

/// The default for the most groups that wait for a jail: as many as the default for a node's
/// requests at once.
pub const FREE_MAX: usize = 256;

/// The prefix of the name of every folder of ours; the name of its process follows.
const PREFIX: &str = "faasw-";

/// A hierarchy's folder with the groups of one process.
#[derive(Debug)]
struct Hierarchy {
    /// The folder that contains ours.
    above: OwnedFd,
    ours: OwnedFd,
}

/// The groups that one process makes for its jails.
#[derive(Debug)]
pub struct Groups {
    version: CgroupVersion,
    name: String,
    hierarchies: Vec<Hierarchy>,
    share: Share,
    /// Some groups of an ended process still have processes that are ending.
    has_stale_groups: Cell<bool>,
    free_list: RefCell<GroupFreeList>,
    background_support: Result<(), &'static str>,
    background: RefCell<BackgroundGroups>,
    /// The memory limit of all groups together, in bytes, once it was set.
    total_memory_limit: Cell<Option<u64>>,
}

/// A group of one jail, open so that the jail can be created in it.
#[derive(Debug)]
pub struct Group {
    version: CgroupVersion,
    folders: Vec<OwnedFd>,
}

fn open_folder(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    dup_to_high_fd(rustix::fs::openat(at, path, flags, Mode::empty())?)
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
    read_usage(open_file(folder, file)?)
}

/// More than the length of any file that is read here.
const TEXT_MAX: usize = 512;

fn open_file(folder: BorrowedFd<'_>, file: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, file, flags, Mode::empty())
}

fn read_text(file: impl AsFd, text: &mut [u8; TEXT_MAX]) -> Result<&str, Errno> {
    let length = rustix::io::pread(file, text.as_mut_slice(), 0)?;
    let text = text.get(..length).unwrap_or_default();
    std::str::from_utf8(text).map_err(|_| Errno::INVAL)
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Makes the kernel begin with the work that moving a process to a group waits for, and waits for
/// it. With version 1 a process has to be moved. The first move in a while takes a grace period of
/// RCU, some 5 to 30 ms (`cgroup_threadgroup_rwsem` of `kernel/cgroup`), which all moves in that
/// time share. The calling process is moved to the group that it is in. Does nothing with version
/// 2, or if a process cannot be moved.
pub fn warm_up_cgroup_move() {
    if let Ok(place) = CgroupLocation::find()
        && place.version == CgroupVersion::One
        && let Some(own) = place.folders.first()
        && let Ok(own) = open_folder(rustix::fs::CWD, own.as_path())
    {
        let _ = put(own.as_fd(), "cgroup.procs", "0");
    }
}

/// Reads the current value of the file from [`Groups::usage`], in bytes.
///
/// # Errors
/// Returns the error of reading, for example if the groups are gone, and `INVAL` if the file has no
/// number.
pub fn read_usage(file: impl AsFd) -> Result<u64, Errno> {
    let mut text = [0; TEXT_MAX];
    number(read_text(file, &mut text)?).ok_or(Errno::INVAL)
}

impl Groups {
    /// Makes the folder for a process's groups, and removes those of processes that have ended
    /// without doing so. The folder is made below the process's own group. With version 2, a group
    /// with processes can have no groups below it that account for anything. Then the folder is
    /// made below the nearest group above that allows it, but never beyond a group with limits,
    /// which must hold for jails as well.
    ///
    /// # Errors
    /// Returns the reason if this host does not allow it, for people to read.
    pub fn prepare(place: &CgroupLocation, share: Share) -> Result<Self, String> {
        let own = Self::below(place, share);
        let (Err(why), CgroupVersion::Two, [folder]) =
            (&own, place.version, place.folders.as_slice())
        else {
            return own;
        };
        let above = folder
            .ancestors()
            .take_while(|folder| !has_limits(folder))
            .filter_map(Path::parent)
            .take_while(|folder| folder.join("cgroup.controllers").exists());
        let place = |folder: &Path| CgroupLocation {
            version: CgroupVersion::Two,
            folders: vec![folder.to_owned()],
        };
        above
            .map(|folder| Self::below(&place(folder), share))
            .find_map(Result::ok)
            .ok_or_else(|| why.clone())
    }

    fn below(place: &CgroupLocation, share: Share) -> Result<Self, String> {
        let name = format!("{PREFIX}{}", own_name().map_err(|error| error.to_string())?);
        let mut groups = Self {
            version: place.version,
            name,
            hierarchies: Vec::new(),
            share,
            has_stale_groups: Cell::new(true),
            free_list: RefCell::new(GroupFreeList::new(FREE_MAX)),
            background_support: Err("there are no control groups"),
            background: RefCell::default(),
            total_memory_limit: Cell::new(None),
        };
        // If groups cannot be used, that must be noticed now, and nothing must be left of them.
        let made = groups.make(place);
        made.inspect_err(|_| groups.remove())?;
        groups.background_support = background::check(place);
        Ok(groups)
    }

    fn make(&mut self, place: &CgroupLocation) -> Result<(), String> {
        for path in &place.folders {
            let failed = |errno: Errno| format!("{}: {errno}", path.display());
            let above = open_folder(rustix::fs::CWD, path.as_path()).map_err(failed)?;
            if self.version == CgroupVersion::Two {
                delegate_controllers(above.as_fd()).map_err(failed)?;
            }
            let ours = make_folder(above.as_fd(), &self.name).map_err(failed)?;
            self.hierarchies.push(Hierarchy { above, ours });
            if let (CgroupVersion::Two, Some(made)) = (self.version, self.hierarchies.last()) {
                delegate_controllers(made.ours.as_fd()).map_err(failed)?;
            }
        }
        self.remove_stale_groups();
        self.set_total_weight(false);
        self.open(0).map_err(|errno| errno.to_string())?;
        self.free_list.borrow_mut().add(0);
        Ok(())
    }

    /// Sets the weight of all jails together to that of several processes on each processor. For
    /// the scheduler, their group is one among the node's own threads, and a request that has begun
    /// should be done before others begin. While several functions contend for processors, all
    /// jails together weigh less, because each request needs the node, too.
    pub fn set_total_weight(&self, is_contended: bool) {
        let each = if is_contended {
            WEIGHT_CONTENDED
        } else {
            WEIGHT
        };
        if let Some(folder) = self.processors() {
            put_weight(self.version, folder.ours.as_fd(), for_processors(each));
        }
    }

    /// Sets the weight of a group among all jails, at most [`WEIGHT_FULL`].
    ///
    /// # Errors
    /// Returns `NOTSUP` if control groups have no controller of processors, and `NOENT` if
    /// there is no such group.
    pub fn set_weight(&self, number: u32, weight: u64) -> Result<(), Errno> {
        let ours = self.processors().ok_or(Errno::NOTSUP)?.ours.as_fd();
        let (file, value) = weight_file(self.version, weight);
        put(ours, &format!("{number}/{file}"), &value.to_string())
    }

    /// Whether the kernel shares processors by the weights of groups.
    #[must_use]
    pub fn share_processors(&self) -> bool {
        self.processors().is_some_and(|processors| {
            let (file, _) = weight_file(self.version, WEIGHT);
            get(processors.ours.as_fd(), file).is_ok()
        })
    }

    /// Returns the version of the kernel's interface.
    #[must_use]
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Returns the number of a group that waits for a jail.
    #[must_use]
    pub fn free(&self) -> Option<u32> {
        self.free_list.borrow().first()
    }

    /// Returns how groups are used.
    #[must_use]
    pub fn counts(&self) -> GroupCounts {
        self.free_list.borrow().counts()
    }

    /// Keeps at most so many groups for the next jails, and removes surplus ones.
    pub fn keep(&self, free_max: usize) {
        let surplus = self.free_list.borrow_mut().limit(free_max);
        for number in surplus {
            self.remove_one(number);
        }
    }

    /// Returns the group with this number and the usual limits; makes it if it does not exist. It
    /// belongs to the jail that is created in it until [`Groups::give_back`].
    ///
    /// # Errors
    /// Returns the error of making the group or of setting its limits.
    pub fn group(&self, number: u32) -> Result<Group, Errno> {
        let group = self.open(number)?;
        self.free_list.borrow_mut().take(number);
        Ok(group)
    }

    fn open(&self, number: u32) -> Result<Group, Errno> {
        self.remove_stale_groups();
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

    /// Sets the memory limit of a group.
    ///
    /// # Errors
    /// Returns an error if the limit cannot be written, for example if there is no such group.
    pub fn limit_memory(&self, number: u32, bytes: u64) -> Result<(), Errno> {
        let folder = self.hierarchies.first().ok_or(Errno::NOENT)?;
        let file = format!("{number}/{}", self.version.memory());
        put(folder.ours.as_fd(), &file, &bytes.to_string())?;
        self.set_background_memory(number, bytes)
    }

    /// Sets the memory limit of all groups together.
    ///
    /// # Errors
    /// Returns the error of writing the limit.
    pub fn limit_all(&self, bytes: u64) -> Result<(), Errno> {
        let memory = self.hierarchies.first().ok_or(Errno::NOENT)?;
        // The largest number of bytes that the kernel accepts is no limit.
        let bytes = bytes.min(i64::MAX.unsigned_abs());
        self.total_memory_limit.set(Some(bytes));
        put(
            memory.ours.as_fd(),
            self.version.memory(),
            &bytes.to_string(),
        )
    }

    /// Opens the file with the memory use of all groups together, for [`read_usage`].
    ///
    /// # Errors
    /// Returns the error of opening it.
    pub fn usage(&self) -> Result<OwnedFd, Errno> {
        let memory = self.hierarchies.first().ok_or(Errno::NOENT)?;
        open_file(memory.ours.as_fd(), self.version.usage())
    }

    /// Whether the kernel has killed a process of this group because of a memory limit: its own, or
    /// that of all groups. The group must not be used again then.
    #[must_use]
    pub fn is_out_of_memory(&self, number: u32) -> bool {
        let kills = |at: BorrowedFd<'_>, group: &str| {
            let file = format!("{group}/{}", self.version.events());
            let file = open_file(at, &file).ok()?;
            let mut text = [0; TEXT_MAX];
            let text = read_text(&file, &mut text).ok()?;
            let kills = text.lines().find_map(|line| line.strip_prefix(KILLS));
            kills.and_then(self::number)
        };
        let memory = self.hierarchies.first();
        let own = memory.and_then(|memory| kills(memory.ours.as_fd(), &number.to_string()));
        let in_background = memory
            .filter(|_| self.has_background_limits(number))
            .and_then(|memory| kills(memory.above.as_fd(), &self.background_name(number)));
        [own, in_background]
            .into_iter()
            .flatten()
            .any(|kills| kills > 0)
    }

    /// Takes back a group whose jail has ended, or was never made. It is kept for the next jail if
    /// it may be, unless enough groups are kept, or memory is still charged to it: the group above
    /// takes over that charge.
    pub fn give_back(&self, number: u32, may_be_kept: bool) {
        self.end_background(number);
        let mut free_list = self.free_list.borrow_mut();
        if !free_list.release(number) {
            return;
        }
        if may_be_kept && free_list.has_room() && self.is_clean(number) {
            free_list.add(number)
        } else {
            self.remove_one(number)
        }
    }

    fn is_clean(&self, number: u32) -> bool {
        let usage = self.hierarchies.first().map(|memory| {
            let file = format!("{number}/{}", self.version.usage());
            get(memory.ours.as_fd(), &file)
        });
        // A group whose use cannot be read is used again: perhaps that holds for all groups.
        !matches!(usage, Some(Ok(usage)) if usage > CLEAN)
    }

    fn remove_one(&self, number: u32) {
        for hierarchy in &self.hierarchies {
            remove(hierarchy.ours.as_fd(), &number.to_string());
        }
    }

    /// Removes the groups of processes that ended without removing them, as soon as that is
    /// possible.
    fn remove_stale_groups(&self) {
        if !self.has_stale_groups.replace(false) {
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
                    self.has_stale_groups
                        .set(self.has_stale_groups.get() | !remove(above, &name));
                }
            }
        }
    }

    /// Removes all groups. Their jails must have ended.
    pub fn remove(&self) {
        self.remove_stale_groups();
        self.remove_all_background_groups();
        for hierarchy in &self.hierarchies {
            remove_below(hierarchy.ours.as_fd());
            remove(hierarchy.above.as_fd(), &self.name);
        }
    }
}

/// Returns a weight of `each` per processor, at most the kernel's maximum.
fn for_processors(each: u64) -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    (each * processors).min(WEIGHT_MAX)
}

/// Returns the name of the file for a weight, and the value to write to it.
fn weight_file(version: CgroupVersion, weight: u64) -> (&'static str, u64) {
    match version {
        // The kernel takes no less than 2.
        CgroupVersion::One => ("cpu.shares", (weight.saturating_mul(1024) / 100).max(2)),
        CgroupVersion::Two => ("cpu.weight", weight.max(1)),
    }
}

/// Sets a weight. Without effect if the kernel does not account for processors.
fn put_weight(version: CgroupVersion, folder: BorrowedFd<'_>, weight: u64) {
    let (file, value) = weight_file(version, weight);
    let _ = put(folder, file, &value.to_string());
}

/// Writes the limits of a group, whose files for memory and processes are in these folders.
///
/// # Errors
/// Returns the error of writing the memory or process limit.
fn put_limits(
    version: CgroupVersion,
    [memory, processes]: [BorrowedFd<'_>; 2],
    bytes: u64,
    count: u64,
) -> Result<(), Errno> {
    put(memory, version.memory(), &bytes.to_string())?;
    put(processes, "pids.max", &count.to_string())?;
    // Some kernels do not account for swap.
    let _ = match version {
        CgroupVersion::One => put(memory, "memory.swappiness", "0"),
        CgroupVersion::Two => put(memory, "memory.swap.max", "0"),
    };
    Ok(())
}

/// Delegates the controllers that are used to the groups below.
fn delegate_controllers(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    for (index, controller) in CONTROLLERS.iter().enumerate() {
        match put(folder, "cgroup.subtree_control", &format!("+{controller}")) {
            // Then processors are shared evenly.
            Err(_) if index >= NEEDED => {}
            done => done?,
        }
    }
    Ok(())
}

/// Returns the names of the folders in a folder.
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

/// Removes a group; returns whether it is gone. A group with processes stays.
fn remove(at: BorrowedFd<'_>, name: &str) -> bool {
    match rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => true,
        Err(_) => false,
    }
}

impl Group {
    /// Sets the group's limits.
    ///
    /// # Errors
    /// Returns the error of writing the memory or process limit.
    pub fn set(&self, share: Share) -> Result<(), Errno> {
        // Each file is in the hierarchy of its controller; the unified hierarchy has all.
        let [memory, processes, processors] = match (self.version, self.folders.as_slice()) {
            (CgroupVersion::Two, [all]) => [Some(all), Some(all), Some(all)],
            (_, folders) => [folders.first(), folders.get(1), folders.get(2)],
        };
        let (Some(memory), Some(processes)) = (memory, processes) else {
            return Err(Errno::NOENT);
        };
        let folders = [memory.as_fd(), processes.as_fd()];
        put_limits(self.version, folders, share.memory, share.processes)?;
        if let Some(processors) = processors {
            put_weight(self.version, processors.as_fd(), share.weight);
        }
        Ok(())
    }

    /// Returns the descriptor with which a process can be cloned into the group
    /// (`CLONE_INTO_CGROUP`); `None` if the process has to enter it itself.
    pub(crate) fn birthplace(&self) -> Option<&OwnedFd> {
        match self.version {
            CgroupVersion::One => None,
            CgroupVersion::Two => self.folders.first(),
        }
    }

    /// Moves the calling process into the group.
    ///
    /// # Errors
    /// Returns the error of the move.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        self.folders
            .iter()
            .try_for_each(|folder| put(folder.as_fd(), "cgroup.procs", "0"))
    }
}

#[cfg(test)]
mod tests;
