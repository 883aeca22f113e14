//! Slots for making seeds.
//!
//! Making a function's seed runs its initialisation in a sandbox. It takes a slot of each of two
//! kinds. A *guest slot* bounds the memory of all initialisations: it is held to the end. A *CPU
//! slot* bounds how many run at the usual priority. It is released while the guest waits and after
//! half a second of CPU time ([`Pace`]), and the initialisation continues without it at a lower
//! priority. So an initialisation that sleeps or spins delays no other for long.
//!
//! Both kinds are shared fairly between functions, and makings that a client waits for come first.
//! The seeds that all functions share, which run the provider's own code, take no slots.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use faasw_common::Lock;
use faasw_seedtree::Owner;
use tokio::time::{Instant, timeout};

pub use self::pace::Priority;
use self::pace::{CpuSlots, Pace};
use crate::fair_slots::{
    FairSlots, PendingSlot, QueuePosition, Slot, SlotRequest, SlotRules, Urgency,
};

/// CPU slots for each processor: with two, one initialisation reads its code or waits for its
/// sandbox while another computes.
const CPU_SLOTS: usize = 2;

/// The part of all instances that may be initialising guests: a quarter leaves requests most of
/// the processes and descriptors.
const GUESTS_PART: usize = 4;

/// The least number of guest slots: a node for a few instances can still make the seeds of several
/// functions.
const GUESTS_MIN: usize = 8;

/// The part of all guest slots that one owner may hold: an eighth, but at least
/// [`OWNER_GUESTS_MIN`].
const OWNER_PART: usize = 8;

/// Guest slots that any owner may hold: one for requests and one for a deployment.
const OWNER_GUESTS_MIN: usize = 2;

/// The part of all guest slots that background work may hold.
const BACKGROUND_PART: usize = 4;

/// The worst-case bytes that an initialising guest takes besides its function's memory: mailbox,
/// guest and page tables, as for an instance at work.
const GUEST_OVERHEAD: u64 = 16 << 20;

/// The slots of a pool.
#[derive(Debug)]
pub struct SeedSlots {
    guests: Arc<FairSlots<Owner>>,
    cpu: Arc<CpuSlots>,
}

/// The right to make one seed.
#[derive(Debug)]
pub struct SeedPermit(Option<BoundedPermit>);

#[derive(Debug)]
struct BoundedPermit {
    owner: Owner,
    _guest: Slot<Owner>,
    pace: Lock<Pace>,
}

/// The progress of a seed that is being made, for reports.
#[derive(Debug, Default)]
pub struct SeedProgress(Lock<Phase>);

#[derive(Debug, Default)]
enum Phase {
    /// The seed is read from its image, or its ancestors are made.
    #[default]
    Preparing,
    /// The making waits for a slot.
    Queued(QueuePosition<Owner>),
    /// The guest runs.
    Initialising,
}

/// A request for a permit.
#[derive(Clone, Copy, Debug)]
pub struct SeedRequest {
    /// The owner of the code that the making runs.
    pub owner: Owner,
    /// Whether a client waits for it.
    pub urgency: Urgency,
    /// The memory of the function in bytes.
    pub memory: u64,
}

impl SeedSlots {
    /// Creates the slots of a pool on a machine with `processors` processors, which has at most
    /// `instances` instances at once.
    pub fn new(processors: usize, instances: usize) -> Arc<Self> {
        let guests = (instances / GUESTS_PART).max(GUESTS_MIN);
        let cpu = CPU_SLOTS * processors.max(1);
        Arc::new(Self {
            guests: FairSlots::new(SlotRules {
                total: guests,
                per_owner: (guests / OWNER_PART).max(OWNER_GUESTS_MIN),
                background: (guests / BACKGROUND_PART).max(1),
                background_yields: false,
            }),
            cpu: FairSlots::new(SlotRules {
                total: cpu,
                per_owner: (cpu / 2).max(1),
                background: processors.div_ceil(2).max(1),
                background_yields: true,
            }),
        })
    }

    /// Bounds the worst-case memory of all initialising guests, in bytes.
    pub fn limit_memory(&self, bytes: u64) {
        self.guests.limit_bytes(bytes);
    }

    /// Returns a permit, as soon as both slots are free. `progress` reports the place in the queue
    /// meanwhile. Dropping the future withdraws the request.
    pub async fn permit(&self, wanted: SeedRequest, progress: &SeedProgress) -> SeedPermit {
        let SeedRequest {
            owner,
            urgency,
            memory,
        } = wanted;
        if owner == Owner::Shared {
            progress.set(Phase::Initialising);
            return SeedPermit::unbounded();
        }
        let bytes = memory.saturating_add(GUEST_OVERHEAD);
        let request = SlotRequest {
            owner,
            urgency,
            bytes,
        };
        let guest = wait(self.guests.request(request), progress).await;
        // The guest slot has counted the memory.
        let request = SlotRequest {
            bytes: 0,
            ..request
        };
        let cpu = wait(self.cpu.request(request), progress).await;
        progress.set(Phase::Initialising);
        let pace = Pace::new(self.cpu.clone(), request, cpu);
        SeedPermit(Some(BoundedPermit {
            owner,
            _guest: guest,
            pace: Lock::new(pace),
        }))
    }

    /// Waits until no making that a client waits for holds or awaits a CPU slot, but at most this
    /// long.
    pub async fn foreground_done(&self, most: Duration) {
        let _ = timeout(most, self.cpu.foreground_done()).await;
    }
}

async fn wait(pending: PendingSlot<Owner>, progress: &SeedProgress) -> Slot<Owner> {
    match pending.try_take() {
        Ok(slot) => slot,
        Err(pending) => {
            if let Some(position) = pending.position() {
                progress.set(Phase::Queued(position));
            }
            pending.await
        }
    }
}

impl SeedPermit {
    /// Returns the permit of a making that takes no slots.
    pub fn unbounded() -> Self {
        Self(None)
    }

    /// Records the CPU time that the guest's process has used so far, if that is known. Returns the
    /// priority at which it is to run from now on.
    pub fn observe(&self, now: Instant, cpu: Option<Duration>) -> Priority {
        match &self.0 {
            Some(held) => held.pace.lock().observe(now, cpu),
            None => Priority::Usual,
        }
    }

    /// Returns whether this owner's seed may be made with it.
    pub fn is_of(&self, owner: Owner) -> bool {
        self.0.as_ref().is_some_and(|held| held.owner == owner)
    }

    /// Returns whether the guest has to be observed from now on: not if the making takes no slots,
    /// or has had its share.
    pub fn is_to_be_observed(&self) -> bool {
        let held = self.0.as_ref();
        held.is_some_and(|held| !held.pace.lock().is_spent())
    }
}

impl SeedProgress {
    fn set(&self, phase: Phase) {
        *self.0.lock() = phase;
    }

    /// Returns how many others come before it in the queue, or `None` if it does not wait for a
    /// slot.
    pub fn queued_behind(&self) -> Option<usize> {
        match &*self.0.lock() {
            Phase::Queued(position) => position.behind(),
            Phase::Preparing | Phase::Initialising => None,
        }
    }

    /// Returns whether the guest runs.
    #[cfg(test)]
    pub fn is_initialising(&self) -> bool {
        matches!(*self.0.lock(), Phase::Initialising)
    }
}

#[cfg(test)]
mod tests;
