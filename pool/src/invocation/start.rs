//! The start of an invocation: the guest receives the part of the request that is there, and runs.
//! If the instance was gone before it began, another one runs instead.
//!
//! An instance that rests may be ended at any time, for example by a system that is short of
//! memory. The node learns of it a moment later. A request begins again in another microVM if it
//! meets such an instance, or one whose seed cannot be read completely. This happens once, and only
//! if it has no visible effect. An instance that was ended must have published nothing, so it has
//! taken nothing of the request either. An instance whose seed cannot be read may have run, but
//! nothing of its answer was taken, and it has sent no record to its store and no outbound call.
//! The other guest receives the part of the request that is in the mailbox of the first one.

use std::task::{Context, Poll, Waker};

use faasw_abi::channel::Channel;
use faasw_abi::mailbox::GuestWords;
use zerocopy::FromZeros;

use super::calls::Calls;
use super::run::{Invocation, RunOutcome, StartOutcome};
use super::secrets::Secrets;
use crate::error::InvokeError;
use crate::instances::{Instance, poll_briefly};
use crate::mailbox::Mailbox;
use crate::sink::Served;

impl Invocation {
    /// Makes the sandbox an instance, if it is none, and starts it, unless its guest polls for the
    /// request. Follows it until it is done or its response has begun.
    ///
    /// # Errors
    /// Returns the reason why there will be no response.
    pub async fn start(&mut self) -> Result<StartOutcome, InvokeError> {
        self.receive_ready()?;
        let number = self.timing.instance;
        self.instance.charge_to(self.log.sink().clone(), number)?;
        self.was_hot = self.instance.is_claimed;
        if self.was_hot {
            self.instance.mailbox.signal_request();
        } else {
            if !self.was_instance() {
                let function = self.version.function_memory().number();
                let ram_bytes = self.version.ram_bytes();
                Box::pin(self.instance.fork(ram_bytes, function)).await?;
            }
            let monotonic = self.instance.monotonic_nanoseconds();
            self.instance.sandbox.activate(number, monotonic).await?;
        }
        self.deadlines.begin();
        self.is_activated = true;
        if self.polls_for_end && self.poll_for_end().await? {
            return Ok(StartOutcome::Finished(RunOutcome::Reported));
        }
        self.deadlines.is_background = self.instance.sandbox.process().may_be_in_background_group();
        if self.deadlines.is_background && !self.active_request.is_alone() {
            self.deadlines.is_background = false;
            self.instance.sandbox.process().set_background_group(false);
        }
        self.run_to_response().await
    }

    /// Gives the guest its usual priority from now on. If a guest that was hot has not even begun,
    /// all processors are wanted, so no instance of its function is hot for a while.
    pub(super) fn leave_background(&mut self) {
        self.deadlines.is_background = false;
        self.instance.sandbox.process().set_background_group(false);
        if self.was_hot && !self.instance.mailbox.has_begun() {
            self.version.warm_instances().arrivals().hold_off();
        }
    }

    /// Polls for the end of the function for a moment. Returns whether it has come. If not, the
    /// guest rings at its end.
    async fn poll_for_end(&mut self) -> Result<bool, InvokeError> {
        let mailbox = &self.instance.mailbox;
        let has_come = poll_briefly(|| mailbox.has_outcome().then_some(())).await;
        let arrivals = self.version.warm_instances().arrivals();
        arrivals.note_poll(has_come.is_some());
        if has_come.is_some() || self.instance.mailbox.request_end_ring()? {
            self.look()?;
            return Ok(self.guest.outcome != 0);
        }
        Ok(false)
    }

    /// Ends this microVM. Returns whether another one can serve the request. That is so if this one
    /// failed by no fault of its guest, or because its seed could not be read, and if the client
    /// cannot notice the repetition.
    pub async fn end_if_untouched(&mut self) -> bool {
        // Only a guest that has stopped is known to publish nothing more.
        self.instance.sandbox.end().await;
        if self.instance.sandbox.was_paged() {
            // Whatever the guest did had effects only on itself, because nothing but its answer
            // leaves it. The exceptions are records to its store and outbound calls, which are not
            // sent twice.
            let has_asked = self.instance.mailbox.has_taken_head(Channel::STORE)
                || self.calls.as_ref().is_some_and(Calls::has_begun);
            return !has_asked && self.instance.mailbox.can_resend(Channel::INVOCATION);
        }
        (self.was_instance() || !self.is_activated)
            && self.instance.mailbox.is_untouched().unwrap_or(false)
    }

    /// Returns the number of its instance.
    pub fn number(&self) -> u64 {
        self.timing.instance
    }

    /// Opens the channels of the services in the mailbox of another instance.
    ///
    /// # Errors
    /// Returns [`InvokeError::RequestTooLarge`] if the secrets do not fit, and a platform error if
    /// the mailbox cannot be accessed.
    pub fn open_services(&self, mailbox: &mut Mailbox) -> Result<(), InvokeError> {
        let secrets = self.secrets.as_ref().map(Secrets::bytes);
        let calls = self.calls.as_ref().map_or(0, Calls::count);
        mailbox.open_beside(self.store.is_some(), secrets, calls)
    }

    /// Moves the request to `instance`, whose mailbox has its head. The invocation must then be
    /// started again.
    ///
    /// # Errors
    /// Returns a platform error if a mailbox cannot be accessed.
    pub fn restart_in(&mut self, instance: Instance, served: Served) -> Result<(), InvokeError> {
        let untaken = self.instance.mailbox.untaken_body(Channel::INVOCATION)?;
        self.pump.begin_again(untaken);
        if let Some(store) = &mut self.store {
            store.begin_again();
        }
        if let Some(calls) = &mut self.calls {
            calls.begin_again();
        }
        self.instance = instance;
        (self.is_activated, self.was_hot, self.polls_for_end) = (false, false, false);
        self.guest = GuestWords::new_zeroed();
        self.is_over = false;
        self.timing.served = served;
        self.permits.busy.set_served(served);
        self.feed()
    }

    /// Returns whether the sandbox was an instance before its request came.
    fn was_instance(&self) -> bool {
        matches!(self.timing.served, Served::Warm | Served::Ready)
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
