//! An instance after its guest has reported that it is done: until its vCPU stands still, and until
//! it is reset.
//!
//! By then the caller has the answer, so no client waits for the instance. What the guest still
//! does is limited to a small part of its CPU time, and the node handles only a few of its rings at
//! once. The limit counts CPU time, not wall time: on a busy machine a well-behaved guest may wait
//! long for a processor before it can stop.

use std::future::pending;
use std::time::Duration;

use faasw_abi::doorbell::Doorbell;
use faasw_fri::messages::Reset;
use tokio::time::{Instant, sleep_until};

use super::instance::Instance;
use super::polling::poll_briefly;
use super::warm::{AssignedRequest, PendingInstance};
use crate::error::PlatformError;
use crate::mailbox::{Mailbox, RateLimit};
use crate::sandboxes::{ResetProgress, RingReport, SandboxEvent};
use crate::sink::Effort;

/// CPU time that a guest may use after it has reported that it is done: a thousand times what it
/// takes to stop.
pub const CPU_AFTER_END: Duration = Duration::from_millis(50);

/// How long a guest may take to stop without using any CPU time, and how long a sandbox may then
/// take to reset it.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a request waits for the instance in total: about as long as a fork takes.
const WAIT_MAX: Duration = Duration::from_millis(2);

/// How long a reset may take at the lowest priority: many times what it takes if a processor is
/// free.
const BACKGROUND_MAX: Duration = Duration::from_millis(5);

/// The wait for a guest to stand still and for its reset, with the limits of both.
#[derive(Debug)]
pub struct ResetWait {
    rate_limit: RateLimit,
    /// CPU time that the guest may have used in total for its request.
    cpu: Duration,
    /// The guest cannot have used up `cpu` before this time.
    cpu_due: Instant,
    /// When the guest should have stopped, or used some CPU time.
    due: Instant,
    /// The CPU time that the guest had used at the last check.
    used: Duration,
    is_still: bool,
    /// The sandbox has reported that the guest stands still.
    is_stop_reported: bool,
    was_late: bool,
}

/// The order to reset an instance to the state of its seed after a request.
#[derive(Debug)]
pub struct ResetOrder {
    message: Reset,
    /// How long its guest polls for the next request after the reset.
    poll: Duration,
    was_issued: bool,
    since: Instant,
}

impl ResetOrder {
    /// Creates the order, and passes it at once to the sandbox of a claimed instance, which polls
    /// for it. With `count_unused`, the reported effort includes the part of the write set that the
    /// instance did not use. After the reset, the guest polls for the next request for `poll`.
    pub fn issue(instance: &Instance, count_unused: bool, poll: Duration) -> Self {
        let message = instance.sandbox.reset_order(count_unused, poll);
        Self {
            was_issued: instance.is_claimed && instance.mailbox.order(&message),
            message,
            poll,
            since: Instant::now(),
        }
    }

    /// Returns how long the guest polls for the next request.
    pub fn poll(&self) -> Duration {
        self.poll
    }

    /// Returns since when an instance that is warm now has had nothing to do. If its guest has
    /// polled in vain for `polled`, that is the time at which it began to poll. The instance was
    /// reset before and after that, which takes about as long each time.
    fn idle_since(&self, polled: Duration) -> Instant {
        if polled.is_zero() {
            Instant::now()
        } else {
            self.since + self.since.elapsed().saturating_sub(polled) / 2
        }
    }
}

/// The state of an instance after its reset.
#[derive(Debug)]
pub enum ResetOutcome {
    /// The instance waits for an order.
    Warm {
        /// The effort of the reset.
        effort: Effort,
        /// How long the guest has polled for the next request in vain.
        polled: Duration,
        /// Since when the instance has had nothing to do.
        idle_since: Instant,
    },
    /// The guest has polled for its next request and was claimed for it.
    Claimed(ClaimedInstance),
}

/// An instance that was claimed for a request, and its state.
#[derive(Debug)]
pub struct ClaimedInstance {
    /// The effort of its reset, as the sandbox reported it.
    pub effort: Effort,
    /// How long its guest has polled. A sandbox reports it until [`ResetWait::reset`] limits it.
    pub polled: Duration,
    /// The request.
    pub request: AssignedRequest,
}

/// A request that waits for an instance that is not offered yet.
struct AssignedWait {
    request: AssignedRequest,
    /// When the request goes elsewhere.
    due: Instant,
}

/// Why an instance was not reset or did not stop.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// The guest went on instead of stopping.
    #[error("it continued after it had reported its end")]
    WentOn,
    /// The guest was to poll for its next request, and did something else.
    #[error("it did not poll as ordered: {0}")]
    Strayed(String),
    /// Any other failure.
    #[error(transparent)]
    Failed(#[from] PlatformError),
}

impl ResetWait {
    /// Creates the limits for a guest that rings at `rate_limit` and may use `cpu` in total, which
    /// it cannot reach before `cpu_due`; or for a guest that stands still already.
    pub fn new(rate_limit: RateLimit, cpu: Duration, cpu_due: Instant, is_still: bool) -> Self {
        Self {
            rate_limit: rate_limit.at_the_end(),
            cpu,
            cpu_due,
            due: Instant::now() + STOP_TIMEOUT,
            used: Duration::ZERO,
            is_still,
            is_stop_reported: is_still,
            was_late: false,
        }
    }

    /// Has the instance reset as `order` says. If the order was not issued yet, it is sent now; the
    /// sandbox finds it when the guest stands still. `pending` connects the instance with requests
    /// when its guest polls for the next one.
    ///
    /// # Errors
    /// Returns a [`ResetError`] that says why the instance was not reset. It must then be ended.
    pub async fn reset(
        &mut self,
        order: ResetOrder,
        instance: &mut Instance,
        pending: &PendingInstance,
    ) -> Result<ResetOutcome, ResetError> {
        let poll = order.poll;
        let mut outcome = self.follow(&order, instance, pending).await?;
        match &mut outcome {
            ResetOutcome::Warm { polled, .. } => instance.note_reset(*polled)?,
            ResetOutcome::Claimed(ClaimedInstance { polled, .. }) => {
                // The time is limited to what was allowed, and to what has passed since the order.
                *polled = (*polled).min(poll).min(order.since.elapsed());
                instance.note_claimed(*polled)?;
            }
        }
        Ok(outcome)
    }

    async fn follow(
        &mut self,
        order: &ResetOrder,
        instance: &mut Instance,
        pending: &PendingInstance,
    ) -> Result<ResetOutcome, ResetError> {
        let (poll, was_issued) = (order.poll, order.was_issued);
        let mut is_ordered = was_issued;
        let mut assigned: Option<AssignedWait> = None;
        let mut background_due = instance
            .sandbox
            .process()
            .may_be_in_background_group()
            .then(|| Instant::now() + BACKGROUND_MAX);
        loop {
            let (rest, deadline) = (self.rate_limit.limited_until(), self.deadline());
            let assigned_due = assigned.as_ref().map(|assigned| assigned.due);
            let due = [assigned_due, background_due].into_iter().flatten();
            let due = due.fold(deadline, Instant::min);
            let news = async {
                if !is_ordered {
                    instance.sandbox.order_reset(&order.message).await?;
                    is_ordered = true;
                }
                instance.sandbox.next_reset_event(rest).await
            };
            let mut found = ClaimProgress::NoRequest;
            tokio::select! {
                biased;
                news = news => match news? {
                    Some(ResetProgress::Stopped) => self.note_stop_report()?,
                    Some(ResetProgress::Warm(effort, polled)) => {
                        if let Some(assigned) = assigned {
                            pending.requeue(assigned.request);
                        }
                        let polled = polled.min(poll);
                        let idle_since = order.idle_since(polled);
                        return Ok(ResetOutcome::Warm { effort, polled, idle_since });
                    }
                    Some(ResetProgress::Offered) => {
                        instance.mailbox.note_report()?;
                        if let Some(assigned) = assigned.take() {
                            pending.requeue(assigned.request);
                        }
                        found = claim_for_request(instance, pending).await;
                    }
                    Some(ResetProgress::Failed { why, by_guest }) => {
                        return Err(if by_guest && instance.mailbox.is_offered() {
                            ResetError::Strayed(why)
                        } else {
                            PlatformError::SandboxEnded(why).into()
                        });
                    }
                    None => self.rate_limit.count_ring(),
                },
                () = pending.wanted() => found = claim_for_request(instance, pending).await,
                () = assigned_closed(&mut assigned) => {
                    assigned = None;
                    found = claim_for_request(instance, pending).await;
                }
                () = sleep_until(due) => {
                    let now = Instant::now();
                    if assigned_due.is_some_and(|due| due <= now) {
                        // The request goes elsewhere.
                        assigned = None;
                    } else if background_due.is_some_and(|due| due <= now) {
                        let left = self.leave_background(instance, poll);
                        background_due = left.map(|left| now + left);
                    } else {
                        // A sandbox takes no order while its guest runs.
                        let is_untaken = if was_issued {
                            instance.mailbox.has_untaken_order()
                        } else {
                            instance.sandbox.has_untaken_order()?
                        };
                        let is_still = is_ordered && !is_untaken;
                        if is_still {
                            self.note_reset_begun()?
                        } else {
                            self.check_progress(instance)?
                        }
                    }
                }
            }
            match found {
                ClaimProgress::NoRequest => {}
                ClaimProgress::Pending(waiting) => assigned = Some(waiting),
                ClaimProgress::Claimed(claimed) => {
                    if !was_issued {
                        // The guest may have rung before the order came.
                        instance.sandbox.discard_ring()?;
                    }
                    return Ok(ResetOutcome::Claimed(claimed));
                }
            }
        }
    }

    /// Notes the sandbox's report that its guest stands still, which may cross the order. A second
    /// report is an error.
    fn note_stop_report(&mut self) -> Result<(), PlatformError> {
        if std::mem::replace(&mut self.is_stop_reported, true) {
            let what = "the sandbox said twice that its guest stands still".to_owned();
            Err(PlatformError::Protocol(what))
        } else {
            Ok(())
        }
    }

    /// Gives the usual priority to an instance that is not reset yet, and has it kept warm, because
    /// a guest that polls must not be in the way of others. If the instance was offered already and
    /// its guest may still poll, it keeps the lowest priority, and the remaining time is returned.
    fn leave_background(&mut self, instance: &mut Instance, poll: Duration) -> Option<Duration> {
        let looked = if poll.is_zero() {
            None
        } else {
            instance.mailbox.refuse()
        };
        // Within that time the guest stops polling by itself, and the instance is reset.
        let left = looked.and_then(|looked| (poll + BACKGROUND_MAX).checked_sub(looked));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            instance.sandbox.process().set_background_group(false);
            self.was_late = true;
        }
        left
    }

    /// Returns whether the reset took so long at the lowest priority that all processors must be in
    /// use.
    pub fn was_late(&self) -> bool {
        self.was_late
    }

    /// Waits until the guest stands still.
    ///
    /// # Errors
    /// Returns a [`ResetError`] that says why it does not. The instance must then be ended.
    pub async fn stopped(&mut self, instance: &mut Instance) -> Result<RingReport, ResetError> {
        // Using CPU time does not extend the timeout here: the guest could wait again and again.
        self.used = Duration::MAX;
        loop {
            let (rest, deadline) = (self.rate_limit.limited_until(), self.deadline());
            tokio::select! {
                biased;
                event = instance.sandbox.next_event(rest) => match event? {
                    SandboxEvent::Progress => self.rate_limit.count_ring(),
                    SandboxEvent::Rang(report) if report.doorbell == Some(Doorbell::Done) => {
                        return Ok(report);
                    }
                    SandboxEvent::Rang(_) => return Err(ResetError::WentOn),
                    SandboxEvent::Failed(why) => {
                        return Err(PlatformError::SandboxEnded(why).into());
                    }
                },
                () = sleep_until(deadline) => self.check_progress(instance)?,
            }
        }
    }

    fn deadline(&self) -> Instant {
        if self.is_still {
            self.due
        } else {
            self.due.min(self.cpu_due)
        }
    }

    /// Notes that the guest stands still and its sandbox resets it.
    fn note_reset_begun(&mut self) -> Result<(), ResetError> {
        if self.is_still {
            let what = "its reset takes too long".to_owned();
            return Err(PlatformError::Protocol(what).into());
        }
        self.is_still = true;
        self.due = Instant::now() + STOP_TIMEOUT;
        Ok(())
    }

    /// Checks whether a guest that still runs may go on.
    fn check_progress(&mut self, instance: &Instance) -> Result<(), ResetError> {
        let used = instance.cpu_time()?;
        let left = self.cpu.checked_sub(used).filter(|left| !left.is_zero());
        let now = Instant::now();
        self.cpu_due = now + left.ok_or(ResetError::WentOn)?;
        if now >= self.due {
            if used <= self.used {
                let what = "its guest does not stop".to_owned();
                return Err(PlatformError::Protocol(what).into());
            }
            self.due = now + STOP_TIMEOUT;
        }
        self.used = self.used.max(used);
        Ok(())
    }
}

/// Waits until a request that waits for the instance has gone. Pends for ever without one.
async fn assigned_closed(assigned: &mut Option<AssignedWait>) {
    match assigned {
        Some(assigned) => assigned.request.closed().await,
        None => pending().await,
    }
}

/// The result of trying to claim an instance for a request.
enum ClaimProgress {
    /// No request wants the instance any more.
    NoRequest,
    /// A request waits for the instance; the sandbox will notify the node.
    Pending(AssignedWait),
    /// The instance was claimed for a request.
    Claimed(ClaimedInstance),
}

/// Claims the instance, which polls for a request or will in a moment, for a request that waits for
/// it. The node first polls for that ([`poll_briefly`]); if the reset takes longer, the sandbox
/// notifies it.
async fn claim_for_request(instance: &mut Instance, pending: &PendingInstance) -> ClaimProgress {
    let Some(mut request) = pending.assign_request() else {
        return ClaimProgress::NoRequest;
    };
    let due = Instant::now() + WAIT_MAX;
    let mailbox = &mut instance.mailbox;
    if mailbox.is_report_due() {
        return ClaimProgress::Pending(AssignedWait { request, due });
    }
    let outcome = poll_briefly(|| try_claim(mailbox, pending, &mut request)).await;
    let outcome = match outcome {
        Some(outcome) => outcome,
        // This poll may itself keep the sandbox from a processor, so a longer one would not help.
        None if mailbox.request_report() => ClaimOutcome::Late,
        // The instance was offered at this moment, or is in a state that no sandbox of ours
        // produces.
        None => try_claim(mailbox, pending, &mut request).unwrap_or(ClaimOutcome::Late),
    };
    match outcome {
        ClaimOutcome::Claimed { effort, polled } => ClaimProgress::Claimed(ClaimedInstance {
            effort,
            polled,
            request,
        }),
        ClaimOutcome::Late => ClaimProgress::Pending(AssignedWait { request, due }),
        ClaimOutcome::Unwanted => ClaimProgress::NoRequest,
    }
}

/// The result of one attempt to claim an instance.
enum ClaimOutcome {
    /// The instance is claimed. Has the effort of its reset, and how long its guest has polled, as
    /// the sandbox reported them.
    Claimed { effort: Effort, polled: Duration },
    /// The sandbox notifies the node in a moment, or when the instance can be claimed.
    Late,
    /// No request wants the instance any more.
    Unwanted,
}

/// Tries to claim an instance once. Returns `None` if it is not offered yet.
fn try_claim(
    mailbox: &Mailbox,
    pending: &PendingInstance,
    request: &mut AssignedRequest,
) -> Option<ClaimOutcome> {
    if request.is_closed() {
        // The request has gone: a claimed instance must serve another one.
        match pending.assign_request() {
            Some(next) => *request = next,
            None => return Some(ClaimOutcome::Unwanted),
        }
    }
    if let Some((effort, polled)) = mailbox.claim() {
        return Some(ClaimOutcome::Claimed { effort, polled });
    }
    // If the guest stops polling, the instance is warm.
    mailbox.is_ending_poll().then_some(ClaimOutcome::Late)
}

#[cfg(test)]
mod tests;
