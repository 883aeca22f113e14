//! Hot instances, and for how long they are hot: warm with the vCPU in the guest, which polls for
//! its next request itself.
//!
//! Polling saves two wakes and an entry into the VM, and costs a processor while no request comes.
//! So it follows KVM, which polls before it lets a halted vCPU sleep (`halt_poll_ns`). The time for
//! which a function's instances poll grows while its requests come within that time, and shrinks
//! when they do not. There are never more polling instances than processors that have nothing to
//! do. Each of them has the lowest priority: by the weight of its control group, everything else
//! that wants a processor comes first. See `docs/decisions/0025-hot-instances.md`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::PollingStats;

/// The time for which the first polls last.
const FIRST_POLL: Duration = Duration::from_micros(20);

/// A function whose answers take longer than this gains nothing from hot instances.
const SLOW_ANSWER: Duration = Duration::from_micros(500);

/// The interval of trials: one time in this many checks whether answers come sooner now.
const TRIAL_INTERVAL: u64 = 64;

/// The scale for late answers: 0 if all recent answers came while the node polled for them, this
/// value if none did.
const ALL_PROMPT: u64 = 1 << 12;

/// The share of prompt answers from which the node polls for them: a quarter, because polling in
/// vain costs a third of what successful polling saves.
const PROMPT: u64 = ALL_PROMPT / 4;

/// The share of one processor that all polling of one function may take, in percent.
const CPU_SHARE: u32 = 80;

/// How long no instance of a function is hot after one of them had no processor.
const HOLD_OFF_LEAST: Duration = Duration::from_millis(5);

/// The longest such time, if that happens again and again.
const HOLD_OFF_MOST: Duration = Duration::from_secs(1);

/// How long no instance of a function is hot after one of them strayed.
const STRAY_HOLD_OFF: Duration = Duration::from_secs(60);

/// How much unused polling time a function may save up.
const BUDGET_MAX: Duration = Duration::from_millis(100);

/// When requests of a function come, and what is known of its answers.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// How long its instances poll at most; zero if none polls.
    most: Duration,
    /// How long its instances poll now, in nanoseconds.
    bound: AtomicU64,
    /// How long its answers take approximately, in nanoseconds; 0 if that is not known.
    answer: AtomicU64,
    /// How many of the last answers that the node polled for came too late, on the scale of
    /// [`ALL_PROMPT`].
    late: AtomicU64,
    answers: AtomicU64,
    grants: AtomicU64,
    budget: Mutex<Budget>,
    held_off: Mutex<HoldOff>,
}

/// For how long no instance of a function is to be hot.
#[derive(Debug)]
struct HoldOff {
    until: Option<Instant>,
    /// The end of the time after an instance strayed. No other reason makes it shorter.
    strayed_until: Option<Instant>,
    /// How long the next time lasts.
    next: Duration,
}

impl HoldOff {
    fn is_on_at(&self, now: Instant) -> bool {
        self.until.max(self.strayed_until) > Some(now)
    }
}

impl Default for HoldOff {
    fn default() -> Self {
        Self {
            until: None,
            strayed_until: None,
            next: HOLD_OFF_LEAST,
        }
    }
}

/// The CPU time that polling may still use.
#[derive(Debug)]
struct Budget {
    left: Duration,
    since: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: BUDGET_MAX,
            since: Instant::now(),
        }
    }
}

impl Budget {
    /// Adds what has accrued until `now`.
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        self.since = now;
        self.left = (self.left + passed * CPU_SHARE / 100).min(BUDGET_MAX);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Arrivals {
    /// Returns the arrivals of a function whose instances poll for at most `most`.
    pub fn new(most: Duration) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Notes a request for an instance that had waited for it for `waited`.
    pub fn note(&self, waited: Duration) {
        let (waited, most) = (nanoseconds(waited), nanoseconds(self.most));
        let bound = self.bound.load(Ordering::Relaxed);
        let new = match waited {
            _ if waited > most => match bound / 2 {
                half if half < nanoseconds(FIRST_POLL) / 2 => 0,
                half => half,
            },
            // Requests that come about when all instances give up are missed as often as found, so
            // polling does not begin for them.
            _ if bound == 0 && waited > most / 4 * 3 => 0,
            // A request that comes just when its guest has given up waits for a whole round trip.
            _ if waited > bound / 2 || bound == 0 => {
                (2 * bound).max(nanoseconds(FIRST_POLL)).min(most)
            }
            _ => bound,
        };
        self.bound.store(new, Ordering::Relaxed);
    }

    /// Returns how long an instance may poll for the next request.
    fn bound(&self) -> Duration {
        Duration::from_nanos(self.bound.load(Ordering::Relaxed))
    }

    /// Returns whether recent requests came soon enough for instances to poll for the next one.
    /// Before the first request it is `false`.
    pub fn are_worth_polling_for(&self) -> bool {
        !self.bound().is_zero()
    }

    /// Notes how long an answer took after its request was there. For an instance that was not hot,
    /// `took` is how long its function ran. That counts only if it is long, or if the known time
    /// is.
    pub fn note_answer(&self, took: Duration, was_hot: bool) {
        let about = Duration::from_nanos(self.answer.load(Ordering::Relaxed));
        if !was_hot && took.max(about) <= SLOW_ANSWER {
            return;
        }
        let (took, before) = (
            nanoseconds(took).max(1),
            self.answer.load(Ordering::Relaxed),
        );
        let about = match before {
            0 => took,
            // The new value counts for an eighth.
            before => before - before / 8 + took / 8,
        };
        self.answer.store(about.max(1), Ordering::Relaxed);
    }

    /// Returns whether the next answer is likely to come sooner than a sleep and a wake would take,
    /// so that the node should poll for it. That is so if enough of the last answers came during a
    /// poll, and occasionally as a trial. The duration of other answers is no evidence: most of it
    /// is the sleep and the wake.
    pub fn is_quick(&self) -> bool {
        let nth = self.answers.fetch_add(1, Ordering::Relaxed);
        let late = self.late.load(Ordering::Relaxed);
        late <= ALL_PROMPT - PROMPT || nth.is_multiple_of(TRIAL_INTERVAL)
    }

    /// Notes that the node polled for an answer, and whether it came meanwhile.
    pub fn note_poll(&self, has_come: bool) {
        let late = self.late.load(Ordering::Relaxed);
        let more = if has_come { 0 } else { ALL_PROMPT / 8 };
        self.late.store(late - late / 8 + more, Ordering::Relaxed);
        if has_come {
            self.held_off().next = HOLD_OFF_LEAST;
        }
    }

    /// Returns whether the answers take so long that the gain before them is negligible.
    /// Occasionally returns `false` as a trial.
    fn is_slow(&self) -> bool {
        let about = self.answer.load(Ordering::Relaxed);
        about > nanoseconds(SLOW_ANSWER)
            && !self
                .grants
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(TRIAL_INTERVAL)
    }

    /// Keeps all instances of the function from being hot for a while, because one that was hot has
    /// had no processor. The time doubles with each call, up to [`HOLD_OFF_MOST`], and begins anew
    /// if the last call was long ago or an answer came during a poll.
    pub fn hold_off(&self) {
        let (now, mut held_off) = (Instant::now(), self.held_off());
        // Events of long ago do not count.
        let is_long_ago =
            |until: Instant| now.saturating_duration_since(until) > 16 * held_off.next;
        if held_off.until.is_none_or(is_long_ago) {
            held_off.next = HOLD_OFF_LEAST;
        }
        held_off.until = Some(now + held_off.next);
        held_off.next = (2 * held_off.next).min(HOLD_OFF_MOST);
    }

    /// Notes that a guest that was to poll for a request did something else.
    fn note_stray(&self) {
        self.held_off().strayed_until = Some(Instant::now() + STRAY_HOLD_OFF);
    }

    fn held_off(&self) -> MutexGuard<'_, HoldOff> {
        self.held_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges the CPU time of polling to the function.
    pub fn charge(&self, cpu: Duration) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget.left = budget.left.saturating_sub(cpu);
    }

    fn has_budget(&self, now: Instant) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget.refill(now);
        !budget.left.is_zero()
    }
}

/// The limits of polling in a pool, and what it has cost and gained.
#[derive(Debug)]
pub struct Polling {
    /// How long an instance polls at most if its function has no setting for that; zero if it does
    /// not poll.
    most: Duration,
    processors: usize,
    /// The number of instances that poll.
    slots_taken: AtomicUsize,
    /// The number of requests under way.
    under_way: AtomicUsize,
    /// CPU time that polling has taken, in nanoseconds.
    polled: AtomicU64,
    found: AtomicU64,
    strayed: AtomicU64,
}

/// An instance that polls for its next request, or is to poll.
#[derive(Debug)]
pub struct PollingSlot(Arc<Polling>);

impl Drop for PollingSlot {
    fn drop(&mut self) {
        self.0.slots_taken.fetch_sub(1, Ordering::Release);
    }
}

/// A request under way.
#[derive(Debug)]
pub struct ActiveRequest(Arc<Polling>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ActiveRequest {
    /// Returns whether it is the only one.
    pub fn is_alone(&self) -> bool {
        self.0.under_way.load(Ordering::Relaxed) == 1
    }
}

impl Polling {
    /// Returns limits for a machine with so many processors, one of which is for the node. An
    /// instance whose function has no setting polls for at most `most`.
    pub fn new(most: Duration, processors: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            processors,
            slots_taken: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            polled: AtomicU64::new(0),
            found: AtomicU64::new(0),
            strayed: AtomicU64::new(0),
        })
    }

    /// Returns how long an instance polls at most if its function has no setting for that.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// Counts a request as under way for as long as the returned value is held.
    pub fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// Returns how long an instance of the function should poll, if it should be hot and has a
    /// slot.
    pub fn bound(&self, arrivals: &Arrivals) -> Option<Duration> {
        self.bound_at(arrivals, Instant::now())
    }

    fn bound_at(&self, arrivals: &Arrivals, now: Instant) -> Option<Duration> {
        let bound = arrivals.bound();
        if bound.is_zero() || arrivals.is_slow() {
            return None;
        }
        let is_held_off = arrivals.held_off().is_on_at(now);
        (!is_held_off && arrivals.has_budget(now)).then_some(bound)
    }

    /// Takes a slot for an instance that is to be hot, if one is free. There are no more slots than
    /// processors that nothing else is known to want.
    pub fn try_slot(self: &Arc<Self>) -> Option<PollingSlot> {
        let wanted = 1 + self.under_way.load(Ordering::Relaxed);
        let slots = self.processors.saturating_sub(wanted);
        let more = |taken: usize| (taken < slots).then_some(taken + 1);
        let counted = self
            .slots_taken
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, more);
        counted.is_ok().then(|| PollingSlot(self.clone()))
    }

    /// Charges the time for which an instance of a function has polled, and notes whether it found
    /// a request.
    pub fn charge(&self, arrivals: &Arrivals, cpu: Duration, has_found: bool) {
        arrivals.charge(cpu);
        self.polled.fetch_add(nanoseconds(cpu), Ordering::Relaxed);
        self.found
            .fetch_add(u64::from(has_found), Ordering::Relaxed);
    }

    /// Notes that a guest of a function was to poll for a request and did something else. No
    /// instance of that function is hot for a while.
    pub fn note_stray(&self, arrivals: &Arrivals) {
        arrivals.note_stray();
        self.strayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters of polling.
    pub fn stats(&self) -> PollingStats {
        PollingStats {
            found: self.found.load(Ordering::Relaxed),
            strayed: self.strayed.load(Ordering::Relaxed),
            cpu: Duration::from_nanos(self.polled.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests;
