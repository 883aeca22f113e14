//! The processes of a pool as the kernel shows them.

use std::fs;
use std::time::Duration;

/// Returns all descendants of this process.
pub fn our_processes() -> Vec<u32> {
    let mut found = Vec::new();
    let own = std::process::id();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let mut at: u32 = pid;
        while at > 1 {
            let Ok(status) = fs::read_to_string(format!("/proc/{at}/status")) else {
                break;
            };
            let parent = status
                .lines()
                .find_map(|line| line.strip_prefix("PPid:"))
                .and_then(|parent| parent.trim().parse().ok())
                .unwrap_or(0);
            if parent == own {
                found.push(pid);
                break;
            }
            at = parent;
        }
    }
    found
}

/// Returns all sandboxes: processes, and threads of this process.
pub fn sandboxes() -> Vec<u32> {
    let mut sandboxes = our_processes();
    // The kernel wakes the joiner of a thread while it still lists the thread.
    sandboxes.extend(our_threads().into_iter().filter(|id| !is_exiting(*id)));
    sandboxes.retain(|pid| name_of(*pid) == "faasw-sandbox");
    sandboxes.sort_unstable();
    sandboxes
}

/// Returns all threads of this process.
pub fn our_threads() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    threads
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok())
        .collect()
}

/// Whether a process or thread is exiting, and so runs no code of its own any more (`PF_EXITING`
/// among its flags, or gone).
fn is_exiting(id: u32) -> bool {
    const PF_EXITING: u32 = 4;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The fields follow the name in brackets: field 0 is the state, field 6 the flags.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let flags = fields.split_whitespace().nth(6);
    flags.is_none_or(|flags| flags.parse().unwrap_or(0) & PF_EXITING != 0)
}

pub fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the nice value of a process or thread; 0 if it has ended.
pub fn nice(id: u32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The fields follow the name in brackets: field 0 is the state, field 16 the nice value.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let nice = fields.split_whitespace().nth(16);
    nice.and_then(|nice| nice.parse().ok()).unwrap_or(0)
}

/// Returns the CPU time that a process has used, in clock ticks.
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The fields follow the name in brackets: field 0 is the state, 11 the user time, 12 the system
    // time.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    [11, 12]
        .iter()
        .filter_map(|at| fields.get(*at)?.parse::<u64>().ok())
        .sum()
}

/// Returns the CPU time that a process has used: exact if the kernel accounts it exactly, otherwise
/// in clock ticks.
pub fn cpu_time(pid: u32) -> Duration {
    let exact: Option<u64> = fs::read_dir(format!("/proc/{pid}/task"))
        .ok()
        .and_then(|tasks| {
            tasks
                .flatten()
                .map(|task| {
                    let told = fs::read_to_string(task.path().join("schedstat")).ok()?;
                    told.split_whitespace().next()?.parse::<u64>().ok()
                })
                .sum()
        });
    match exact {
        Some(nanoseconds) if nanoseconds > 0 => Duration::from_nanos(nanoseconds),
        // Linux reports a hundred ticks per second to all programs.
        _ => Duration::from_millis(cpu_ticks(pid) * 10),
    }
}

/// Returns how many read system calls a process has made; `None` if the kernel does not count them.
pub fn reads(pid: u32) -> Option<u64> {
    let told = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let mut lines = told.lines();
    let reads = lines.find_map(|line| line.strip_prefix("syscr:"))?;
    reads.trim().parse().ok()
}

/// Returns a process's memory of the given kinds, in KiB; `kinds` are fields of `smaps_rollup`.
pub fn memory(pid: u32, kinds: &[&str]) -> u64 {
    field_sum(&format!("/proc/{pid}/smaps_rollup"), kinds)
}

/// Returns a process's peak resident memory, in KiB.
pub fn peak_memory(pid: u32) -> u64 {
    field_sum(&format!("/proc/{pid}/status"), &["VmHWM:"])
}

fn field_sum(path: &str, fields: &[&str]) -> u64 {
    let told = fs::read_to_string(path).unwrap();
    let of = |field: &&str| -> u64 {
        let line = told.lines().find_map(|line| line.strip_prefix(*field));
        let value = line.and_then(|rest| rest.split_whitespace().next());
        value.unwrap().parse().unwrap()
    };
    fields.iter().map(of).sum()
}

/// Returns how many descriptors this process has for a sandbox or instance: a socket, an eventfd, a
/// mailbox and, if this system has it, a userfaultfd.
pub fn descriptors_of_a_sandbox() -> usize {
    3 + usize::from(std::fs::File::open("/dev/userfaultfd").is_ok())
}

/// Returns the number of open descriptors of this process.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub fn kill(pid: u32) {
    signal(pid, "KILL");
}

/// Sends the signal of this name.
pub fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Whether a process has ended, reaped or not.
pub fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    state.is_empty() || state.starts_with('Z')
}
