//! An instance that is hot: brought back to its seed's state and let into the guest again, which
//! looks for its next request by itself. So whoever has one need not wake anybody.
//!
//! It is a tenant's code like any other, and gets what an activation gives but for its request:
//! entropy of its own, and the time. The wait is bounded twice: the guest rings when it has looked
//! for as long as it was told, and a timer of the kernel's calls it out if it does not
//! ([`crate::vm::alarm`]), whatever becomes of the node; one that does anything else ends. Whether
//! the wait ends with a request or without is decided once, by the page that node and sandbox share
//! ([`faasw_fri::control`]). Without one the instance is brought back again, so that what it drew
//! is never used.

use std::time::{Duration, Instant};

use faasw_abi::doorbell::Doorbell;
use faasw_fri::control::{Control, Offer};
use faasw_fri::messages::{Activate, Failure, Parked, Reset};

use super::{End, Sandbox};
use crate::vm::{Stop, clock};
use rustix::time::{ClockId, clock_gettime};

/// Most time that a guest may be told to look for a request.
const POLL_MAX: Duration = Duration::from_millis(10);

/// What entering it and leaving it takes at most, and the sending of a message: several times what
/// it does.
const ROUND: Duration = Duration::from_millis(1);

/// CPU time that it has beyond that: such a timer is looked at by a processor's clock
/// interrupts, and those are up to 10 ms apart.
const OVERTIME: Duration = Duration::from_millis(5);

impl Sandbox<'_> {
    /// Offers the instance, which was brought back as `parked` says, to the node, where the order
    /// to do so says so, and the node will still have it; whether it did.
    pub(super) fn offer(&mut self, order: &Reset, parked: &Parked) -> Result<bool, End> {
        if order.poll_nanoseconds == 0 {
            return Ok(false);
        }
        let (Some(instance), Some(alarm)) = (&mut self.instance, &self.vm.alarm) else {
            return Ok(false);
        };
        // What cannot be bounded is not begun.
        if alarm.arm(most(order) + OVERTIME).is_err() {
            return Ok(false);
        }
        // One of before has nothing to say of this wait.
        alarm.has_rung();
        self.offered_at = own_cpu_time();
        let offer = match instance.mailbox.control(&mut self.vm.arena) {
            Ok(control) => {
                control.wake();
                control.report(parked);
                control.offer(clock::monotonic())
            }
            Err(errno) => return Err(self.fail_system(Failure::Reset, errno)),
        };
        if offer == Offer::Wanted {
            self.tell(&Parked {
                is_offered: true.into(),
                ..*parked
            })?;
        }
        Ok(offer != Offer::Refused)
    }

    /// Lets the guest look for its next request, if it was offered, as `parked` says. Why it
    /// stopped, where it had one; it was brought back again where it had none, and the node is
    /// told.
    pub(super) fn stay_hot(
        &mut self,
        order: &Reset,
        parked: Option<Parked>,
    ) -> Result<Option<Stop>, End> {
        let (Some(instance), Some(mut parked)) = (&mut self.instance, parked) else {
            return Ok(None);
        };
        let ram = instance.ram;
        let nanoseconds = u64::try_from(wait(order).as_nanos()).unwrap_or(u64::MAX);
        let ticks = u128::from(nanoseconds) * u128::from(self.template.tsc_khz()) / 1_000_000;
        let activate = Activate {
            // The node knows it by another one when it has a request.
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
                        // It looks on, and finds its request.
                        continue;
                    }
                    parked.polled_nanoseconds = self.leave(order)?;
                    return self.tell(&parked).map(|()| None);
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
                // What has a request may take as long as that may.
                None if self.vm.has_alarm_rung() && !is_claimed => {
                    return Err(self.fail(Failure::Strayed, 0));
                }
                None => {}
            }
        }
    }

    /// Makes an instance whose guest has looked in vain, and that was taken back, what it was
    /// before it was offered; CPU time that went into that, in nanoseconds.
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

    /// The order to bring the instance back, if the node gives it within `look` where it need not
    /// be sent.
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

/// CPU time of this thread.
fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// CPU time that a guest which does may take, and what its sandbox does round it.
fn most(order: &Reset) -> Duration {
    2 * wait(order) + ROUND
}

/// How long a guest is to look.
fn wait(order: &Reset) -> Duration {
    Duration::from_nanos(order.poll_nanoseconds).min(POLL_MAX)
}
