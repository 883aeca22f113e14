//! The mailbox: the only memory that both sides of the VM boundary write.
//!
//! ```text
//! 0x00_0000  host words, guest words (one page)
//! 0x00_1000  request head        64 KiB   host → guest
//! 0x01_1000  response head       64 KiB   guest → host
//! 0x02_1000  report              4 KiB    guest → host
//! 0x02_2000  log                 128 KiB  guest → host, a ring
//! 0x04_2000  request trailers    16 KiB   host → guest
//! 0x04_6000  response trailers   16 KiB   guest → host
//! 0x04_a000  commands            128 KiB  host → guest
//! 0x10_0000  request body        1 MiB    host → guest, a ring
//! 0x20_0000  response body       1 MiB    guest → host, a ring
//! 0x30_0000  end
//! ```
//!
//! Each word has one writer. A side publishes bytes first and the word that
//! announces them after; the other side may look at any time. The host copies
//! everything out before it looks at it; a length or counter that cannot be is
//! the guest's lie and ends the instance. Commands are for a guest that is to become a
//! function ([`crate::command`]); they are never taken back, so that area is no ring. See
//! `docs/decisions/0009-streaming.md`.

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

/// The [`HostWords`].
pub const HOST_WORDS: Area = Area::new(0, 0x800);
/// The [`GuestWords`].
pub const GUEST_WORDS: Area = Area::new(0x800, 0x800);
/// Request head.
pub const REQUEST_HEAD: Area = Area::new(0x1000, 64 << 10);
/// Response head.
pub const RESPONSE_HEAD: Area = Area::new(0x1_1000, 64 << 10);
/// UTF-8 text on how the run ended, where it did not end well.
pub const REPORT: Area = Area::new(0x2_1000, 4 << 10);
/// Ring of log records, see [`LOG_RECORD_HEADER`].
pub const LOG: Area = Area::new(0x2_2000, 128 << 10);
/// Trailers of the request, spelt as [`crate::wire::encode_fields`] does.
pub const REQUEST_TRAILERS: Area = Area::new(0x4_2000, 16 << 10);
/// Trailers of the response, likewise.
pub const RESPONSE_TRAILERS: Area = Area::new(0x4_6000, 16 << 10);
/// [`crate::command::Commands`], one after the other since the activation.
pub const COMMANDS: Area = Area::new(0x4_a000, 128 << 10);
/// Most bytes of a function's [`crate::wire::SeedConfig`]: other commands fit beside it.
pub const CONFIGURATION_MAX: u64 = 64 << 10;
/// Ring of the request body.
pub const REQUEST_BODY: Area = Area::new(0x10_0000, 1 << 20);
/// Ring of the response body.
pub const RESPONSE_BODY: Area = Area::new(0x20_0000, 1 << 20);
/// Size of the whole mailbox, in bytes.
pub const MAILBOX_BYTES: u64 = 0x30_0000;

/// A log record is one byte for the stream (1 stdout, 2 stderr), three zero
/// bytes, a little-endian `u32` length, and that many bytes.
pub const LOG_RECORD_HEADER: usize = 8;

/// [`HostWords::request_end`]: more of the body may come.
pub const REQUEST_OPEN: u32 = 0;
/// [`HostWords::request_end`]: the body is whole when all bytes written are read.
pub const REQUEST_WHOLE: u32 = 1;

/// What the host writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostWords {
    /// Bytes in [`REQUEST_HEAD`].
    pub request_head_len: u32,
    /// Not 0 when the guest should ring [`crate::doorbell::PROGRESS`] at its end,
    /// before it stops: the answer gets out sooner, for more work in all.
    pub tell_end: u32,
    /// Not 0 when the guest should ring [`crate::doorbell::PROGRESS`] for what it flushes.
    pub listening: u32,
    /// Nothing.
    pub reserved: u32,
    /// Bytes ever put into [`REQUEST_BODY`].
    pub request_written: u64,
    /// `REQUEST_*`: whether more will come.
    pub request_end: u32,
    /// Bytes in [`REQUEST_TRAILERS`], once the body is whole.
    pub request_trailers_len: u32,
    /// Bytes ever taken from [`RESPONSE_BODY`].
    pub response_read: u64,
    /// Bytes ever taken from [`LOG`].
    pub log_read: u64,
    /// Bytes ever put into [`COMMANDS`] in this activation.
    pub commands_written: u64,
}

/// What the guest writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GuestWords {
    /// Bytes ever put into [`RESPONSE_BODY`].
    pub response_written: u64,
    /// Bytes ever taken from [`REQUEST_BODY`].
    pub request_read: u64,
    /// Bytes ever put into [`LOG`].
    pub log_written: u64,
    /// Bytes in [`RESPONSE_HEAD`]; 0 until the head is there.
    pub response_head_len: u32,
    /// 1 when the body of the response is whole.
    pub response_end: u32,
    /// Bytes in [`RESPONSE_TRAILERS`], once the body is whole.
    pub response_trailers_len: u32,
    /// `WAIT_*`: what the guest waits for, beside the deadline.
    pub wait_for: u32,
    /// How long [`crate::doorbell::Ring::Wait`] waits at most, in nanoseconds.
    pub wait_nanoseconds: u64,
    /// [`crate::outcome::Outcome`] as a number.
    pub outcome: u32,
    /// Exit code, where the outcome is an exit.
    pub exit_code: u32,
    /// Bytes in [`REPORT`].
    pub report_len: u32,
    /// `DRAW_*` bits, what the function read before the freeze.
    pub draws: u32,
    /// Time from resuming to the call of the handler, in nanoseconds.
    pub init_nanoseconds: u64,
    /// Time in the handler, in nanoseconds.
    pub exec_nanoseconds: u64,
    /// Monotonic time when it rang, in nanoseconds; what a seed continues from.
    pub monotonic_nanoseconds: u64,
    /// The largest linear memory total, in bytes.
    pub memory_peak: u64,
    /// Bytes of entropy drawn before the freeze.
    pub entropy_drawn: u32,
    /// 1 when a memory was refused to grow beyond the limit.
    pub memory_denied: u32,
    /// First byte of the RAM that [`crate::doorbell::Ring::Populate`] is about.
    pub populate_start: u64,
    /// How many bytes of it, whole pages.
    pub populate_bytes: u64,
    /// [`crate::trap::TrapKind`] as a number, where the outcome is a trap.
    pub trap: u32,
    /// Commands that were done in this activation.
    pub commands_done: u32,
}

/// [`GuestWords::wait_for`]: bytes of the request body, or its end.
pub const WAIT_REQUEST: u32 = 1;
/// [`GuestWords::wait_for`]: room for the response body.
pub const WAIT_ROOM: u32 = 1 << 1;
/// [`GuestWords::wait_for`]: room for the log.
pub const WAIT_LOG: u32 = 1 << 2;

/// [`GuestWords::draws`]: random bytes of the cryptographic kind (or any p1 random).
pub const DRAW_ENTROPY: u32 = 1;
/// [`GuestWords::draws`]: random bytes or a seed of the insecure kind.
pub const DRAW_INSECURE: u32 = 1 << 1;
/// [`GuestWords::draws`]: a clock was read.
pub const DRAW_CLOCK: u32 = 1 << 2;
/// [`GuestWords::draws`]: environment or arguments were read.
pub const DRAW_ENVIRONMENT: u32 = 1 << 3;

const _: () = assert!(
    size_of::<HostWords>() == 56 && size_of::<GuestWords>() == 128,
    "the mailbox changed: raise ABI_VERSION"
);
const _: () = assert!(RESPONSE_BODY.offset + RESPONSE_BODY.size == MAILBOX_BYTES);
