//! One channel of an invocation, as the node moves it.
//!
//! A pump waits for nothing and wakes nobody: it is fed with what came for the guest and with
//! the guest's words, and says what there is to be done. Whoever follows the invocation does
//! it, and waits for all of its channels at once.

use bytes::{Buf, Bytes};
use faasw_abi::channel::{Channel, ChannelWords, Waits};
use faasw_abi::mailbox::GuestWords;

use crate::error::InvokeError;
use crate::mailbox::Mailbox;

/// One channel, both ways.
#[derive(Debug)]
pub struct Pump {
    channel: Channel,
    /// Came, but is not in the ring yet.
    held: Bytes,
    /// The tail of what comes, once its end has come.
    ending: Option<Vec<u8>>,
    /// The guest was told of the end.
    end_told: bool,
    /// What the guest waits for here, and was not woken for yet.
    waits: Waits,
    /// How much the guest had taken when it last asked for more.
    asked_behind: Option<u64>,
}

/// What is new in a guest's words of a channel.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// It went on with its message, or ended it.
    pub has_sent: bool,
    /// It has taken all that came, and asks for more: said once, however often it asks.
    pub asks: bool,
}

impl Pump {
    /// For a channel that was opened with a message, which `is_whole` or goes on.
    pub fn new(channel: Channel, is_whole: bool) -> Self {
        Self {
            channel,
            held: Bytes::new(),
            ending: is_whole.then(Vec::new),
            end_told: is_whole,
            waits: Waits::default(),
            asked_behind: None,
        }
    }

    /// Begins again with another guest, whose mailbox has the head of the message. `untaken`
    /// was given to the one before.
    pub fn begin_again(&mut self, untaken: Vec<u8>) {
        let held = match self.held.is_empty() {
            true => untaken.into(),
            false => Bytes::from([untaken.as_slice(), &self.held].concat()),
        };
        *self = Self {
            held,
            ending: self.ending.take(),
            ..Self::new(self.channel, false)
        };
    }

    /// Looks at the guest's words, which were `before`.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when they cannot be true.
    pub fn look(
        &mut self,
        mailbox: &Mailbox,
        before: &GuestWords,
        guest: &GuestWords,
    ) -> Result<News, InvokeError> {
        let (before, now) = (self.words(before), self.words(guest));
        let has_sent = (before.written, before.end) != (now.written, now.end);
        if has_sent && before.end != 0 {
            return Err(InvokeError::GuestFailed(
                "it went on with a response that it had ended".to_owned(),
            ));
        }
        let waits = Waits::from_word(guest.wait_for);
        self.waits = waits.only(Waits::of(self.channel));
        let asks = self.is_owed()
            && self.held.is_empty()
            && self.asked_behind != Some(now.read)
            && mailbox.untaken_bytes(self.channel, guest)? == 0;
        if asks {
            self.asked_behind = Some(now.read);
        }
        Ok(News { has_sent, asks })
    }

    fn words<'a>(&self, guest: &'a GuestWords) -> &'a ChannelWords {
        &guest.channels[self.channel]
    }

    /// Whether the guest waits for bytes that are still to come.
    pub fn is_owed(&self) -> bool {
        self.waits.has(Waits::bytes(self.channel)) && !self.end_told
    }

    /// Whether the guest waits for room.
    pub fn waits_for_room(&self) -> bool {
        self.waits.has(Waits::room(self.channel))
    }

    /// Whether there is a place for more of what comes.
    pub fn wants_more(&self) -> bool {
        self.held.is_empty() && self.ending.is_none()
    }

    /// Whether the end of what comes has come.
    pub fn has_end(&self) -> bool {
        self.ending.is_some()
    }

    /// Takes bytes that came; there was a place for them.
    pub fn receive(&mut self, bytes: Bytes) {
        self.held = bytes;
    }

    /// Takes the end that came, and its tail.
    pub fn receive_end(&mut self, tail: Vec<u8>) {
        self.ending = Some(tail);
    }

    /// Puts what came into the ring, as far as there is room; whether anything was put.
    ///
    /// # Errors
    /// [`InvokeError::RequestTooLarge`] when the tail does not fit,
    /// [`InvokeError::GuestFailed`] when the guest's words cannot be true; the system's.
    pub fn feed(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        let mut put = 0;
        if !self.held.is_empty() {
            put = mailbox.put(self.channel, guest, &self.held)?;
            self.held.advance(put);
        }
        if self.held.is_empty()
            && !self.end_told
            && let Some(tail) = &self.ending
        {
            mailbox.finish(self.channel, tail)?;
            self.end_told = true;
        }
        Ok(put > 0)
    }

    /// Whether something is there that the guest waits for: it is to be woken, once.
    ///
    /// # Errors
    /// [`InvokeError::GuestFailed`] when the guest's words cannot be true.
    pub fn is_served(&self, mailbox: &Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        let has_bytes = self.waits.has(Waits::bytes(self.channel))
            && (self.end_told || mailbox.untaken_bytes(self.channel, guest)? > 0);
        Ok(has_bytes || self.waits_for_room() && mailbox.has_room(self.channel, guest)?)
    }

    /// The guest was woken.
    pub fn woke(&mut self) {
        self.waits = Waits::default();
    }
}
