//! The response bytes that a finished function has left in its mailbox. They leave the mailbox only
//! into room that the clients' budgets have. The instance waits until then.

use faasw_abi::channel::Channel;
use faasw_abi::wire::ResponseHead;
use tokio::time::{Instant, sleep_until};

use super::backlog::Lease;
use super::body::{PART_BYTES, PartSender, ResponsePart};
use super::deadlines::Phase;
use super::finished::begin_stream;
use super::run::{Invocation, RunOutcome, reserve_part, until_evicted};
use crate::error::InvokeError;

impl Invocation {
    /// Reads the last words of a finished function. Returns room for all that is left of its
    /// response, if there is room. A response that is not to be sent needs none.
    ///
    /// # Errors
    /// Returns a platform error if the mailbox cannot be read.
    pub fn room_for_rest(&mut self, done: &RunOutcome) -> Result<Option<Lease>, InvokeError> {
        // For other ends, the words were read after the guest wrote the end.
        if let RunOutcome::Stopped(_) = done {
            self.guest = self.instance.mailbox.guest()?;
        }
        let words = &self.guest.channels[Channel::INVOCATION];
        let is_whole = words.head != 0 && words.end != 0;
        // Impossible counters are reported when the rest is taken.
        let waiting = self
            .instance
            .mailbox
            .waiting(Channel::INVOCATION, &self.guest);
        let bytes = if is_whole { waiting.unwrap_or(0) } else { 0 };
        Ok(self.client.account.try_lease(bytes))
    }

    /// Takes the head of a response that is there.
    ///
    /// # Errors
    /// Returns [`InvokeError::NoResponse`] if there is no head, [`InvokeError::GuestFailed`] if the
    /// head is invalid, and a platform error if the mailbox cannot be accessed.
    pub fn take_head(&mut self) -> Result<ResponseHead, InvokeError> {
        let head = begin_stream(&mut self.instance.mailbox, &self.guest)?;
        head.ok_or(InvokeError::NoResponse)
    }

    /// Returns whether so many bytes cannot be handed out because the client has not taken earlier
    /// ones. The shared budgets may be full as well.
    pub(super) fn waits_to_send(&self, client: &Option<PartSender>, bytes: u64) -> bool {
        let is_full = client.as_ref().is_some_and(|client| client.capacity() == 0);
        is_full || self.client.account.waits_for_client(bytes)
    }

    /// Hands out the contents of the mailbox, part by part, until there is room for the rest.
    ///
    /// # Errors
    /// Returns [`InvokeError::ClientGone`] if the client is gone, [`InvokeError::Evicted`] if the
    /// invocation is evicted, and the error of a limit that expires, such as
    /// [`InvokeError::IdleClient`]. Returns [`InvokeError::GuestFailed`] if the guest's words are
    /// impossible, and a platform error if the mailbox cannot be accessed.
    pub(super) async fn drain(
        &mut self,
        done: RunOutcome,
        client: &Option<PartSender>,
    ) -> Result<(RunOutcome, Lease), InvokeError> {
        // The function is done, so no answer to an outbound call can reach it.
        self.calls = None;
        loop {
            if let Some(room) = self.room_for_rest(&done)? {
                self.wait = None;
                return Ok((done, room));
            }
            // The function does not run any more. Its run permit is released, so that other
            // requests do not wait for its client.
            self.run_permit = None;
            let waiting = self
                .instance
                .mailbox
                .waiting(Channel::INVOCATION, &self.guest)?;
            let (deadline, limit) = self.deadline(Phase::Client);
            let bytes = waiting.min(PART_BYTES as u64);
            self.note_wait(self.waits_to_send(client, bytes));
            tokio::select! {
                slot = reserve_part(client, &mut self.relay, &self.client.account, Some(bytes)) => {
                    let (permit, lease) = slot.ok_or(InvokeError::ClientGone)?;
                    let mailbox = &mut self.instance.mailbox;
                    let part = mailbox.take(Channel::INVOCATION, &self.guest, PART_BYTES)?;
                    permit.send(Ok(ResponsePart::Data(lease.hold(part))));
                    self.relay.moved();
                    self.deadlines.client = Instant::now();
                }
                () = until_evicted(&self.wait) => return Err(InvokeError::Evicted),
                () = sleep_until(deadline) => self.handle_expiry(limit)?,
            }
        }
    }
}
