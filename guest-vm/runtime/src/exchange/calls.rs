//! Requests of the function's own that are under way, each on a channel.
//!
//! A request lives as long as the function has what may come of it: the future, then the response,
//! its body and trailers. When the last of these is gone, or all of the answer was taken, it is let
//! go of, whatever is still to be sent of it.

use alloc::collections::BTreeMap;

use faasw_abi::channel::{Channel, Waits};
use faasw_abi::outgoing::OutgoingHead;

use super::{BodyId, Exchange};
use crate::platform::{Platform, SendError};

/// Names a request for as long as anything of it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(u64);

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCall {
    /// The function may not make any.
    Closed,
    /// As many are under way as there may be.
    TooMany,
    /// Its head has so many bytes: more than there may be.
    HeadTooLarge { bytes: usize },
}

#[derive(Debug)]
struct Call {
    channel: Channel,
    body: Option<BodyId>,
    /// The function was told that the answer's body has failed.
    has_told_failure: bool,
}

/// Requests that are under way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    under_way: BTreeMap<CallId, Call>,
    next: u64,
}

impl Calls {
    /// Whether the function may make requests.
    pub(crate) fn are_open(platform: &impl Platform) -> bool {
        Channel::calls().any(|channel| platform.is_open(channel))
    }

    /// The channel of a request, unless it is over.
    pub(crate) fn channel(&self, id: CallId) -> Option<Channel> {
        self.under_way.get(&id).map(|call| call.channel)
    }

    /// Whether the function is to be told that the body has failed: it is told once.
    pub(crate) fn tells_failure(&mut self, id: CallId) -> bool {
        let call = self.under_way.get_mut(&id);
        call.is_some_and(|call| !core::mem::replace(&mut call.has_told_failure, true))
    }

    /// A channel that is free. One that was let go of a moment ago is waited for: that is the
    /// node's next step.
    fn free(&self, platform: &mut impl Platform) -> Result<Channel, NoCall> {
        if !Self::are_open(platform) {
            return Err(NoCall::Closed);
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
                return Err(NoCall::TooMany);
            }
            platform.wait(waits, None);
        }
    }
}

impl Exchange {
    /// Sends a request, and what there is of its body.
    ///
    /// # Errors
    /// Why it was not sent: nothing of it was.
    pub(crate) fn call(
        &mut self,
        head: &OutgoingHead,
        body: Option<BodyId>,
        platform: &mut impl Platform,
    ) -> Result<CallId, NoCall> {
        let channel = self.calls.free(platform)?;
        let head = head.encode();
        let is_whole = body.is_none_or(|body| self.bodies.is_empty(body));
        match platform.send_head(channel, &head, is_whole) {
            Ok(()) => {}
            Err(SendError::HeadTooLarge | SendError::TailTooLarge) => {
                return Err(NoCall::HeadTooLarge { bytes: head.len() });
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
            has_told_failure: false,
        };
        self.calls.under_way.insert(id, call);
        Ok(id)
    }

    /// Lets go of a request, unless it is over.
    pub(crate) fn let_go(&mut self, id: CallId, platform: &mut impl Platform) {
        if let Some(call) = self.calls.under_way.remove(&id) {
            if let Some(body) = call.body {
                self.bodies.close(body);
            }
            platform.let_go(call.channel);
        }
    }
}
