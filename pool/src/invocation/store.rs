//! The channel of a function's store: it carries one record of the guest at a time, and its answer.
//!
//! The embedder of the pool answers records ([`StoreService`]); this module moves them. A guest
//! sends one record and waits, so nothing else is taken from it meanwhile. A guest that sends more,
//! or whose record is invalid, is ended. All of this belongs to the invocation and ends with it. So
//! a late answer finds no mailbox.

use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;

use faasw_abi::channel::Channel;
use faasw_abi::mailbox::GuestWords;
use faasw_abi::store::{self, LENGTH_BYTES};
use faasw_abi::wire::WireError;

use super::pump::Pump;
use crate::error::InvokeError;
use crate::mailbox::Mailbox;

/// The pending answer to a record: the record of the answer, with its length.
pub type StoreAnswerFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, WireError>> + Send>>;

/// Answers the records of one function, see [`faasw_abi::store`].
pub trait StoreService: fmt::Debug + Send + Sync {
    /// Answers a record, which comes without its length. A failure of the store is an answer, too.
    /// The future is dropped when its invocation ends first.
    ///
    /// # Errors
    /// Returns a [`WireError`] if the record is invalid: its guest is ended then.
    fn answer(&self, record: Vec<u8>) -> StoreAnswerFuture;
}

/// The channel of a store, as the node moves it.
pub struct StoreChannel {
    service: Arc<dyn StoreService>,
    pump: Pump,
    /// The part of a record that has arrived, its length first.
    record: Vec<u8>,
    /// The record that is being answered.
    answering: Option<StoreAnswerFuture>,
}

impl fmt::Debug for StoreChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreChannel")
            .field("service", &self.service)
            .field("record", &self.record.len())
            .finish_non_exhaustive()
    }
}

fn guest_error(what: &str) -> InvokeError {
    InvokeError::GuestFailed(format!("on the channel of its store {what}"))
}

impl StoreChannel {
    /// Returns the state of a channel that was opened.
    pub fn new(service: Arc<dyn StoreService>) -> Self {
        Self {
            service,
            pump: Pump::new(Channel::STORE, false),
            record: Vec::new(),
            answering: None,
        }
    }

    /// Starts over with another guest, which has a mailbox of its own.
    pub fn begin_again(&mut self) {
        *self = Self::new(self.service.clone());
    }

    /// Looks at the guest's words, and takes what has arrived of a record.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the words or the record are impossible, and a
    /// platform error if the mailbox cannot be accessed.
    pub fn look(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        self.pump.look(mailbox, guest)?;
        let words = &guest.channels[Channel::STORE];
        if words.head != 0 || words.end != 0 {
            return Err(guest_error("it sent a head or an end"));
        }
        if mailbox.waiting(Channel::STORE, guest)? == 0 {
            return Ok(());
        }
        // To the guest, the answer to its previous record is still on its way.
        if self.answering.is_some() || !self.pump.wants_more() {
            return Err(guest_error("it did not wait for its answer"));
        }
        let some = mailbox.take(Channel::STORE, guest, usize::MAX)?;
        self.record.extend_from_slice(&some);
        let Some((length, body)) = self.record.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(());
        };
        let length =
            store::length(*length).map_err(|_| guest_error("it announced too long a record"))?;
        if body.len() > length {
            return Err(guest_error("it sent more than one record"));
        }
        if body.len() == length {
            let body = body.to_vec();
            self.record = Vec::new();
            self.answering = Some(self.service.answer(body));
        }
        Ok(())
    }

    /// Passes the answer to a record to the guest.
    ///
    /// # Errors
    /// Returns [`InvokeError::GuestFailed`] if the record was invalid or the guest's words are
    /// impossible, and a platform error if the mailbox cannot be accessed.
    pub fn put_answer(
        &mut self,
        answer: Result<Vec<u8>, WireError>,
        mailbox: &mut Mailbox,
        guest: &GuestWords,
    ) -> Result<(), InvokeError> {
        self.answering = None;
        let answer = answer.map_err(|error| guest_error(&format!("it sent no record: {error}")))?;
        self.pump.receive(answer.into());
        self.feed(mailbox, guest)
    }

    /// Puts the rest of an answer into the ring, as far as there is room.
    ///
    /// # Errors
    /// Returns the errors of [`Pump::feed`].
    pub fn feed(&mut self, mailbox: &mut Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
        self.pump.feed(mailbox, guest).map(drop)
    }

    /// Returns whether something is there that the guest waits for, so that it must be woken once.
    ///
    /// # Errors
    /// Returns the errors of [`Pump::is_served`].
    pub fn is_served(&self, mailbox: &Mailbox, guest: &GuestWords) -> Result<bool, InvokeError> {
        self.pump.is_served(mailbox, guest)
    }

    /// Notes that the guest was woken.
    pub fn woke(&mut self) {
        self.pump.woke();
    }
}

/// Waits for the answer to the record that is being answered. Pends for ever without such a record.
pub async fn answer(channel: &mut Option<StoreChannel>) -> Result<Vec<u8>, WireError> {
    let answering = channel
        .as_mut()
        .and_then(|channel| channel.answering.as_mut());
    match answering {
        Some(answering) => answering.await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use faasw_abi::channel::{ChannelKind, ChannelWords, Waits};
    use zerocopy::FromZeros as _;

    use super::*;

    /// Answers each record with itself, twice.
    #[derive(Debug)]
    struct Twice;

    impl StoreService for Twice {
        fn answer(&self, record: Vec<u8>) -> StoreAnswerFuture {
            Box::pin(async move { Ok(record.repeat(2)) })
        }
    }

    /// The guest's side of a mailbox.
    struct Guest {
        mailbox: Mailbox,
        channel: Option<StoreChannel>,
        words: GuestWords,
    }

    impl Guest {
        fn new() -> Self {
            let mut mailbox = Mailbox::new().unwrap();
            mailbox
                .open(ChannelKind::Invocation, b"head", true, false)
                .unwrap();
            mailbox.open_beside(true, None, 0).unwrap();
            Self {
                mailbox,
                channel: Some(StoreChannel::new(Arc::new(Twice))),
                words: GuestWords::new_zeroed(),
            }
        }

        /// Puts bytes into the ring, and has the node look.
        fn send(&mut self, bytes: &[u8]) -> Result<(), InvokeError> {
            let told = &mut self.words.channels[Channel::STORE];
            let ring = Channel::STORE.to_host();
            self.mailbox.put_ring(ring, told.written, bytes).unwrap();
            told.written += bytes.len() as u64;
            self.words.wait_for = Waits::bytes(Channel::STORE).word();
            self.look()
        }

        fn look(&mut self) -> Result<(), InvokeError> {
            let channel = self.channel.as_mut().unwrap();
            channel.look(&mut self.mailbox, &self.words)
        }
    }

    fn record(body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap();
        [&length.to_le_bytes(), body].concat()
    }

    #[tokio::test]
    async fn a_record_in_pieces_is_answered_once_and_the_next_one_after_it() {
        let mut guest = Guest::new();
        for round in 0..3_u8 {
            let sent = record(&[round; 10]);
            guest.send(&sent[..3]).unwrap();
            guest.send(&sent[3..7]).unwrap();
            guest.send(&sent[7..]).unwrap();
            let answer = answer(&mut guest.channel).await;
            let channel = guest.channel.as_mut().unwrap();
            channel
                .put_answer(answer, &mut guest.mailbox, &guest.words)
                .unwrap();
            assert!(channel.is_served(&guest.mailbox, &guest.words).unwrap());
            let read = &mut guest.words.channels[Channel::STORE].read;
            let ring = Channel::STORE.to_guest();
            let got = guest.mailbox.copy_ring(ring, *read, 20).unwrap();
            assert_eq!(got, [round; 20]);
            *read += 20;
        }
    }

    #[tokio::test]
    async fn a_guest_that_lies_or_does_not_wait_is_ended() {
        let most = u32::try_from(store::RECORD_MAX).unwrap();
        let too_long = (most + 1).to_le_bytes();
        let two = [record(b"a"), record(b"b")].concat();
        for lie in [too_long.as_slice(), &[0xff; 9], &two] {
            assert!(Guest::new().send(lie).is_err(), "{lie:?}");
        }
        let mut guest = Guest::new();
        guest.send(&record(b"a")).unwrap();
        assert!(guest.send(b"b").is_err());
        for lie in [(1, 0), (0, ChannelWords::end_with(0))] {
            let mut guest = Guest::new();
            let told = &mut guest.words.channels[Channel::STORE];
            (told.head, told.end) = lie;
            assert!(guest.look().is_err(), "{lie:?}");
        }
        let mut guest = Guest::new();
        guest.words.channels[Channel::STORE].written = u64::MAX;
        assert!(guest.look().is_err());
    }
}
