//! Liveness of a process: it is probed when it is silent while a caller waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// How long a process may be silent while a caller waits for it, before it is probed.
pub const PROBE_AFTER: Duration = Duration::from_secs(2);

/// How long the process may take to answer a probe: far longer than one turn of its single thread
/// takes, even if other processes compete for the processor.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The last part of [`PROBE_TIMEOUT`], which is a wait of its own. If it was this process that
/// stood still, the answer has arrived by then.
const FINAL_WAIT: Duration = Duration::from_millis(500);

/// Counts what a process has sent, and wakes the watcher when a caller waits for the process.
#[derive(Debug, Default)]
pub struct Liveness {
    heard: AtomicU64,
    wanted: Notify,
}

impl Liveness {
    /// Records that the process has sent something.
    pub fn record_activity(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a caller waits for the process from now on.
    pub fn notify_caller_waits(&self) {
        self.wanted.notify_one();
    }

    fn count(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Returns once the process has not answered in time. `is_wanted` returns whether a caller
    /// waits for it, and `ask` probes it. While no caller waits, this future is not woken.
    pub async fn until_unresponsive(&self, is_wanted: impl Fn() -> bool, ask: impl Fn()) {
        loop {
            self.wanted.notified().await;
            while is_wanted() {
                let before = self.count();
                sleep(PROBE_AFTER).await;
                if self.count() != before || !is_wanted() {
                    continue;
                }
                ask();
                sleep(PROBE_TIMEOUT - FINAL_WAIT).await;
                sleep(FINAL_WAIT).await;
                if self.count() == before {
                    return;
                }
            }
        }
    }
}

/// Runs [`Liveness::until_unresponsive`] for the process of the handle `asked`. If the handle is
/// dropped meanwhile, no caller waits for the process.
pub async fn await_unresponsive<T>(
    liveness: Arc<Liveness>,
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
    liveness.until_unresponsive(is_wanted, ask).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_process_is_probed_and_lost_without_an_answer() {
        let (liveness, asked) = (Liveness::default(), Cell::new(0));
        liveness.notify_caller_waits();
        let ask = || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 {
                liveness.record_activity();
            }
        };
        let begun = tokio::time::Instant::now();
        liveness.until_unresponsive(|| true, ask).await;
        assert_eq!(
            (asked.get(), begun.elapsed()),
            (3, 3 * (PROBE_AFTER + PROBE_TIMEOUT))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_not_probed_while_it_sends_or_no_caller_waits() {
        let (liveness, is_wanted) = (Liveness::default(), Cell::new(true));
        liveness.notify_caller_waits();
        let saying = async {
            for _ in 0..30 {
                sleep(PROBE_AFTER / 2).await;
                liveness.record_activity();
            }
            is_wanted.set(false);
            sleep(10 * PROBE_TIMEOUT).await;
        };
        let lost = liveness.until_unresponsive(|| is_wanted.get(), || panic!("asked"));
        tokio::select! {
            () = lost => panic!("lost"),
            () = saying => {}
        }
    }
}
