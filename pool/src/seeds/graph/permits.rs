//! Permits to make seeds, and the makings under way.

use std::sync::Arc;

use faasw_seedtree::{Key, Owner};

use super::Seeds;
use crate::fair_slots::Urgency;
use crate::seeds::slots::{SeedPermit, SeedProgress, SeedRequest, SeedSlots};
use crate::stats::MemoryStats;

/// The worst case of all initialising guests may reach the memory for sandboxes multiplied by this,
/// if a control group limits all sandboxes to that memory. Few guests reach their worst case at
/// once.
const OVERCOMMIT: u64 = 2;

/// The worst case of all initialising guests may reach the memory for sandboxes divided by this, if
/// no control group limits them. One half remains for requests.
const MEMORY_PART: u64 = 2;

/// Returns the worst-case memory in bytes that all initialising guests may reach.
fn memory_of_guests(memory: MemoryStats) -> u64 {
    match memory.used {
        Some(_) => memory.max.saturating_mul(OVERCOMMIT),
        None => memory.max / MEMORY_PART,
    }
}

impl Seeds {
    /// Waits for a permit to make a function's seed of `memory` bytes ahead of need.
    pub fn background_permit(
        &self,
        owner: Owner,
        memory: u64,
    ) -> impl Future<Output = Arc<SeedPermit>> + Send + use<> {
        let request = SeedRequest {
            owner,
            urgency: Urgency::Background,
            memory,
        };
        let slots = self.current_slots().clone();
        // The seeds may be dropped before the permit is available.
        async move { Arc::new(slots.permit(request, &SeedProgress::default()).await) }
    }

    /// Returns the slots, with the current limit of memory.
    pub(super) fn current_slots(&self) -> &Arc<SeedSlots> {
        if let Some(zygote_pool) = self.zygote_pool.upgrade() {
            self.slots
                .limit_memory(memory_of_guests(zygote_pool.memory()));
        }
        &self.slots
    }

    /// Returns the progress of a seed that is being made, or `None`.
    pub fn progress(&self, key: Key) -> Option<Arc<SeedProgress>> {
        let in_progress = self.in_progress.lock();
        in_progress.get(&key).map(|seed| seed.progress.clone())
    }

    /// Returns how many makings are queued before that of a function's seed, or `None` if none of
    /// its seeds waits for a slot.
    pub fn queued_behind(&self, name: &str) -> Option<usize> {
        let in_progress = self.in_progress.lock();
        let its = in_progress.values().filter(|seed| seed.name == name);
        its.filter_map(|seed| seed.progress.queued_behind()).max()
    }
}
