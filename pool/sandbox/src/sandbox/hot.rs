//! Hot instances: an instance that was reset and whose guest runs again, polling for its next
//! request. So the node can use it without waking a process.
//!
//! The instance runs a tenant's code like any other, and gets everything of an activation except a
//! request: its own entropy, and the time. The wait is bounded twice. The guest rings when it has
//! polled for as long as it was ordered to. If it does not, a kernel timer calls it out
//! ([`crate::vm::alarm`]), whatever happens to the node. An instance that does anything else ends.
//! Whether the wait ends with a request is decided once, by the page that node and sandbox share
//! ([`faasw_fri::control`]). After a wait without a request the instance is reset again, so that
//! the entropy that it received is never used.

use std::time::{Duration, Instant};

use faasw_abi::doorbell::Doorbell;
use faasw_fri::control::{Control, Offer};
use faasw_fri::messages::{Activate, Failure, Reset, WarmReport};

use super::{End, Sandbox};
use crate::vm::{Stop, clock};
use rustix::time::{ClockId, clock_gettime};

/// The longest time that a guest may poll.
const POLL_MAX: Duration = Duration::from_millis(10);

/// The most CPU time for entering and leaving the guest and for sending a message: several times
/// what it usually takes.
const ROUND: Duration = Duration::from_millis(1);

/// CPU time that is added for the timer: the clock interrupts of a processor check such timers, and
/// those are up to 10 ms apart.
const OVERTIME: Duration = Duration::from_millis(5);

impl Sandbox<'_> {
    /// Offers the instance, which was reset as `warm` reports, to the node. Returns whether the
    /// instance is offered: `false` if the order has no time for polling, if there is no timer, or
    /// if the node refuses the offer.
    pub(super) fn offer(&mut self, order: &Reset, warm: &WarmReport) -> Result<bool, End> {
        if order.poll_nanoseconds == 0 {
            return Ok(false);
        }
        let (Some(instance), Some(alarm)) = (&mut self.instance, &self.vm.alarm) else {
            return Ok(false);
        };
        // A wait that cannot be bounded does not begin.
        if alarm.arm(most(order) + OVERTIME).is_err() {
            return Ok(false);
        }
        // Discards a signal of an earlier wait.
        alarm.has_rung();
        self.offered_at = own_cpu_time();
        let offer = match instance.mailbox.control(&mut self.vm.arena) {
            Ok(control) => {
                control.wake();
                control.report(warm);
                control.offer(clock::monotonic())
            }
            Err(errno) => return Err(self.fail_system(Failure::Reset, errno)),
        };
        if offer == Offer::Wanted {
            self.tell(&WarmReport {
                is_offered: true.into(),
                ..*warm
            })?;
        }
        Ok(offer != Offer::Refused)
    }

    /// Lets the guest poll for its next request if the instance was offered, as `warm` reports.
    /// Returns why the guest stopped if it received a request. If it received none, the instance is
    /// reset again, the node is notified, and the result is `None`.
    pub(super) fn stay_hot(
        &mut self,
        order: &Reset,
        warm: Option<WarmReport>,
    ) -> Result<Option<Stop>, End> {
        let (Some(instance), Some(mut warm)) = (&mut self.instance, warm) else {
            return Ok(None);
        };
        let ram = instance.ram;
        let nanoseconds = u64::try_from(wait(order).as_nanos()).unwrap_or(u64::MAX);
        let ticks = u128::from(nanoseconds) * u128::from(self.template.tsc_khz()) / 1_000_000;
        let activate = Activate {
            // The node uses another number for the instance once it has a request.
            instance: 0,
            monotonic_nanoseconds: self.monotonic_nanoseconds,
            wall_epoch_nanoseconds: order.wall_epoch_nanoseconds,
        };
        self.activate(
            &activate,
            ram,
            u64::try_from(ticks).unwrap_or(u64::MAX).max(1),
        )?;
        loop {
            let stopped = self
                .vm
                .enter()
                .map_err(|errno| self.fail_system(Failure::Run, errno))?;
            let is_claimed = self.is_claimed();
            match stopped {
                Some(Stop::Rang(value)) if value == Doorbell::Unasked as u32 => {
                    if !self.take_back() {
                        // The guest polls on, and finds its request.
                        continue;
                    }
                    warm.polled_nanoseconds = self.leave(order)?;
                    return self.tell(&warm).map(|()| None);
                }
                Some(stop) if is_claimed => {
                    self.activated = self.control().map_or(0, Control::claimed_at);
                    if let Some(instance) = &mut self.instance {
                        instance.is_done = false;
                    }
                    return Ok(Some(stop));
                }
                Some(Stop::Rang(value)) => return Err(self.fail(Failure::Strayed, value.into())),
                Some(Stop::Shutdown) => return Err(self.fail(Failure::Shutdown, 0)),
                Some(Stop::Other(reason)) => {
                    return Err(self.fail(Failure::Exit, u64::from(reason)));
                }
                // A guest that has a request may take as long as requests may.
                None if self.vm.has_alarm_rung() && !is_claimed => {
                    return Err(self.fail(Failure::Strayed, 0));
                }
                None => {}
            }
        }
    }

    /// Resets an instance whose guest has polled in vain and that was taken back. Returns the CPU
    /// time of the wait, in nanoseconds.
    fn leave(&mut self, order: &Reset) -> Result<u64, End> {
        let polled = own_cpu_time().saturating_sub(self.offered_at);
        if polled > most(order) {
            return Err(self.fail(Failure::Strayed, 0));
        }
        self.bring_back(false)?;
        if let Some(control) = self.control() {
            control.left();
        }
        Ok(u64::try_from(polled.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Polls the control page for `look` and returns the order to reset the instance, if the node
    /// writes it there in that time instead of sending it.
    pub(super) fn look_for_order(&self, look: Duration) -> Option<Reset> {
        let control = self.control()?;
        let begun = Instant::now();
        loop {
            if let Some(order) = control.take_order() {
                return Some(order);
            }
            if begun.elapsed() >= look {
                break;
            }
            std::hint::spin_loop();
        }
        if control.sleep() {
            None
        } else {
            control.take_order()
        }
    }

    fn control(&self) -> Option<&Control> {
        self.instance.as_ref()?.mailbox.known_control()
    }

    fn is_claimed(&self) -> bool {
        self.control().is_some_and(Control::is_claimed)
    }

    fn take_back(&self) -> bool {
        self.control().is_none_or(Control::take_back)
    }
}

/// Returns the CPU time of this thread.
fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the most CPU time that a polling guest and its sandbox may take.
fn most(order: &Reset) -> Duration {
    2 * wait(order) + ROUND
}

/// Returns how long a guest is to poll.
fn wait(order: &Reset) -> Duration {
    Duration::from_nanos(order.poll_nanoseconds).min(POLL_MAX)
}
