//! The interface between the runtime and the environment that it runs in.
//!
//! In the guest the kernel implements it over the boot page, the mailbox and the doorbells;
//! natively the tests implement it over plain memory. Everything is synchronous: a wait blocks the
//! only vCPU. The platform is a clock, entropy, a log, and channels ([`faasw_abi::channel`]) with
//! one wait for any of them.

use alloc::vec::Vec;
use core::time::Duration;

use faasw_abi::channel::{Channel, Waits};

use crate::draws::Draws;

/// A stream of the function's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogStream {
    /// Standard output (except for CGI functions, whose standard output is the response).
    Out = 1,
    /// Standard error.
    Err = 2,
}

/// The reason why a part of a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The head is larger than the platform accepts.
    HeadTooLarge,
    /// The tail is larger than the platform accepts.
    TailTooLarge,
}

/// The state of the body that arrives on a channel. A client that disconnects during a request ends
/// the instance, so no function ever sees that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// At least one byte can be read.
    Ready,
    /// Nothing can be read now; more may follow.
    Pending,
    /// Everything was read, and the tail is present; or the channel is not open.
    End,
}

/// The environment that the runtime runs in: clocks, memory, channels and doorbells.
pub trait Platform: 'static {
    /// Returns the monotonic time in nanoseconds. It never goes back, not even across a freeze.
    fn monotonic(&self) -> u64;

    /// Returns the wall time since 1970.
    fn wall(&self) -> Duration;

    /// Fills `out` from a cryptographic generator that no two instances share.
    fn random(&mut self, out: &mut [u8]);

    /// Requests a freeze at this position, with the function's draws so far. Has no effect while a
    /// request is under way. After the return this may be another instance, with a request of its
    /// own.
    fn freeze(&mut self, draws: &Draws);

    /// Blocks until an event of `waits` may have occurred or [`Platform::monotonic`] is at least
    /// `deadline`. May return early, so the caller must check again. Bytes that were sent before
    /// are on their way when this blocks.
    fn wait(&mut self, waits: Waits, deadline: Option<u64>);

    /// Appends to the function's log. The reader divides it into lines.
    fn log(&mut self, stream: LogStream, bytes: &[u8]);

    /// Returns whether a channel is open.
    fn is_open(&self, channel: Channel) -> bool;

    /// Returns whether a channel of calls is open, and nothing of an earlier call is left on it on
    /// either side. An abandoned channel becomes free by itself, which is an event of its space
    /// ([`Waits::room`]).
    fn is_free(&self, channel: Channel) -> bool;

    /// Ends both messages of a channel of calls, however much of them was transferred. Neither side
    /// sees the rest.
    fn abandon_channel(&mut self, channel: Channel);

    /// Returns whether the head of the incoming message on a channel is present.
    fn has_head(&self, channel: Channel) -> bool;

    /// Returns the head of the incoming message on a channel, which must be present. Returns an
    /// empty head for a channel that is not open. The next bytes to read are the body.
    fn head(&mut self, channel: Channel) -> Vec<u8>;

    /// Returns the state of the incoming body on a channel.
    fn incoming(&self, channel: Channel) -> Incoming;

    /// Copies the next present bytes of that body, and returns their number.
    fn read(&mut self, channel: Channel, out: &mut [u8]) -> usize;

    /// Returns the tail behind that body, once [`Incoming::End`] is reached.
    fn tail(&self, channel: Channel) -> Vec<u8>;

    /// Sends a message's head, before any other part of it, at most once. With `is_whole` the head
    /// is the complete message, and a reader that sees the head sees that, too.
    ///
    /// # Errors
    /// Returns [`SendError::HeadTooLarge`] if the head is too large; nothing is sent then.
    fn send_head(&mut self, channel: Channel, head: &[u8], is_whole: bool)
    -> Result<(), SendError>;

    /// Returns how many bytes of a message's body are taken now.
    fn room(&self, channel: Channel) -> usize;

    /// Appends to a message's body, and returns how many of the bytes were taken: as many as there
    /// is [`Platform::room`] for.
    fn send(&mut self, channel: Channel, bytes: &[u8]) -> usize;

    /// Requests that the bytes sent so far be transmitted soon.
    fn flush(&mut self);

    /// Completes a message's body, with this tail.
    ///
    /// # Errors
    /// Returns [`SendError::TailTooLarge`] if the tail is too large; the body is not complete then.
    fn finish(&mut self, channel: Channel, tail: &[u8]) -> Result<(), SendError>;
}

/// Sends all of `bytes`, and waits for space as long as necessary.
pub(crate) fn send_whole(platform: &mut impl Platform, channel: Channel, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = platform.send(channel, bytes);
        bytes = bytes.get(taken..).unwrap_or_default();
        if !bytes.is_empty() {
            platform.wait(Waits::room(channel), None);
        }
    }
}

/// Reads some of a body, and waits until there is some; 0 bytes mean its end.
pub(crate) fn read_some(platform: &mut impl Platform, channel: Channel, out: &mut [u8]) -> usize {
    loop {
        match platform.incoming(channel) {
            Incoming::Ready => return platform.read(channel, out),
            Incoming::End => return 0,
            Incoming::Pending => platform.wait(Waits::bytes(channel), None),
        }
    }
}

/// Fills `out` with bytes of a body, and returns whether the body has that many.
pub fn fill(platform: &mut impl Platform, channel: Channel, out: &mut [u8]) -> bool {
    let mut rest = out;
    while !rest.is_empty() {
        let read = read_some(platform, channel, rest);
        if read == 0 {
            return false;
        }
        rest = rest.get_mut(read..).unwrap_or_default();
    }
    true
}
