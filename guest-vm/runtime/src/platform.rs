//! What the runtime needs from whatever it runs on.
//!
//! In the guest the kernel implements it over the boot page, the mailbox and the
//! doorbells; natively the tests implement it over plain memory. Everything is
//! synchronous: a wait blocks the one vCPU there is. It is a clock, entropy, a log, and
//! channels ([`faasw_abi::channel`]) with one wait for any of them.

use alloc::vec::Vec;
use core::time::Duration;

use faasw_abi::channel::{Channel, Waits};

use crate::draws::Draws;

/// A stream of the function's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogStream {
    /// Standard output (not of CGI functions: that is their response).
    Out = 1,
    /// Standard error.
    Err = 2,
}

/// Why a part of a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The head is larger than the platform takes.
    HeadTooLarge,
    /// The tail is larger than the platform takes.
    TailTooLarge,
}

/// What is there of the body that comes on a channel. A client that goes away in the
/// middle of a request ends the instance, so no function ever sees that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// At least one byte can be read.
    Ready,
    /// Nothing now; more may come.
    Pending,
    /// Everything was read, and the tail is there; or the channel is not open.
    End,
}

/// What the runtime needs from whatever it runs on.
pub trait Platform: 'static {
    /// Monotonic time in nanoseconds. Never goes back, not even across a freeze.
    fn monotonic(&self) -> u64;

    /// Wall time since 1970.
    fn wall(&self) -> Duration;

    /// Fills `out` from a cryptographic generator that no two instances share.
    fn random(&mut self, out: &mut [u8]);

    /// The function says that it is to be frozen here, having drawn this; with a request under
    /// way it has said so for nothing. What this returns to may be another instance, with a
    /// request of its own.
    fn freeze(&mut self, draws: &Draws);

    /// Blocks until something of `waits` may have happened or
    /// [`Platform::monotonic`] is at least `deadline`. May return early, so ask
    /// again. What was sent so far is on its way when this blocks.
    fn wait(&mut self, waits: Waits, deadline: Option<u64>);

    /// Appends to the function's log. Lines are the reader's business.
    fn log(&mut self, stream: LogStream, bytes: &[u8]);

    /// Whether a channel is open.
    fn is_open(&self, channel: Channel) -> bool;

    /// Whether a channel of calls is open and nothing of an earlier call is left on it, on either
    /// side. One that was let go of becomes free by itself, which is an event of its room.
    fn is_free(&self, channel: Channel) -> bool;

    /// Ends both messages of a channel of calls, wherever they are. What is still to come of them
    /// is never seen.
    fn let_go(&mut self, channel: Channel);

    /// Whether the head of what comes on a channel is there.
    fn has_head(&self, channel: Channel) -> bool;

    /// The head of what comes on a channel, which is there; none on one that is not open.
    /// What is read next is the body.
    fn head(&mut self, channel: Channel) -> Vec<u8>;

    /// What is there of the body that comes on a channel.
    fn incoming(&self, channel: Channel) -> Incoming;

    /// Copies the next bytes of that body that are there; says how many.
    fn read(&mut self, channel: Channel, out: &mut [u8]) -> usize;

    /// The tail behind that body, once [`Incoming::End`] is reached.
    fn tail(&self, channel: Channel) -> Vec<u8>;

    /// Sends a message's head, before anything else of it, at most once. With `is_whole` that is
    /// all of it, and whoever sees the head sees that, too.
    ///
    /// # Errors
    /// [`SendError::HeadTooLarge`], and then nothing was sent.
    fn send_head(&mut self, channel: Channel, head: &[u8], is_whole: bool)
    -> Result<(), SendError>;

    /// How many bytes of a message's body are taken now.
    fn room(&self, channel: Channel) -> usize;

    /// Appends to a message's body; says how many of the bytes were taken: all
    /// that there is [`Platform::room`] for.
    fn send(&mut self, channel: Channel, bytes: &[u8]) -> usize;

    /// Asks that what was sent so far be on its way soon.
    fn flush(&mut self);

    /// A message's body is whole, and this is its tail.
    ///
    /// # Errors
    /// [`SendError::TailTooLarge`], and then it is not.
    fn finish(&mut self, channel: Channel, tail: &[u8]) -> Result<(), SendError>;
}

/// Sends all of `bytes`, however long it takes until there is room.
pub(crate) fn send_whole(platform: &mut impl Platform, channel: Channel, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = platform.send(channel, bytes);
        bytes = bytes.get(taken..).unwrap_or_default();
        if !bytes.is_empty() {
            platform.wait(Waits::room(channel), None);
        }
    }
}

/// Reads some of a body, waiting until there is some; none is its end.
pub(crate) fn read_some(platform: &mut impl Platform, channel: Channel, out: &mut [u8]) -> usize {
    loop {
        match platform.incoming(channel) {
            Incoming::Ready => return platform.read(channel, out),
            Incoming::End => return 0,
            Incoming::Pending => platform.wait(Waits::bytes(channel), None),
        }
    }
}

/// Fills `out` with what comes on a channel before any request, whose head says how many bytes that
/// are; says whether it has as many.
pub fn receive(platform: &mut impl Platform, channel: Channel, out: &mut [u8]) -> bool {
    let announced = platform.head(channel).try_into().map(u64::from_le_bytes);
    if announced != Ok(out.len() as u64) {
        return false;
    }
    let mut rest = out;
    while !rest.is_empty() {
        let read = read_some(platform, channel, rest);
        rest = rest.get_mut(read..).unwrap_or_default();
        if read == 0 {
            return false;
        }
    }
    true
}
