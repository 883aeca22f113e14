//! A channel of an invocation, as the node moves it.
//!
//! A pump waits for nothing and wakes no guest. It receives what arrives for the guest and the
//! guest's words, and reports what must be done. The code that follows the invocation does that,
//! and waits for all channels at once.

use bytes::{Buf, Bytes};
use faasw_abi::channel::{Channel, ChannelWords, Waits};
use faasw_abi::mailbox::GuestWords;

use crate::error::InvokeError;
use crate::mailbox::Mailbox;

/// Both directions of one channel.
#[derive(Debug)]
pub struct Pump {
    channel: Channel,
    /// Bytes that have arrived, but are not in the ring yet.
    held: Bytes,
    /// The tail of the incoming message, once its end has arrived.
    ending: Option<Vec<u8>>,
    /// The node has told the guest of the end.
    end_announced: bool,
    /// The events that the guest waits for on this channel and was not woken for yet.
    waits: Waits,
    /// How much the guest had taken when it last asked for more.
    asked_behind: Option<u64>,
    /// The guest's words as of the last look.
    seen: ChannelWords,
}

/// The news in a guest's words about a channel.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PumpProgress {
    /// The guest continued its message, or ended it.
    pub has_sent: bool,
    /// The guest has taken all that arrived, and asks for more. Reported once, however often it
    /// asks.
    pub asks: bool,
}

impl Pump {
    /// Returns the pump of a channel that was opened with a message, which `is_whole` or continues.
    pub fn new(channel: Channel, is_whole: bool) -> Self {
        Self {
            channel,
            held: Bytes::new(),
            ending: is_whole.then(Vec::new),
            end_announced: is_whole,
            waits: Waits::default(),
            asked_behind: None,
            seen: ChannelWords::default(),
        }
    }

    /// Starts over with another guest, whose mailbox has the head of the message. `untaken` is the
    /// part of the body that was put into the mailbox of the previous guest.
    pub fn begin_again(&mut self, untaken: Vec<u8>) {
        let held = if self.held.is_empty() {
            untaken.into()
        } else {
            Bytes::from([untaken.as_slice(), &self.held].concat())
        };
        *self = Self {
            held,
            ending: self.ending.take(),
            ..Self::new(self.channel, false)
        };
    }

    /// Looks at the guest's words.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the words are impossible.
    pub fn look(
        &mut self,
        mailbox: &Mailbox,
        guest: &GuestWords,
    ) -> Result<PumpProgress, InvokeError> {
        let now = *self.words(guest);
        let before = std::mem::replace(&mut self.seen, now);
        // A head that was seen must not change, taken or not.
        if before.head != 0 && before.head != now.head {
            return Err(InvokeError::GuestFailed(
                "it withdrew the head of a message".to_owned(),
            ));
        }
        let has_sent = (before.written, before.end) != (now.written, now.end);
        if has_sent && before.end != 0 {
            return Err(InvokeError::GuestFailed(
                "it continued a message that it had ended".to_owned(),
            ));
        }
        let waits = Waits::from_word(guest.wait_for);
        self.waits = waits.only(Waits::of(self.channel));
        let asks = self.awaits_input()
            && self.held.is_empty()
            && self.asked_behind != Some(now.read)
            && mailbox.untaken_bytes(self.channel, guest)? == 0;
        if asks {
            self.asked_behind = Some(now.read);
        }
        Ok(PumpProgress { has_sent, asks })
    }

    fn words<'a>(&self, guest: &'a GuestWords) -> &'a ChannelWords {
        &guest.channels[self.channel]
    }

    /// Returns whether the guest waits for bytes that are still to come.
    pub fn awaits_input(&self) -> bool {
        self.waits.has(Waits::bytes(self.channel)) && !self.end_announced
    }

    /// Returns whether the guest waits for room.
    pub fn waits_for_room(&self) -> bool {
        self.waits.has(Waits::room(self.channel))
    }

    /// Returns whether the pump can receive more of the incoming message.
    pub fn wants_more(&self) -> bool {
        self.held.is_empty() && self.ending.is_none()
    }

    /// Returns whether the end of the incoming message has arrived.
    pub fn has_end(&self) -> bool {
        self.ending.is_some()
    }

    /// Receives bytes. The caller has checked [`Pump::wants_more`].
    pub fn receive(&mut self, bytes: Bytes) {
        self.held = bytes;
    }

    /// Receives the end of the message and its tail.
    pub fn receive_end(&mut self, tail: Vec<u8>) {
        self.ending = Some(tail);
    }

    /// Puts what has arrived into the ring, as far as there is room. Returns whether any bytes were
    /// put.
    ///
    /// # Errors
    /// Returns [`InvokeError::RequestTooLarge`] if the tail does not fit,
    /// [`InvokeError::GuestFailed`] if the guest's words are impossible, and a platform error if
    /// the mailbox cannot be accessed.
    pub fn feed(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        let mut put = 0;
        if !self.held.is_empty() {
            put = mailbox.put(self.channel, guest, &self.held)?;
            self.held.advance(put);
            if self.held.is_empty() {
                // An empty rest would keep the memory of all of the bytes.
                self.held = Bytes::new();
            }
        }
        if self.held.is_empty()
            && !self.end_announced
            && let Some(tail) = &self.ending
        {
            mailbox.finish(self.channel, tail)?;
            self.end_announced = true;
        }
        Ok(put > 0)
    }

    /// Returns whether something is there that the guest waits for, so that it must be woken once.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's words are impossible.
    pub fn is_served(&self, mailbox: &Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        let has_bytes = self.waits.has(Waits::bytes(self.channel))
            && (self.end_announced || mailbox.untaken_bytes(self.channel, guest)? > 0);
        Ok(has_bytes || self.waits_for_room() && mailbox.has_room(self.channel, guest)?)
    }

    /// Notes that the guest was woken.
    pub fn woke(&mut self) {
        self.waits = Waits::default();
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    fn channel() -> Channel {
        Channel::new(3).unwrap()
    }

    fn opened() -> Mailbox {
        let mut mailbox = Mailbox::new().unwrap();
        mailbox
            .open_channel(channel(), b"head", false, false)
            .unwrap();
        mailbox
    }

    fn words(change: impl FnOnce(&mut GuestWords)) -> GuestWords {
        let mut words = GuestWords::new_zeroed();
        change(&mut words);
        words
    }

    #[test]
    fn a_guest_that_waits_is_served_when_something_came() {
        let (mut mailbox, mut pump) = (opened(), Pump::new(channel(), false));
        let waits = words(|guest| {
            guest.channels[channel()].read = 4;
            guest.wait_for = Waits::bytes(channel()).word();
        });
        let news = pump.look(&mailbox, &waits).unwrap();
        assert!(news.asks && !news.has_sent && pump.awaits_input());
        // The guest may ask as often as it likes.
        let news = pump.look(&mailbox, &waits).unwrap();
        assert!(!news.asks);
        assert!(!pump.is_served(&mailbox, &waits).unwrap());
        pump.receive(Bytes::from_static(b"body"));
        assert!(!pump.wants_more());
        assert!(pump.feed(&mut mailbox, &waits).unwrap());
        assert!(pump.wants_more() && pump.is_served(&mailbox, &waits).unwrap());
        pump.woke();
        assert!(!pump.is_served(&mailbox, &waits).unwrap());
        pump.receive_end(b"tail".to_vec());
        assert!(!pump.feed(&mut mailbox, &waits).unwrap());
        assert!(pump.has_end() && !pump.wants_more());
    }

    #[test]
    fn words_of_other_channels_are_ignored() {
        let (mailbox, mut pump) = (opened(), Pump::new(channel(), false));
        let waits = words(|guest| {
            guest.channels[channel()].read = 4;
            let other = Channel::new(4).unwrap();
            guest.wait_for = Waits::of(other).and(Waits::LOG).word();
            guest.channels[other].written = 10;
        });
        let news = pump.look(&mailbox, &waits).unwrap();
        assert_eq!(news, PumpProgress::default());
        assert!(!pump.awaits_input() && !pump.waits_for_room());
        assert!(!pump.is_served(&mailbox, &waits).unwrap());
    }

    #[test]
    fn a_guest_cannot_withdraw_its_words() {
        let mailbox = opened();
        let begun = words(|guest| {
            guest.channels[channel()].written = 4;
            guest.channels[channel()].head = 4;
        });
        let start = GuestWords::new_zeroed();
        let seen = |words: &GuestWords| {
            let mut pump = Pump::new(channel(), false);
            assert!(pump.look(&mailbox, words).unwrap().has_sent);
            pump
        };
        assert!(seen(&begun).look(&mailbox, &start).is_err());
        let longer = words(|guest| {
            guest.channels[channel()].written = 5;
            guest.channels[channel()].head = 5;
        });
        assert!(seen(&begun).look(&mailbox, &longer).is_err());
        let ended = words(|guest| {
            guest.channels[channel()] = begun.channels[channel()];
            guest.channels[channel()].end = 1;
        });
        let mut pump = seen(&begun);
        assert!(pump.look(&mailbox, &ended).unwrap().has_sent);
        assert!(pump.look(&mailbox, &begun).is_err());
    }

    #[test]
    fn another_guest_receives_everything_that_the_first_received() {
        let (mut mailbox, mut pump) = (opened(), Pump::new(channel(), false));
        let start = GuestWords::new_zeroed();
        let size = channel().to_guest().size() as usize;
        let body: Vec<u8> = (0..2 * size).map(|at| (at % 251) as u8).collect();
        pump.receive(body.clone().into());
        pump.receive_end(b"tail".to_vec());
        assert!(pump.feed(&mut mailbox, &start).unwrap());

        pump.begin_again(mailbox.untaken_body(channel()).unwrap());
        let mut mailbox = opened();
        let (mut got, mut guest) = (Vec::new(), start);
        loop {
            pump.feed(&mut mailbox, &guest).unwrap();
            let there = mailbox.untaken_bytes(channel(), &guest).unwrap();
            if there == 0 {
                break;
            }
            let read = guest.channels[channel()].read;
            let ring = channel().to_guest();
            got.extend(mailbox.copy_ring(ring, read, there as usize).unwrap());
            guest.channels[channel()].read += there;
        }
        assert!(got.starts_with(b"head") && got[4..] == body);
        let tail = ChannelWords::end_with(4);
        assert_eq!(mailbox.host_words.channels[channel()].end, tail);
    }
}
