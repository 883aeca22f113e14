//! A guest that has said that it is done, until its vCPU stands still.
//!
//! Its caller has the answer by then, so nobody waits for it any more: what it still does
//! is held to a small part of its CPU time, and it is heard a few times at once at most.
//! CPU time is counted, not wall time: on a busy machine a good guest may have to wait long
//! for a processor before it can stop, and that is not its fault.

use std::future::pending;
use std::time::Duration;

use faasw_abi::doorbell::Doorbell;
use faasw_fri::messages::Reset;
use tokio::time::{Instant, sleep_until};

use super::instance::Instance;
use super::look::look_for;
use super::parking::{Coming, Held};
use crate::error::PlatformError;
use crate::mailbox::{Mailbox, RateLimit};
use crate::sandboxes::{Event, Reached, Report};
use crate::sink::Effort;

/// CPU time that a guest has at most once it has said that it is done: a thousand times
/// what it takes to stop.
pub const AFTER_END: Duration = Duration::from_millis(50);

/// How long a guest may take to stop without using any CPU time, and how long a sandbox may
/// take to reset it then.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a request waits for it in all: about as long as a fork takes.
const WAIT_MAX: Duration = Duration::from_millis(2);

/// How long bringing an instance back may take behind everybody else who wants a processor: many
/// times what it takes where one is free.
const ASIDE_MAX: Duration = Duration::from_millis(5);

/// What a guest has left until it stands still.
#[derive(Debug)]
pub struct Settling {
    rate_limit: RateLimit,
    /// What it may have used in all, for its request.
    cpu: Duration,
    /// It cannot have used that up before.
    cpu_due: Instant,
    /// When it should have stopped, or used some of that.
    due: Instant,
    /// What it had used when that was last looked at.
    used: Duration,
    is_still: bool,
    /// Its sandbox has said that it stands still.
    is_told: bool,
    was_late: bool,
}

/// The order to bring an instance back to its seed's state after a request.
#[derive(Debug)]
pub struct Order {
    message: Reset,
    /// For how long its guest looks for the next request by itself then.
    poll: Duration,
    was_given: bool,
    since: Instant,
}

impl Order {
    /// With `count_unused` the effort will say what of its write set the instance did not use. For
    /// so long as `poll` its guest looks for the next request by itself then. The sandbox of one
    /// that was claimed looks for its order, and has it at once.
    pub fn give(instance: &Instance, count_unused: bool, poll: Duration) -> Self {
        let message = instance.sandbox.reset_order(count_unused, poll);
        Self {
            was_given: instance.is_claimed && instance.mailbox.order(&message),
            message,
            poll,
            since: Instant::now(),
        }
    }

    /// For how long the guest looks for the next request by itself.
    pub fn poll(&self) -> Duration {
        self.poll
    }

    /// Since when an instance that is parked now has had nothing to do: from when its guest began
    /// to look for a request, if it has looked for one in vain for so long as `polled`. It was
    /// brought back before that and behind it, which takes about as long each time.
    fn at_rest(&self, polled: Duration) -> Instant {
        if polled.is_zero() {
            Instant::now()
        } else {
            self.since + self.since.elapsed().saturating_sub(polled) / 2
        }
    }
}

/// How an instance that was brought back goes on.
#[derive(Debug)]
pub enum Back {
    /// It waits for an order. Its guest has looked for the next request for so long, in vain; it
    /// has had nothing to do since then.
    Parked(Effort, Duration, Instant),
    /// Its guest has looked for so long, and was claimed for this one.
    Found(Effort, Duration, Held),
}

/// Why an instance came to no good end.
#[derive(Debug, thiserror::Error)]
pub enum Unsettled {
    /// Its guest went on instead.
    #[error("it went on after it had said that it was done")]
    WentOn,
    /// Its guest was to look for its next request, and did something else.
    #[error("it strayed: {0}")]
    Strayed(String),
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] PlatformError),
}

impl Settling {
    /// For a guest that may use `cpu` in all, which cannot be before `cpu_due`, and rings at
    /// `rate_limit`; or that stands still already.
    pub fn new(rate_limit: RateLimit, cpu: Duration, cpu_due: Instant, is_still: bool) -> Self {
        Self {
            rate_limit: rate_limit.at_the_end(),
            cpu,
            cpu_due,
            due: Instant::now() + STOP_TIMEOUT,
            used: Duration::ZERO,
            is_still,
            is_told: is_still,
            was_late: false,
        }
    }

    /// Has an instance brought back as `order` says, which was given to it, or is now: the sandbox
    /// finds it when its guest stands still. `coming` hears of it when that looks for the next
    /// request.
    ///
    /// # Errors
    /// Why it was not. It is to be ended.
    pub async fn reset(
        &mut self,
        order: Order,
        instance: &mut Instance,
        coming: &Coming,
    ) -> Result<Back, Unsettled> {
        let poll = order.poll;
        let back = self.follow(&order, instance, coming).await?;
        match back {
            Back::Parked(_, polled, _) => {
                instance.note_reset(polled)?;
                Ok(back)
            }
            Back::Found(effort, looked, waiting) => {
                // No more than it may, nor than there was time for.
                let looked = looked.min(poll).min(order.since.elapsed());
                instance.note_claimed(looked)?;
                Ok(Back::Found(effort, looked, waiting))
            }
        }
    }

    async fn follow(
        &mut self,
        order: &Order,
        instance: &mut Instance,
        coming: &Coming,
    ) -> Result<Back, Unsettled> {
        let (poll, was_given) = (order.poll, order.was_given);
        let mut is_ordered = was_given;
        // A request that waits for what is not offered yet, and until when.
        let mut held: Option<(Held, Instant)> = None;
        let mut aside_due = instance
            .sandbox
            .may_be_aside()
            .then(|| Instant::now() + ASIDE_MAX);
        loop {
            let (rest, deadline) = (self.rate_limit.limited_until(), self.deadline());
            let held_due = held.as_ref().map(|(_, due)| *due);
            let due = [held_due, aside_due].into_iter().flatten();
            let due = due.fold(deadline, Instant::min);
            let news = async {
                if !is_ordered {
                    instance.sandbox.order_reset(&order.message).await?;
                    is_ordered = true;
                }
                instance.sandbox.reset_news(rest).await
            };
            let mut found = Find::Not;
            tokio::select! {
                biased;
                news = news => match news? {
                    Some(Reached::Stopped) => self.note_told()?,
                    Some(Reached::Parked(effort, polled)) => {
                        if let Some((held, _)) = held {
                            coming.give_back(held);
                        }
                        let polled = polled.min(poll);
                        return Ok(Back::Parked(effort, polled, order.at_rest(polled)));
                    }
                    Some(Reached::Offered) => {
                        instance.mailbox.note_told_of()?;
                        if let Some((held, _)) = held.take() {
                            coming.give_back(held);
                        }
                        found = find(instance, coming).await;
                    }
                    Some(Reached::Failed { why, by_guest }) => {
                        return Err(if by_guest && instance.mailbox.is_offered() {
                            Unsettled::Strayed(why)
                        } else {
                            PlatformError::SandboxEnded(why).into()
                        });
                    }
                    None => self.rate_limit.count_ring(),
                },
                () = coming.wanted() => found = find(instance, coming).await,
                () = gone(&mut held) => {
                    held = None;
                    found = find(instance, coming).await;
                }
                () = sleep_until(due) => {
                    let now = Instant::now();
                    if held_due.is_some_and(|due| due <= now) {
                        // It goes elsewhere.
                        held = None;
                    } else if aside_due.is_some_and(|due| due <= now) {
                        aside_due = self.hurry(instance, poll).map(|left| now + left);
                    } else {
                        // A sandbox takes no order while its guest runs.
                        let is_untaken = if was_given {
                            instance.mailbox.has_untaken_order()
                        } else {
                            instance.sandbox.has_untaken_order()?
                        };
                        let is_still = is_ordered && !is_untaken;
                        if is_still {
                            self.note_reset_begun()?
                        } else {
                            self.goes_on(instance)?
                        }
                    }
                }
            }
            match found {
                Find::Not => {}
                Find::Held(waiting, due) => held = Some((waiting, due)),
                Find::Found(effort, looked, waiting) => {
                    if !was_given {
                        // It may have rung before the order came.
                        instance.sandbox.forget_ring()?;
                    }
                    return Ok(Back::Found(effort, looked, waiting));
                }
            }
        }
    }

    /// Its sandbox says that it stands still, which may cross the order; a second time it says
    /// nothing new.
    fn note_told(&mut self) -> Result<(), PlatformError> {
        if std::mem::replace(&mut self.is_told, true) {
            let what = "the sandbox said twice that its guest stands still".to_owned();
            Err(PlatformError::Protocol(what))
        } else {
            Ok(())
        }
    }

    /// Has an instance that everybody else comes before, and that is not back yet, take turns with
    /// them; it is parked then, since whose guest looks for a request is to be in nobody's way.
    /// Where it was offered already: in how long that is to be done.
    fn hurry(&mut self, instance: &mut Instance, poll: Duration) -> Option<Duration> {
        let looked = if poll.is_zero() {
            None
        } else {
            instance.mailbox.refuse()
        };
        // It leaves by itself then, and is brought back.
        let left = looked.and_then(|looked| (poll + ASIDE_MAX).checked_sub(looked));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            instance.sandbox.step_aside(false);
            self.was_late = true;
        }
        left
    }

    /// Whether bringing it back took so long behind everybody else that all processors are wanted.
    pub fn was_late(&self) -> bool {
        self.was_late
    }

    /// Waits until the guest stands still.
    ///
    /// # Errors
    /// Why it does not. It is to be ended.
    pub async fn stopped(&mut self, instance: &mut Instance) -> Result<Report, Unsettled> {
        // Nothing keeps it from waiting again and again.
        self.used = Duration::MAX;
        loop {
            let (rest, deadline) = (self.rate_limit.limited_until(), self.deadline());
            tokio::select! {
                biased;
                event = instance.sandbox.event_while_resting(rest) => match event? {
                    Event::Progress => self.rate_limit.count_ring(),
                    Event::Rang(report) if report.doorbell == Some(Doorbell::Done) => return Ok(report),
                    Event::Rang(_) => return Err(Unsettled::WentOn),
                    Event::Failed(why) => return Err(PlatformError::SandboxEnded(why).into()),
                },
                () = sleep_until(deadline) => self.goes_on(instance)?,
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

    /// The guest stands still, and its sandbox is at work.
    fn note_reset_begun(&mut self) -> Result<(), Unsettled> {
        if self.is_still {
            let what = "its reset takes too long".to_owned();
            return Err(PlatformError::Protocol(what).into());
        }
        self.is_still = true;
        self.due = Instant::now() + STOP_TIMEOUT;
        Ok(())
    }

    /// The guest still runs: whether it may.
    fn goes_on(&mut self, instance: &Instance) -> Result<(), Unsettled> {
        let used = instance.cpu_time()?;
        let left = self.cpu.checked_sub(used).filter(|left| !left.is_zero());
        let now = Instant::now();
        self.cpu_due = now + left.ok_or(Unsettled::WentOn)?;
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

/// Waits until a request that waits for an instance has gone; for ever where there is none.
async fn gone(held: &mut Option<(Held, Instant)>) {
    match held {
        Some((held, _)) => held.gone().await,
        None => pending().await,
    }
}

/// What comes of looking for an instance that will look for a request.
enum Find {
    /// Nobody wants it any more.
    Not,
    /// This request waits for it until then; it will be told of.
    Held(Held, Instant),
    /// It was claimed for this request; what bringing it back took, and for how long its guest has
    /// looked, by the sandbox's word.
    Found(Effort, Duration, Held),
}

/// Claims the instance, which looks for a request or will in a moment, for one that waits for it.
/// What bringing it back takes is looked for; after that its sandbox says when it is done.
async fn find(instance: &mut Instance, coming: &Coming) -> Find {
    let Some(mut waiting) = coming.take_waiting() else {
        return Find::Not;
    };
    let due = Instant::now() + WAIT_MAX;
    let mailbox = &mut instance.mailbox;
    if mailbox.is_told_of() {
        return Find::Held(waiting, due);
    }
    let looked = look_for(|| attempt(mailbox, coming, &mut waiting)).await;
    let looked = match looked {
        Some(looked) => looked,
        // Whom a processor is kept from by this looking does not get further by it.
        None if mailbox.want() => Attempt::Late,
        // It was offered at this moment, or is what no sandbox of ours makes of it.
        None => attempt(mailbox, coming, &mut waiting).unwrap_or(Attempt::Late),
    };
    match looked {
        Attempt::Claimed(effort, looked) => Find::Found(effort, looked, waiting),
        Attempt::Late => Find::Held(waiting, due),
        Attempt::Unwanted => Find::Not,
    }
}

/// What came of trying to claim an instance.
enum Attempt {
    /// It is claimed; what bringing it back took, and for how long its guest has looked, by the
    /// sandbox's word.
    Claimed(Effort, Duration),
    /// The node is told of it in a moment, or when it can be claimed.
    Late,
    /// Nobody wants it any more.
    Unwanted,
}

/// Tries to claim an instance once; nothing where it is not offered yet.
fn attempt(mailbox: &Mailbox, coming: &Coming, waiting: &mut Held) -> Option<Attempt> {
    if waiting.is_closed() {
        // It has gone: what is claimed has to serve somebody.
        match coming.take_waiting() {
            Some(next) => *waiting = next,
            None => return Some(Attempt::Unwanted),
        }
    }
    if let Some((effort, looked)) = mailbox.claim() {
        return Some(Attempt::Claimed(effort, looked));
    }
    // It is parked then.
    mailbox.is_leaving().then_some(Attempt::Late)
}

#[cfg(test)]
mod tests;
