//! The processors that a process may use (sched(7)).

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
/// Without effect if the kernel refuses it: another user's process takes `CAP_SYS_NICE`, and a
/// process that has ended uses no processor.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_limited_to_the_first_processors_and_gets_all_back() {
        let all = sched_getaffinity(None).unwrap();
        let limited = std::thread::spawn(move || {
            let own = rustix::thread::gettid();
            [Some(1), Some(u64::MAX), Some(1), None].map(|count| {
                // The test's own thread keeps all, so they are known here.
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
