//! Polling for an event that comes in a moment, when a sleep and a wake would take longer.

use std::hint;
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// How long a poll lasts without yielding to the runtime's other tasks, so that they wait no longer
/// for this task than for any other. Yielding more often would cost more than it gains: on a
/// runtime with several threads it wakes another thread each time, and that takes a processor.
const SPIN_TIME: Duration = Duration::from_micros(10);

/// The number of such spins. They are 20 us in total: less than a sleep and a wake cost.
const SPINS: u32 = 2;

/// The number of pauses between two tries, together a fraction of a microsecond.
const PAUSES: u32 = 16;

/// Returns what `find` finds, if it finds it within a moment.
pub async fn poll_briefly<T>(mut find: impl FnMut() -> Option<T>) -> Option<T> {
    for nth in 0..SPINS {
        if nth > 0 {
            yield_now().await;
        }
        let begun = Instant::now();
        while begun.elapsed() < SPIN_TIME {
            if let Some(found) = find() {
                return Some(found);
            }
            for _ in 0..PAUSES {
                hint::spin_loop();
            }
        }
    }
    find()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_result_during_the_poll_is_returned() {
        let mut left = 3;
        let found = poll_briefly(|| {
            left -= 1;
            (left == 0).then_some("it")
        });
        assert_eq!(found.await, Some("it"));
    }

    /// On a runtime with one thread, too, other tasks run during a poll.
    #[tokio::test]
    async fn other_tasks_run_during_a_poll() {
        let has_come = Cell::new(false);
        let looks = poll_briefly(|| has_come.get().then_some(()));
        let comes = async { has_come.set(true) };
        let (found, ()) = tokio::join!(biased; looks, comes);
        assert_eq!(found, Some(()));
    }

    #[tokio::test]
    async fn a_poll_ends_without_a_result() {
        assert_eq!(poll_briefly(|| None::<()>).await, None);
    }
}
