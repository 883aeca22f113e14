//! Whom the pool lets in, and who has to go for them.

mod places;
mod turns;
mod waits;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use self::places::Places;
pub use self::places::{Place, Wanted};
pub use self::turns::Turn;
use self::turns::Turns;
pub use self::waits::{Wait, Waits, Who};
use super::call::Share;
use crate::error::InvokeError;
use crate::seeds::FunctionVersion;
use crate::stats::MemoryStats;

/// How long a request waits for a place: longer than ending a process takes on a
/// machine whose processors have twice as much to do as they can (50 ms were not).
const PLACE_TIMEOUT: Duration = Duration::from_millis(200);

/// How long the instance of an exchange that was cut may take to end, before another one
/// is cut for the same request.
const CUTTING: Duration = Duration::from_millis(50);

/// How often a request that waits for a place looks for an exchange to cut.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Bytes that an instance at work takes beside its function's memory at worst: mailbox, guest and tables.
pub const INSTANCE_MEMORY: u64 = 16 << 20;

/// Requests of one function that wait for a place at once; more are refused at once.
const WAITING_MAX: usize = 1024;

/// How many times the memory for microVMs those at work may come to at worst, where a
/// control group ends some of them if they do.
const OVERCOMMIT: u64 = 4;

/// Places, turns, and who waits for its client.
#[derive(Debug)]
pub struct Admission {
    places: Arc<Places>,
    turns: Arc<Turns>,
    waits: Arc<Waits>,
}

impl Admission {
    /// Lets `most` requests in at once, as far as there is memory, of which `turns` run
    /// before others.
    pub fn new(most: usize, memory: MemoryStats, turns: usize) -> Self {
        // Where a group holds all microVMs together to that, few of them come to their
        // worst at once; else the worst case has to fit.
        let memory = match memory.used {
            Some(_) => memory.max.saturating_mul(OVERCOMMIT),
            None => memory.max,
        };
        Self {
            places: Places::new(most, memory, true),
            turns: Turns::new(turns),
            waits: Arc::default(),
        }
    }

    /// Requests that have a place.
    pub fn taken(&self) -> usize {
        self.places.taken()
    }

    /// Bytes that their instances may come to at worst.
    pub fn memory_taken(&self) -> u64 {
        self.places.memory_taken()
    }

    /// Requests that wait for a place.
    pub fn waiting(&self) -> usize {
        self.places.waiting()
    }

    /// How many were cut.
    pub fn evicted(&self) -> u64 {
        self.waits.cut()
    }

    /// Where exchanges say that they wait for their clients.
    pub fn waits(&self) -> Arc<Waits> {
        self.waits.clone()
    }

    /// Whether a request of the function would have a place now.
    pub fn has_room(&self, version: &FunctionVersion) -> bool {
        self.places.has_room(wanted(version))
    }

    /// Cuts the exchange of this function that has waited longest for its client; says
    /// whether there was one.
    pub fn evict(&self, version: &FunctionVersion) -> bool {
        let function = version.holding().number();
        // Whoever asks waits for one.
        self.waits.cut_longest(function, usize::MAX, |other, _, _| {
            other.function == function
        })
    }

    /// A place. Whoever finds none waits a moment, and has an exchange cut that waits for
    /// its client: a place stays taken while its instance is reset or ended, which
    /// whoever sends one request after the other does not see.
    ///
    /// # Errors
    /// [`InvokeError::OverCapacity`] when there is none in time.
    pub async fn place(&self, wanted: Wanted) -> Result<Place, InvokeError> {
        match self.places.try_place(wanted) {
            Some(place) => Ok(place),
            None => Box::pin(self.wait_for_place(wanted)).await,
        }
    }

    /// A place for a request that another one waits for, out of `share`. Whoever waits for it keeps a place meanwhile, so
    /// nobody is waited for: all of them might wait for each other.
    ///
    /// # Errors
    /// [`InvokeError::OverCapacity`] when there is none now.
    pub fn place_within(&self, share: Share, wanted: Wanted) -> Result<Place, InvokeError> {
        let wanted = Wanted {
            function: share.number(),
            ..wanted
        };
        let place = self.places.try_place(wanted);
        place.ok_or_else(|| InvokeError::OverCapacity(self.places.most()))
    }

    async fn wait_for_place(&self, wanted: Wanted) -> Result<Place, InvokeError> {
        let places = &self.places;
        let refused = InvokeError::OverCapacity(places.most());
        if places.waiting_of(wanted.function) >= WAITING_MAX {
            return Err(refused);
        }
        let begun = Instant::now();
        let mut waiting = pin!(places.place(wanted));
        let mut look_again = begun;
        while look_again < begun + PLACE_TIMEOUT {
            look_again += match self.cut_for(wanted) {
                true => CUTTING,
                false => LOOK_AGAIN,
            };
            if let Ok(place) = timeout_at(look_again.min(begun + PLACE_TIMEOUT), &mut waiting).await
            {
                return Ok(place);
            }
        }
        Err(refused)
    }

    /// Cuts the exchange that has waited longest for its client, of functions that have
    /// more places than the one that wants one, or of that function itself. What was cut
    /// before counts as ended.
    fn cut_for(&self, wanted: Wanted) -> bool {
        let asking = wanted.function;
        let waiting = self.places.waiting_of(asking);
        let taken = self.places.taken_by_each();
        let taken_by = |function| taken.get(&function).copied().unwrap_or_default();
        let own = taken_by(asking);
        self.waits
            .cut_longest(asking, waiting, |who, pending, own_pending| {
                let left = pending.left_of(taken_by(who.share));
                who.share == asking || left > own_pending.left_of(own)
            })
    }

    /// The right to run before others, if nobody else has it.
    pub fn try_turn(&self, wanted: Wanted) -> Option<Turn> {
        self.turns.try_turn(wanted.function)
    }

    /// The right to run before others, in turn.
    pub async fn turn(&self, wanted: Wanted) -> Turn {
        self.turns.turn(wanted.function).await
    }
}

/// What a request of a function takes.
pub fn wanted(version: &FunctionVersion) -> Wanted {
    Wanted {
        function: version.holding().number(),
        memory: version.memory_limit().saturating_add(INSTANCE_MEMORY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_a_place_waits_for_no_other_and_both_count_for_one() {
        let memory = MemoryStats {
            max: 1 << 40,
            ..MemoryStats::default()
        };
        let admission = Admission::new(2, memory, 1);
        let of = |function| Wanted {
            function,
            memory: 1,
        };
        let begun = Instant::now();
        let own = admission.place(of(1)).await.unwrap();
        let within = admission.place_within(Share::by(1), of(2)).unwrap();
        assert_eq!(admission.places.taken_by_each().get(&1), Some(&2));
        let none = admission.place_within(Share::by(1), of(2));
        assert!(matches!(none, Err(InvokeError::OverCapacity(2))));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop((own, within));
        assert_eq!(admission.taken(), 0);
        // The same of turns.
        let turn = admission.turn(of(1)).await;
        assert!(admission.try_turn(of(2)).is_none());
        drop(turn);
        assert!(admission.try_turn(of(2)).is_some());
    }

    /// A function whose exchanges all wait for their clients, and a burst of another.
    #[tokio::test(start_paused = true)]
    async fn a_burst_of_one_function_leaves_another_its_share() {
        const MOST: usize = 8;
        let memory = MemoryStats {
            max: 1 << 40,
            ..MemoryStats::default()
        };
        let admission = Arc::new(Admission::new(MOST, memory, 1));
        let of = |function| Wanted {
            function,
            memory: 1,
        };
        let mut held = Vec::new();
        for _ in 0..MOST {
            let place = admission.place(of(1)).await.unwrap();
            let wait = admission.waits().add(Who::alone(1));
            wait.set(Some(Instant::now()), true);
            held.push((place, wait));
        }
        let burst: Vec<_> = (0..3 * MOST)
            .map(|_| {
                let admission = admission.clone();
                tokio::spawn(async move { admission.place(of(2)).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(admission.evicted() > 0, "the first look is at once");
        for one in burst {
            // None that was cut ends.
            one.await.unwrap().unwrap_err();
        }
        assert_eq!(admission.evicted(), MOST as u64 / 2);
        assert_eq!(admission.waiting(), 0);
        drop(held);
    }
}
