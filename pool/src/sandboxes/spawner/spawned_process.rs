//! A process that the spawner has made, as its owner sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use faasw_fri::messages::{FunctionNumber, SetBackgroundGroup, SetPriority, Spawned};
use rustix::io::Errno;

use super::{QueuedOrder, Spawner};
use crate::sandboxes::cpu_clock::{clock_of, cpu_time};
use crate::sandboxes::process::{ProcessCreationTimes, ProcessHandle};

/// Whether a process is in the background group: all others that want a processor run before it.
#[derive(Debug, Default)]
pub(super) struct BackgroundGroupState {
    /// The last order was to put it there.
    pub(super) is_requested: AtomicBool,
    /// The spawner has reported that it is there.
    pub(super) is_in_effect: AtomicBool,
}

/// A requested process; it keeps the spawner alive.
#[derive(Debug)]
pub(super) struct SpawnedProcess {
    pub(super) spawner: Arc<Spawner>,
    pub(super) token: u64,
    pub(super) background_group: Arc<BackgroundGroupState>,
    /// Set once the process was made. The clock of its CPU time is `None` if it had ended by then.
    pub(super) spawned: OnceLock<(Option<libc::clockid_t>, ProcessCreationTimes)>,
}

impl SpawnedProcess {
    pub(super) fn record_spawned(&self, spawned: &Spawned) {
        let times = ProcessCreationTimes {
            group: Duration::from_nanos(spawned.group_nanoseconds),
            fork: Duration::from_nanos(spawned.fork_nanoseconds),
        };
        let _ = self.spawned.set((clock_of(spawned.pid), times));
    }
}

impl ProcessHandle for SpawnedProcess {
    fn kill(&self) {
        self.spawner.kill(self.token);
    }

    fn is_orphan(&self) -> bool {
        self.spawner.is_gone()
    }

    fn assign(&self, bytes: u64, function: Option<FunctionNumber>) {
        self.spawner.assign(self.token, bytes, function);
    }

    fn set_background(&self, background: bool) {
        let order = QueuedOrder::SetPriority(SetPriority {
            token: self.token,
            background: background.into(),
        });
        // Sending fails if the spawner ends, and its processes with it.
        let _ = self.spawner.orders.send(order);
    }

    fn set_background_group(&self, background: bool) {
        if background
            && self
                .spawner
                .refuses_background_group
                .load(Ordering::Relaxed)
        {
            return;
        }
        if self
            .background_group
            .is_requested
            .swap(background, Ordering::AcqRel)
            == background
        {
            return;
        }
        if !background {
            // The spawner reports when it is in the group again.
            self.background_group
                .is_in_effect
                .store(false, Ordering::Release);
        }
        let order = QueuedOrder::SetBackgroundGroup(SetBackgroundGroup {
            token: self.token,
            background: background.into(),
        });
        let _ = self.spawner.orders.send(order);
    }

    fn is_in_background_group(&self) -> bool {
        self.background_group.is_requested.load(Ordering::Acquire)
            && self.background_group.is_in_effect.load(Ordering::Acquire)
    }

    fn may_be_in_background_group(&self) -> bool {
        self.background_group.is_requested.load(Ordering::Acquire)
    }

    fn cpu_time(&self) -> Result<Duration, Errno> {
        let clock = self.spawned.get().and_then(|(clock, _)| *clock);
        cpu_time(clock.ok_or(Errno::SRCH)?)
    }

    fn creation_times(&self) -> ProcessCreationTimes {
        self.spawned
            .get()
            .map(|(_, times)| *times)
            .unwrap_or_default()
    }
}
