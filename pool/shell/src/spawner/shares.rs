//! How processors are shared among functions: the weight of each function's sandboxes.
//!
//! The kernel shares processors by control group, and each sandbox has a group of its own. So a
//! function with a hundred sandboxes that want to run would have a hundred shares. Here the weight of each
//! sandbox is divided by how many of its function want to run, which comes to one share a function.
//!
//! A function that uses more than an even share is held back further, one step at each look, down to a
//! sixteenth ([`HELD_BACK_MOST`]), and is let go as soon as it uses less. So what a neighbour of it wants, up to
//! an even share, it gets at once: with equal weights it would wait for the scheduler's slices.
//!
//! All of it is a function of what processes have used and waited for. Weights change by powers of two, so that
//! few are written.

use std::collections::BTreeMap;
use std::time::Duration;

use faasw_cell::group::WEIGHT_FULL;

/// Time between two looks while there is contention: several of the scheduler's slices, which take up to 4 ms.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Time between two looks while there is none. It is how long the first contention goes unnoticed.
const TICK_QUIET: Duration = Duration::from_secs(1);
/// How long contention counts after it has ended, so that a load in bursts does not have all weights
/// written for each of them.
const LINGER: Duration = Duration::from_secs(2);
/// How long a function counts as one that shares after its last request ran.
const PRESENT: Duration = Duration::from_secs(30);
/// Binary digits by which a function is held back that uses more than its share: to a sixteenth.
const HELD_BACK_MOST: u32 = 4;
/// One sandbox, or one processor, in the unit of all averages here.
const ONE: u64 = 1000;

/// What the processes of one function did since the last look, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Did {
    /// Time on a processor.
    pub ran: u64,
    /// Time in which they wanted one.
    pub waited: u64,
}

/// What one function wants and has.
#[derive(Debug, Default)]
struct Share {
    /// Sandboxes that want to run, a moving average.
    wanting: u64,
    /// Processors that it uses, a moving average.
    using: u64,
    /// Time since it last ran.
    idle: Duration,
    /// Binary digits that its weight is divided by for its number of sandboxes.
    divided: u32,
    /// The same, for what it uses above its share.
    held_back: u32,
}

/// The weights of all functions.
#[derive(Debug)]
pub(super) struct Shares {
    processors: u64,
    functions: BTreeMap<u64, Share>,
    /// How long contention still counts; nothing while there is none.
    contended: Duration,
}

impl Shares {
    /// All functions weigh the same on so many processors.
    pub(super) fn new(processors: u64) -> Self {
        Self {
            processors,
            functions: BTreeMap::new(),
            contended: Duration::ZERO,
        }
    }

    /// The weight of each sandbox of a function.
    pub(super) fn weight(&self, function: u64) -> u64 {
        let share = self.functions.get(&function);
        let digits = share.map_or(0, |share| share.divided + share.held_back);
        (WEIGHT_FULL >> digits.min(u64::BITS - 1)).max(1)
    }

    /// Whether several functions contend for processors.
    pub(super) fn are_contended(&self) -> bool {
        !self.contended.is_zero() && self.functions.len() > 1
    }

    /// Whether all functions have the full weight.
    pub(super) fn are_even(&self) -> bool {
        let mut all = self.functions.values();
        all.all(|share| share.divided + share.held_back == 0)
    }

    /// When to look again.
    pub(super) fn tick(&self) -> Duration {
        let wanting: u64 = self.functions.values().map(|share| share.wanting).sum();
        // A function that runs on half of the processors may want more at any moment.
        match self.contended.is_zero() && 2 * wanting < self.processors * ONE {
            true => TICK_QUIET,
            false => TICK,
        }
    }

    /// Takes note of what all functions did in the time since the last look.
    pub(super) fn look(&mut self, elapsed: Duration, did: &BTreeMap<u64, Did>) {
        let nanoseconds = elapsed.as_nanos().clamp(1, u64::MAX.into()) as u64;
        let of = |time: u64| time.saturating_mul(ONE) / nanoseconds;
        for (function, did) in did {
            if did.ran > 0 {
                self.functions.entry(*function).or_default().idle = Duration::ZERO;
            }
        }
        for (function, share) in &mut self.functions {
            let did = did.get(function).copied().unwrap_or_default();
            if did.ran == 0 {
                share.idle += elapsed;
            }
            // What has waited for long is told when it runs at last: single looks see
            // too much or too little.
            let wanting = of(did.ran.saturating_add(did.waited));
            share.wanting = (3 * share.wanting + wanting) / 4;
            share.using = (3 * share.using + of(did.ran)) / 4;
        }
        self.functions.retain(|_, share| share.idle < PRESENT);
        let wanting: u64 = self.functions.values().map(|share| share.wanting).sum();
        self.contended = match wanting > self.processors * ONE + ONE / 2 {
            true => LINGER,
            false => self.contended.saturating_sub(elapsed),
        };
        self.weigh();
    }

    fn weigh(&mut self) {
        let is_contended = !self.contended.is_zero();
        let active = self.functions.values().filter(|share| share.using > 0);
        let (count, using) = active.fold((0, 0), |(count, using), share| {
            (count + 1, using + share.using)
        });
        let even = using / u64::max(count, 1);
        for share in self.functions.values_mut() {
            if !is_contended {
                (share.divided, share.held_back) = (0, 0);
                continue;
            }
            share.divided = divided(share.divided, share.wanting);
            share.held_back = match share.using {
                // Between the two nothing changes, or weights would swing.
                using if count > 1 && 8 * using > 9 * even => share.held_back + 1,
                using if 8 * using < 7 * even => share.held_back.saturating_sub(1),
                _ => share.held_back,
            }
            .min(HELD_BACK_MOST);
        }
    }
}

/// Binary digits to divide by for so many sandboxes, where it was `before`: enough for as many as there are, and less
/// only when there are clearly fewer.
fn divided(before: u32, wanting: u64) -> u32 {
    let enough = |wanting: u64| wanting.div_ceil(ONE).max(1).next_power_of_two().ilog2();
    match enough(wanting) {
        digits if digits < before => enough(wanting.saturating_mul(3) / 2).min(before),
        digits => digits,
    }
}

#[cfg(test)]
mod tests;
