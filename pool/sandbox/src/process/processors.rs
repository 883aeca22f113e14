//! The processors that a process may use (sched(7)).

use std::fs;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the number of processors that the calling thread may use; `None` if it is not known.
pub fn usable() -> Option<usize> {
    let all = sched_getaffinity(None).ok()?;
    usize::try_from(all.count()).ok()
}

/// Limits a process to the first `count` processors of those that the calling thread may use; to
/// all of them if `count` is `None`.
///
/// Without effect if the kernel refuses it: for another user's process it requires `CAP_SYS_NICE`,
/// and a process that has ended uses no processor.
pub fn limit(process: Pid, count: Option<u64>) {
    let Ok(all) = sched_getaffinity(None) else {
        return;
    };
    let count = count.map_or(CpuSet::MAX_CPU, |count| {
        usize::try_from(count).unwrap_or(CpuSet::MAX_CPU)
    });
    let mut allowed = CpuSet::new();
    let usable = (0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor));
    for processor in usable.take(count) {
        allowed.set(processor);
    }
    let _ = sched_setaffinity(Some(process), &allowed);
}

/// Returns the time for which the last `count` processors that the calling thread may use were idle
/// since the host's start, all together; `None` if it is not known.
///
/// The kernel counts it in hundredths of a second (proc_stat(5)).
pub fn idle(count: u64) -> Option<Duration> {
    let usable = sched_getaffinity(None).ok()?;
    let mut usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|at| usable.is_set(*at))
        .collect();
    let last = usable.split_off(usable.len().saturating_sub(usize::try_from(count).ok()?));
    let ticks = idle_ticks(&fs::read_to_string("/proc/stat").ok()?, &last)?;
    let nanoseconds = ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second());
    Some(Duration::from_nanos(nanoseconds))
}

/// Parses the idle time of some processors from `/proc/stat`, in clock ticks, all together; `None`
/// if one of them is not there. Waiting for a disk counts as idle.
fn idle_ticks(text: &str, processors: &[usize]) -> Option<u64> {
    let of = |processor: &usize| {
        let name = format!("cpu{processor}");
        let mut fields = text.lines().map(str::split_ascii_whitespace);
        let mut fields = fields.find_map(|mut line| (line.next()? == name).then_some(line))?;
        // After the times of user, nice and system.
        let idle: u64 = fields.nth(3)?.parse().ok()?;
        let disk: u64 = fields.next()?.parse().ok()?;
        idle.checked_add(disk)
    };
    processors
        .iter()
        .map(of)
        .try_fold(0, |sum: u64, one| sum.checked_add(one?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_time_of_processors_is_read() {
        let text = "cpu  9 9 9 99 9 0\ncpu0 1 2 3 40 5 6 7\ncpu1 1 2 3 400 50 6 7\nintr 5 cpu2\n";
        assert_eq!(idle_ticks(text, &[0]), Some(45));
        assert_eq!(idle_ticks(text, &[1, 0]), Some(495));
        for missing in [&[2][..], &[0, 10]] {
            assert_eq!(idle_ticks(text, missing), None);
        }
        for nonsense in [
            "",
            "cpu0",
            "cpu0 1 2 3 4",
            "cpu0 1 2 3 x 5",
            "cpu0 1 2 3 -4 5",
        ] {
            assert_eq!(idle_ticks(nonsense, &[0]), None, "{nonsense}");
        }
        let all = idle(u64::MAX);
        assert!(idle(1).is_some_and(|one| Some(one) <= all));
    }

    #[test]
    fn a_process_is_limited_to_the_first_processors_and_gets_all_back() {
        let all = sched_getaffinity(None).unwrap();
        let limited = std::thread::spawn(move || {
            let own = rustix::thread::gettid();
            [Some(1), Some(u64::MAX), Some(1), None].map(|count| {
                // The test's own thread keeps all processors, so they are known here.
                let maker = std::thread::scope(|scope| {
                    let maker = scope.spawn(move || {
                        sched_setaffinity(None, &all).unwrap();
                        limit(own, count);
                    });
                    maker.join()
                });
                maker.unwrap();
                sched_getaffinity(Some(own)).unwrap().count()
            })
        });
        let (one, every) = (1, all.count());
        assert_eq!(limited.join().unwrap(), [one, every, one, every]);
        // A process that has ended has none.
        limit(Pid::from_raw(i32::MAX).unwrap(), Some(1));
    }
}
