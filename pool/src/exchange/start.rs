//! The start of an exchange: the guest gets what is there of the request, and
//! runs; or another one does, where the first was gone before it began.
//!
//! An instance that rests can be ended at any time, by a system that is short of memory for one,
//! and the node hears of it a moment later. A request that meets such an instance, or one whose
//! seed cannot be read to its end, begins again in another microVM, once, as long as nobody can
//! tell: the first guest has published nothing, so it has taken nothing of the request either, and
//! what is in its mailbox is what the other one gets.

use std::task::{Context, Poll, Waker};

use faasw_abi::channel::Channel;
use faasw_abi::mailbox::GuestWords;
use zerocopy::FromZeros;

use super::calls::Calls;
use super::following::{Begun, Done, Exchange};
use super::secrets::Secrets;
use crate::error::InvokeError;
use crate::instances::{Instance, look_for};
use crate::sink::Served;

impl Exchange {
    /// Makes the sandbox an instance, if it is none, lets it run, and follows it until
    /// it is done or its response has begun.
    ///
    /// # Errors
    /// Why there will be no response.
    pub async fn start(&mut self) -> Result<Begun, InvokeError> {
        self.receive_ready()?;
        if self.instance.is_claimed {
            return self.start_hot().await;
        }
        let sink = self.log.sink().clone();
        self.instance.charge_to(sink, self.timing.instance)?;
        if !self.has_rested() {
            Box::pin(self.instance.fork(&self.version)).await?;
        }
        let monotonic = self.instance.monotonic_nanoseconds();
        let number = self.timing.instance;
        self.instance.sandbox.activate(number, monotonic).await?;
        self.timeline.begin();
        self.timeline.is_aside = self.instance.sandbox.may_be_aside();
        if self.timeline.is_aside && !self.under_way.is_alone() {
            self.timeline.is_aside = false;
            self.instance.sandbox.step_aside(false);
        }
        self.is_activated = true;
        self.begin().await
    }

    /// As [`Exchange::start`], of an instance whose guest looks for its request.
    async fn start_hot(&mut self) -> Result<Begun, InvokeError> {
        let sink = self.log.sink().clone();
        self.instance.charge_to(sink, self.timing.instance)?;
        self.instance.mailbox.go();
        self.timeline.begin();
        (self.is_activated, self.was_hot) = (true, true);
        if self.looks && self.look_for_end().await? {
            return Ok(Begun::Done(Done::Told));
        }
        self.timeline.is_aside = self.instance.sandbox.may_be_aside();
        if self.timeline.is_aside && !self.under_way.is_alone() {
            self.timeline.is_aside = false;
            self.instance.sandbox.step_aside(false);
        }
        self.begin().await
    }

    /// The guest takes turns with everybody else from now on. Where one that was hot has not even
    /// begun somebody wants all processors, and none of its function is hot for a while.
    pub(super) fn come_back(&mut self) {
        self.timeline.is_aside = false;
        self.instance.sandbox.step_aside(false);
        if self.was_hot && !self.instance.mailbox.has_begun() {
            self.version.parking().arrivals().hold_off();
        }
    }

    /// Looks for the end of the function for a moment; whether it has come. If not, its guest rings
    /// then.
    async fn look_for_end(&mut self) -> Result<bool, InvokeError> {
        let mailbox = &self.instance.mailbox;
        let has_come = look_for(|| mailbox.has_outcome().then_some(())).await;
        let arrivals = self.version.parking().arrivals();
        arrivals.note_look(has_come.is_some());
        if has_come.is_some() || self.instance.mailbox.ask_for_end()? {
            self.look()?;
            return Ok(self.guest.outcome != 0);
        }
        Ok(false)
    }

    /// Ends this microVM; whether another can serve the request after it failed by no
    /// fault of its guest, or by what its seed could not be read from.
    pub async fn end_if_untouched(&mut self) -> bool {
        // Only of a guest that has stopped it is known that it publishes nothing.
        self.instance.sandbox.end().await;
        if self.instance.sandbox.was_paged() {
            // Whatever it did was to itself: it reaches nobody but by its answer.
            // What it asked of its store, or of others, is not asked twice.
            let has_asked = self.instance.mailbox.has_taken_head(Channel::STORE)
                || self.calls.as_ref().is_some_and(Calls::has_begun);
            return !has_asked && self.instance.mailbox.can_tell_again(Channel::INVOCATION);
        }
        (self.has_rested() || !self.is_activated)
            && self.instance.mailbox.is_untouched().unwrap_or(false)
    }

    /// Whether the channel of a store is to be open.
    pub fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// What is to be on the channel of secrets, if that is to be open.
    pub fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_ref()
    }

    /// How many channels of its own requests are to be open.
    pub fn calls(&self) -> usize {
        self.calls.as_ref().map_or(0, Calls::count)
    }

    /// Gives the request to `instance`, whose mailbox has its head: it is to be
    /// started again.
    ///
    /// # Errors
    /// The system's.
    pub fn go_over_to(&mut self, instance: Instance, served: Served) -> Result<(), InvokeError> {
        let untaken = self.instance.mailbox.untaken_body(Channel::INVOCATION)?;
        self.pump.begin_again(untaken);
        if let Some(store) = &mut self.store {
            store.begin_again();
        }
        if let Some(calls) = &mut self.calls {
            calls.begin_again();
        }
        self.instance = instance;
        (self.is_activated, self.was_hot, self.looks) = (false, false, false);
        self.guest = GuestWords::new_zeroed();
        self.is_over = false;
        self.timing.served = served;
        self.place.1.goes_over_to(served);
        self.feed()
    }

    /// Whether the instance was one before its request came.
    fn has_rested(&self) -> bool {
        matches!(self.timing.served, Served::Parked | Served::Ready)
    }

    /// Puts what has arrived of the request into the mailbox, without waiting.
    fn receive_ready(&mut self) -> Result<(), InvokeError> {
        let mut context = Context::from_waker(Waker::noop());
        while self.wants_more()
            && let Poll::Ready(received) = self.incoming.poll(&mut context)
        {
            self.receive(received)?;
        }
        Ok(())
    }
}
