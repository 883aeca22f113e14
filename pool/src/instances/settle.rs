//! A guest that has said that it is done, until its vCPU stands still.
//!
//! Its caller has the answer by then, so nobody waits for it any more: what it still does
//! is held to a small part of its CPU time, and it is heard a few times at once at most.
//! CPU time is counted, not wall time: on a busy machine a good guest may have to wait long
//! for a processor before it can stop, and that is not its fault.

use std::time::Duration;

use faasw_abi::doorbell::Doorbell;
use tokio::time::{Instant, sleep_until};

use super::instance::Instance;
use crate::error::PlatformError;
use crate::mailbox::RateLimit;
use crate::shells::{Event, Report};
use crate::sink::Effort;

/// CPU time that a guest has at most once it has said that it is done: a thousand times
/// what it takes to stop.
pub const AFTER_END: Duration = Duration::from_millis(50);

/// How long a guest may take to stop without using any CPU time, and how long a shell may
/// take to reset it then.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

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
}

/// Why an instance came to no good end.
#[derive(Debug, thiserror::Error)]
pub enum Unsettled {
    /// Its guest went on instead.
    #[error("it went on after it had said that it was done")]
    WentOn,
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
        }
    }

    /// Has an instance brought back to its seed's state after a request, without waiting
    /// for the guest to stand still: the shell finds the order when it does. With
    /// `count_unused` the effort says what of its write set it did not use.
    ///
    /// # Errors
    /// Why it was not. It is to be ended.
    pub async fn reset(
        &mut self,
        instance: &mut Instance,
        count_unused: bool,
    ) -> Result<Effort, Unsettled> {
        let effort = self.order_reset(instance, count_unused).await?;
        instance.note_reset()?;
        Ok(effort)
    }

    async fn order_reset(
        &mut self,
        instance: &mut Instance,
        count_unused: bool,
    ) -> Result<Effort, Unsettled> {
        let mut is_ordered = false;
        loop {
            let (rest, deadline) = (self.rate_limit.limited_until(), self.deadline());
            let news = async {
                if !is_ordered {
                    instance.shell.order_reset(count_unused).await?;
                    is_ordered = true;
                }
                instance.shell.reset_news(rest).await
            };
            tokio::select! {
                biased;
                news = news => match news? {
                    Some(effort) => return Ok(effort),
                    None => self.rate_limit.count_ring(),
                },
                () = sleep_until(deadline) => {
                    // A shell takes no order while its guest runs.
                    let is_still = is_ordered && !instance.shell.has_untaken_order()?;
                    match is_still {
                        true => self.note_reset_begun()?,
                        false => self.goes_on(instance)?,
                    }
                }
            }
        }
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
                event = instance.shell.event_while_resting(rest) => match event? {
                    Event::Progress => self.rate_limit.count_ring(),
                    Event::Rang(report) if report.doorbell == Some(Doorbell::Done) => return Ok(report),
                    Event::Rang(_) => return Err(Unsettled::WentOn),
                    Event::Failed(why) => return Err(PlatformError::ShellEnded(why).into()),
                },
                () = sleep_until(deadline) => self.goes_on(instance)?,
            }
        }
    }

    fn deadline(&self) -> Instant {
        match self.is_still {
            true => self.due,
            false => self.due.min(self.cpu_due),
        }
    }

    /// The guest stands still, and its shell is at work.
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
