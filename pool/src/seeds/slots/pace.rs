//! The pace of an initialisation: when it holds a CPU slot, and at which priority it runs.
//!
//! The node observes the CPU time of the guest's process, by the kernel's account: the guest's own
//! word is not needed. An initialisation begins with a slot.
//!
//! - If it uses no CPU time for a while, it waits (it sleeps, or awaits a host call), and its slot
//!   is released.
//! - When it runs again, it requests another slot, and runs at a lower priority until it has one.
//! - Once it has had its share of CPU time, it goes on without a slot, at a lower priority, to its
//!   end. So alternating between sleep and work gains nothing.

use std::time::Duration;

use faasw_seedtree::Owner;
use tokio::time::Instant;

use crate::fair_slots::{FairSlots, PendingSlot, Slot, SlotRequest};

/// The slots of makings that run at the usual priority.
pub type CpuSlots = FairSlots<Owner>;

/// CPU time that one making may use at the usual priority: ten times what a script's initialisation
/// takes (50 ms), so that nearly all are done by then.
const SHARE: Duration = Duration::from_millis(500);

/// Wall time that one making may hold a slot for in all, whatever it uses: a guest that uses
/// little CPU time on purpose, or cannot be observed, gives its slot back, too.
const HELD_MAX: Duration = Duration::from_secs(2);

/// Wall time without CPU time after which a guest counts as waiting. 60 ms are longer than a
/// runnable process of usual priority waits for a processor, and too short to be noticed.
const IDLE: Duration = Duration::from_millis(60);

/// The part of the observed time from which on a guest counts as running: a twentieth. A guest
/// that wakes for a moment now and then needs no slot.
const RUNNING_PART: u32 = 20;

/// The priority of a guest's process among all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The priority of all processes.
    Usual,
    /// Lower: others get ten times as much of a processor that both want.
    Background,
}

/// Whether a making holds a slot.
#[derive(Debug)]
enum SlotState {
    Holds {
        slot: Slot<Owner>,
    },
    /// The guest waits, and needs none.
    Waits,
    /// The guest runs, and no slot is free.
    Queued(PendingSlot<Owner>),
    /// The making has had its share.
    Spent,
}

/// The use of CPU slots by one making.
#[derive(Debug)]
pub struct Pace {
    slots: std::sync::Arc<CpuSlots>,
    request: SlotRequest<Owner>,
    slot_state: SlotState,
    /// CPU time used at the usual priority.
    used: Duration,
    /// Wall time with a slot.
    held: Duration,
    /// When it was observed last, and the CPU time of its process then.
    last: Option<(Instant, Duration)>,
    /// For how long it has used no CPU time.
    idle: Duration,
}

impl Pace {
    /// Creates the pace of a making that holds this slot.
    pub fn new(
        slots: std::sync::Arc<CpuSlots>,
        request: SlotRequest<Owner>,
        slot: Slot<Owner>,
    ) -> Self {
        Self {
            slots,
            request,
            slot_state: SlotState::Holds { slot },
            used: Duration::ZERO,
            held: Duration::ZERO,
            last: None,
            idle: Duration::ZERO,
        }
    }

    /// Records the CPU time that the guest's process has used so far. Returns the priority at which
    /// it is to run.
    pub fn observe(&mut self, now: Instant, cpu: Option<Duration>) -> Priority {
        let (elapsed, ran) = self.since_last(now, cpu);
        let is_running = ran > elapsed / RUNNING_PART;
        self.idle = if is_running {
            Duration::ZERO
        } else {
            self.idle + elapsed
        };
        match self.slot_state {
            SlotState::Holds { .. } => {
                self.used += ran;
                self.held += elapsed;
            }
            // The guest has woken up since, at the usual priority.
            SlotState::Waits => self.used += ran,
            SlotState::Queued(_) | SlotState::Spent => {}
        }
        let is_spent = self.used >= SHARE || self.held >= HELD_MAX;
        self.slot_state = match std::mem::replace(&mut self.slot_state, SlotState::Spent) {
            _ if is_spent => SlotState::Spent,
            SlotState::Holds { slot } if self.idle < IDLE => SlotState::Holds { slot },
            SlotState::Waits if is_running => Self::queued(self.slots.request(self.request)),
            SlotState::Queued(pending) if self.idle < IDLE => Self::queued(pending),
            SlotState::Holds { .. } | SlotState::Waits | SlotState::Queued(_) => SlotState::Waits,
            SlotState::Spent => SlotState::Spent,
        };
        match self.slot_state {
            SlotState::Holds { .. } | SlotState::Waits => Priority::Usual,
            SlotState::Queued(_) | SlotState::Spent => Priority::Background,
        }
    }

    fn queued(pending: PendingSlot<Owner>) -> SlotState {
        match pending.try_take() {
            Ok(slot) => SlotState::Holds { slot },
            Err(pending) => SlotState::Queued(pending),
        }
    }

    /// Returns the wall time and the CPU time since the last observation. A making that begins
    /// again with another process begins at zero. If the CPU time is unknown, the guest counts as
    /// running.
    fn since_last(&mut self, now: Instant, cpu: Option<Duration>) -> (Duration, Duration) {
        let (then, before) = self.last.unwrap_or((now, cpu.unwrap_or_default()));
        let elapsed = now.saturating_duration_since(then);
        let Some(cpu) = cpu else {
            self.last = Some((now, before));
            return (elapsed, elapsed);
        };
        self.last = Some((now, cpu));
        (elapsed, cpu.checked_sub(before).unwrap_or(cpu))
    }

    /// Returns whether it has had its share, and needs no slot any more.
    pub fn is_spent(&self) -> bool {
        matches!(self.slot_state, SlotState::Spent)
    }

    /// Returns whether it holds a slot.
    #[cfg(test)]
    pub fn holds_slot(&self) -> bool {
        matches!(self.slot_state, SlotState::Holds { .. })
    }
}
