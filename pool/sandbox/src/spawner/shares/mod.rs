//! The share of each function in the processors, as the weight of its sandboxes.
//!
//! The kernel shares processors by control group, and each sandbox has a group of its own. Without
//! this module a function with a hundred busy sandboxes would have a hundred shares. So the weight
//! of each sandbox is divided by the number of its function's sandboxes that want to run.
//!
//! Weights alone give a neighbour its share, but late: whenever it wakes, it waits for the
//! scheduler's slices, some milliseconds each. So functions that want more than their share (heavy
//! functions) are also held back beside functions that want less (light functions). The weight of a
//! heavy function is halved at each look, down to a quarter ([`HELD_BACK_MOST`]), and some
//! processors are reserved for all others: as many as the light functions want, at least one, and
//! never the last one. The reserve pauses if it is hardly used ([`RESERVE_IDLE_MAX`]).
//!
//! All of it depends only on the time that processes ran and waited. Weights change by powers of
//! two, so that the spawner writes few of them.

use std::collections::BTreeMap;
use std::time::Duration;

use faasw_jail::group::WEIGHT_FULL;

/// Time between two looks under contention: many of the scheduler's slices, which take up to
/// 4 ms.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Time between two looks without contention: a node that waits wakes once a second, and
/// contention is noticed after a second at most.
const TICK_QUIET: Duration = Duration::from_secs(1);
/// How long contention counts after its end: a load in bursts must not cause all weights to be
/// written for each burst.
const LINGER: Duration = Duration::from_secs(2);
/// How long a function counts after its last request ran: it may send the next one soon.
const PRESENT: Duration = Duration::from_secs(30);
/// Most binary digits that a function's weight is held back by: to a quarter. A sandbox that holds
/// a lock or a grace period of the kernel must still run soon (docs/decisions/0040).
const HELD_BACK_MOST: u32 = 2;
/// The least that light functions want together for a processor to be reserved, in thousandths of
/// a processor: a few requests a second are no reason to leave a processor idle.
const RESERVED_FOR_MIN: u64 = 100;
/// The least that they use together for that, in thousandths of a processor, and enough to keep a
/// reserve. It is much less: a function that waits behind others uses little, and one that has a
/// reserve waits little.
const RESERVED_FOR_USE_MIN: u64 = 10;
/// The least that a light function wants to count, in thousandths of a processor.
const PRESENT_MIN: u64 = 10;
/// How long reserved processors may be mostly idle: a neighbour has its reserve for most of the
/// time.
const RESERVE_IDLE_MAX: Duration = Duration::from_secs(4);
/// How long nothing is reserved after that. A function whose burst has queued works its queue off
/// then, if it wants less than it has on average: on two processors some 1.2 of them beside a
/// neighbour that uses a fifth of one. Without the pause the reserve would keep the queue, and the
/// queue the reserve.
const RESERVE_PAUSE: Duration = Duration::from_secs(2);
/// The unit of all averages in this file: thousandths of a sandbox or a processor.
const ONE: u64 = 1000;

/// Run time of one function's processes since the last look, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunTime {
    /// Time on a processor.
    pub ran: u64,
    /// Time of waiting for a processor.
    pub waited: u64,
}

/// The share of one function.
#[derive(Debug, Default)]
struct Share {
    /// Sandboxes that ran or waited for a processor, as a moving average.
    wanting: u64,
    /// Processors in use, as a moving average.
    using: u64,
    /// Time since one of its sandboxes ran.
    idle: Duration,
    /// Binary digits that the weight is divided by, for the number of sandboxes.
    divided: u32,
    /// Binary digits that the weight is divided by besides, for a use above an even share.
    held_back: u32,
    /// The function wants clearly more than its share.
    is_heavy: bool,
}

/// The weights of all functions.
#[derive(Debug)]
pub(super) struct Shares {
    processors: u64,
    /// Most processors that can be reserved.
    reserved_max: u64,
    functions: BTreeMap<u64, Share>,
    /// The time for which contention still counts; zero without contention.
    contended: Duration,
    /// Processors that heavy functions may not use.
    reserved: u64,
    /// The time for which [`Self::reserved`] still holds.
    reserved_for: Duration,
    /// Reserved processors that were idle, as a moving average.
    idle: u64,
    /// The time for which reserved processors were mostly idle.
    reserve_idle: Duration,
    /// The time for which nothing is to be reserved.
    paused_for: Duration,
}

impl Shares {
    /// Creates even shares of so many processors, some of which can be reserved.
    pub(super) fn new(processors: u64, can_reserve: bool) -> Self {
        Self {
            processors,
            reserved_max: if can_reserve {
                processors.saturating_sub(1)
            } else {
                0
            },
            functions: BTreeMap::new(),
            contended: Duration::ZERO,
            reserved: 0,
            reserved_for: Duration::ZERO,
            idle: 0,
            reserve_idle: Duration::ZERO,
            paused_for: Duration::ZERO,
        }
    }

    /// Returns the weight of each sandbox of a function.
    pub(super) fn weight(&self, function: u64) -> u64 {
        let share = self.functions.get(&function);
        let digits = share.map_or(0, |share| share.divided + share.held_back);
        (WEIGHT_FULL >> digits.min(u64::BITS - 1)).max(1)
    }

    /// Returns the number of processors that a function may use; `None` if it may use all.
    pub(super) fn processors(&self, function: u64) -> Option<u64> {
        let share = self.functions.get(&function)?;
        (share.is_heavy && self.reserved > 0).then(|| self.processors - self.reserved)
    }

    /// Whether several functions contend for processors.
    pub(super) fn are_contended(&self) -> bool {
        !self.contended.is_zero() && self.functions.len() > 1
    }

    /// Whether all functions have the full weight and all processors.
    pub(super) fn are_even(&self) -> bool {
        let mut all = self.functions.values();
        self.reserved == 0 && all.all(|share| share.divided + share.held_back == 0)
    }

    /// Returns the time until the next look.
    pub(super) fn tick(&self) -> Duration {
        let wanting: u64 = self.functions.values().map(|share| share.wanting).sum();
        // Functions that use half of the processors may want more at any moment.
        if self.contended.is_zero() && 2 * wanting < self.processors * ONE {
            TICK_QUIET
        } else {
            TICK
        }
    }

    /// Returns how many processors are reserved.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Updates all shares with the run times of the time since the last look, and with the time for
    /// which the reserved processors, all together, were idle in it.
    pub(super) fn look(&mut self, elapsed: Duration, did: &BTreeMap<u64, RunTime>, idle: Duration) {
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
            // The kernel adds a wait to the account when it ends. So a single look sees too
            // much or too little, and only an average is right.
            let wanting = of(did.ran.saturating_add(did.waited));
            share.wanting = average(share.wanting, wanting);
            share.using = average(share.using, of(did.ran));
        }
        self.functions.retain(|_, share| share.idle < PRESENT);
        let wanting: u64 = self.functions.values().map(|share| share.wanting).sum();
        self.contended = if wanting > self.processors * ONE + ONE / 2 {
            LINGER
        } else {
            self.contended.saturating_sub(elapsed)
        };
        self.idle = average(self.idle, of(idle.as_nanos() as u64));
        self.weigh();
        let is_reserve_idle = 2 * idle >= elapsed.saturating_mul(self.reserved as u32);
        self.reserve(elapsed, is_reserve_idle);
    }

    /// Sets the weights.
    fn weigh(&mut self) {
        let using = self.functions.values().map(|share| share.using).sum();
        let level = self.level(using);
        // Idle time of reserved processors counts as well: without it the level would fall with the
        // use, and light functions would count as heavy.
        let level_of_all = self.level(using + self.idle);
        let is_contended = !self.contended.is_zero();
        let is_light = |share: &Share| share.wanting > 0 && 8 * share.using < 7 * level;
        let has_light = self.functions.values().any(is_light);
        for share in self.functions.values_mut() {
            if !is_contended {
                (share.divided, share.held_back, share.is_heavy) = (0, 0, false);
                continue;
            }
            share.divided = divided(share.divided, share.wanting);
            share.held_back = match share.using {
                // Between the two bounds nothing changes, or weights would swing.
                using if 8 * using > 9 * level || (has_light && 8 * using > 7 * level) => {
                    (share.held_back + 1).min(HELD_BACK_MOST)
                }
                using if 8 * using < 7 * level => share.held_back.saturating_sub(1),
                _ => share.held_back,
            };
            // The function is not satisfied, and its share would not satisfy it; or it has clearly
            // more than its share, a reserve for example. A function that wants much and has little
            // waits behind others: that makes none heavy.
            let is_above = |bound: u64| 8 * share.wanting > 9 * bound;
            let has_much = if share.is_heavy {
                // Beside a reserve it has less, down to half in the worst case.
                3 * share.using >= level_of_all
            } else {
                8 * share.using >= 7 * level_of_all
            };
            let is_satisfied = !is_above(share.using) && 8 * share.using <= 9 * level_of_all;
            share.is_heavy = has_much && is_above(level_of_all) && !is_satisfied;
        }
    }

    /// Reserves processors for light functions: as many as they want and at most their even part,
    /// but at least one.
    fn reserve(&mut self, elapsed: Duration, is_idle: bool) {
        self.reserved_for = self.reserved_for.saturating_sub(elapsed);
        self.paused_for = self.paused_for.saturating_sub(elapsed);
        let (mut light, mut heavy) = (0, 0);
        let (mut wanting, mut using, mut wanted) = (0, 0, 0);
        for share in self.functions.values() {
            if share.is_heavy {
                heavy += 1;
            } else if share.wanting >= PRESENT_MIN {
                light += 1;
                // The averages of a function that has stopped fall for seconds.
                if !share.idle.is_zero() {
                    continue;
                }
                wanting += share.wanting;
                using += share.using;
                // Much of a wait may be for the function's own sandboxes.
                wanted += share.wanting.min(2 * share.using);
            }
        }
        self.reserve_idle = if is_idle && self.reserved > 0 {
            self.reserve_idle + elapsed
        } else {
            // A busy look shortens the idle time instead of ending it.
            self.reserve_idle.saturating_sub(elapsed)
        };
        if self.reserve_idle > RESERVE_IDLE_MAX {
            (self.reserve_idle, self.paused_for) = (Duration::ZERO, RESERVE_PAUSE);
        }
        let is_worth_it =
            using >= RESERVED_FOR_USE_MIN && (self.reserved > 0 || wanting >= RESERVED_FOR_MIN);
        // Functions that are all heavy reserve nothing from each other, not even for a moment more.
        let is_for_nobody = heavy == 0 || (light == 0 && heavy > 1);
        if is_for_nobody || !self.paused_for.is_zero() {
            (self.reserved, self.reserved_for) = (0, Duration::ZERO);
        } else if is_worth_it {
            let even = self.processors * light / (light + heavy);
            let whole = (wanted + ONE / 2) / ONE;
            self.reserved = whole.min(even).max(1).min(self.reserved_max);
            self.reserved_for = LINGER;
        } else if self.reserved_for.is_zero() {
            self.reserved = 0;
        }
    }

    /// Returns the most that a function can use if all use `left` together and no function with
    /// less wants more: the level of max-min fairness.
    fn level(&self, mut left: u64) -> u64 {
        let mut wanting: Vec<_> = self.functions.values().map(|share| share.wanting).collect();
        wanting.sort_unstable();
        let mut level = 0;
        for (served, wanting_one) in wanting.iter().enumerate() {
            level = left / (wanting.len() - served) as u64;
            if *wanting_one > level {
                break;
            }
            left -= *wanting_one;
        }
        level
    }
}

/// Returns a moving average with one more value, rounded towards the value: a constant value
/// becomes its own average.
fn average(before: u64, value: u64) -> u64 {
    let sum = 3 * before + value;
    if value > before {
        sum.div_ceil(4)
    } else {
        sum / 4
    }
}

/// Returns the binary digits to divide by for so many sandboxes: enough for all of them, and fewer
/// than `before` only if the sandboxes are clearly fewer.
fn divided(before: u32, wanting: u64) -> u32 {
    let enough = |wanting: u64| wanting.div_ceil(ONE).max(1).next_power_of_two().ilog2();
    match enough(wanting) {
        digits if digits < before => enough(wanting.saturating_mul(3) / 2).min(before),
        digits => digits,
    }
}

#[cfg(test)]
mod tests;
