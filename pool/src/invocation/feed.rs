//! The request's way in: the client's bytes go into the ring as far as there is room. The guest is
//! woken when what it waits for is there.

use std::time::Duration;

use faasw_abi::channel::Waits;
use faasw_abi::wire::{WireError, encode_trailers};
use tokio::time::Instant;

use super::body::RequestFrame;
use super::calls::CallUpdate;
use super::pump::PumpProgress;
use super::run::Invocation;
use crate::error::{ClientError, InvokeError};
use crate::instances::CPU_AFTER_END;
use crate::sink::Served;

/// Age from which a request no longer counts as one of the many that finish at once.
const YOUNG_MAX: Duration = Duration::from_millis(5);

/// CPU time that stopping may take, even if the limit is used up.
const STOP_CPU_TIME: Duration = Duration::from_millis(1);

impl Invocation {
    /// Looks at what the guest wrote, and gives it what it waits for.
    pub(super) fn look(&mut self) -> Result<(), InvokeError> {
        let guest = self.instance.mailbox.guest()?;
        self.guest = guest;
        let records = self.instance.mailbox.take_log(&self.guest)?;
        self.rate_limit.count_look(&records);
        self.log.take(&records);
        let PumpProgress { has_sent, asks } =
            self.pump.look(&self.instance.mailbox, &self.guest)?;
        if let Some(store) = &mut self.store {
            store.look(&mut self.instance.mailbox, &self.guest)?;
        }
        if let Some(calls) = &mut self.calls {
            let mut begun = 0;
            calls.look(&mut self.instance.mailbox, &self.guest, |work| {
                begun = work.begun;
                self.rate_limit.count_calls(work);
                self.rate_limit.limited_until()
            })?;
            // Nested invocations have only the CPU time that this one has left.
            if begun > 0
                && let Some(account) = &self.client.budget
            {
                account.charge(self.instance.cpu_time()?);
            }
        }
        if has_sent {
            self.deadlines.guest = Instant::now();
        }
        if self.guest.outcome != 0 && !self.is_over {
            self.is_over = true;
            self.limit_cpu_after_end()?;
        }
        if asks {
            // The client has sent everything that the guest had asked for, so its idle time begins
            // anew.
            self.deadlines.client = Instant::now();
        }
        self.waits_for_log = Waits::from_word(self.guest.wait_for).has(Waits::LOG);
        self.feed()?;
        self.wake_if_served()
    }

    /// Wakes the guest if something that it waits for is there.
    pub(super) fn wake_if_served(&mut self) -> Result<(), InvokeError> {
        // The log was taken when the node looked, so it has room.
        let (mailbox, guest) = (&self.instance.mailbox, &self.guest);
        let store_is_served = match &self.store {
            Some(store) => store.is_served(mailbox, guest)?,
            None => false,
        };
        let call_is_served = match &self.calls {
            Some(calls) => calls.is_served(mailbox, guest)?,
            None => false,
        };
        let is_served = self.waits_for_log
            || store_is_served
            || call_is_served
            || self.pump.is_served(mailbox, guest)?;
        if is_served {
            self.waits_for_log = false;
            self.pump.woke();
            if let Some(store) = &mut self.store {
                store.woke();
            }
            if let Some(calls) = &mut self.calls {
                calls.woke();
            }
            self.instance.sandbox.wake()?;
        }
        Ok(())
    }

    /// Returns whether the next frame of the request should be taken from the client.
    pub(super) fn wants_more(&self) -> bool {
        self.pump.wants_more() && !self.incoming.has_ended()
    }

    /// Receives a frame from the client.
    pub(super) fn receive(
        &mut self,
        received: Result<RequestFrame, ClientError>,
    ) -> Result<(), InvokeError> {
        match received? {
            RequestFrame::Data(data) => self.pump.receive(data),
            RequestFrame::End(trailers) => self.pump.receive_end(encode_trailers(&trailers)),
        }
        self.deadlines.client = Instant::now();
        self.feed()
    }

    /// Puts what was received into the rings, as far as there is room.
    pub(super) fn feed(&mut self) -> Result<(), InvokeError> {
        if self.pump.feed(&mut self.instance.mailbox, &self.guest)? {
            self.deadlines.fed = Instant::now();
        }
        if let Some(store) = &mut self.store {
            store.feed(&mut self.instance.mailbox, &self.guest)?;
        }
        if let Some(calls) = &mut self.calls {
            calls.feed(&mut self.instance.mailbox, &self.guest)?;
        }
        Ok(())
    }

    /// Handles events of the guest's outbound calls.
    pub(super) fn handle_call_events(&mut self, first: CallUpdate) -> Result<(), InvokeError> {
        if let Some(calls) = &mut self.calls {
            let mut update = Some(first);
            while let Some(next) = update {
                calls.handle_event(next, &mut self.instance.mailbox, &self.guest)?;
                update = calls.next_now();
            }
        }
        self.wake_if_served()
    }

    /// Fails the guest's outbound calls on which nothing has moved for too long.
    pub(super) fn end_idle_calls(&mut self) -> Result<(), InvokeError> {
        if let Some(calls) = &mut self.calls {
            let idle = self.deadlines.limits.idle_call;
            calls.end_idle(idle, &mut self.instance.mailbox, &self.guest)?;
        }
        self.wake_if_served()
    }

    /// Gives the guest the answer of its store. The guest's time continues meanwhile, because a
    /// disk is no client.
    pub(super) fn handle_store_answer(
        &mut self,
        answer: Result<Vec<u8>, WireError>,
    ) -> Result<(), InvokeError> {
        if let Some(store) = &mut self.store {
            store.put_answer(answer, &mut self.instance.mailbox, &self.guest)?;
        }
        self.wake_if_served()
    }

    /// Limits the CPU time of a guest that has reported its end: all that it still has to do is to
    /// stop.
    fn limit_cpu_after_end(&mut self) -> Result<(), InvokeError> {
        let (now, age) = (Instant::now(), self.deadlines.age());
        // If nothing was forked before, a process cannot have used more CPU time than has passed.
        // So most guests are done before their CPU time must be read.
        let is_young = self.timing.served == Served::Warm && age < YOUNG_MAX;
        let (cpu, due) = if is_young && self.deadlines.limits.cpu >= YOUNG_MAX + CPU_AFTER_END {
            (CPU_AFTER_END, now + CPU_AFTER_END - age)
        } else {
            let used = self.instance.cpu_time()?;
            let left = self.deadlines.limits.cpu.saturating_sub(used);
            let left = left.clamp(STOP_CPU_TIME, CPU_AFTER_END);
            (used + left, now + left)
        };
        (self.deadlines.limits.cpu, self.deadlines.cpu) = (cpu, due);
        Ok(())
    }
}
