//! Liveness of a process: it is probed when it is silent while a caller waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// How long a process may be silent while a caller waits for it, before it is probed.
pub const SILENCE: Duration = Duration::from_secs(2);

/// How long the process may take to answer a probe: far longer than one turn of its single thread
/// takes, even if other processes compete for the processor.
pub const ANSWER: Duration = Duration::from_secs(5);

/// The last part of [`ANSWER`], which is a wait of its own. If it was this process that stood
/// still, the answer has arrived by then.
const LAST: Duration = Duration::from_millis(500);

/// Counts what a process has sent, and wakes the watcher when a caller waits for the process.
#[derive(Debug, Default)]
pub struct Listens {
    heard: AtomicU64,
    wanted: Notify,
}

impl Listens {
    /// Records that the process has sent something.
    pub fn heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a caller waits for the process from now on.
    pub fn wanted(&self) {
        self.wanted.notify_one();
    }

    fn count(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Returns once the process has not answered in time. `is_wanted` returns whether a caller
    /// waits for it, and `ask` probes it. While no caller waits, this future is not woken.
    pub async fn lost(&self, is_wanted: impl Fn() -> bool, ask: impl Fn()) {
        loop {
            self.wanted.notified().await;
            while is_wanted() {
                let before = self.count();
                sleep(SILENCE).await;
                if self.count() != before || !is_wanted() {
                    continue;
                }
                ask();
                sleep(ANSWER - LAST).await;
                sleep(LAST).await;
                if self.count() == before {
                    return;
                }
            }
        }
    }
}

/// Runs [`Listens::lost`] for the process of the handle `asked`. If the handle is dropped
/// meanwhile, no caller waits for the process.
pub async fn lost<T>(
    listens: Arc<Listens>,
    asked: Weak<T>,
    is_wanted: impl Fn(&T) -> bool,
    ask: impl Fn(&T),
) {
    let is_wanted = || asked.upgrade().is_some_and(|asked| is_wanted(&asked));
    let ask = || {
        if let Some(asked) = asked.upgrade() {
            ask(&asked);
        }
    };
    listens.lost(is_wanted, ask).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_while_somebody_waits_is_asked_and_lost_without_an_answer() {
        let (listens, asked) = (Listens::default(), Cell::new(0));
        listens.wanted();
        let ask = || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 {
                listens.heard();
            }
        };
        let begun = tokio::time::Instant::now();
        listens.lost(|| true, ask).await;
        assert_eq!((asked.get(), begun.elapsed()), (3, 3 * (SILENCE + ANSWER)));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_for_whom_nobody_waits_or_who_says_something() {
        let (listens, is_wanted) = (Listens::default(), Cell::new(true));
        listens.wanted();
        let saying = async {
            for _ in 0..30 {
                sleep(SILENCE / 2).await;
                listens.heard();
            }
            is_wanted.set(false);
            sleep(10 * ANSWER).await;
        };
        tokio::select! {
            () = listens.lost(|| is_wanted.get(), || panic!("asked")) => panic!("lost"),
            () = saying => {}
        }
    }
}
