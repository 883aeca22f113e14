//! A server's processes, with their CPU time and memory, as /proc reports them.
//!
//! A server is a process with all its descendants. CPU time is what these have used, and what their
//! children had used that ended and were waited for. A node's spawner waits for every sandbox that
//! ends, so no sandbox's time is lost. The time that a guest runs is counted for its sandbox.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

/// Name of the processes that hold a microVM each.
const SANDBOX: &str = "faasw-sandbox";

/// The number of a process.
pub type Pid = u32;

/// The used fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    /// Whether the process has ended and was not waited for yet.
    ended: bool,
    parent: Pid,
    /// CPU time of children that ended and were waited for, and of their children, in clock ticks.
    children_ticks: u64,
}

impl Stat {
    /// Parses a line. The name is in parentheses and may contain any byte, even a parenthesis, so
    /// it ends at the last one.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        // Fields count from 1 in proc_pid_stat(5); the first after the name is 3.
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            name: name.to_owned(),
            ended: *fields.first()? == "Z",
            parent: Pid::try_from(field(4)?).ok()?,
            children_ticks: field(16)? + field(17)?,
        })
    }
}

/// A process with all its descendants, at one moment.
#[derive(Debug)]
pub struct Tree {
    processes: BTreeMap<Pid, Stat>,
}

impl Tree {
    /// Returns the tree below `root`.
    ///
    /// # Errors
    /// Returns an error if there is no such process.
    pub fn of(root: Pid) -> Result<Self> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            // A process that has ended meanwhile is no longer part of the tree.
            if let Ok(line) = fs::read_to_string(format!("/proc/{pid}/stat"))
                && let Some(stat) = Stat::parse(&line)
            {
                all.insert(pid, stat);
            }
        }
        ensure!(all.contains_key(&root), "there is no process {root}");
        let below = descendants(root, &all);
        all.retain(|pid, _| below.contains(pid));
        Ok(Self { processes: all })
    }

    /// Returns the number of processes.
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Iterates over the processes that hold a microVM each.
    pub fn sandboxes(&self) -> impl Iterator<Item = Pid> {
        self.processes
            .iter()
            .filter(|(_, stat)| stat.name == SANDBOX && !stat.ended)
            .map(|(pid, _)| *pid)
    }

    /// Returns the memory of all processes, with each page divided by the number of processes that
    /// map it.
    pub fn proportional_bytes(&self) -> u64 {
        let memory = self
            .processes
            .keys()
            .filter_map(|pid| Memory::of(*pid).ok());
        memory.map(|memory| memory.proportional_bytes).sum()
    }

    fn cpu_time(&self) -> Duration {
        let ticks: u64 = self
            .processes
            .values()
            .map(|stat| stat.children_ticks)
            .sum();
        let ticks_a_second = rustix::param::clock_ticks_per_second().max(1);
        let ended = Duration::from_nanos(ticks * (1_000_000_000 / ticks_a_second));
        let living = self.processes.keys().filter_map(|pid| own_cpu_time(*pid));
        living.sum::<Duration>() + ended
    }
}

/// Returns the CPU time that the process and its descendants have used so far.
///
/// # Errors
/// Returns an error if there is no such process.
pub fn cpu_time(root: Pid) -> Result<Duration> {
    Ok(Tree::of(root)?.cpu_time())
}

fn descendants(root: Pid, all: &BTreeMap<Pid, Stat>) -> BTreeSet<Pid> {
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        let children = all.iter().filter(|(_, stat)| found.contains(&stat.parent));
        let children: Vec<Pid> = children.map(|(pid, _)| *pid).collect();
        found.extend(children);
        if found.len() == before {
            return found;
        }
    }
}

/// Returns the CPU time of a process by its own clock, including its ended threads. /proc reports
/// it in ticks of 10 ms, which is most of a round.
fn own_cpu_time(pid: Pid) -> Option<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write only to the variable that they receive and keep no pointer.
    let failed = unsafe {
        libc::clock_getcpuclockid(i32::try_from(pid).ok()?, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
    };
    if failed {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

/// Memory of a process, by `/proc/PID/smaps_rollup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// USS: pages that no other process maps.
    pub unique_bytes: u64,
    /// PSS: each page divided by the number of processes that map it.
    pub proportional_bytes: u64,
}

impl Memory {
    /// Reads the memory of one process.
    ///
    /// # Errors
    /// Returns an error if the process has ended or belongs to another user.
    pub fn of(pid: Pid) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(format!(
            "/proc/{pid}/smaps_rollup"
        ))?))
    }

    fn parse(text: &str) -> Self {
        let mut memory = Self::default();
        for (name, bytes) in text.lines().filter_map(kibibytes) {
            if name.starts_with("Private_") {
                memory.unique_bytes += bytes;
            } else if name == "Pss" {
                memory.proportional_bytes = bytes;
            }
        }
        memory
    }
}

/// Returns how many bytes the machine can still allocate, by its kernel's estimate.
///
/// # Errors
/// Returns an error if `/proc/meminfo` cannot be read or has no such value.
pub fn available_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let mut lines = text.lines().filter_map(kibibytes);
    let found = lines.find(|(name, _)| *name == "MemAvailable");
    Ok(found.context("no MemAvailable in /proc/meminfo")?.1)
}

/// Returns the number of open file descriptors of a process.
///
/// # Errors
/// Returns an error if the process's folder in `/proc` cannot be read.
pub fn descriptors(pid: Pid) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Parses `Name:   12 kB` into the name and bytes.
fn kibibytes(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.split_once(':')?;
    let value = value.trim().strip_suffix("kB")?.trim();
    Some((name, value.parse::<u64>().ok()? << 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let line = "7 (a) b (c) S 5 7 7 0 -1 64 1 2 3 4 10 20 30 40 20 0 1";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat.name, "a) b (c");
        assert!(!stat.ended && Stat::parse(&line.replace(" S ", " Z ")).unwrap().ended);
        assert_eq!((stat.parent, stat.children_ticks), (5, 70));
        assert_eq!(Stat::parse("7 (cut off) S 5"), None);
    }

    #[test]
    fn descendants_are_found_at_every_depth_for_any_process_ids() {
        let parents = [(1, 0), (2, 9), (5, 1), (9, 5), (10, 3), (11, 2)];
        let all = parents.map(|(pid, parent)| {
            let stat = Stat {
                name: "p".to_owned(),
                ended: false,
                parent,
                children_ticks: 0,
            };
            (pid, stat)
        });
        let found = descendants(5, &BTreeMap::from(all));
        assert_eq!(found, BTreeSet::from([2, 5, 9, 11]));
    }

    #[test]
    fn unique_memory_is_all_that_is_private() {
        let text = "00-ff ---p 00000000 00:00 0   [rollup]\nRss:   912 kB\nPss:   196 kB\n\
            Pss_Dirty: 151 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: 72 kB\nPrivate_Hugetlb: 0 kB\n";
        let memory = Memory::parse(text);
        assert_eq!(memory.unique_bytes, 76 << 10);
        assert_eq!(memory.proportional_bytes, 196 << 10);
    }

    #[test]
    fn children_count_while_they_run_and_after_they_were_waited_for() {
        let own = std::process::id();
        let before = cpu_time(own).unwrap();
        let mut child = Command::new("sh")
            .args([
                "-c",
                "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read line",
            ])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        while own_cpu_time(pid).unwrap() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(Tree::of(own).unwrap().len() >= 2);
        let running = cpu_time(own).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let ended = cpu_time(own).unwrap();
        assert!(running - before >= Duration::from_millis(50));
        assert!(
            ended - before >= Duration::from_millis(40),
            "{:?}",
            ended - before
        );
    }

    #[test]
    fn this_machine_has_memory_and_this_process_descriptors() {
        assert!(available_bytes().unwrap() > 0);
        assert!(descriptors(std::process::id()).unwrap() > 0);
        assert!(Memory::of(std::process::id()).unwrap().unique_bytes > 0);
        assert!(Tree::of(u32::MAX).is_err());
    }
}
