//! One channel of calls: a turn of it is one request and its answer.

use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use faasw_abi::channel::{Channel, ChannelWords, HEAD_MAX, TAIL_MAX};
use faasw_abi::mailbox::GuestWords;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail};
use tokio::time::Instant;

use crate::error::InvokeError;
use crate::exchange::body::PART_BYTES;
use crate::exchange::outbound::{AnswerPart, Outbound, OutgoingCall, OutgoingRequest};
use crate::exchange::pump::Pump;
use crate::mailbox::{CallWork, Mailbox};

/// A channel of calls, as the node moves it.
pub struct CallChannel {
    /// What comes back, and what the guest waits for.
    pump: Pump,
    channel: Channel,
    stage: Stage,
    /// Bytes of the request's body that are to be passed on.
    waiting: u64,
    /// The request's end was passed on.
    has_ended: bool,
    /// The guest was given the answer's head.
    has_head: bool,
    /// When anything last passed, either way.
    moved: Instant,
    /// What it took since that was last counted.
    work: CallWork,
}

/// How far a turn is.
enum Stage {
    /// Nothing was begun.
    Free,
    /// A request is under way.
    UnderWay(Box<dyn OutgoingCall>),
    /// Its answer has ended: what is still sent of it is for nobody.
    Answered,
    /// The guest has let go of it, and its words are still those of this turn.
    LetGo,
}

/// What happened to a request.
#[derive(Debug)]
pub enum News {
    /// There is room for so many bytes of its body.
    Room(usize),
    /// A part of its answer is there.
    Answer(AnswerPart),
}

fn lie(what: &str) -> InvokeError {
    InvokeError::GuestFailed(format!("on a channel of its own requests {what}"))
}

impl CallChannel {
    /// A channel on which nothing was said in this turn.
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

    /// What it took since this was last asked.
    pub fn take_work(&mut self) -> CallWork {
        mem::take(&mut self.work)
    }

    /// Which channel it is.
    pub fn number(&self) -> Channel {
        self.channel
    }

    /// Whether a request is under way.
    pub fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::UnderWay(_))
    }

    /// When anything of the request that is under way last passed.
    pub fn moved(&self) -> Option<Instant> {
        self.is_under_way().then_some(self.moved)
    }

    /// Looks at the guest's words. Where one `may_begin`, a request is begun that is there; whether
    /// there is one that was not.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when they or a head cannot be; the system's.
    pub fn look(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
        outbound: &dyn Outbound,
        may_begin: bool,
    ) -> Result<bool, InvokeError> {
        let told = &guest.channels[self.channel];
        match told.turn.checked_sub(mailbox.turn(self.channel)) {
            Some(0) if !matches!(self.stage, Stage::LetGo) => {}
            Some(1) => {
                self.let_go(mailbox, guest)?;
                return Ok(false);
            }
            _ => return Err(lie("it counted its turns wrong")),
        }
        if self.pump.look(mailbox, guest)?.has_sent {
            self.moved = Instant::now();
        }
        let is_left = matches!(self.stage, Stage::Free) && told.head != 0 && !may_begin;
        if matches!(self.stage, Stage::Free) && may_begin {
            self.begin(mailbox, guest, outbound)?;
        }
        self.pass_on(mailbox, guest)?;
        Ok(is_left)
    }

    /// Begins a request whose head is there, if there is one.
    fn begin(
        &mut self,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
        outbound: &dyn Outbound,
    ) -> Result<(), InvokeError> {
        let Some(bytes) = mailbox.take_head(self.channel, guest)? else {
            return Ok(());
        };
        mailbox.tell_taken(self.channel)?;
        let head = OutgoingHead::decode(&bytes);
        let head = head.map_err(|error| lie(&format!("it sent no head: {error}")))?;
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

    /// The guest is not interested any more: nor is anybody. Where it says nothing else of its next
    /// turn yet, that is begun.
    fn let_go(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        *self = Self {
            stage: Stage::LetGo,
            work: self.work,
            ..Self::new(self.channel)
        };
        // It may have been looked at in the middle of saying so.
        if guest.channels[self.channel].is_untouched() {
            mailbox.take_turn(self.channel)?;
            self.stage = Stage::Free;
            self.pump.look(mailbox, guest)?;
        }
        Ok(())
    }

    /// Looks at what there is of the request behind its head.
    fn pass_on(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        // Also before a head: counters that cannot be true end the guest.
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

    /// What happens next to the request that is under way.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<News> {
        let Stage::UnderWay(call) = &mut self.stage else {
            return Poll::Pending;
        };
        if self.waiting > 0
            && let Poll::Ready(room) = call.poll_room(context)
        {
            return Poll::Ready(News::Room(room));
        }
        if self.pump.wants_more() {
            return call.poll_answer(context).map(News::Answer);
        }
        Poll::Pending
    }

    /// Does what is to be done about that.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when the guest's words cannot be true; the system's.
    pub fn happened(
        &mut self,
        news: News,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        self.moved = Instant::now();
        match news {
            News::Room(room) => {
                let body = mailbox.take(self.channel, guest, room.clamp(1, PART_BYTES))?;
                if let Stage::UnderWay(call) = &mut self.stage {
                    call.send(body);
                }
                self.pass_on(mailbox, guest)
            }
            News::Answer(part) => self.receive(part, mailbox, guest),
        }
    }

    /// Takes a part of an answer. One that cannot be is a failure that the function is told.
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

    /// Nothing has moved for too long.
    ///
    /// # Errors
    /// As [`CallChannel::happened`].
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

    /// The request fails wherever it is.
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

    /// The answer ends, whatever is still to be sent of the request.
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

    /// Puts what is left of the answer into the ring, as far as there is room.
    ///
    /// # Errors
    /// As [`CallChannel::happened`].
    pub fn feed(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        if self.pump.feed(mailbox, guest)? {
            self.moved = Instant::now();
        }
        Ok(())
    }

    /// Whether something is there that the guest waits for.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when the guest's words cannot be true.
    pub fn is_served(&self, mailbox: &Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        self.pump.is_served(mailbox, guest)
    }

    /// The guest was woken.
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

/// Without a text that no tail has room for.
fn short(mut failure: Failure) -> Failure {
    let text = mem::take(&mut failure.text);
    failure.text = text.filter(|text| text.len() as u64 <= TAIL_MAX / 2);
    failure
}
