//! When the requests of a function come and how long its answers take: whether and for how long its
//! instances poll, and whether the node polls for an answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
pub(super) struct HoldOff {
    until: Option<Instant>,
    /// The end of the time after an instance strayed. No other reason makes it shorter.
    strayed_until: Option<Instant>,
    /// How long the next time lasts.
    next: Duration,
}

impl HoldOff {
    pub(super) fn is_on_at(&self, now: Instant) -> bool {
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

pub(super) fn nanoseconds(time: Duration) -> u64 {
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
    pub(super) fn bound(&self) -> Duration {
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
    pub(super) fn is_slow(&self) -> bool {
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
    pub(super) fn note_stray(&self) {
        self.held_off().strayed_until = Some(Instant::now() + STRAY_HOLD_OFF);
    }

    pub(super) fn held_off(&self) -> MutexGuard<'_, HoldOff> {
        self.held_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges the CPU time of polling to the function.
    pub(super) fn charge(&self, cpu: Duration) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget.left = budget.left.saturating_sub(cpu);
    }

    pub(super) fn has_budget(&self, now: Instant) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget.refill(now);
        !budget.left.is_zero()
    }
}

#[cfg(test)]
mod tests;
