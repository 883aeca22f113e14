//! Outbound calls under way, each on a channel.
//!
//! A call lives as long as the function holds a part of its result: the future, then the response,
//! its body and trailers. When the last of these is gone, or all of the answer was read, the call
//! is abandoned, whatever is still to be sent of it.

use alloc::collections::BTreeMap;

use faasw_abi::channel::{Channel, Waits};
use faasw_abi::outgoing::OutgoingHead;

use super::{BodyId, Invocation};
use crate::platform::{Platform, SendError};

/// Identifies a call while any part of it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(u64);

/// The reason why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The function may not make any calls.
    Closed,
    /// The maximum number of calls is under way.
    TooMany,
    /// The head has this many bytes, which is more than the maximum.
    HeadTooLarge { bytes: usize },
}

#[derive(Debug)]
struct Call {
    channel: Channel,
    body: Option<BodyId>,
    /// Whether the function has received the error that the answer's body has failed.
    has_reported_failure: bool,
}

/// Outbound calls that are under way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    under_way: BTreeMap<CallId, Call>,
    next: u64,
}

impl Calls {
    /// Returns whether the function may make calls.
    pub(crate) fn are_open(platform: &impl Platform) -> bool {
        Channel::calls().any(|channel| platform.is_open(channel))
    }

    /// Returns the channel of a call, unless the call is over.
    pub(crate) fn channel(&self, id: CallId) -> Option<Channel> {
        self.under_way.get(&id).map(|call| call.channel)
    }

    /// Returns whether the function must receive the error of a failed body, which is reported
    /// once.
    pub(crate) fn reports_failure(&mut self, id: CallId) -> bool {
        let call = self.under_way.get_mut(&id);
        call.is_some_and(|call| !core::mem::replace(&mut call.has_reported_failure, true))
    }

    /// Returns a free channel. Waits for channels that were abandoned a moment ago, because their
    /// release is the node's next step.
    fn free(&self, platform: &mut impl Platform) -> Result<Channel, CallError> {
        if !Self::are_open(platform) {
            return Err(CallError::Closed);
        }
        loop {
            let is_taken = |channel| self.under_way.values().any(|call| call.channel == channel);
            let mut waits = Waits::default();
            for channel in Channel::calls().filter(|channel| platform.is_open(*channel)) {
                if is_taken(channel) {
                    continue;
                }
                if platform.is_free(channel) {
                    return Ok(channel);
                }
                waits = waits.and(Waits::room(channel));
            }
            if waits.is_empty() {
                return Err(CallError::TooMany);
            }
            platform.wait(waits, None);
        }
    }
}

impl Invocation {
    /// Sends a request, and the present part of its body.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the request was not sent; no part of it was sent then.
    pub(crate) fn call(
        &mut self,
        head: &OutgoingHead,
        body: Option<BodyId>,
        platform: &mut impl Platform,
    ) -> Result<CallId, CallError> {
        let channel = self.calls.free(platform)?;
        let head = head.encode();
        let is_whole = body.is_none_or(|body| self.bodies.is_empty(body));
        match platform.send_head(channel, &head, is_whole) {
            Ok(()) => {}
            Err(SendError::HeadTooLarge | SendError::TailTooLarge) => {
                return Err(CallError::HeadTooLarge { bytes: head.len() });
            }
        }
        match body {
            Some(body) if is_whole => self.bodies.close(body),
            Some(body) => self.bodies.send_request(body, channel, platform),
            None => {}
        }
        platform.flush();
        let id = CallId(self.calls.next);
        self.calls.next += 1;
        let call = Call {
            channel,
            body: body.filter(|_| !is_whole),
            has_reported_failure: false,
        };
        self.calls.under_way.insert(id, call);
        Ok(id)
    }

    /// Abandons a call, unless it is over.
    pub(crate) fn abandon_call(&mut self, id: CallId, platform: &mut impl Platform) {
        if let Some(call) = self.calls.under_way.remove(&id) {
            if let Some(body) = call.body {
                self.bodies.close(body);
            }
            platform.abandon_channel(call.channel);
        }
    }
}
