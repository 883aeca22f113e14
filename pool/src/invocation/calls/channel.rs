//! A channel of outbound calls: each turn carries one request and its answer.

use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use faasw_abi::channel::{Channel, ChannelWords, HEAD_MAX, TAIL_MAX};
use faasw_abi::mailbox::GuestWords;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail};
use tokio::time::Instant;

use crate::error::InvokeError;
use crate::invocation::body::PART_BYTES;
use crate::invocation::outbound::{AnswerPart, Outbound, OutgoingCall, OutgoingRequest};
use crate::invocation::pump::Pump;
use crate::mailbox::{CallWork, Mailbox};

/// A channel of outbound calls, as the node moves it.
pub struct CallChannel {
    /// Moves the answer, and tracks what the guest waits for.
    pump: Pump,
    channel: Channel,
    stage: Stage,
    /// Bytes of the request's body that are to be passed on.
    waiting: u64,
    /// The end of the request was passed on.
    has_ended: bool,
    /// The guest received the head of the answer.
    has_head: bool,
    /// When anything last moved in either direction.
    moved: Instant,
    /// The work since it was last counted.
    work: CallWork,
}

/// The progress of a turn.
enum Stage {
    /// No request has begun.
    Free,
    /// A request is under way.
    UnderWay(Box<dyn OutgoingCall>),
    /// The answer has ended. The rest of the request is discarded.
    Answered,
    /// The guest has dropped the request, but its words are still those of this turn.
    Dropped,
}

/// An event of a request.
#[derive(Debug)]
pub enum CallEvent {
    /// The outbound call has room for so many bytes of the request's body.
    Room(usize),
    /// A part of the answer has arrived.
    Answer(AnswerPart),
}

fn guest_error(what: &str) -> InvokeError {
    InvokeError::GuestFailed(format!("on a channel of its own requests {what}"))
}

impl CallChannel {
    /// Returns a channel without a request in this turn.
    pub fn new(channel: Channel) -> Self {
        Self {
            pump: Pump::new(channel, false),
            channel,
            stage: Stage::Free,
            waiting: 0,
            has_ended: false,
            has_head: false,
            moved: Instant::now(),
            work: CallWork::default(),
        }
    }

    /// Returns the work since the last call.
    pub fn take_work(&mut self) -> CallWork {
        mem::take(&mut self.work)
    }

    pub fn number(&self) -> Channel {
        self.channel
    }

    pub fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::UnderWay(_))
    }

    /// Returns when anything of the request under way last moved.
    pub fn moved(&self) -> Option<Instant> {
        self.is_under_way().then_some(self.moved)
    }

    /// Looks at the guest's words. If a new request is there and `may_begin` is set, begins it.
    /// Returns whether a request is there that was not begun for lack of `may_begin`.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the words or a head are impossible, and a platform
    /// error if the mailbox cannot be accessed.
    pub fn look(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
        outbound: &dyn Outbound,
        may_begin: bool,
    ) -> Result<bool, InvokeError> {
        let words = &guest.channels[self.channel];
        match words.turn.checked_sub(mailbox.turn(self.channel)) {
            Some(0) if !matches!(self.stage, Stage::Dropped) => {}
            Some(1) => {
                self.drop_request(mailbox, guest)?;
                return Ok(false);
            }
            _ => return Err(guest_error("it counted its turns wrong")),
        }
        if self.pump.look(mailbox, guest)?.has_sent {
            self.moved = Instant::now();
        }
        let is_left = matches!(self.stage, Stage::Free) && words.head != 0 && !may_begin;
        if matches!(self.stage, Stage::Free) && may_begin {
            self.begin(mailbox, guest, outbound)?;
        }
        self.pass_on(mailbox, guest)?;
        Ok(is_left)
    }

    /// Begins a request if its head is there.
    fn begin(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
        outbound: &dyn Outbound,
    ) -> Result<(), InvokeError> {
        let Some(bytes) = mailbox.take_head(self.channel, guest)? else {
            return Ok(());
        };
        mailbox.publish_taken(self.channel)?;
        let head = OutgoingHead::decode(&bytes);
        let head = head.map_err(|error| guest_error(&format!("it sent no head: {error}")))?;
        self.work.begun += 1;
        self.work.fields += head.headers.len() as u64;
        self.work.bytes += bytes.len() as u64;
        let nothing_follows = guest.channels[self.channel].end == ChannelWords::end_with(0);
        let is_whole = nothing_follows && mailbox.waiting(self.channel, guest)? == 0;
        self.stage = Stage::UnderWay(outbound.begin(OutgoingRequest {
            head,
            bytes: bytes.into(),
            is_whole,
        }));
        (self.has_ended, self.moved) = (is_whole, Instant::now());
        Ok(())
    }

    /// Drops a request that the guest has dropped. If the guest has written nothing in its next
    /// turn yet, that turn begins.
    fn drop_request(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        *self = Self {
            stage: Stage::Dropped,
            work: self.work,
            ..Self::new(self.channel)
        };
        // The node may have looked while the guest was still writing the change.
        if guest.channels[self.channel].is_untouched() {
            mailbox.take_turn(self.channel)?;
            self.stage = Stage::Free;
            self.pump.look(mailbox, guest)?;
        }
        Ok(())
    }

    /// Looks at the part of the request behind its head.
    fn pass_on(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        // Checked before there is a head, too: impossible counters end the guest.
        self.waiting = mailbox.waiting(self.channel, guest)?;
        match &mut self.stage {
            Stage::UnderWay(call) if self.waiting == 0 && !self.has_ended => {
                if let Some(tail) = mailbox.tail(self.channel, guest)? {
                    self.has_ended = true;
                    self.work.bytes += tail.len() as u64;
                    call.end(tail);
                }
            }
            Stage::Answered if self.waiting > 0 => {
                self.work.bytes += mailbox.skip(self.channel, guest)?;
                self.waiting = 0;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the next event of the request that is under way.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<CallEvent> {
        let Stage::UnderWay(call) = &mut self.stage else {
            return Poll::Pending;
        };
        if self.waiting > 0
            && let Poll::Ready(room) = call.poll_room(context)
        {
            return Poll::Ready(CallEvent::Room(room));
        }
        if self.pump.wants_more() {
            return call.poll_answer(context).map(CallEvent::Answer);
        }
        Poll::Pending
    }

    /// Handles an event.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's words are impossible, and a platform
    /// error if the mailbox cannot be accessed.
    pub fn handle_event(
        &mut self,
        news: CallEvent,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        self.moved = Instant::now();
        match news {
            CallEvent::Room(room) => {
                let body = mailbox.take(self.channel, guest, room.clamp(1, PART_BYTES))?;
                if let Stage::UnderWay(call) = &mut self.stage {
                    call.send(body);
                }
                self.pass_on(mailbox, guest)
            }
            CallEvent::Answer(part) => self.receive(part, mailbox, guest),
        }
    }

    /// Receives a part of an answer. If the part is invalid, the function receives a failure.
    fn receive(
        &mut self,
        part: AnswerPart,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        let failure = match part {
            AnswerPart::Head(head) if !self.has_head => match head.len() as u64 {
                1..=HEAD_MAX => return self.put_head(&head, mailbox),
                length => of_length(FailureCode::HttpResponseHeaderSectionSize, length),
            },
            AnswerPart::Data(bytes) if self.has_head => {
                self.pump.receive(bytes);
                return self.feed(mailbox, guest);
            }
            AnswerPart::End(tail) if self.has_head => match tail.len() as u64 {
                0..=TAIL_MAX => return self.end(tail.into(), mailbox, guest),
                length => of_length(FailureCode::HttpResponseTrailerSectionSize, length),
            },
            AnswerPart::Failed(failure) => failure,
            AnswerPart::Head(_) | AnswerPart::Data(_) | AnswerPart::End(_) => Failure::with_text(
                FailureCode::InternalError,
                "the parts of its answer came in no order that there is",
            ),
        };
        self.fail(failure, mailbox, guest)
    }

    fn put_head(&mut self, head: &Bytes, mailbox: &mut Mailbox) -> Result<(), InvokeError> {
        self.has_head = true;
        mailbox.put_head(self.channel, head)
    }

    /// Fails the request because nothing has moved for too long.
    ///
    /// # Errors
    /// Returns the errors of [`CallChannel::handle_event`].
    pub fn time_out(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        let code = if self.has_head {
            FailureCode::ConnectionReadTimeout
        } else {
            FailureCode::HttpResponseTimeout
        };
        self.fail(Failure::new(code), mailbox, guest)
    }

    /// Fails the request, whatever its progress.
    fn fail(
        &mut self,
        failure: Failure,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        let tail = if self.has_head {
            Tail::Failed(short(failure)).encode()
        } else {
            let head = Answer::Failed(short(failure)).encode();
            self.put_head(&head.into(), mailbox)?;
            Vec::new()
        };
        self.end(tail, mailbox, guest)
    }

    /// Ends the answer, whatever the guest still has to send of the request.
    fn end(
        &mut self,
        tail: Vec<u8>,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        self.stage = Stage::Answered;
        if !self.pump.has_end() {
            self.pump.receive_end(tail);
        }
        self.pass_on(mailbox, guest)?;
        self.feed(mailbox, guest)
    }

    /// Puts the rest of the answer into the ring, as far as there is room.
    ///
    /// # Errors
    /// Returns the errors of [`CallChannel::handle_event`].
    pub fn feed(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        if self.pump.feed(mailbox, guest)? {
            self.moved = Instant::now();
        }
        Ok(())
    }

    /// Returns whether something is there that the guest waits for.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's words are impossible.
    pub fn is_served(&self, mailbox: &Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        self.pump.is_served(mailbox, guest)
    }

    /// Notes that the guest was woken.
    pub fn woke(&mut self) {
        self.pump.woke();
    }
}

fn of_length(code: FailureCode, length: u64) -> Failure {
    Failure {
        number: Some(length),
        ..Failure::new(code)
    }
}

/// Returns the failure without its text if no tail has room for that.
fn short(mut failure: Failure) -> Failure {
    let text = mem::take(&mut failure.text);
    failure.text = text.filter(|text| text.len() as u64 <= TAIL_MAX / 2);
    failure
}
