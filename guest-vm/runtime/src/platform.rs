//! What the runtime needs from whatever it runs on.
//!
//! In the guest the kernel implements it over the boot page, the mailbox and the
//! doorbell; natively the tests implement it over plain memory. Everything is
//! synchronous: a wait blocks the one vCPU there is.

use core::time::Duration;

use faasw_abi::wire::ResponseHead;

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
    /// The body is larger than the platform takes.
    BodyTooLarge,
}

/// What the runtime needs from whatever it runs on.
pub trait Platform: 'static {
    /// Monotonic time in nanoseconds. Never goes back, not even across a freeze.
    fn monotonic(&self) -> u64;

    /// Wall time since 1970.
    fn wall(&self) -> Duration;

    /// Fills `out` from a cryptographic generator that no two instances share.
    fn random(&mut self, out: &mut [u8]);

    /// Blocks until [`Platform::monotonic`] is at least `deadline`.
    fn wait_until(&mut self, deadline: u64);

    /// Appends to the function's log. Lines are the reader's business.
    fn log(&mut self, stream: LogStream, bytes: &[u8]);

    /// Copies the next bytes of the request body; 0 for a non-empty `out` means its end.
    fn read_body(&mut self, out: &mut [u8]) -> usize;

    /// Appends to the response body. May be called before [`Platform::send_head`].
    ///
    /// # Errors
    /// [`SendError::BodyTooLarge`], and then nothing of `bytes` was taken.
    fn send_body(&mut self, bytes: &[u8]) -> Result<(), SendError>;

    /// Sets the head of the response; called once, at its end, because trailers are part of it.
    ///
    /// # Errors
    /// [`SendError::HeadTooLarge`].
    fn send_head(&mut self, head: &ResponseHead) -> Result<(), SendError>;
}
