//! The mailbox: the only memory that both sides of the VM boundary write.
//!
//! ```text
//! 0x00_0000  report                    4 KiB    guest → host
//! 0x00_1000  log                       128 KiB  guest → host, a ring
//! 0x02_1000  commands                  128 KiB  host → guest
//! 0x04_1000  channel 0 to the guest    1 MiB    a ring, which begins in its last page
//! 0x14_1000  host words, guest words   4 KiB
//! 0x14_2000  channel 0 to the host     1 MiB    a ring
//! 0x24_2000  channels 1 to 23          two rings each, of 128 KiB; of 512 KiB for the first call
//! 0x8c_2000  end
//! ```
//!
//! A small invocation uses three consecutive pages: the last of the ring to the guest, the words,
//! and the first of the ring to the host. An unused channel is a hole in the mailbox file.
//!
//! Each word has one writer. A side publishes bytes first and then the word that announces them;
//! the other side may read at any time. The host copies everything out before it parses it. An
//! impossible length or counter ends the instance. Commands turn a guest into a function
//! ([`crate::command`]). They are never taken back, so their area is no ring. See
//! `docs/decisions/0009-streaming.md`, and [`crate::channel`] for the messages.

pub use crate::area::Area;
#[cfg(doc)]
use crate::channel::{Channel, Waits};
use crate::channel::{ChannelWords, OTHERS, PerChannel};
use crate::ring::RingBuffer;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// UTF-8 text that describes how the run ended, if it did not end well; after a step that ran code
/// of the function, a description of its draws.
pub const REPORT: Area = Area::new(0, 4 << 10);
/// Ring of log records, see [`LOG_RECORD_HEADER`].
pub const LOG: RingBuffer = RingBuffer {
    area: Area::new(0x1000, 128 << 10),
    first: 0,
};
/// [`crate::command::Commands`], one after the other since the activation.
pub const COMMANDS: Area = Area::new(0x2_1000, 128 << 10);
/// Maximum bytes of a function's [`crate::wire::SeedConfig`]; leaves space for other commands.
pub const CONFIGURATION_MAX: u64 = 64 << 10;
/// Maximum encoded bytes of all warm-up requests of a function together.
pub const WARM_UPS_MAX: u64 = 48 << 10;
/// The page of the host words and guest words.
pub const WORDS: Area = Area::new(0x14_1000, 0x1000);
/// The [`HostWords`].
pub const HOST_WORDS: Area = Area::new(WORDS.offset, 0x800);
/// The [`GuestWords`].
pub const GUEST_WORDS: Area = Area::new(WORDS.offset + 0x800, 0x800);
/// Size of the whole mailbox, in bytes.
pub const MAILBOX_BYTES: u64 = OTHERS.offset + OTHERS.size;

/// The pages of a small invocation: offset and size in bytes.
pub const SMALL_INVOCATION: Area = Area::new(WORDS.offset - 0x1000, 0x3000);

/// A log record is one byte for the stream (1 stdout, 2 stderr), three zero
/// bytes, a little-endian `u32` length, and that many bytes.
pub const LOG_RECORD_HEADER: usize = 8;

/// The words that the host writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostWords {
    /// The open channels, as [`Channel::bit`]s. The node writes this word and never reads it.
    pub open: u32,
    /// Not 0 if the guest is to ring [`crate::doorbell::PROGRESS`] at the end of the response,
    /// before it stops. The client then receives the response sooner, at the cost of more work in
    /// total.
    pub tell_end: u32,
    /// Not 0 if the guest is to ring [`crate::doorbell::PROGRESS`] when it flushes.
    pub listening: u32,
    /// Not 0 once a polling guest has a request, see [`crate::boot::Activation::poll_ticks`]. The
    /// host writes this word last.
    pub go: u32,
    /// The host's words of each channel.
    pub channels: PerChannel<ChannelWords>,
    /// Bytes taken from [`LOG`] so far.
    pub log_read: u64,
    /// Bytes put into [`COMMANDS`] in this activation so far.
    pub commands_written: u64,
}

/// The words that the guest writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GuestWords {
    /// Bytes put into [`LOG`] so far.
    pub log_written: u64,
    /// [`Waits`] as a word: the events that the guest waits for, besides the deadline.
    pub wait_for: u64,
    /// Maximum duration of [`crate::doorbell::Doorbell::Wait`], in nanoseconds.
    pub wait_nanoseconds: u64,
    /// [`crate::outcome::Outcome`] as a number.
    pub outcome: u32,
    /// Exit code, if the outcome is an exit.
    pub exit_code: u32,
    /// Bytes in [`REPORT`].
    pub report_len: u32,
    /// `DRAW_*` bits: the sources that the function read before the freeze.
    pub draws: u32,
    /// Time from resuming to the call of the handler, in nanoseconds; after a step that ran code of
    /// the function, the duration of that step.
    pub init_nanoseconds: u64,
    /// Time in the handler, in nanoseconds.
    pub exec_nanoseconds: u64,
    /// Monotonic time of the ring in nanoseconds; a seed continues from this value.
    pub monotonic_nanoseconds: u64,
    /// First byte of the RAM that [`crate::doorbell::Doorbell::Populate`] concerns.
    pub populate_start: u64,
    /// Number of bytes of that RAM; whole pages.
    pub populate_bytes: u64,
    /// [`crate::trap::TrapKind`] as a number, if the outcome is a trap.
    pub trap: u32,
    /// Commands completed in this activation.
    pub commands_done: u32,
    /// The guest's words of each channel. They are last, so that the host need not read those of
    /// channels after the last open one.
    pub channels: PerChannel<ChannelWords>,
}

/// [`GuestWords::draws`]: random bytes of the cryptographic kind (or any p1 random).
pub const DRAW_ENTROPY: u32 = 1;
/// [`GuestWords::draws`]: random bytes or a seed of the insecure kind.
pub const DRAW_INSECURE: u32 = 1 << 1;
/// [`GuestWords::draws`]: a clock was read.
pub const DRAW_CLOCK: u32 = 1 << 2;
/// [`GuestWords::draws`]: a key-value store was accessed.
pub const DRAW_STORE: u32 = 1 << 3;
/// [`GuestWords::draws`]: the function attempted an outbound call.
pub const DRAW_CALL: u32 = 1 << 4;
/// [`GuestWords::draws`]: a secret was read.
pub const DRAW_SECRET: u32 = 1 << 5;

const _: () = assert!(
    size_of::<ChannelWords>() == 32
        && size_of::<HostWords>() == 800
        && size_of::<GuestWords>() == 856,
    "the mailbox changed: raise ABI_VERSION"
);
const _: () = assert!(MAILBOX_BYTES == 0x8c_2000);
