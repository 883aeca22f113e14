//! Polling for an event that comes in a moment, when a sleep and a wake would take longer.

use std::hint;
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// How long a poll lasts without yielding to the runtime's other tasks, so that they wait no longer
/// for this task than for any other. Yielding more often would cost more than it gains: on a
/// runtime with several threads it wakes another thread each time, and that takes a processor.
const TURN: Duration = Duration::from_micros(10);

/// The number of such turns. They are 20 us in total: less than a sleep and a wake cost.
const TURNS: u32 = 2;

/// The number of pauses between two tries, together a fraction of a microsecond.
const PAUSES: u32 = 16;

/// Returns what `find` finds, if it finds it within a moment.
pub async fn look_for<T>(mut find: impl FnMut() -> Option<T>) -> Option<T> {
    for nth in 0..TURNS {
        if nth > 0 {
            yield_now().await;
        }
        let begun = Instant::now();
        while begun.elapsed() < TURN {
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
    async fn what_comes_is_found() {
        let mut left = 3;
        let found = look_for(|| {
            left -= 1;
            (left == 0).then_some("it")
        });
        assert_eq!(found.await, Some("it"));
    }

    /// On a runtime with one thread, too, other tasks run during a poll.
    #[tokio::test]
    async fn others_have_their_turn_meanwhile() {
        let has_come = Cell::new(false);
        let looks = look_for(|| has_come.get().then_some(()));
        let comes = async { has_come.set(true) };
        let (found, ()) = tokio::join!(biased; looks, comes);
        assert_eq!(found, Some(()));
    }

    #[tokio::test]
    async fn what_does_not_come_is_not_looked_for_for_ever() {
        assert_eq!(look_for(|| None::<()>).await, None);
    }
}
