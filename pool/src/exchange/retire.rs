//! What becomes of an instance when its request is over: reset and parked for the
//! next one, or ended. The client does not wait for it (early destroy, AFaaS
//! §4.3), but its place is taken until then.

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
use crate::instances::{Back, Coming, Instance, Looking, Order, Settling, Unsettled};
use crate::sandboxes::Report;
use crate::seeds::{Busy, FunctionVersion};
use crate::sink::{Effort, LogSink};
use crate::snapshots::is_whole;

/// How long a sandbox may take to say what its instance has used.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);

/// An instance whose request is over.
pub struct Retiring {
    /// The instance. Everything was taken out of its mailbox.
    pub instance: Instance,
    /// What it came from.
    pub version: FunctionVersion,
    /// What the sandbox said when the guest stopped; nothing while it has not.
    pub report: Option<Report>,
    /// What it has left until it stops.
    pub settling: Settling,
    /// It did nothing that speaks against using it again.
    pub is_good: bool,
    /// Who is told what it took, and its number.
    pub sink: Arc<dyn LogSink>,
    /// The number it had in this request.
    pub number: u64,
    /// Given back at the end.
    #[expect(dead_code, reason = "it is held, not used")]
    pub place: Place,
}

/// What becomes of an instance.
enum Fate {
    /// It is brought back. Its guest looks for the next request then, if it has a place for that.
    Parked(Coming, Order, Option<Looking>),
    /// It ends, and is asked what it has used before, or not.
    Ended { is_asked: bool },
}

/// The place that an instance has until its process is free or gone, among all of
/// the pool and among those of its function, with what it was admitted with before.
pub type Place = (AdmissionPermit, Busy, Admitted);

impl Retiring {
    /// Does it in the background. What becomes of the instance is known when this returns, so that
    /// the next request knows whom to wait for, however soon it comes; and so does a sandbox that
    /// looks for its order.
    pub fn start(mut self) {
        let version = self.version.clone();
        let fate = self.fate();
        // Its futures are moved with what they hold.
        let this = Box::new(self);
        tokio::spawn(async move {
            // Its place is given back with the rest of it, at the end.
            match fate {
                Fate::Parked(coming, order, looking) => this.park(coming, order, looking).await,
                Fate::Ended { is_asked } => Box::pin(this.end(is_asked)).await,
            }
            // One more may be parked now, or a seed free that was in use.
            version.holding().fit();
        });
    }

    fn fate(&mut self) -> Fate {
        // An instance of an ancestor has become the function on its own.
        // What an instance is brought back to is read of its seed, so that has to be there.
        let is_of_function = self.instance.is_own && is_whole(&self.instance.from);
        // An instance of an older set would go on missing, or fill what nobody uses;
        // and what it has of its own is what that set says.
        let is_current = self.instance.is_current();
        let may_return = self.is_good && is_of_function && is_current;
        let is_asked = may_return && self.instance.from.working_set().is_wanted();
        let coming = (may_return && !is_asked)
            .then(|| self.version.parking().announce(self.instance.uses + 1))
            .flatten();
        let Some(mut coming) = coming else {
            return Fate::Ended { is_asked };
        };
        let (looking, poll) = self.look_for_next().unzip();
        if looking.is_some() {
            coming.look_out();
        }
        let count_unused = self.instance.from.working_set().count_reset();
        let order = Order::give(&self.instance, count_unused, poll.unwrap_or_default());
        Fate::Parked(coming, order, looking)
    }

    /// Ends the instance when the guest stands still, and learns from it if that `is_asked`.
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
                    // All around is used, too, by this word.
                    used.code.clear();
                }
                if working_set.learn(generation, &used, self.version.ram_bytes()) {
                    self.version.keep_image(&self.instance.from);
                }
            }
            // Last, so that whoever waits for it finds what was learnt.
            self.tell(&Effort {
                exits: report.exits,
                page_faults: report.page_faults,
                reset: None,
            });
        }
        self.instance.sandbox.destroy().await;
    }

    /// Resets the instance, without waiting for the guest to stand still: the sandbox
    /// finds the order when it does.
    async fn park(mut self: Box<Self>, coming: Coming, order: Order, looking: Option<Looking>) {
        let poll = order.poll();
        let back = self
            .settling
            .reset(order, &mut self.instance, &coming)
            .await;
        if let Err(Unsettled::Strayed(_)) = &back {
            // Before its place is another's, so that no second one of its function strays there.
            let parking = self.version.parking();
            parking.polling().note_stray(parking.arrivals());
            self.charge(poll, false);
        }
        drop(looking);
        if self.settling.was_late() {
            self.version.parking().arrivals().hold_off();
        }
        match back {
            Ok(Back::Parked(effort, polled, at_rest)) => {
                self.charge(polled, false);
                self.note(&effort);
                if self.instance.is_current() {
                    // The sandbox's word, which no sum is to trip over.
                    let filled = effort.reset.map_or(0, |reset| reset.filled);
                    let bytes = filled.saturating_mul(PAGE).min(self.version.ram_bytes());
                    return coming.park(self.instance, bytes, at_rest.into_std());
                }
                // That was what made the set be forgotten.
                drop(coming);
                Box::pin(self.instance.sandbox.destroy()).await;
            }
            Ok(Back::Found(effort, looked, waiting)) => {
                let parking = self.version.parking();
                parking.arrivals().note(looked);
                self.charge(looked, true);
                self.note(&effort);
                coming.hand(waiting, self.instance);
            }
            Err(error) => {
                self.failed(&error);
                self.version.parking().resets().note_failed(&error);
                drop(coming);
                Box::pin(self.instance.sandbox.destroy()).await;
            }
        }
    }

    /// It was brought back by this effort.
    fn note(&self, effort: &Effort) {
        tracing::trace!(number = self.number, ?effort, "instance reset");
        self.version.parking().resets().note_done();
        let reset = effort.reset.unwrap_or_default();
        let misses = Misses {
            outside: reset.outside,
            unused: reset.unused,
        };
        let working_set = self.instance.from.working_set();
        working_set.note(self.instance.generation, misses);
        self.tell(effort);
    }

    /// Its guest has looked for the next request for so long.
    fn charge(&self, looked: Duration, has_found: bool) {
        if !looked.is_zero() || has_found {
            let parking = self.version.parking();
            let polling = parking.polling();
            polling.charge(parking.arrivals(), looked, has_found);
        }
    }

    /// How long its guest is to look for the next request by itself, if it is to, and the place
    /// that it has for that.
    fn look_for_next(&mut self) -> Option<(Looking, Duration)> {
        let (parking, instance) = (self.version.parking(), &mut self.instance);
        let (polling, arrivals) = (parking.polling(), parking.arrivals());
        if !arrivals.are_worth_looking_for() && instance.sandbox.may_be_aside() {
            // Who comes behind all others and looks for nothing makes its requests wait for that
            // only.
            instance.sandbox.step_aside(false);
        }
        let place = polling.place()?;
        // Whoever had the place has said before if it strayed.
        let bound = polling.bound(arrivals)?;
        if !instance.sandbox.is_aside() {
            // The next time, if this host can have that.
            instance.sandbox.step_aside(true);
            return None;
        }
        instance.mailbox.map().ok()?;
        Some((place, bound))
    }

    /// Waits until a guest that has said that it is done stands still.
    async fn stopped(&mut self) -> Option<Report> {
        let stopped = self.settling.stopped(&mut self.instance).await;
        stopped.inspect_err(|error| self.failed(error)).ok()
    }

    /// It is not to be used again.
    fn failed(&self, error: &Unsettled) {
        let told = Line(error);
        tracing::debug!(number = self.number, error = %told, "an instance was not reset");
        if let Unsettled::WentOn = error {
            // Its answer counts; whoever follows the function is to know all the same.
            let error = InvokeError::GuestFailed(error.to_string());
            self.sink.stream_ended(Err(&error));
        }
    }

    fn tell(&self, effort: &Effort) {
        self.version.count_faults(effort.page_faults);
        self.sink.retired(self.number, effort);
    }
}

/// Leaves out what a build for measurements is to do without.
fn leave_out(used: &mut UsedPages) {
    if Mechanism::WriteSet.is_off() {
        used.written.clear();
    }
    if Mechanism::ReadSet.is_off() {
        used.read.clear();
    }
}
