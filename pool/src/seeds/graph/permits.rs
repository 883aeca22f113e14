//! Permits to make seeds, and the makings under way.

use std::sync::Arc;

use faasw_seedtree::{Key, Owner};

use super::{Seeds, lock};
use crate::fair_slots::Urgency;
use crate::seeds::slots::{SeedPermit, SeedProgress, SeedRequest, SeedSlots};
use crate::stats::MemoryStats;

/// How many times the memory for sandboxes all initialising guests may come to at worst, if a
/// control group holds all sandboxes to that memory. Few of them come to their worst at once.
const OVERCOMMIT: u64 = 2;

/// The part of the memory for sandboxes that all initialising guests may come to at worst, if no
/// control group holds them: a half leaves requests the other one.
const MEMORY_PART: u64 = 2;

/// A seed on its way.
#[derive(Debug)]
pub(super) struct UnderWay {
    name: String,
    progress: Arc<SeedProgress>,
}

impl UnderWay {
    /// A seed of this name.
    pub(super) fn new(name: &str, progress: Arc<SeedProgress>) -> Self {
        Self {
            name: name.to_owned(),
            progress,
        }
    }
}

/// Bytes that all initialising guests may come to at worst.
fn memory_of_guests(memory: MemoryStats) -> u64 {
    match memory.used {
        Some(_) => memory.max.saturating_mul(OVERCOMMIT),
        None => memory.max / MEMORY_PART,
    }
}

impl Seeds {
    /// A permit to make a seed of a function's with so much memory ahead of need, as soon as it
    /// can be had.
    pub fn permit_ahead(
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
        // The seeds may end before the permit can be had.
        async move { Arc::new(slots.permit(request, &SeedProgress::default()).await) }
    }

    /// The slots, with the bound of memory that holds now.
    pub(super) fn current_slots(&self) -> &Arc<SeedSlots> {
        if let Some(stock) = self.stock.upgrade() {
            self.slots.limit_memory(memory_of_guests(stock.memory()));
        }
        &self.slots
    }

    /// How far a seed on its way is; nothing if it is not.
    pub fn progress(&self, key: Key) -> Option<Arc<SeedProgress>> {
        let under_way = lock(&self.under_way);
        under_way.get(&key).map(|seed| seed.progress.clone())
    }

    /// How many makings come before that of a function's seed; nothing if none of its seeds waits
    /// for a slot.
    pub fn queued_behind(&self, name: &str) -> Option<usize> {
        let under_way = lock(&self.under_way);
        let its = under_way.values().filter(|seed| seed.name == name);
        its.filter_map(|seed| seed.progress.queued_behind()).max()
    }
}
