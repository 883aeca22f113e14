//! Recycles an instance whose request is over: it is reset and kept warm for the next request, or
//! it ends. The client does not wait for this (early destroy, AFaaS §5), but the permits of the
//! request are held until then.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::memory_map::PAGE;
use faasw_common::text::Line;
use faasw_seedtree::{Misses, UsedPages};
use tokio::time::timeout;

use super::admission::AdmissionPermit;
use super::call::CallerPermit;
use crate::ablation::Mechanism;
use crate::error::InvokeError;
use crate::instances::{
    Instance, PendingInstance, PollingSlot, ResetError, ResetOrder, ResetOutcome, ResetWait,
};
use crate::sandboxes::RingReport;
use crate::seeds::{BusyGuard, FunctionVersion};
use crate::sink::{Effort, LogSink};
use crate::snapshots::is_fully_loaded;

/// How long a sandbox may take to report which pages its instance has used.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);

/// Resets or ends an instance whose request is over.
pub struct Recycler {
    /// The instance. Everything was taken out of its mailbox.
    pub instance: Instance,
    /// The function version of the instance.
    pub version: FunctionVersion,
    /// The sandbox's report, if the guest has stopped already.
    pub report: Option<RingReport>,
    /// The limits of the guest until it stops.
    pub reset_wait: ResetWait,
    /// Nothing in the request speaks against using the instance again.
    pub is_good: bool,
    /// Receives the effort of the request, with the number of the instance.
    pub sink: Arc<dyn LogSink>,
    /// The number of the instance in this request.
    pub number: u64,
    /// Returned at the end.
    #[expect(dead_code, reason = "it is held, not used")]
    pub permits: InvocationPermits,
}

/// The decision about an instance whose request is over.
enum RecycleDecision {
    /// The instance is reset.
    Reset(PlannedReset),
    /// The instance ends. If `with_survey` is set, the sandbox first reports the pages that it has
    /// used.
    End { with_survey: bool },
}

/// The reset of an instance that is to be warm.
struct PlannedReset {
    pending: PendingInstance,
    order: ResetOrder,
    /// If there is one, the guest polls for the next request after the reset.
    slot: Option<PollingSlot>,
}

/// A slot for a guest to poll for its next request.
struct PlannedPoll {
    slot: PollingSlot,
    /// How long the guest polls.
    bound: Duration,
}

/// The permits of an invocation. They are held until the process of its instance is free or gone.
pub struct InvocationPermits {
    /// The permit among all invocations of the pool.
    #[expect(dead_code, reason = "it is held, not used")]
    pub admission: AdmissionPermit,
    /// Counts the instance among those of its function that serve requests.
    pub busy: BusyGuard,
    /// The permit that the caller requires.
    #[expect(dead_code, reason = "it is held, not used")]
    pub caller: CallerPermit,
}

impl Recycler {
    /// Resets or ends the instance in the background. The decision is made before this returns. So
    /// the next request can wait for the instance, however soon it comes, and a sandbox that polls
    /// for its order finds it.
    pub fn start(mut self) {
        let version = self.version.clone();
        let decision = self.decide();
        // Futures are moved with what they hold, so the large value is boxed.
        let this = Box::new(self);
        tokio::spawn(async move {
            // The permits are returned with the rest of `this`, at the end.
            match decision {
                RecycleDecision::Reset(planned) => this.keep_warm(planned).await,
                RecycleDecision::End { with_survey } => Box::pin(this.end(with_survey)).await,
            }
            // Now one more instance may be warm, or a seed that was in use may be free.
            version.shrink_to_budget();
        });
    }

    fn decide(&mut self) -> RecycleDecision {
        // An instance of an ancestor has become the function on its own. A reset reads pages of the
        // instance's seed, so that must be fully loaded.
        let is_of_function = self.instance.is_own && is_fully_loaded(&self.instance.from);
        // An instance with an older working set would keep missing pages, or fill pages that are
        // not used, because its private pages are those of that set.
        let is_current = self.instance.is_current();
        let may_return = self.is_good && is_of_function && is_current;
        let with_survey = may_return && self.instance.from.working_set().is_wanted();
        let pending = (may_return && !with_survey)
            .then(|| {
                self.version
                    .warm_instances()
                    .announce(self.instance.uses + 1)
            })
            .flatten();
        let Some(mut pending) = pending else {
            return RecycleDecision::End { with_survey };
        };
        let poll = self.plan_poll();
        if poll.is_some() {
            pending.list_as_hot();
        }
        let count_unused = self.instance.from.working_set().count_reset();
        let bound = poll.as_ref().map_or(Duration::ZERO, |poll| poll.bound);
        RecycleDecision::Reset(PlannedReset {
            pending,
            order: ResetOrder::issue(&self.instance, count_unused, bound),
            slot: poll.map(|poll| poll.slot),
        })
    }

    /// Ends the instance when its guest has stopped. If `with_survey` is set, its used pages are
    /// learnt first.
    async fn end(mut self: Box<Self>, with_survey: bool) {
        let stopped = match self.report {
            Some(report) => Some(report),
            None => self.stopped().await,
        };
        if let Some(report) = stopped {
            if with_survey
                && let Ok(Ok(mut used)) =
                    timeout(SURVEY_TIMEOUT, self.instance.sandbox.survey()).await
            {
                let generation = self.instance.generation;
                let working_set = self.instance.from.working_set();
                clear_disabled(&mut used);
                if self.instance.has_code_in_large_pages() {
                    // In large pages, all pages around a used one count as used, too.
                    used.code.clear();
                }
                if working_set.learn(generation, &used, self.version.ram_bytes()) {
                    self.version.rewrite_image(&self.instance.from);
                }
            }
            // Reported last, so that the receiver of the report finds what was learnt.
            self.report_effort(&Effort {
                exits: report.exits,
                page_faults: report.page_faults,
                reset: None,
            });
        }
        self.instance.sandbox.destroy().await;
    }

    /// Resets the instance, without waiting for the guest to stop: the sandbox finds the order when
    /// that happens.
    async fn keep_warm(mut self: Box<Self>, planned: PlannedReset) {
        let (pending, order, slot) = (planned.pending, planned.order, planned.slot);
        let poll = order.poll();
        let outcome = self
            .reset_wait
            .reset(order, &mut self.instance, &pending)
            .await;
        if let Err(ResetError::Strayed(_)) = &outcome {
            // Noted before the slot is free, so that no second instance of the function strays
            // there.
            let warm_instances = self.version.warm_instances();
            warm_instances
                .polling()
                .note_stray(warm_instances.arrivals());
            self.charge(poll, false);
        }
        drop(slot);
        if self.reset_wait.was_late() {
            self.version.warm_instances().arrivals().hold_off();
        }
        match outcome {
            Ok(ResetOutcome::Warm {
                effort,
                polled,
                idle_since,
            }) => {
                self.charge(polled, false);
                self.note_reset(&effort);
                if self.instance.is_current() {
                    // The sandbox reports this number, so the product must not overflow.
                    let filled = effort.reset.map_or(0, |reset| reset.filled);
                    let bytes = filled.saturating_mul(PAGE).min(self.version.ram_bytes());
                    return pending.keep_warm(self.instance, bytes, idle_since.into_std());
                }
                // The working set has changed since the order, for example because of the misses
                // noted above.
                drop(pending);
                Box::pin(self.instance.sandbox.destroy()).await;
            }
            Ok(ResetOutcome::Claimed(claimed)) => {
                let warm_instances = self.version.warm_instances();
                warm_instances.arrivals().note(claimed.polled);
                self.charge(claimed.polled, true);
                self.note_reset(&claimed.effort);
                pending.hand_over(claimed.request, self.instance);
            }
            Err(error) => {
                self.log_failure(&error);
                self.version.warm_instances().resets().note_failed(&error);
                drop(pending);
                Box::pin(self.instance.sandbox.destroy()).await;
            }
        }
    }

    /// Notes that the instance was reset with this effort.
    fn note_reset(&self, effort: &Effort) {
        tracing::trace!(number = self.number, ?effort, "instance reset");
        self.version.warm_instances().resets().note_done();
        let reset = effort.reset.unwrap_or_default();
        let misses = Misses {
            outside: reset.outside,
            unused: reset.unused,
        };
        let working_set = self.instance.from.working_set();
        working_set.note(self.instance.generation, misses);
        self.report_effort(effort);
    }

    /// Charges the time for which the guest has polled for the next request.
    fn charge(&self, polled: Duration, has_found: bool) {
        if !polled.is_zero() || has_found {
            let warm_instances = self.version.warm_instances();
            let polling = warm_instances.polling();
            polling.charge(warm_instances.arrivals(), polled, has_found);
        }
    }

    /// Takes a slot for the guest to poll for the next request. Returns `None` if it is not to
    /// poll.
    fn plan_poll(&mut self) -> Option<PlannedPoll> {
        let (warm_instances, instance) = (self.version.warm_instances(), &mut self.instance);
        let (polling, arrivals) = (warm_instances.polling(), warm_instances.arrivals());
        if !arrivals.are_worth_polling_for()
            && instance.sandbox.process().may_be_in_background_group()
        {
            // An instance at the lowest priority that does not poll would only make its requests
            // wait.
            instance.sandbox.process().set_background_group(false);
        }
        let slot = polling.try_slot()?;
        // A previous holder of the slot has reported before if its guest strayed.
        let bound = polling.bound(arrivals)?;
        if !instance.sandbox.process().is_in_background_group() {
            // The next time, if this host supports that priority.
            instance.sandbox.process().set_background_group(true);
            return None;
        }
        instance.mailbox.map().ok()?;
        Some(PlannedPoll { slot, bound })
    }

    /// Waits until a guest that has reported its end has stopped.
    async fn stopped(&mut self) -> Option<RingReport> {
        let stopped = self.reset_wait.stopped(&mut self.instance).await;
        stopped.inspect_err(|error| self.log_failure(error)).ok()
    }

    /// Logs that the instance is not used again.
    fn log_failure(&self, error: &ResetError) {
        let number = self.number;
        tracing::debug!(number, error = %Line(error), "an instance was not reset");
        if let ResetError::WentOn = error {
            // The answer counts, but the log of the function has this failure, too.
            let error = InvokeError::GuestFailed(error.to_string());
            self.sink.stream_ended(Err(&error));
        }
    }

    fn report_effort(&self, effort: &Effort) {
        self.version.count_faults(effort.page_faults);
        self.sink.retired(self.number, effort);
    }
}

/// Removes the pages that a build for measurements is to do without.
fn clear_disabled(used: &mut UsedPages) {
    if Mechanism::WriteSet.is_off() {
        used.written.clear();
    }
    if Mechanism::ReadSet.is_off() {
        used.read.clear();
    }
}
