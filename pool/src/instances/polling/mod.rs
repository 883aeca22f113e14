//! Which instances are hot, and for how long: parked with the vCPU in the guest, which looks for
//! its next request itself.
//!
//! That saves two wakes and a way into the VM, and costs a processor while nothing comes. So it is
//! done as KVM does it before it lets a halted vCPU sleep (`halt_poll_ns`): how long a function's
//! instances look grows while its requests come within that, and shrinks when they do not; there
//! are never more of them than processors that have nothing to do; and each of them comes behind
//! everything else that wants a processor, by its control group. See
//! `docs/decisions/0025-hot-instances.md`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::PollingStats;

/// How long it is tried with at first.
const FIRST: Duration = Duration::from_micros(20);

/// Whose answers take longer gains nothing by being hot.
const SLOW: Duration = Duration::from_micros(500);

/// One in so many times it is tried whether answers come sooner now.
const RETRY: u64 = 64;

/// What is known of whether answers come while they are looked for: from none of late to all.
const ALL_PROMPT: u64 = 1 << 12;

/// From here on they are looked for. Looking in vain costs a third of what it saves where it is
/// not.
const PROMPT: u64 = ALL_PROMPT / 4;

/// The share of one processor that all polling of one function may take, in percent.
const SHARE: u32 = 80;

/// How long none of a function's instances is hot once one had no processor.
const HOLD_OFF_LEAST: Duration = Duration::from_millis(5);

/// The same where that happens again and again.
const HOLD_OFF_MOST: Duration = Duration::from_secs(1);

/// How long none of a function's is hot once one of them strayed.
const STRAY: Duration = Duration::from_secs(60);

/// How much of that may be saved up.
const SAVED: Duration = Duration::from_millis(100);

/// When requests of a function come.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// How long its instances look at most; zero where none does.
    most: Duration,
    /// How long its instances look, in nanoseconds.
    bound: AtomicU64,
    /// How long its answers take, about, in nanoseconds; 0 where that is not known.
    answer: AtomicU64,
    /// How many of the last answers that were looked for did not come meanwhile, in parts of
    /// [`ALL_PROMPT`].
    late: AtomicU64,
    answers: AtomicU64,
    grants: AtomicU64,
    budget: Mutex<Budget>,
    held_off: Mutex<HeldOff>,
}

/// For how long none of a function's instances is to be hot.
#[derive(Debug)]
struct HeldOff {
    until: Option<Instant>,
    /// Since one of them has strayed, which no other reason makes shorter.
    strayed_until: Option<Instant>,
    /// How long it is the next time.
    next: Duration,
}

impl HeldOff {
    fn is_on_at(&self, now: Instant) -> bool {
        self.until.max(self.strayed_until) > Some(now)
    }
}

impl Default for HeldOff {
    fn default() -> Self {
        Self {
            until: None,
            strayed_until: None,
            next: HOLD_OFF_LEAST,
        }
    }
}

/// What polling may cost.
#[derive(Debug)]
struct Budget {
    left: Duration,
    since: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: SAVED,
            since: Instant::now(),
        }
    }
}

impl Budget {
    /// With what has come in until `now`.
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        self.since = now;
        self.left = (self.left + passed * SHARE / 100).min(SAVED);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Arrivals {
    /// Of a function whose instances look for so long at most.
    pub fn new(most: Duration) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// A request has come for an instance that had waited so long for it.
    pub fn note(&self, waited: Duration) {
        let (waited, most) = (nanoseconds(waited), nanoseconds(self.most));
        let bound = self.bound.load(Ordering::Relaxed);
        let new = match waited {
            _ if waited > most => match bound / 2 {
                half if half < nanoseconds(FIRST) / 2 => 0,
                half => half,
            },
            // Who comes about when all give up is missed as often as found: that is not begun with.
            _ if bound == 0 && waited > most / 4 * 3 => 0,
            // One that comes just when its guest has given up waits for a whole round trip.
            _ if waited > bound / 2 || bound == 0 => (2 * bound).max(nanoseconds(FIRST)).min(most),
            _ => bound,
        };
        self.bound.store(new, Ordering::Relaxed);
    }

    /// How long an instance may look for the next request.
    fn bound(&self) -> Duration {
        Duration::from_nanos(self.bound.load(Ordering::Relaxed))
    }

    /// Whether requests come while they are looked for, or nothing is known against it.
    pub fn are_worth_looking_for(&self) -> bool {
        !self.bound().is_zero()
    }

    /// An answer came so long after its request was there; or, of an instance that was not hot, its
    /// function ran for so long, which counts only where that is long by itself, or what is known
    /// is.
    pub fn note_answer(&self, took: Duration, was_hot: bool) {
        let about = Duration::from_nanos(self.answer.load(Ordering::Relaxed));
        if !was_hot && took.max(about) <= SLOW {
            return;
        }
        let (took, before) = (
            nanoseconds(took).max(1),
            self.answer.load(Ordering::Relaxed),
        );
        let about = match before {
            0 => took,
            // An eighth of what is new.
            before => before - before / 8 + took / 8,
        };
        self.answer.store(about.max(1), Ordering::Relaxed);
    }

    /// Whether the next answer is likely to come sooner than a sleep and a wake would take: while
    /// it is looked for, as enough of the last did, or as is tried now and then. How long those
    /// took that were not looked for says nothing of that: most of it is the sleep and the wake.
    pub fn is_quick(&self) -> bool {
        let nth = self.answers.fetch_add(1, Ordering::Relaxed);
        let late = self.late.load(Ordering::Relaxed);
        late <= ALL_PROMPT - PROMPT || nth.is_multiple_of(RETRY)
    }

    /// An answer was looked for, and came meanwhile or not.
    pub fn note_look(&self, has_come: bool) {
        let late = self.late.load(Ordering::Relaxed);
        let more = if has_come { 0 } else { ALL_PROMPT / 8 };
        self.late.store(late - late / 8 + more, Ordering::Relaxed);
        if has_come {
            self.held_off().next = HOLD_OFF_LEAST;
        }
    }

    /// Whether its answers take so long that what is saved before them does not show; sometimes it
    /// is tried again.
    fn is_slow(&self) -> bool {
        let about = self.answer.load(Ordering::Relaxed);
        about > nanoseconds(SLOW)
            && !self
                .grants
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(RETRY)
    }

    /// None is to be hot for a while, which is longer each time: one that was has not had a
    /// processor.
    pub fn hold_off(&self) {
        let (now, mut held_off) = (Instant::now(), self.held_off());
        // What was long ago says nothing of today.
        let is_long_ago =
            |until: Instant| now.saturating_duration_since(until) > 16 * held_off.next;
        if held_off.until.is_none_or(is_long_ago) {
            held_off.next = HOLD_OFF_LEAST;
        }
        held_off.until = Some(now + held_off.next);
        held_off.next = (2 * held_off.next).min(HOLD_OFF_MOST);
    }

    /// One of its guests was to look for a request, and did something else.
    fn note_stray(&self) {
        self.held_off().strayed_until = Some(Instant::now() + STRAY);
    }

    fn held_off(&self) -> MutexGuard<'_, HeldOff> {
        self.held_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polling has cost so much CPU time.
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

/// How much polling there may be.
#[derive(Debug)]
pub struct Polling {
    /// How long an instance looks at most whose function says nothing of that; zero where it does
    /// not look.
    most: Duration,
    processors: usize,
    /// Instances that look.
    looking: AtomicUsize,
    /// Requests under way.
    under_way: AtomicUsize,
    /// CPU time that polling has taken, in nanoseconds.
    polled: AtomicU64,
    found: AtomicU64,
    strayed: AtomicU64,
}

/// An instance that is to look for its next request, or does.
#[derive(Debug)]
pub struct Looking(Arc<Polling>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looking.fetch_sub(1, Ordering::Release);
    }
}

/// A request under way.
#[derive(Debug)]
pub struct UnderWay(Arc<Polling>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UnderWay {
    /// Whether it is the only one.
    pub fn is_alone(&self) -> bool {
        self.0.under_way.load(Ordering::Relaxed) == 1
    }
}

impl Polling {
    /// At most `most` for each instance whose function says nothing, on a machine with so many
    /// processors, one of which is the node's.
    pub fn new(most: Duration, processors: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            processors,
            looking: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            polled: AtomicU64::new(0),
            found: AtomicU64::new(0),
            strayed: AtomicU64::new(0),
        })
    }

    /// How long an instance looks at most whose function says nothing of that.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// A request is under way, as long as what is given is held.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Whether an instance of a function should be hot, and for how long, if there is a place.
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

    /// A place for an instance that is to be hot, as long as what is given is held: there are no
    /// more than processors that nothing else is known to want.
    pub fn place(self: &Arc<Self>) -> Option<Looking> {
        let wanted = 1 + self.under_way.load(Ordering::Relaxed);
        let places = self.processors.saturating_sub(wanted);
        let more = |looking: usize| (looking < places).then_some(looking + 1);
        let counted = self
            .looking
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, more);
        counted.is_ok().then(|| Looking(self.clone()))
    }

    /// An instance of a function has looked for so long, and found a request or not.
    pub fn charge(&self, arrivals: &Arrivals, cpu: Duration, has_found: bool) {
        arrivals.charge(cpu);
        self.polled.fetch_add(nanoseconds(cpu), Ordering::Relaxed);
        self.found
            .fetch_add(u64::from(has_found), Ordering::Relaxed);
    }

    /// A guest of a function was to look for a request, and did something else. None of that
    /// function is hot for a while.
    pub fn note_stray(&self, arrivals: &Arrivals) {
        arrivals.note_stray();
        self.strayed.fetch_add(1, Ordering::Relaxed);
    }

    /// What came of it.
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
