use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const TICK: Duration = Duration::from_millis(20);
const MEMORY: u64 = 128 << 20;

fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn wanted(function: u64, urgency: Urgency) -> SeedRequest {
    SeedRequest {
        owner: Owner::Function(function),
        urgency,
        memory: MEMORY,
    }
}

/// A making, its guest's CPU time, and a clock of its own.
struct Guest {
    permit: SeedPermit,
    now: Instant,
    cpu: Duration,
}

impl Guest {
    fn begin(slots: &SeedSlots, function: u64) -> Option<Self> {
        let progress = SeedProgress::default();
        let permit = now(pin!(
            slots.permit(wanted(function, Urgency::Foreground), &progress)
        ))?;
        let mut guest = Self {
            permit,
            now: Instant::now(),
            cpu: Duration::ZERO,
        };
        guest.pass(Duration::ZERO, false);
        Some(guest)
    }

    /// Lets time pass, in which the guest runs or waits.
    fn pass(&mut self, time: Duration, runs: bool) -> Priority {
        let mut left = time;
        loop {
            let step = left.min(TICK);
            left -= step;
            self.now += step;
            self.cpu += if runs { step } else { Duration::ZERO };
            let priority = self.permit.observe(self.now, Some(self.cpu));
            if left.is_zero() {
                return priority;
            }
        }
    }

    fn holds_slot(&self) -> bool {
        self.permit.0.as_ref().unwrap().pace.lock().holds_slot()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn initialisations_that_sleep_keep_no_slot() {
    // With one processor there are two CPU slots, and 64 guest slots.
    let slots = SeedSlots::new(1, 256);
    let mut sleepers = Vec::new();
    for function in 0..32 {
        let mut sleeper = Guest::begin(&slots, function).expect("no slot is taken for sleeping");
        assert!(sleeper.holds_slot());
        assert_eq!(sleeper.pass(SECOND, false), Priority::Usual);
        assert!(!sleeper.holds_slot());
        sleepers.push(sleeper);
    }
    // A guest that wakes has a slot again at once, as long as one is free.
    assert_eq!(sleepers[0].pass(TICK, true), Priority::Usual);
    assert!(sleepers[0].holds_slot());
}

#[tokio::test(start_paused = true)]
async fn initialisations_that_spin_go_on_at_a_lower_priority() {
    let slots = SeedSlots::new(1, 256);
    let mut spinners = [0, 1].map(|function| Guest::begin(&slots, function).unwrap());
    let progress = SeedProgress::default();
    let mut neighbour = pin!(slots.permit(wanted(2, Urgency::Foreground), &progress));
    assert!(now(neighbour.as_mut()).is_none());
    assert_eq!(progress.queued_behind(), Some(0));
    assert_eq!(spinners[0].pass(SECOND / 4, true), Priority::Usual);
    assert!(now(neighbour.as_mut()).is_none());
    assert_eq!(spinners[0].pass(SECOND / 4, true), Priority::Background);
    assert!(now(neighbour.as_mut()).is_some());
    assert_eq!(progress.queued_behind(), None);
    // The share does not come back.
    spinners[0].pass(SECOND, false);
    assert_eq!(spinners[0].pass(TICK, true), Priority::Background);
    assert!(!spinners[0].holds_slot());
}

#[tokio::test(start_paused = true)]
async fn alternating_between_sleep_and_work_gains_nothing() {
    let slots = SeedSlots::new(1, 256);
    let mut guest = Guest::begin(&slots, 0).unwrap();
    let mut at_usual_priority = Duration::ZERO;
    for _ in 0..100 {
        guest.pass(SECOND / 10, false);
        let step = SECOND / 25;
        if guest.pass(step, true) == Priority::Usual {
            at_usual_priority += step;
        }
    }
    assert!(
        at_usual_priority <= SECOND / 2 + TICK,
        "{at_usual_priority:?}"
    );
    assert!(!guest.holds_slot());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_runs_without_a_free_slot_runs_behind_others() {
    let slots = SeedSlots::new(1, 256);
    let mut first = Guest::begin(&slots, 0).unwrap();
    first.pass(SECOND, false);
    let held = [1, 2].map(|function| Guest::begin(&slots, function).unwrap());
    assert_eq!(first.pass(TICK, true), Priority::Background);
    drop(held);
    assert_eq!(first.pass(TICK, true), Priority::Usual);
    assert!(first.holds_slot());
    // A guest that waits again while it is queued leaves the queue.
    first.pass(SECOND, false);
    let held = [1, 2].map(|function| Guest::begin(&slots, function).unwrap());
    assert_eq!(first.pass(TICK, true), Priority::Background);
    assert_eq!(first.pass(SECOND, false), Priority::Usual);
    drop(held);
    assert!(!first.holds_slot());
    let free = [1, 2].map(|function| Guest::begin(&slots, function));
    assert!(free.iter().all(Option::is_some));
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_cpu_time_is_unknown_has_a_slot_for_its_share_only() {
    let slots = SeedSlots::new(1, 256);
    let guest = Guest::begin(&slots, 0).unwrap();
    let begun = guest.now;
    assert_eq!(
        guest.permit.observe(begun + SECOND / 4, None),
        Priority::Usual
    );
    assert_eq!(
        guest.permit.observe(begun + SECOND, None),
        Priority::Background
    );
    // A guest that runs a little all the time does not hold its slot forever.
    let mut little = Guest::begin(&slots, 1).unwrap();
    for _ in 0..99 {
        little.now += TICK;
        little.cpu += TICK / 19;
        little.permit.observe(little.now, Some(little.cpu));
    }
    assert!(little.holds_slot());
    little.pass(TICK, true);
    assert!(!little.holds_slot());
}

#[tokio::test(start_paused = true)]
async fn foreground_work_comes_before_background_work() {
    let slots = SeedSlots::new(2, 256);
    let progress = SeedProgress::default();
    let background = |function| slots.permit(wanted(function, Urgency::Background), &progress);
    let slow = now(pin!(background(0))).unwrap();
    let mut next = pin!(background(1));
    assert!(now(next.as_mut()).is_none());
    let asked = Guest::begin(&slots, 2).unwrap();
    drop(slow);
    // A slot is free, but a client waits for another making.
    assert!(now(next.as_mut()).is_none());
    let mut waiting = pin!(slots.foreground_done(SECOND * 600));
    assert!(now(waiting.as_mut()).is_none());
    slots.foreground_done(SECOND).await;
    drop(asked);
    assert!(now(waiting.as_mut()).is_some());
    assert!(now(next.as_mut()).is_some());
}

#[tokio::test(start_paused = true)]
async fn foreground_makings_that_sleep_hold_up_no_background_work() {
    let slots = SeedSlots::new(2, 256);
    let mut asleep = Guest::begin(&slots, 0).unwrap();
    let progress = SeedProgress::default();
    let mut ahead = pin!(slots.permit(wanted(1, Urgency::Background), &progress));
    assert!(now(ahead.as_mut()).is_none());
    asleep.pass(SECOND, false);
    assert!(now(ahead.as_mut()).is_some());
}

#[tokio::test(start_paused = true)]
async fn one_function_does_not_take_all_guests_and_memory_bounds_them() {
    let slots = SeedSlots::new(1, 32);
    // Eight guests in all, of which one owner may have two.
    let mut guests = Vec::new();
    for function in [0, 0, 1, 2, 3, 4, 5, 6] {
        let mut guest = Guest::begin(&slots, function).unwrap();
        guest.pass(SECOND, false);
        guests.push(guest);
        // A third one of the first function would wait.
        assert!(guests.len() != 2 || Guest::begin(&slots, 0).is_none());
    }
    let progress = SeedProgress::default();
    let mut late = pin!(slots.permit(wanted(7, Urgency::Foreground), &progress));
    assert!(now(late.as_mut()).is_none());
    assert_eq!(
        (progress.queued_behind(), progress.is_initialising()),
        (Some(0), false)
    );
    slots.limit_memory(8 * (MEMORY + GUEST_OVERHEAD) - 1);
    guests.pop();
    assert!(now(late.as_mut()).is_none());
    guests.pop();
    assert!(now(late.as_mut()).is_some() && progress.is_initialising());
}

#[tokio::test(start_paused = true)]
async fn shared_seeds_take_no_slot() {
    let slots = SeedSlots::new(1, 32);
    let held: Vec<_> = (0..2)
        .map(|function| Guest::begin(&slots, function).unwrap())
        .collect();
    assert!(Guest::begin(&slots, 2).is_none());
    let shared = SeedRequest {
        owner: Owner::Shared,
        ..wanted(0, Urgency::Foreground)
    };
    let progress = SeedProgress::default();
    let permit = now(pin!(slots.permit(shared, &progress))).unwrap();
    assert!(!permit.is_to_be_observed() && progress.is_initialising());
    assert_eq!(
        permit.observe(Instant::now() + SECOND * 60, None),
        Priority::Usual
    );
    drop(held);
}
