//! What the runtime needs from whatever it runs on.
//!
//! In the guest the kernel implements it over the boot page, the mailbox and the
//! doorbells; natively the tests implement it over plain memory. Everything is
//! synchronous: a wait blocks the one vCPU there is.

use alloc::vec::Vec;
use core::time::Duration;

use faasw_abi::wire::{Pair, ResponseHead};

/// A stream of the function's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogStream {
    /// Standard output (not of CGI functions: that is their response).
    Out = 1,
    /// Standard error.
    Err = 2,
}

/// Why a part of a response was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The head is larger than the platform takes.
    HeadTooLarge,
    /// The trailers are larger than the platform takes.
    TrailersTooLarge,
}

/// What is there of the request body. A client that goes away in the middle of
/// it ends the instance, so no function ever sees that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// At least one byte can be read.
    Ready,
    /// Nothing now; more may come.
    Pending,
    /// Everything was read, and the trailers are there.
    End,
}

/// What a function waits for, beside a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The request body is no longer [`Incoming::Pending`].
    pub request: bool,
    /// The response body has room.
    pub room: bool,
}

/// What the runtime needs from whatever it runs on.
pub trait Platform: 'static {
    /// Monotonic time in nanoseconds. Never goes back, not even across a freeze.
    fn monotonic(&self) -> u64;

    /// Wall time since 1970.
    fn wall(&self) -> Duration;

    /// Fills `out` from a cryptographic generator that no two instances share.
    fn random(&mut self, out: &mut [u8]);

    /// Blocks until something of `interest` may be there or
    /// [`Platform::monotonic`] is at least `deadline`. May return early, so ask
    /// again. What was sent so far is on its way when this blocks.
    fn wait(&mut self, interest: Interest, deadline: Option<u64>);

    /// Appends to the function's log. Lines are the reader's business.
    fn log(&mut self, stream: LogStream, bytes: &[u8]);

    /// What is there of the request body.
    fn incoming(&self) -> Incoming;

    /// Copies the next bytes of the request body that are there; says how many.
    fn read_body(&mut self, out: &mut [u8]) -> usize;

    /// The trailers of the request, once [`Incoming::End`] is reached.
    fn request_trailers(&self) -> Vec<Pair>;

    /// Sets the head of the response; called at most once.
    ///
    /// # Errors
    /// [`SendError::HeadTooLarge`], and then nothing was set.
    fn send_head(&mut self, head: &ResponseHead) -> Result<(), SendError>;

    /// How many bytes of response body are taken now.
    fn room(&self) -> usize;

    /// Appends to the response body; says how many of the bytes were taken: all
    /// that there is [`Platform::room`] for.
    fn send_body(&mut self, bytes: &[u8]) -> usize;

    /// Asks that what was sent so far be on its way soon.
    fn flush(&mut self);

    /// The response body is whole.
    ///
    /// # Errors
    /// [`SendError::TrailersTooLarge`], and then it is not.
    fn finish_body(&mut self, trailers: &[Pair]) -> Result<(), SendError>;
}

/// Sends all of `bytes`, however long it takes until there is room.
pub(crate) fn send_whole(platform: &mut impl Platform, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = platform.send_body(bytes);
        bytes = bytes.get(taken..).unwrap_or_default();
        if !bytes.is_empty() {
            let room = Interest {
                room: true,
                ..Interest::default()
            };
            platform.wait(room, None);
        }
    }
}

/// Reads some of the request body, waiting until there is some; none is its end.
pub(crate) fn read_some(platform: &mut impl Platform, out: &mut [u8]) -> usize {
    loop {
        match platform.incoming() {
            Incoming::Ready => return platform.read_body(out),
            Incoming::End => return 0,
            Incoming::Pending => {
                let request = Interest {
                    request: true,
                    ..Interest::default()
                };
                platform.wait(request, None);
            }
        }
    }
}
