//! A process from the node's side: the task that drives its sockets, and its liveness. It is probed
//! when it is silent while a caller waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
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
    received: AtomicU64,
    wanted: Notify,
}

impl Liveness {
    /// Records that the process has sent something.
    pub fn record_activity(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a caller waits for the process from now on.
    pub fn notify_caller_waits(&self) {
        self.wanted.notify_one();
    }

    fn count(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns once the process has not answered in time. `is_wanted` returns whether a caller
    /// waits for it, and `probe` probes it. While no caller waits, this future is not woken.
    pub async fn until_unresponsive(&self, is_wanted: impl Fn() -> bool, probe: impl Fn()) {
        loop {
            self.wanted.notified().await;
            while is_wanted() {
                let before = self.count();
                sleep(PROBE_AFTER).await;
                if self.count() != before || !is_wanted() {
                    continue;
                }
                probe();
                sleep(PROBE_TIMEOUT - FINAL_WAIT).await;
                sleep(FINAL_WAIT).await;
                if self.count() == before {
                    return;
                }
            }
        }
    }
}

/// A process that this process drives, by its state here.
pub trait Process: Send + Sync + 'static {
    /// Returns the handle that is shared with the task of the process.
    fn link(&self) -> &ProcessLink;

    /// Returns whether a caller waits for the process.
    fn is_waited_for(&self) -> bool;

    /// Sends a probe, which the process answers at once.
    fn probe(&self);

    /// Ends what waits for the process. Called when the process is of no more use.
    fn close(&self);
}

/// Whether a process is alive and still of use.
#[derive(Debug, Default)]
pub struct ProcessLink {
    /// An event that the process has sent.
    pub liveness: Arc<Liveness>,
    closed: watch::Sender<bool>,
}

impl ProcessLink {
    /// Abandons the process: its task ends, and closes its sockets, which ends the process.
    pub fn abandon(&self) {
        self.closed.send_replace(true);
    }

    /// Waits until the process is gone or was abandoned.
    pub async fn closed(&self) {
        // The sender is held by `self`, so this cannot fail.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns whether the process is gone or was abandoned.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }
}

/// Spawns the task that writes to a process and reads from it. When `write` or `listen` ends, or
/// the process does not answer or was abandoned, the process is of no more use: it is closed.
/// Neither future may hold the process itself, because its last handle ends the task, too.
pub fn spawn_task<P: Process>(
    process: &Arc<P>,
    write: impl Future<Output = io::Result<()>> + Send + 'static,
    listen: impl Future<Output = io::Result<()>> + Send + 'static,
) {
    let weak = Arc::downgrade(process);
    let liveness = process.link().liveness.clone();
    let mut closed = process.link().closed.subscribe();
    tokio::spawn(async move {
        let is_waited_for = || {
            weak.upgrade()
                .is_some_and(|process| process.is_waited_for())
        };
        let probe = || {
            if let Some(process) = weak.upgrade() {
                process.probe();
            }
        };
        // The sockets are closed with this task.
        let _ = tokio::select! {
            written = write => written,
            listened = listen => listened,
            () = liveness.until_unresponsive(is_waited_for, probe) => Ok(()),
            _ = closed.wait_for(|closed| *closed) => Ok(()),
        };
        if let Some(process) = weak.upgrade() {
            process.close();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_process_is_probed_and_lost_without_an_answer() {
        let (liveness, probes) = (Liveness::default(), Cell::new(0));
        liveness.notify_caller_waits();
        let probe = || {
            probes.set(probes.get() + 1);
            if probes.get() < 3 {
                liveness.record_activity();
            }
        };
        let start = tokio::time::Instant::now();
        liveness.until_unresponsive(|| true, probe).await;
        assert_eq!(
            (probes.get(), start.elapsed()),
            (3, 3 * (PROBE_AFTER + PROBE_TIMEOUT))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_not_probed_while_it_sends_or_no_caller_waits() {
        let (liveness, is_wanted) = (Liveness::default(), Cell::new(true));
        liveness.notify_caller_waits();
        let sending = async {
            for _ in 0..30 {
                sleep(PROBE_AFTER / 2).await;
                liveness.record_activity();
            }
            is_wanted.set(false);
            sleep(10 * PROBE_TIMEOUT).await;
        };
        let lost = liveness.until_unresponsive(|| is_wanted.get(), || panic!("probes"));
        tokio::select! {
            () = lost => panic!("lost"),
            () = sending => {}
        }
    }
}
