//! The way of a response to its client: as one message, or part by part as the client takes it.
//!
//! Bytes leave the mailbox only into room that the clients' budgets have. If a function is done
//! before its client has taken enough, its instance waits until then.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::channel::Channel;
use faasw_abi::wire::ResponseHead;
use tokio::sync::mpsc::Permit;
use tokio::time::{Instant, sleep_until};

use super::backlog::{Account, Lease};
use super::body::{self, PART_BYTES, PartSender, ReplyBody, ResponsePart};
use super::call::Reply;
use super::deadlines::{Deadline, Phase};
use super::finished::{FinishedRun, begin_stream, response_trailers};
use super::relay::Relay;
use super::run::{Invocation, RunOutcome, StartOutcome, until_evicted};
use crate::error::InvokeError;
use crate::sink::Timing;

/// The state of a response's delivery.
pub(super) enum Delivery {
    /// The response has not begun, or it is held back to leave as one message. `is_due` means that
    /// its end was awaited long enough.
    Held { is_due: bool },
    /// The response leaves part by part. `is_end_due` means that its end was held back long enough.
    Streaming {
        client: PartSender,
        is_end_due: bool,
    },
    /// The client has received its end.
    Complete,
}

impl Delivery {
    /// Returns the delivery of a response that has begun.
    pub fn streaming(client: PartSender) -> Self {
        Self::Streaming {
            client,
            is_end_due: false,
        }
    }

    /// Returns the client that receives parts, if any are to come.
    fn client(&self) -> Option<&PartSender> {
        match self {
            Self::Streaming { client, .. } => Some(client),
            Self::Held { .. } | Self::Complete => None,
        }
    }

    /// Notes that the end of the response was awaited, or held back, long enough.
    pub fn set_due(&mut self) {
        match self {
            Self::Held { is_due } => *is_due = true,
            Self::Streaming { is_end_due, .. } => *is_end_due = true,
            Self::Complete => {}
        }
    }

    /// Waits until the client of a stream is gone. Pends for ever without one.
    pub async fn client_gone(&self) {
        match self.client() {
            Some(client) => client.closed().await,
            None => pending().await,
        }
    }

    /// Waits for a position in the client's queue for a part of so many bytes, for room for them,
    /// and for a slot to move them. Returns `None` when the client is gone. Without a part to move,
    /// it releases the slot and pends.
    pub async fn reserve_part(
        &self,
        relay: &mut Relay,
        account: &Account,
        bytes: Option<u64>,
    ) -> Option<ReservedPart<'_>> {
        let Some(client) = self.client() else {
            relay.reset();
            return pending().await;
        };
        let Some(bytes) = bytes else {
            relay.release(client).await;
            return pending().await;
        };
        relay.release_used(client).await;
        // A stream holds no slot while it waits for its client or for room in the backlog.
        if client.capacity() == 0 {
            relay.release(client).await;
            drop(client.reserve().await.ok()?);
        }
        let moves = async {
            // The end of a body is no work.
            if bytes > 0 {
                relay.acquire().await;
            }
            if let Some(lease) = account.try_lease(bytes) {
                return lease;
            }
            relay.release(client).await;
            let lease = account.lease(bytes).await;
            relay.acquire().await;
            lease
        };
        let lease = tokio::select! {
            lease = moves => lease,
            () = client.closed() => return None,
        };
        // This task alone sends, so the queue still has a position.
        let position = client.try_reserve().ok()?;
        Some(ReservedPart { position, lease })
    }
}

/// All that one part of a response needs to be moved to its client.
pub(super) struct ReservedPart<'a> {
    position: Permit<'a, Result<ResponsePart, InvokeError>>,
    lease: Lease,
}

impl ReservedPart<'_> {
    /// Sends bytes, which count for the client until it has taken them.
    pub fn send(self, bytes: Bytes) {
        let part = ResponsePart::Data(self.lease.hold(bytes));
        self.position.send(Ok(part));
    }
}

/// How the response of an invocation is handed out from now on.
pub enum ReplyForm {
    /// The response leaves as one message.
    Whole(FinishedRun),
    /// The response leaves part by part. `done` is set if the function is done already.
    Stream {
        /// The head of the response.
        head: ResponseHead,
        /// How the function ended.
        done: Option<RunOutcome>,
    },
}

impl Invocation {
    /// Returns how the response is handed out.
    ///
    /// # Errors
    /// Returns [`InvokeError::NoResponse`] or [`InvokeError::GuestFailed`] if the client has enough
    /// to read and there is no valid head, and a platform error if the mailbox cannot be accessed.
    pub fn reply_form(&mut self, started: StartOutcome) -> Result<ReplyForm, InvokeError> {
        let done = match started {
            StartOutcome::Streaming(head) => return Ok(ReplyForm::Stream { head, done: None }),
            StartOutcome::Finished(done) => done,
        };
        if let Some(room) = self.room_for_rest(&done)? {
            return Ok(ReplyForm::Whole(FinishedRun { done, room }));
        }
        // The client has enough to read: it receives the rest as it reads.
        let head = begin_stream(&mut self.instance.mailbox, &self.guest)?;
        let head = head.ok_or(InvokeError::NoResponse)?;
        let done = Some(done);
        Ok(ReplyForm::Stream { head, done })
    }

    /// Continues in a task of its own, which hands the body out part by part.
    pub fn into_streaming_reply(self, head: ResponseHead, done: Option<RunOutcome>) -> Reply {
        let (sender, stream) = body::channel();
        let timing = self.timing;
        tokio::spawn(self.stream(sender, done));
        Reply {
            head,
            body: ReplyBody::Stream(stream),
            timing,
        }
    }

    /// Follows the instance to its end, if it is not `done` yet, and hands out the body.
    async fn stream(mut self, client: PartSender, done: Option<RunOutcome>) {
        let limit = self.deadlines.limits.idle_client;
        let mut delivery = Delivery::streaming(client);
        let done = match done {
            Some(done) => Ok(done),
            None => self.run_to_end(&mut delivery).await,
        };
        let run = match done {
            Ok(done) => self.drain(done, &delivery).await,
            Err(error) => Err(error),
        };
        let ended = match run {
            Ok(run) => self.finish(run),
            Err(error) => self.fail(error).await,
        };
        let delivered = match delivery {
            Delivery::Streaming { client, .. } => ended.deliver(client, limit).await,
            Delivery::Held { .. } | Delivery::Complete => Ok(()),
        };
        let result = ended.result.and(delivered);
        let reported = result.as_ref().map(|()| &ended.timing);
        ended.log.sink().stream_ended(reported);
    }

    /// Moves the next part of the response, or its end, to the client. Returns whether it was the
    /// end. `waiting` is how many bytes are in the mailbox.
    pub(super) fn send_part(
        &mut self,
        reserved: ReservedPart<'_>,
        waiting: u64,
    ) -> Result<bool, InvokeError> {
        if waiting > 0 {
            self.send_data(reserved)?;
            self.wake_if_served()?;
            return Ok(false);
        }
        self.deadlines.client = Instant::now();
        let tail = self
            .instance
            .mailbox
            .tail(Channel::INVOCATION, &self.guest)?;
        reserved.position.send(Ok(ResponsePart::End {
            trailers: response_trailers(&tail.unwrap_or_default())?,
            timing: self.timing_so_far(),
        }));
        Ok(true)
    }

    fn send_data(&mut self, reserved: ReservedPart<'_>) -> Result<(), InvokeError> {
        self.deadlines.client = Instant::now();
        let mailbox = &mut self.instance.mailbox;
        reserved.send(mailbox.take(Channel::INVOCATION, &self.guest, PART_BYTES)?);
        self.relay.moved();
        Ok(())
    }

    /// Returns where the time went, before the sandbox has reported it.
    fn timing_so_far(&self) -> Timing {
        let run = self.deadlines.age();
        let init = Duration::from_nanos(self.guest.init_nanoseconds).min(run);
        Timing {
            init,
            exec: run.saturating_sub(init),
            run,
            ..self.timing
        }
    }

    /// Reads the last words of a finished function. Returns room for all that is left of its
    /// response, if there is room. A response that is not to be sent needs none.
    ///
    /// # Errors
    /// Returns a platform error if the mailbox cannot be read.
    fn room_for_rest(&mut self, done: &RunOutcome) -> Result<Option<Lease>, InvokeError> {
        // For other ends, the words were read after the guest wrote the end.
        if let RunOutcome::Stopped(_) = done {
            self.guest = self.instance.mailbox.guest()?;
        }
        let words = self.response_words();
        let is_whole = words.head != 0 && words.end != 0;
        // Impossible counters are reported when the rest is taken.
        let waiting = self
            .instance
            .mailbox
            .waiting(Channel::INVOCATION, &self.guest);
        let bytes = if is_whole { waiting.unwrap_or(0) } else { 0 };
        Ok(self.client.account.try_lease(bytes))
    }

    /// Returns whether so many bytes cannot be handed out because the client has not taken earlier
    /// ones. The shared budgets may be full as well.
    pub(super) fn waits_to_send(&self, delivery: &Delivery, bytes: u64) -> bool {
        let client = delivery.client();
        let is_full = client.is_some_and(|client| client.capacity() == 0);
        is_full || self.client.account.waits_for_client(bytes)
    }

    /// Hands out the contents of the mailbox, part by part, until there is room for the rest.
    ///
    /// # Errors
    /// Returns [`InvokeError::ClientGone`] if the client is gone, [`InvokeError::Evicted`] if the
    /// invocation is evicted, and the error of a limit that expires, such as
    /// [`InvokeError::IdleClient`]. Returns [`InvokeError::GuestFailed`] if the guest's words are
    /// impossible, and a platform error if the mailbox cannot be accessed.
    async fn drain(
        &mut self,
        done: RunOutcome,
        delivery: &Delivery,
    ) -> Result<FinishedRun, InvokeError> {
        // The function is done, so no answer to an outbound call can reach it.
        self.calls = None;
        loop {
            if let Some(room) = self.room_for_rest(&done)? {
                self.wait = None;
                return Ok(FinishedRun { done, room });
            }
            // The function does not run any more. Its run permit is released, so that other
            // requests do not wait for its client.
            self.run_permit = None;
            let waiting = self
                .instance
                .mailbox
                .waiting(Channel::INVOCATION, &self.guest)?;
            let Deadline { at, limit } = self.deadline(Phase::Client);
            let bytes = waiting.min(PART_BYTES as u64);
            self.note_wait(self.waits_to_send(delivery, bytes));
            let account = &self.client.account;
            tokio::select! {
                reserved = delivery.reserve_part(&mut self.relay, account, Some(bytes)) => {
                    self.send_data(reserved.ok_or(InvokeError::ClientGone)?)?;
                }
                () = until_evicted(&self.wait) => return Err(InvokeError::Evicted),
                () = sleep_until(at) => self.handle_expiry(limit)?,
            }
        }
    }
}
