//! The channels of requests that a function makes: each moves one at a time between its guest and
//! an [`Outbound`].
//!
//! A channel is used again, turn by turn ([`ChannelWords::turn`]): a guest that has let go of a
//! request counts up, and what is left of that is dropped here before the node counts up, too. All
//! of it belongs to the exchange and goes with it, before its instance is reset: what is late finds
//! nobody.
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

use self::channel::CallChannel;
pub use self::channel::News as CallNews;
use super::outbound::Outbound;
use crate::error::InvokeError;
use crate::mailbox::{CallWork, Mailbox};

/// What beginning requests may take in one look: 16 small ones, or one that is as large as they can
/// be.
const BEGUN_AT_ONCE: u64 = 1000;

/// All channels of calls that are open.
pub struct Calls {
    outbound: Arc<dyn Outbound>,
    channels: Vec<CallChannel>,
    /// What the guest waits for, and was not woken for yet.
    waits: Waits,
    /// Until when it may do so: behind that it has gone on without a word. For ever unless set.
    waits_until: Option<Instant>,
    /// When there is to be another look, since one was not enough to begin all that there was.
    look_again: Option<Instant>,
    /// One was begun: what it has done cannot be undone.
    has_begun: bool,
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
    /// So many channels, which were opened.
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

    /// How many channels there are.
    pub fn count(&self) -> usize {
        self.channels.len()
    }

    /// Whether any request was begun.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Another guest begins, with a mailbox of its own.
    pub fn begin_again(&mut self) {
        *self = Self::new(self.outbound.clone(), self.count());
    }

    /// Looks at the guest's words: begins requests that it has sent, as many as one look may, and
    /// ends those that it has let go of. `count` is told what that took, and says when there may be
    /// another look; see [`Calls::look_again`].
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when its words or a head cannot be; the system's.
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
            // Also where the rest of it is a lie.
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

    /// When the guest's words are to be looked at again, whether or not it rings: something was
    /// left to be begun.
    pub fn look_again(&self) -> Option<Instant> {
        self.look_again
    }

    /// Something happened to the request of a channel.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when the guest's words cannot be true; the system's.
    pub fn happened(
        &mut self,
        (number, news): (usize, CallNews),
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        match self.channels.get_mut(number) {
            Some(channel) => channel.happened(news, mailbox, guest),
            None => Ok(()),
        }
    }

    /// Puts what is left of answers into their rings, as far as there is room.
    ///
    /// # Errors
    /// As [`Calls::happened`].
    pub fn feed(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        let mut channels = self.channels.iter_mut();
        channels.try_for_each(|channel| channel.feed(mailbox, guest))
    }

    /// When a request is to fail on which nothing has moved for so long.
    pub fn deadline(&self, idle: Duration) -> Option<Instant> {
        let moved = self.channels.iter().filter_map(CallChannel::moved);
        moved.min().map(|moved| moved + idle)
    }

    /// Has all requests fail on which nothing has moved for so long.
    ///
    /// # Errors
    /// As [`Calls::happened`].
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

    /// Whether the guest waits for others' answers and nothing else: it is their time. That of a
    /// wait for some time is over with it, whatever it goes on with.
    pub fn is_owed(&self) -> bool {
        if self
            .waits_until
            .is_some_and(|until| until <= Instant::now())
        {
            return false;
        }
        let owing = self
            .channels
            .iter()
            .filter(|channel| channel.is_under_way());
        let of_calls = owing.fold(Waits::default(), |waits, channel| {
            waits.and(Waits::of(channel.number()))
        });
        !self.waits.is_empty() && self.waits.only(of_calls) == self.waits
    }

    /// When [`Calls::is_owed`] is not true any more, though nothing happens, if it is now.
    pub fn owed_until(&self) -> Option<Instant> {
        self.waits_until.filter(|_| self.is_owed())
    }

    /// Whether something is there that the guest waits for: it is to be woken, once.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when the guest's words cannot be true.
    pub fn is_served(&self, mailbox: &Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        for channel in &self.channels {
            if channel.is_served(mailbox, guest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The guest was woken.
    pub fn woke(&mut self) {
        self.waits = Waits::default();
        self.channels.iter_mut().for_each(CallChannel::woke);
    }
}

impl Calls {
    /// What has happened to a request that is under way, if anything has.
    pub fn next_now(&mut self) -> Option<(usize, CallNews)> {
        let mut context = Context::from_waker(Waker::noop());
        match self.poll(&mut context) {
            Poll::Ready(news) => Some(news),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(usize, CallNews)> {
        for (number, channel) in self.channels.iter_mut().enumerate() {
            if let Poll::Ready(news) = channel.poll(context) {
                return Poll::Ready((number, news));
            }
        }
        Poll::Pending
    }
}

/// Waits until something happens to a request that is under way, and says to which; for ever where
/// there is none.
pub async fn next(calls: &mut Option<Calls>) -> (usize, CallNews) {
    let Some(calls) = calls else {
        return pending().await;
    };
    poll_fn(|context| calls.poll(context)).await
}
