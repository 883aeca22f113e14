//! The memory that is available for sandboxes, of the machine's or of what this process's control
//! groups allow, and when it is short.

use std::fs;

use faasw_jail::group::memory_limit;

/// Memory is short if less than the limit divided by this is left.
pub const SHORTAGE_PART: u64 = 16;

/// The least memory that is left to the node and other programs.
const RESERVE_MIN: u64 = 256 << 20;
/// The most memory that is left to them: the node's own memory does not grow with the machine.
const RESERVE_MAX: u64 = 2 << 30;
/// In between, the memory divided by this is left to them.
const RESERVE_PART: u64 = 8;

/// Returns the default memory limit in bytes of all sandboxes together: the memory of the machine,
/// or the smallest limit of this process's control groups, less an eighth for the node (at least
/// 256 MiB, at most 2 GiB, never more than half).
#[must_use]
pub fn for_instances() -> u64 {
    let machine = meminfo().as_deref().and_then(Memory::read);
    share(machine.map(|memory| memory.total), memory_limit())
}

fn share(machine: Option<u64>, group: Option<u64>) -> u64 {
    let Some(total) = [machine, group].into_iter().flatten().min() else {
        // Neither the machine nor a group reports how much there is.
        return u64::MAX;
    };
    let reserve = (total / RESERVE_PART)
        .clamp(RESERVE_MIN, RESERVE_MAX)
        .min(total / 2);
    total - reserve
}

/// The machine's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The total memory.
    pub total: u64,
    /// The memory that is available without swapping.
    pub available: u64,
}

impl Memory {
    /// Returns the present memory of the machine.
    pub fn now() -> Option<Self> {
        Self::read(&meminfo()?)
    }

    /// Parses `/proc/meminfo` (proc_meminfo(5)).
    fn read(text: &str) -> Option<Self> {
        let bytes = |field: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(field))?;
            let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Some(Self {
            total: bytes("MemTotal:")?,
            available: bytes("MemAvailable:")?,
        })
    }
}

fn meminfo() -> Option<String> {
    fs::read_to_string("/proc/meminfo").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:       24684092 kB\nMemFree:        22095612 kB\nMemAvailable:   \
             23376988 kB\n";
        let memory = Memory::read(text).unwrap();
        assert_eq!(memory.total, 24_684_092 * 1024);
        assert_eq!(memory.available, 23_376_988 * 1024);
        for text in [
            "",
            "MemTotal: 5 kB\n",
            "MemTotal: x kB\nMemAvailable: 1 kB\n",
        ] {
            assert_eq!(Memory::read(text), None);
        }
        assert!(Memory::now().is_some_and(|memory| memory.available <= memory.total));
    }

    #[test]
    fn the_smaller_of_machine_and_group_counts_minus_a_reserve() {
        let share = |machine: u64, group: Option<u64>| {
            share(Some(machine * MIB), group.map(|group| group * MIB)) / MIB
        };
        assert_eq!(share(8192, None), 7168);
        assert_eq!(share(8192, Some(4096)), 3584);
        assert_eq!(share(4096, Some(8192)), 3584);
        // No less than the node needs, and no more.
        assert_eq!(share(1024, None), 768);
        assert_eq!(share(65536, Some(1024)), 768);
        assert_eq!(share(65536, None), 63488);
        // A group that is too small for both is halved.
        assert_eq!(share(65536, Some(256)), 128);
        assert_eq!(share(65536, Some(0)), 0);
    }

    #[test]
    fn without_any_known_memory_there_is_no_limit() {
        assert_eq!(super::share(None, None), u64::MAX);
        assert_eq!(super::share(None, Some(1 << 30)), (1 << 30) - 256 * MIB);
    }

    #[test]
    fn there_is_memory_for_instances_here() {
        let all = Memory::now().unwrap().total;
        assert!((1..all).contains(&for_instances()));
    }
}
