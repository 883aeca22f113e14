//! The channels of outbound calls: each moves one request at a time between its guest and an
//! [`Outbound`].
//!
//! A channel is reused turn by turn ([`ChannelWords::turn`]). A guest that drops a request counts
//! the turn up. The node drops what is left of the request before it counts up, too. All of this
//! belongs to the invocation and ends with it, before its instance is reset. So a late answer
//! reaches no instance.
//!
//! [`ChannelWords::turn`]: faasw_abi::channel::ChannelWords::turn

mod channel;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use faasw_abi::channel::{Channel, Waits};
use faasw_abi::mailbox::GuestWords;
use tokio::time::Instant;

use self::channel::{CallChannel, CallEvent};
use super::outbound::Outbound;
use crate::error::InvokeError;
use crate::mailbox::{CallWork, Mailbox};

/// The work that beginning requests may cost in one look: 16 small requests, or one of the largest
/// size.
const BEGUN_AT_ONCE: u64 = 1000;

/// All open channels of outbound calls.
pub struct Calls {
    outbound: Arc<dyn Outbound>,
    channels: Vec<CallChannel>,
    /// The events that the guest waits for and was not woken for yet.
    waits: Waits,
    /// When the guest's wait ends at the latest: after that it has gone on without notice. `None`
    /// means that the wait has no end.
    waits_until: Option<Instant>,
    /// When the node looks again, because one look was not enough to begin all requests.
    look_again: Option<Instant>,
    /// A request was begun: its effects cannot be undone.
    has_begun: bool,
}

/// An event of one of the channels.
pub struct CallUpdate {
    /// The index of the channel.
    channel: usize,
    event: CallEvent,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("outbound", &self.outbound)
            .field("channels", &self.channels.len())
            .finish_non_exhaustive()
    }
}

impl Calls {
    /// Returns the first `count` channels, which were opened.
    pub fn new(outbound: Arc<dyn Outbound>, count: usize) -> Self {
        Self {
            outbound,
            channels: Channel::calls().take(count).map(CallChannel::new).collect(),
            waits: Waits::default(),
            waits_until: None,
            look_again: None,
            has_begun: false,
        }
    }

    pub fn count(&self) -> usize {
        self.channels.len()
    }

    /// Returns whether any request was begun.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Starts over for a new guest, which has a mailbox of its own.
    pub fn begin_again(&mut self) {
        *self = Self::new(self.outbound.clone(), self.count());
    }

    /// Looks at the guest's words. Begins the requests that the guest has sent, as many as one look
    /// may, and ends those that it has dropped. `count` receives the work that this took and
    /// returns when the next look is allowed; see [`Calls::look_again`].
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the words or a head are impossible, and a platform
    /// error if the mailbox cannot be accessed.
    pub fn look(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
        count: impl FnOnce(CallWork) -> Option<Instant>,
    ) -> Result<(), InvokeError> {
        self.waits = Waits::from_word(guest.wait_for);
        self.waits_until = match guest.wait_nanoseconds {
            u64::MAX => None,
            wait => Instant::now().checked_add(Duration::from_nanos(wait)),
        };
        let (mut work, mut is_left) = (CallWork::default(), false);
        for channel in &mut self.channels {
            let may_begin = work.amount() < BEGUN_AT_ONCE;
            let looked = channel.look(mailbox, guest, &*self.outbound, may_begin);
            let of_channel = channel.take_work();
            // The work counts even if the channel has returned an error.
            self.has_begun |= of_channel.begun > 0;
            work.begun += of_channel.begun;
            work.fields += of_channel.fields;
            work.bytes += of_channel.bytes;
            is_left |= looked?;
        }
        let rests_until = count(work);
        self.look_again = is_left.then(|| rests_until.unwrap_or_else(Instant::now));
        Ok(())
    }

    /// Returns when the node must look at the guest's words again, whether or not the guest rings.
    /// Returns `None` if no request was left to be begun.
    pub fn look_again(&self) -> Option<Instant> {
        self.look_again
    }

    /// Handles an event of a channel's request.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's words are impossible, and a platform
    /// error if the mailbox cannot be accessed.
    pub fn handle_event(
        &mut self,
        update: CallUpdate,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        match self.channels.get_mut(update.channel) {
            Some(channel) => channel.handle_event(update.event, mailbox, guest),
            None => Ok(()),
        }
    }

    /// Puts the rest of the answers into their rings, as far as there is room.
    ///
    /// # Errors
    /// Returns the errors of [`Calls::handle_event`].
    pub fn feed(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        let mut channels = self.channels.iter_mut();
        channels.try_for_each(|channel| channel.feed(mailbox, guest))
    }

    /// Returns when the first request fails if nothing moves on it: `idle` after its last movement.
    pub fn deadline(&self, idle: Duration) -> Option<Instant> {
        let moved = self.channels.iter().filter_map(CallChannel::moved);
        moved.min().map(|moved| moved + idle)
    }

    /// Fails all requests on which nothing has moved for `idle`.
    ///
    /// # Errors
    /// Returns the errors of [`Calls::handle_event`].
    pub fn end_idle(
        &mut self,
        idle: Duration,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        let now = Instant::now();
        for channel in &mut self.channels {
            if channel.moved().is_some_and(|moved| moved + idle <= now) {
                channel.time_out(mailbox, guest)?;
            }
        }
        Ok(())
    }

    /// Returns whether the guest waits for answers to outbound calls and nothing else. Some limits
    /// stand still for that time ([`InvocationLimits::upstream`]). A wait with a time limit counts
    /// only until that limit, whatever the guest does afterwards.
    ///
    /// [`InvocationLimits::upstream`]: super::limits::InvocationLimits::upstream
    pub fn awaits_answers(&self) -> bool {
        if self
            .waits_until
            .is_some_and(|until| until <= Instant::now())
        {
            return false;
        }
        let under_way = self
            .channels
            .iter()
            .filter(|channel| channel.is_under_way());
        let of_calls = under_way.fold(Waits::default(), |waits, channel| {
            waits.and(Waits::of(channel.number()))
        });
        !self.waits.is_empty() && self.waits.only(of_calls) == self.waits
    }

    /// Returns when [`Calls::awaits_answers`] becomes false without any event, if it is true now.
    pub fn awaits_answers_until(&self) -> Option<Instant> {
        self.waits_until.filter(|_| self.awaits_answers())
    }

    /// Returns whether an event that the guest waits for has happened. The guest must then be woken
    /// once.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's words are impossible.
    pub fn is_served(&self, mailbox: &Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        for channel in &self.channels {
            if channel.is_served(mailbox, guest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes that the guest was woken.
    pub fn woke(&mut self) {
        self.waits = Waits::default();
        self.channels.iter_mut().for_each(CallChannel::woke);
    }
}

impl Calls {
    /// Returns an event of a request that is under way, if there is one.
    pub fn next_now(&mut self) -> Option<CallUpdate> {
        let mut context = Context::from_waker(Waker::noop());
        match self.poll(&mut context) {
            Poll::Ready(update) => Some(update),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<CallUpdate> {
        for (channel, its) in self.channels.iter_mut().enumerate() {
            if let Poll::Ready(event) = its.poll(context) {
                return Poll::Ready(CallUpdate { channel, event });
            }
        }
        Poll::Pending
    }
}

/// Waits for an event of a request that is under way. Pends for ever if no request is under way.
pub async fn next(calls: &mut Option<Calls>) -> CallUpdate {
    let Some(calls) = calls else {
        return pending().await;
    };
    poll_fn(|context| calls.poll(context)).await
}
