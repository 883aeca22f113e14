//! Messages as they pass through the channels of a mailbox.
//!
//! A message to the guest is written as far as there is room. From the guest, the node takes what
//! its counters announce, after checking that they are possible. A head is taken before any of its
//! body, and only once: its first copy stays valid, whatever the guest writes there later.

use std::fmt;
use std::mem::offset_of;

use bytes::Bytes;
use faasw_abi::channel::{Channel, ChannelKind, ChannelWords, HEAD_MAX, TAIL_MAX};
use faasw_abi::mailbox::{GuestWords, HostWords};

use super::file::{Mailbox, impossible_length, in_ring};
use crate::error::{InvokeError, PlatformError, RequestPart};

/// The rest of a complete message.
#[derive(Debug)]
pub struct MessageRest {
    /// The rest of the body.
    pub body: Bytes,
    /// The tail.
    pub tail: Vec<u8>,
}

/// The name of a channel's messages to the host or to the guest, for errors.
#[derive(Clone, Copy)]
struct Name {
    channel: Channel,
    to_host: bool,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.channel.number();
        match (self.channel.kind(), self.to_host) {
            (Some(ChannelKind::Invocation), false) => f.write_str("request"),
            (Some(ChannelKind::Invocation), true) => f.write_str("response"),
            (Some(ChannelKind::Script), false) => f.write_str("script"),
            (Some(ChannelKind::Script), true) => f.write_str("answer to a script"),
            (Some(ChannelKind::Store), false) => f.write_str("answer of its store"),
            (Some(ChannelKind::Store), true) => f.write_str("record for its store"),
            (Some(ChannelKind::Secrets), false) => f.write_str("secrets"),
            (Some(ChannelKind::Secrets), true) => f.write_str("answer to secrets"),
            (Some(ChannelKind::Call), false) => f.write_str("answer to a request of its own"),
            (Some(ChannelKind::Call), true) => f.write_str("request of its own"),
            (None, false) => write!(f, "message on channel {number}"),
            (None, true) => write!(f, "answer on channel {number}"),
        }
    }
}

fn to_guest(channel: Channel) -> Name {
    Name {
        channel,
        to_host: false,
    }
}

fn to_host(channel: Channel) -> Name {
    Name {
        channel,
        to_host: true,
    }
}

fn too_large(part: RequestPart, bytes: &[u8], limit: u64) -> InvokeError {
    InvokeError::RequestTooLarge {
        part,
        size: bytes.len(),
        limit,
    }
}

/// Returns the guest's words of a channel.
fn words(guest: &GuestWords, channel: Channel) -> &ChannelWords {
    &guest.channels[channel]
}

impl Mailbox {
    fn of(&self, channel: Channel) -> &ChannelWords {
        &self.host_words.channels[channel]
    }

    fn of_mut(&mut self, channel: Channel) -> &mut ChannelWords {
        &mut self.host_words.channels[channel]
    }

    /// Opens the channel of this kind for a guest that is to be activated, with the head of a
    /// message for it. `is_whole` means that the message has no body. With `tell_end` the guest
    /// rings at its end, before it stops.
    ///
    /// # Errors
    /// Returns [`InvokeError::RequestTooLarge`] if the head does not fit, or the error of writing
    /// to the mailbox.
    pub fn open(
        &mut self,
        kind: ChannelKind,
        head: &[u8],
        is_whole: bool,
        tell_end: bool,
    ) -> Result<(), InvokeError> {
        self.open_channel(kind.channel(), head, is_whole, tell_end)
    }

    /// Opens the further channels of an invocation: that of a store, `calls` channels for outbound
    /// calls, and one with `secrets`. The first two kinds have no message yet.
    ///
    /// # Errors
    /// Returns [`InvokeError::RequestTooLarge`] if the secrets do not fit, or the error of writing
    /// to the mailbox.
    pub fn open_beside(
        &mut self,
        store: bool,
        secrets: Option<&[u8]>,
        calls: usize,
    ) -> Result<(), InvokeError> {
        let tells_end = self.has_requested_end_ring();
        if store {
            self.open_channel(Channel::STORE, &[], false, tells_end)?;
        }
        if let Some(secrets) = secrets {
            self.open_channel(Channel::SECRETS, secrets, true, tells_end)?;
        }
        if calls > 0 {
            self.open_calls(calls)?;
        }
        Ok(())
    }

    /// Opens `count` channels for outbound calls besides those that are open. They have no message
    /// yet.
    ///
    /// # Errors
    /// Returns the error of writing to the mailbox.
    fn open_calls(&mut self, count: usize) -> Result<(), PlatformError> {
        for channel in Channel::calls().take(count) {
            self.host_words.open |= channel.bit();
        }
        self.publish(offset_of!(HostWords, open), &self.host_words.open)
    }

    /// Returns the turn of a channel, see [`ChannelWords::turn`].
    pub fn turn(&self, channel: Channel) -> u64 {
        self.of(channel).turn
    }

    /// Begins the next turn of a channel and forgets everything of the present one.
    ///
    /// # Errors
    /// Returns the error of writing to the mailbox.
    pub fn take_turn(&mut self, channel: Channel) -> Result<(), PlatformError> {
        *self.of_mut(channel) = ChannelWords {
            turn: self.turn(channel).wrapping_add(1),
            ..ChannelWords::default()
        };
        self.publish_channel(channel)
    }

    /// Writes the head of a message to the guest, which begins the message in this turn. The head
    /// must not be empty: an empty head counts as none.
    ///
    /// # Errors
    /// Returns [`InvokeError::RequestTooLarge`] if the head does not fit, or the error of writing
    /// to the mailbox.
    pub fn put_head(&mut self, channel: Channel, head: &[u8]) -> Result<(), InvokeError> {
        if head.len() as u64 > HEAD_MAX {
            return Err(too_large(RequestPart::Head, head, HEAD_MAX));
        }
        self.put_ring(channel.to_guest(), 0, head)?;
        let ours = self.of_mut(channel);
        (ours.written, ours.head) = (head.len() as u64, head.len() as u32);
        Ok(self.publish_channel(channel)?)
    }

    /// As [`Mailbox::open`], for any channel, including those without a purpose yet.
    pub(crate) fn open_channel(
        &mut self,
        channel: Channel,
        head: &[u8],
        is_whole: bool,
        tell_end: bool,
    ) -> Result<(), InvokeError> {
        if head.len() as u64 > HEAD_MAX {
            return Err(too_large(RequestPart::Head, head, HEAD_MAX));
        }
        self.put_ring(channel.to_guest(), 0, head)?;
        *self.of_mut(channel) = ChannelWords {
            written: head.len() as u64,
            read: 0,
            head: head.len() as u32,
            end: if is_whole {
                ChannelWords::end_with(0)
            } else {
                0
            },
            turn: 0,
        };
        self.host_words.open |= channel.bit();
        self.host_words.tell_end = u32::from(tell_end);
        Ok(self.publish_up_to(channel)?)
    }

    /// Returns the room for bytes of the body of the message to the guest.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's counter is impossible.
    pub fn room(&self, channel: Channel, guest: &GuestWords) -> Result<usize, InvokeError> {
        let untaken = self.untaken_bytes(channel, guest)?;
        // The space for a tail is kept free of the body.
        let room = channel.to_guest().size() - TAIL_MAX;
        Ok(room.saturating_sub(untaken) as usize)
    }

    /// Returns how many bytes of the message to the guest it has not taken.
    ///
    /// # Errors
    /// Returns the errors of [`Mailbox::room`].
    pub fn untaken_bytes(&self, channel: Channel, guest: &GuestWords) -> Result<u64, InvokeError> {
        let (written, read) = (self.of(channel).written, words(guest, channel).read);
        in_ring(&to_guest(channel), written, read, channel.to_guest())
    }

    /// Writes as many bytes of the body of the message to the guest as there is room for, and
    /// returns their number.
    ///
    /// # Errors
    /// Returns the errors of [`Mailbox::room`], or the error of writing to the mailbox.
    pub fn put(
        &mut self,
        channel: Channel,
        guest: &GuestWords,
        bytes: &[u8],
    ) -> Result<usize, InvokeError> {
        let count = self.room(channel, guest)?.min(bytes.len());
        if count > 0 {
            let bytes = bytes.get(..count).unwrap_or_default();
            self.put_ring(channel.to_guest(), self.of(channel).written, bytes)?;
            self.of_mut(channel).written += count as u64;
            self.publish_channel(channel)?;
        }
        Ok(count)
    }

    /// Marks the body of the message to the guest as complete, and writes its tail.
    ///
    /// # Errors
    /// Returns [`InvokeError::RequestTooLarge`] if the tail does not fit, or the error of writing
    /// to the mailbox.
    pub fn finish(&mut self, channel: Channel, tail: &[u8]) -> Result<(), InvokeError> {
        if tail.len() as u64 > TAIL_MAX {
            return Err(too_large(RequestPart::Trailers, tail, TAIL_MAX));
        }
        self.put_ring(channel.to_guest(), self.of(channel).written, tail)?;
        self.of_mut(channel).end = ChannelWords::end_with(tail.len() as u32);
        Ok(self.publish_channel(channel)?)
    }

    /// Returns the body written so far of a message that no guest has touched.
    ///
    /// # Errors
    /// Returns the error of reading the mailbox.
    pub fn untaken_body(&self, channel: Channel) -> Result<Vec<u8>, PlatformError> {
        let ours = self.of(channel);
        let head = u64::from(ours.head);
        let count = (ours.written - head).min(channel.to_guest().size());
        self.copy_ring(channel.to_guest(), head, count as usize)
    }

    /// Returns whether all of the message to the guest can be sent again to another guest: none of
    /// it was overwritten, and nothing of an answer was taken.
    pub fn can_resend(&self, channel: Channel) -> bool {
        let ours = self.of(channel);
        let body = ours.written.saturating_sub(u64::from(ours.head));
        ours.read == 0 && body <= channel.to_guest().size()
    }

    /// Takes the head of the message from the guest, if it is there. [`Mailbox::publish_taken`]
    /// reports that to a guest that continues.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if its length is impossible, or the error of reading
    /// the mailbox.
    pub fn take_head(
        &mut self,
        channel: Channel,
        guest: &GuestWords,
    ) -> Result<Option<Vec<u8>>, InvokeError> {
        let theirs = words(guest, channel);
        if theirs.head == 0 || self.has_taken_head(channel) {
            return Ok(None);
        }
        self.waiting(channel, guest)?;
        let head = self.copy_ring(channel.to_host(), 0, theirs.head as usize)?;
        self.of_mut(channel).read = u64::from(theirs.head);
        Ok(Some(head))
    }

    /// Reports to the guest how much of its message was taken, so that it can compute its room.
    ///
    /// # Errors
    /// Returns the error of writing to the mailbox.
    pub fn publish_taken(&self, channel: Channel) -> Result<(), PlatformError> {
        self.publish_channel(channel)
    }

    /// Returns whether the head of the message from the guest was taken.
    pub fn has_taken_head(&self, channel: Channel) -> bool {
        self.of(channel).read != 0
    }

    /// Returns how many bytes of the body of the message from the guest wait in the ring.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the guest's counters are impossible.
    pub fn waiting(&self, channel: Channel, guest: &GuestWords) -> Result<u64, InvokeError> {
        let (theirs, read) = (words(guest, channel), self.of(channel).read);
        let ring = channel.to_host();
        let what = to_host(channel);
        let waiting = in_ring(&what, theirs.written, read, ring)?;
        if self.has_taken_head(channel) {
            return Ok(waiting);
        }
        let head = u64::from(theirs.head);
        match waiting.checked_sub(head) {
            Some(waiting) if head <= HEAD_MAX => Ok(waiting),
            _ => Err(impossible_length(
                &format_args!("{what} head"),
                head,
                waiting.min(HEAD_MAX),
            )),
        }
    }

    /// Returns whether there is room for bytes of the body of the message from the guest.
    ///
    /// # Errors
    /// Returns the errors of [`Mailbox::waiting`].
    pub fn has_room(&self, channel: Channel, guest: &GuestWords) -> Result<bool, InvokeError> {
        let ring = channel.to_host();
        let (written, read) = (words(guest, channel).written, self.of(channel).read);
        let used = in_ring(&to_host(channel), written, read, ring)?;
        Ok(used < ring.size() - TAIL_MAX)
    }

    /// Takes at most `most` bytes of the body of the message from the guest, whose head was taken.
    ///
    /// # Errors
    /// Returns the errors of [`Mailbox::waiting`], or the error of accessing the mailbox.
    pub fn take(
        &mut self,
        channel: Channel,
        guest: &GuestWords,
        most: usize,
    ) -> Result<Bytes, InvokeError> {
        let count = (self.waiting(channel, guest)? as usize).min(most);
        let bytes = self.copy_ring(channel.to_host(), self.of(channel).read, count)?;
        if count > 0 {
            self.of_mut(channel).read += count as u64;
            self.publish_channel(channel)?;
        }
        Ok(bytes.into())
    }

    /// Discards the waiting bytes of the body of the message from the guest, whose head was taken,
    /// and returns their number.
    ///
    /// # Errors
    /// Returns the errors of [`Mailbox::waiting`], or the error of writing to the mailbox.
    pub fn skip(&mut self, channel: Channel, guest: &GuestWords) -> Result<u64, InvokeError> {
        let count = self.waiting(channel, guest)?;
        if count > 0 {
            self.of_mut(channel).read += count;
            self.publish_channel(channel)?;
        }
        Ok(count)
    }

    /// Takes the rest of the message from the guest, whose head was taken, when the guest is done
    /// and does not read the counters any more. Returns `None` if the body is not complete.
    ///
    /// # Errors
    /// As [`Mailbox::waiting`] and [`Mailbox::tail`], or returns the error of reading the mailbox.
    pub fn take_rest(
        &mut self,
        channel: Channel,
        guest: &GuestWords,
    ) -> Result<Option<MessageRest>, InvokeError> {
        let Some(tail) = self.tail(channel, guest)? else {
            return Ok(None);
        };
        let count = self.waiting(channel, guest)?;
        let body = self.copy_ring(channel.to_host(), self.of(channel).read, count as usize)?;
        self.of_mut(channel).read += count;
        Ok(Some(MessageRest {
            body: body.into(),
            tail,
        }))
    }

    /// Returns the tail of the message from the guest, if its body is complete.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if its length is impossible, or the error of reading
    /// the mailbox.
    pub fn tail(
        &self,
        channel: Channel,
        guest: &GuestWords,
    ) -> Result<Option<Vec<u8>>, InvokeError> {
        let theirs = words(guest, channel);
        let Some(length) = theirs.tail().map(u64::from) else {
            return Ok(None);
        };
        let ring = channel.to_host();
        let what = to_host(channel);
        let used = in_ring(&what, theirs.written, self.of(channel).read, ring)?;
        let most = TAIL_MAX.min(ring.size() - used);
        if length > most {
            return Err(impossible_length(
                &format_args!("{what} tail"),
                length,
                most,
            ));
        }
        let tail = self.copy_ring(ring, theirs.written, length as usize)?;
        Ok(Some(tail))
    }
}
