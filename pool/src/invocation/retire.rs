//! The retirement of an instance whose request is over: it is reset and warm for the next
//! request, or it ends. The client does not wait for this (early destroy, AFaaS §5), but the place
//! of the request is taken until then.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::memory_map::PAGE;
use faasw_common::text::Line;
use faasw_seedtree::{Misses, UsedPages};
use tokio::time::timeout;

use super::admission::AdmissionPermit;
use super::call::Admitted;
use crate::ablation::Mechanism;
use crate::error::InvokeError;
use crate::instances::{Back, Instance, Looking, Order, PendingInstance, Settling, Unsettled};
use crate::sandboxes::RingReport;
use crate::seeds::{BusyGuard, FunctionVersion};
use crate::sink::{Effort, LogSink};
use crate::snapshots::is_fully_loaded;

/// How long a sandbox may take to report which pages its instance has used.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);

/// An instance whose request is over.
pub struct Retiring {
    /// The instance. Everything was taken out of its mailbox.
    pub instance: Instance,
    /// The function version of the instance.
    pub version: FunctionVersion,
    /// The sandbox's report, if the guest has stopped already.
    pub report: Option<RingReport>,
    /// The limits of the guest until it stops.
    pub settling: Settling,
    /// Nothing in the request speaks against using the instance again.
    pub is_good: bool,
    /// Receives the effort of the request, with the number of the instance.
    pub sink: Arc<dyn LogSink>,
    /// The number of the instance in this request.
    pub number: u64,
    /// Returned at the end.
    #[expect(dead_code, reason = "it is held, not used")]
    pub place: Place,
}

/// The fate of an instance.
enum Fate {
    /// The instance is reset. If it has a place for that, its guest then polls for the next
    /// request.
    Warm(PendingInstance, Order, Option<Looking>),
    /// The instance ends. If `is_asked` is set, the sandbox first reports the pages that it has
    /// used.
    Ended { is_asked: bool },
}

/// The place of an instance among all of the pool and among those of its function, with what its
/// request was admitted with. It is held until the process is free or gone.
pub type Place = (AdmissionPermit, BusyGuard, Admitted);

impl Retiring {
    /// Resets or ends the instance in the background. The decision is made before this returns. So
    /// the next request can wait for the instance, however soon it comes, and a sandbox that polls
    /// for its order finds it.
    pub fn start(mut self) {
        let version = self.version.clone();
        let fate = self.fate();
        // Futures are moved with what they hold, so the large value is boxed.
        let this = Box::new(self);
        tokio::spawn(async move {
            // The place is returned with the rest of `this`, at the end.
            match fate {
                Fate::Warm(pending, order, looking) => {
                    this.keep_warm(pending, order, looking).await
                }
                Fate::Ended { is_asked } => Box::pin(this.end(is_asked)).await,
            }
            // Now one more instance may be warm, or a seed that was in use may be free.
            version.function_memory().fit();
        });
    }

    fn fate(&mut self) -> Fate {
        // An instance of an ancestor has become the function on its own. A reset reads pages of the
        // instance's seed, so that must be fully loaded.
        let is_of_function = self.instance.is_own && is_fully_loaded(&self.instance.from);
        // An instance with an older working set would keep missing pages, or fill pages that are
        // not used, because its private pages are those of that set.
        let is_current = self.instance.is_current();
        let may_return = self.is_good && is_of_function && is_current;
        let is_asked = may_return && self.instance.from.working_set().is_wanted();
        let pending = (may_return && !is_asked)
            .then(|| {
                self.version
                    .warm_instances()
                    .announce(self.instance.uses + 1)
            })
            .flatten();
        let Some(mut pending) = pending else {
            return Fate::Ended { is_asked };
        };
        let (looking, poll) = self.look_for_next().unzip();
        if looking.is_some() {
            pending.look_out();
        }
        let count_unused = self.instance.from.working_set().count_reset();
        let order = Order::give(&self.instance, count_unused, poll.unwrap_or_default());
        Fate::Warm(pending, order, looking)
    }

    /// Ends the instance when its guest has stopped. If `is_asked` is set, its used pages are
    /// learnt first.
    async fn end(mut self: Box<Self>, is_asked: bool) {
        let stopped = match self.report {
            Some(report) => Some(report),
            None => self.stopped().await,
        };
        if let Some(report) = stopped {
            if is_asked
                && let Ok(Ok(mut used)) =
                    timeout(SURVEY_TIMEOUT, self.instance.sandbox.survey()).await
            {
                let generation = self.instance.generation;
                let working_set = self.instance.from.working_set();
                leave_out(&mut used);
                if self.instance.has_code_in_large_pages() {
                    // In large pages, all pages around a used one count as used, too.
                    used.code.clear();
                }
                if working_set.learn(generation, &used, self.version.ram_bytes()) {
                    self.version.rewrite_image(&self.instance.from);
                }
            }
            // Reported last, so that the receiver of the report finds what was learnt.
            self.tell(&Effort {
                exits: report.exits,
                page_faults: report.page_faults,
                reset: None,
            });
        }
        self.instance.sandbox.destroy().await;
    }

    /// Resets the instance, without waiting for the guest to stop: the sandbox finds the order when
    /// that happens.
    async fn keep_warm(
        mut self: Box<Self>,
        pending: PendingInstance,
        order: Order,
        looking: Option<Looking>,
    ) {
        let poll = order.poll();
        let back = self
            .settling
            .reset(order, &mut self.instance, &pending)
            .await;
        if let Err(Unsettled::Strayed(_)) = &back {
            // Noted before the place is free, so that no second instance of the function strays
            // there.
            let warm_instances = self.version.warm_instances();
            warm_instances
                .polling()
                .note_stray(warm_instances.arrivals());
            self.charge(poll, false);
        }
        drop(looking);
        if self.settling.was_late() {
            self.version.warm_instances().arrivals().hold_off();
        }
        match back {
            Ok(Back::Warm(effort, polled, at_rest)) => {
                self.charge(polled, false);
                self.note(&effort);
                if self.instance.is_current() {
                    // The sandbox reports this number, so the product must not overflow.
                    let filled = effort.reset.map_or(0, |reset| reset.filled);
                    let bytes = filled.saturating_mul(PAGE).min(self.version.ram_bytes());
                    return pending.keep_warm(self.instance, bytes, at_rest.into_std());
                }
                // The working set has changed since the order, for example because of the misses
                // noted above.
                drop(pending);
                Box::pin(self.instance.sandbox.destroy()).await;
            }
            Ok(Back::Found(effort, looked, waiting)) => {
                let warm_instances = self.version.warm_instances();
                warm_instances.arrivals().note(looked);
                self.charge(looked, true);
                self.note(&effort);
                pending.hand(waiting, self.instance);
            }
            Err(error) => {
                self.failed(&error);
                self.version.warm_instances().resets().note_failed(&error);
                drop(pending);
                Box::pin(self.instance.sandbox.destroy()).await;
            }
        }
    }

    /// Notes that the instance was reset with this effort.
    fn note(&self, effort: &Effort) {
        tracing::trace!(number = self.number, ?effort, "instance reset");
        self.version.warm_instances().resets().note_done();
        let reset = effort.reset.unwrap_or_default();
        let misses = Misses {
            outside: reset.outside,
            unused: reset.unused,
        };
        let working_set = self.instance.from.working_set();
        working_set.note(self.instance.generation, misses);
        self.tell(effort);
    }

    /// Charges the time for which the guest has polled for the next request.
    fn charge(&self, looked: Duration, has_found: bool) {
        if !looked.is_zero() || has_found {
            let warm_instances = self.version.warm_instances();
            let polling = warm_instances.polling();
            polling.charge(warm_instances.arrivals(), looked, has_found);
        }
    }

    /// Returns how long the guest is to poll for the next request, and its place for that. Returns
    /// `None` if it is not to poll.
    fn look_for_next(&mut self) -> Option<(Looking, Duration)> {
        let (warm_instances, instance) = (self.version.warm_instances(), &mut self.instance);
        let (polling, arrivals) = (warm_instances.polling(), warm_instances.arrivals());
        if !arrivals.are_worth_looking_for() && instance.sandbox.may_be_aside() {
            // An instance at the lowest priority that does not poll would only make its requests
            // wait.
            instance.sandbox.step_aside(false);
        }
        let place = polling.place()?;
        // A previous holder of the place has reported before if its guest strayed.
        let bound = polling.bound(arrivals)?;
        if !instance.sandbox.is_aside() {
            // The next time, if this host supports that priority.
            instance.sandbox.step_aside(true);
            return None;
        }
        instance.mailbox.map().ok()?;
        Some((place, bound))
    }

    /// Waits until a guest that has reported its end has stopped.
    async fn stopped(&mut self) -> Option<RingReport> {
        let stopped = self.settling.stopped(&mut self.instance).await;
        stopped.inspect_err(|error| self.failed(error)).ok()
    }

    /// Logs that the instance is not used again.
    fn failed(&self, error: &Unsettled) {
        let told = Line(error);
        tracing::debug!(number = self.number, error = %told, "an instance was not reset");
        if let Unsettled::WentOn = error {
            // The answer counts, but the log of the function has this failure, too.
            let error = InvokeError::GuestFailed(error.to_string());
            self.sink.stream_ended(Err(&error));
        }
    }

    fn tell(&self, effort: &Effort) {
        self.version.count_faults(effort.page_faults);
        self.sink.retired(self.number, effort);
    }
}

/// Removes the pages that a build for measurements is to do without.
fn leave_out(used: &mut UsedPages) {
    if Mechanism::WriteSet.is_off() {
        used.written.clear();
    }
    if Mechanism::ReadSet.is_off() {
        used.read.clear();
    }
}
