//! Admission: which requests may have an instance now, and which invocation is evicted for them.

mod capacity;
mod client_waits;
mod demand;
mod permits;
mod run_permits;
mod served;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use self::capacity::Amount;
pub use self::client_waits::{ClientWait, ClientWaits, PermitHolder};
use self::permits::AdmissionPermits;
pub use self::permits::{AdmissionPermit, PermitRequest};
pub use self::run_permits::RunPermit;
use self::run_permits::RunPermits;
pub use self::served::ServedFunctions;
use super::call::PermitShare;
use crate::error::InvokeError;
use crate::seeds::FunctionVersion;
use crate::stats::MemoryStats;

/// How long a request waits for a permit: longer than ending a process takes on a machine with
/// twice as much work as its processors can do (50 ms were not).
const PERMIT_TIMEOUT: Duration = Duration::from_millis(200);

/// How long the instance of an evicted invocation may take to end before another invocation is
/// evicted for the same request.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(50);

/// How often a waiting request looks for an invocation to evict.
const EVICTION_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes that an instance at work takes in addition to its function's memory at worst: mailbox,
/// guest and tables.
pub const INSTANCE_MEMORY: u64 = 16 << 20;

/// Requests of one function that wait for a permit at once; more are rejected at once.
const WAITING_MAX: usize = 1024;

/// The worst-case memory of the instances at work may be this many times the memory for sandboxes,
/// if a control group ends some of them when they use more than there is.
const OVERCOMMIT: u64 = 4;

/// Admission permits, run permits, and the invocations that wait for their clients.
#[derive(Debug)]
pub struct Admission {
    admitted: Arc<AdmissionPermits>,
    running: Arc<RunPermits>,
    waits: Arc<ClientWaits>,
}

impl Admission {
    /// Admits at most `most` requests at once, as far as there is memory. Of these, `running` may
    /// run before others. `served` counts the functions of the node.
    pub fn new(
        most: usize,
        memory: MemoryStats,
        running: usize,
        served: Arc<ServedFunctions>,
    ) -> Self {
        // A control group that limits all microVMs together ends some of them if several reach
        // their worst case at once, which is rare. Without one, the worst case must fit.
        let memory = match memory.used {
            Some(_) => memory.max.saturating_mul(OVERCOMMIT),
            None => memory.max,
        };
        let amount = |permits, memory| Amount { permits, memory };
        Self {
            admitted: AdmissionPermits::with_reserve(amount(most, memory), served),
            running: RunPermits::new(running),
            waits: Arc::default(),
        }
    }

    /// Returns the number of admitted requests.
    pub fn taken(&self) -> usize {
        self.admitted.used().permits
    }

    /// Returns the bytes that the instances of admitted requests may use at worst.
    pub fn memory_taken(&self) -> u64 {
        self.admitted.used().memory
    }

    /// Returns the number of requests that wait for admission.
    pub fn waiting(&self) -> usize {
        self.admitted.waiting()
    }

    /// Returns the number of evicted invocations.
    pub fn evicted(&self) -> u64 {
        self.waits.evicted()
    }

    /// Returns the invocations that wait for their clients.
    pub fn waits(&self) -> Arc<ClientWaits> {
        self.waits.clone()
    }

    /// Returns whether a request of the function would be admitted now.
    pub fn has_free_permit(&self, version: &FunctionVersion) -> bool {
        self.admitted.has_free_permit(permit_request(version))
    }

    /// Evicts the invocation of this function that has waited longest for its client. Returns
    /// whether there was one.
    pub fn evict(&self, version: &FunctionVersion) -> bool {
        let function = version.function_memory().number();
        // The caller waits for the end of one invocation, however many others do.
        self.waits
            .evict_longest(function, usize::MAX, |holder, _, _| {
                holder.function == function
            })
    }

    /// Admits a request. If there is no capacity, the request waits a moment, and an invocation
    /// that waits for its client is evicted. A permit stays taken while its instance is reset or
    /// ended, so a client with one request at a time meets no refusal.
    ///
    /// # Errors
    /// Returns [`InvokeError::OverCapacity`] if there is no capacity in time.
    pub async fn admit(&self, request: PermitRequest) -> Result<AdmissionPermit, InvokeError> {
        match self.admitted.try_take(request) {
            Some(permit) => Ok(permit),
            None => Box::pin(self.wait_for_permit(request)).await,
        }
    }

    /// Admits a request that another invocation waits for, in the share of that invocation's
    /// function. The request does not wait, because invocations that hold permits might all wait
    /// for each other.
    ///
    /// # Errors
    /// Returns [`InvokeError::OverCapacity`] if there is no capacity now.
    pub fn admit_nested(
        &self,
        share: PermitShare,
        request: PermitRequest,
    ) -> Result<AdmissionPermit, InvokeError> {
        let request = PermitRequest {
            function: share.number(),
            ..request
        };
        let permit = self.admitted.try_take_nested(request);
        permit.ok_or_else(|| self.full())
    }

    fn full(&self) -> InvokeError {
        InvokeError::OverCapacity(self.admitted.total().permits)
    }

    async fn wait_for_permit(
        &self,
        request: PermitRequest,
    ) -> Result<AdmissionPermit, InvokeError> {
        if self.admitted.waiting_of(request.function) >= WAITING_MAX {
            return Err(self.full());
        }
        let begun = Instant::now();
        let mut waiting = pin!(self.admitted.take(request));
        let mut look_again = begun;
        while look_again < begun + PERMIT_TIMEOUT {
            look_again += if self.evict_for(request) {
                EVICTION_TIMEOUT
            } else {
                EVICTION_INTERVAL
            };
            let until = look_again.min(begun + PERMIT_TIMEOUT);
            if let Ok(permit) = timeout_at(until, &mut waiting).await {
                return Ok(permit);
            }
        }
        Err(self.full())
    }

    /// Evicts the invocation that has waited longest for its client, among those of the requesting
    /// function and of functions with a larger share. Invocations that were evicted before count
    /// as ended. Returns whether there was one.
    fn evict_for(&self, request: PermitRequest) -> bool {
        let function = request.function;
        let waiting = self.admitted.waiting_of(function);
        let (held, total) = (self.admitted.held_by_each(), self.admitted.total());
        let held_by = |function| held.get(&function).copied().unwrap_or_default();
        self.waits
            .evict_longest(function, waiting, |holder, pending, own| {
                let left = pending.left_of(held_by(holder.share));
                let own = own.left_of(held_by(function));
                holder.share == function || left.share_of(total) > own.share_of(total)
            })
    }

    /// Takes a run permit if one is free.
    pub fn try_run_permit(&self, request: PermitRequest) -> Option<RunPermit> {
        self.running.try_take(request.function)
    }

    /// Waits for a run permit.
    pub async fn run_permit(&self, request: PermitRequest) -> RunPermit {
        self.running.take(request.function).await
    }
}

/// Returns the request for a permit for one invocation of a function.
pub fn permit_request(version: &FunctionVersion) -> PermitRequest {
    PermitRequest {
        function: version.function_memory().number(),
        memory: version.memory_limit().saturating_add(INSTANCE_MEMORY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the admission of a node that serves several functions.
    fn admission(most: usize) -> Admission {
        let memory = MemoryStats {
            max: 1 << 40,
            ..MemoryStats::default()
        };
        let served = Arc::<ServedFunctions>::default();
        (0..3).for_each(|_| served.add(0));
        Admission::new(most, memory, 1, served)
    }

    fn of(function: u64) -> PermitRequest {
        PermitRequest {
            function,
            memory: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_nested_request_does_not_wait_and_counts_for_the_function_that_waits_for_it() {
        let admission = admission(2);
        let begun = Instant::now();
        let own = admission.admit(of(1)).await.unwrap();
        let nested = admission.admit_nested(PermitShare::by(1), of(2)).unwrap();
        let held = admission.admitted.held_by_each();
        assert_eq!(held.get(&1).map(|held| held.permits), Some(2));
        let refused = admission.admit_nested(PermitShare::by(1), of(2));
        assert!(matches!(refused, Err(InvokeError::OverCapacity(2))));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop((own, nested));
        assert_eq!(admission.taken(), 0);
        // Run permits behave in the same way.
        let permit = admission.run_permit(of(1)).await;
        assert!(admission.try_run_permit(of(2)).is_none());
        drop(permit);
        assert!(admission.try_run_permit(of(2)).is_some());
    }

    /// A function whose invocations all wait for their clients, and a burst of another.
    #[tokio::test(start_paused = true)]
    async fn a_burst_of_one_function_leaves_another_its_share() {
        const MOST: usize = 16;
        let admission = Arc::new(admission(MOST));
        let mut held = Vec::new();
        while let Ok(permit) = admission.admit(of(1)).await {
            let wait = admission.waits().add(PermitHolder::alone(1));
            wait.set(Some(Instant::now()), true);
            held.push((permit, wait));
        }
        assert_eq!(held.len(), MOST * 7 / 8);
        // The refused request has evicted an invocation of its own function, which does not end.
        let before = admission.evicted();
        let burst: Vec<_> = (0..3 * MOST)
            .map(|_| {
                let admission = admission.clone();
                tokio::spawn(async move { admission.admit(of(2)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(admission.evicted() > before, "the first look is at once");
        let mut admitted = Vec::new();
        for one in burst {
            admitted.extend(one.await.unwrap());
        }
        assert_eq!(admitted.len(), 1);
        // With the evictions counted, both functions have the same amount.
        let lost = (admission.evicted() - before) as usize;
        let left = held.len() - lost;
        assert!(left.abs_diff(1 + lost) <= 1, "{left} {lost}");
        assert_eq!(admission.waiting(), 0);
        drop(held);
    }

    /// Few large invocations of a function and many small ones of another wait for their clients.
    #[tokio::test(start_paused = true)]
    async fn the_function_with_the_larger_dominant_share_loses_an_invocation() {
        let memory = MemoryStats {
            max: 100,
            ..MemoryStats::default()
        };
        let admission = Admission::new(1000, memory, 1, Arc::default());
        let mut held = Vec::new();
        for (function, memory, count) in [(1, 30, 2), (2, 1, 28)] {
            for _ in 0..count {
                let request = PermitRequest { function, memory };
                let permit = admission.admitted.try_take(request);
                let wait = admission.waits().add(PermitHolder {
                    function,
                    share: function,
                    memory,
                });
                wait.set(Some(Instant::now()), true);
                held.push((function, permit, wait));
            }
        }
        assert!(held.iter().all(|(_, permit, _)| permit.is_some()));
        let request = PermitRequest {
            function: 2,
            memory: 1,
        };
        // The function's own invocations are younger than those of the first.
        let _waiting = admission.admitted.take(request);
        assert!(admission.evict_for(request));
        assert_eq!(admission.evicted(), 1);
        let mut evicted = Vec::new();
        for (function, _, wait) in &held {
            let now = Duration::ZERO;
            if tokio::time::timeout(now, wait.evicted()).await.is_ok() {
                evicted.push(*function);
            }
        }
        assert_eq!(evicted, [1]);
    }
}
