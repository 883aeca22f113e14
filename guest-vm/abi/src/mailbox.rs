//! The mailbox: the only memory that both sides of the VM boundary write.
//!
//! ```text
//! 0x00_0000  header (one page)
//! 0x00_1000  request head        64 KiB   host → guest
//! 0x01_1000  response head       64 KiB   guest → host
//! 0x02_1000  report              4 KiB    guest → host
//! 0x02_2000  log                 128 KiB  guest → host
//! 0x04_2000  (free)
//! 0x10_0000  request body        1 MiB    host → guest
//! 0x20_0000  response body       1 MiB    guest → host
//! 0x30_0000  end
//! ```
//!
//! The host copies everything out before it looks at it; a length that is
//! larger than its area is the guest's lie and ends the instance. While a seed
//! is made the request head area holds a [`crate::wire::SeedConfig`] instead.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A part of the mailbox: offset and size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Offset from the start of the mailbox.
    pub offset: u64,
    /// Room, in bytes.
    pub size: u64,
}

impl Area {
    const fn new(offset: u64, size: u64) -> Self {
        Self { offset, size }
    }
}

/// Request head, or the seed's configuration while it is made.
pub const REQUEST_HEAD: Area = Area::new(0x1000, 64 << 10);
/// Response head.
pub const RESPONSE_HEAD: Area = Area::new(0x1_1000, 64 << 10);
/// UTF-8 text on how the run ended, where it did not end well.
pub const REPORT: Area = Area::new(0x2_1000, 4 << 10);
/// Log records, see [`LOG_RECORD_HEADER`].
pub const LOG: Area = Area::new(0x2_2000, 128 << 10);
/// Request body.
pub const REQUEST_BODY: Area = Area::new(0x10_0000, 1 << 20);
/// Response body.
pub const RESPONSE_BODY: Area = Area::new(0x20_0000, 1 << 20);
/// Size of the whole mailbox, in bytes.
pub const MAILBOX_BYTES: u64 = 0x30_0000;

/// A log record is one byte for the stream (1 stdout, 2 stderr), three zero
/// bytes, a little-endian `u32` length, and that many bytes.
pub const LOG_RECORD_HEADER: usize = 8;

/// The first page of the mailbox.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Host: bytes in [`REQUEST_HEAD`].
    pub request_head_len: u32,
    /// Host: bytes in [`REQUEST_BODY`].
    pub request_body_len: u32,
    /// Guest: [`crate::outcome::Outcome`] as a number.
    pub outcome: u32,
    /// Guest: exit code, where the outcome is an exit.
    pub exit_code: u32,
    /// Guest: bytes in [`RESPONSE_HEAD`].
    pub response_head_len: u32,
    /// Guest: bytes in [`RESPONSE_BODY`].
    pub response_body_len: u32,
    /// Guest: bytes in [`REPORT`].
    pub report_len: u32,
    /// Guest: bytes in [`LOG`]; the host sets it to 0 when it has emptied it.
    pub log_len: u32,
    /// Guest: how long [`crate::doorbell::Ring::Wait`] waits, in nanoseconds.
    pub wait_nanoseconds: u64,
    /// Guest: time from resuming to the call of the handler, in nanoseconds.
    pub init_nanoseconds: u64,
    /// Guest: time in the handler, in nanoseconds.
    pub exec_nanoseconds: u64,
    /// Guest: monotonic time when it rang, in nanoseconds; what a seed continues from.
    pub monotonic_nanoseconds: u64,
    /// Guest: `DRAW_*` bits, what the function read before the freeze.
    pub draws: u32,
    /// Guest: bytes of entropy drawn before the freeze.
    pub entropy_drawn: u32,
    /// Guest: the largest linear memory total, in bytes.
    pub memory_peak: u64,
    /// Guest: 1 when a memory was refused to grow beyond the limit.
    pub memory_denied: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
}

/// [`Header::draws`]: random bytes of the cryptographic kind (or any p1 random).
pub const DRAW_ENTROPY: u32 = 1;
/// [`Header::draws`]: random bytes or a seed of the insecure kind.
pub const DRAW_INSECURE: u32 = 1 << 1;
/// [`Header::draws`]: a clock was read.
pub const DRAW_CLOCK: u32 = 1 << 2;
/// [`Header::draws`]: environment or arguments were read.
pub const DRAW_ENVIRONMENT: u32 = 1 << 3;

const _: () = assert!(
    size_of::<Header>() == 88,
    "the mailbox header changed: raise ABI_VERSION"
);
const _: () = assert!(RESPONSE_BODY.offset + RESPONSE_BODY.size == MAILBOX_BYTES);
