//! Frames: the protocol between node and worker, over a stream.
//!
//! ```text
//!   call u64 │ kind u32 │ length u32 │ bytes
//! ```
//!
//! All numbers are in the machine's byte order, because both sides run on it. The length is checked
//! against the kind's bounds before the reader waits for any further byte. Heads and tails are
//! spelled as in [`faasw_abi::outgoing`]; the worker makes those of an upstream, and the node does
//! not parse them.
//!
//! ```text
//!   node ── Authority…, Configure ─────────────────────────────▶ worker   once, first
//!   node ── Begin, Data…, End, Cancel, Credit, Unconnected ────▶ worker
//!   node ◀── Need, Head or Failed, Data…, End, Credit ────────── worker
//! ```
//!
//! At most [`WINDOW`] bytes of each call's data are under way in each direction. A sender starts
//! with that much credit, and then has what [`Credit`](ToWorker::Credit) frames give back. In both
//! directions a piece counts as at least [`PIECE_MIN`] bytes, so that a window also bounds the
//! number of queued pieces.

use std::ops::RangeInclusive;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use faasw_abi::channel::{HEAD_MAX, TAIL_MAX};
use faasw_abi::outgoing::Timeouts;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::ProtocolViolation;

/// Most bytes in a frame after its header.
pub const FRAME_MAX: usize = 64 << 10;

/// Most bytes of a call's data that are under way in each direction.
pub const WINDOW: usize = 128 << 10;

/// The window for long response bodies, which only a few calls at once get. A larger window gives
/// the forwarding process more to do each time it wakes. The receiver enlarges the window by giving
/// more credit back.
pub const LARGE_WINDOW: usize = 512 << 10;

/// The least that a piece of data takes of the window: storing a byte takes more than a byte.
pub const PIECE_MIN: usize = 256;

/// Returns what a piece of data takes of the window.
#[must_use]
pub fn cost(bytes: usize) -> usize {
    bytes.max(PIECE_MIN)
}

/// Most bytes of the reason for a failure.
const REASON_MAX: usize = 1 << 10;

/// The header of each frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FrameHeader {
    call: u64,
    kind: u32,
    length: u32,
}

/// Kinds of frames from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum ToWorker {
    /// A certificate in DER that is trusted besides the usual roots. Belongs to no call.
    Authority = 1,
    /// [`WorkerOptions`], which end the configuration. Belongs to no call.
    Configure = 2,
    /// The begin of a call: an [`OutgoingHead`](faasw_abi::outgoing::OutgoingHead).
    Begin = 3,
    /// A piece of the request body.
    Data = 4,
    /// The end of the request body: a [`Tail`](faasw_abi::outgoing::Tail).
    End = 5,
    /// The call is no longer wanted.
    Cancel = 6,
    /// How many more bytes of the response body the worker may send.
    Credit = 7,
    /// No connection could be made for a [`FromWorker::Need`]: a failed
    /// [`Answer`](faasw_abi::outgoing::Answer).
    Unconnected = 8,
    /// A liveness probe. Belongs to no call. The worker answers with [`FromWorker::Alive`] at once.
    Probe = 9,
}

/// Kinds of frames from the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum FromWorker {
    /// The call needs a new connection to its destination.
    Need = 16,
    /// The response head.
    Head = 17,
    /// There is no response, and why: a failed [`Answer`](faasw_abi::outgoing::Answer). The call is
    /// over.
    Failed = 18,
    /// A piece of the response body.
    Data = 19,
    /// The end of the response: a [`Tail`](faasw_abi::outgoing::Tail). The call is over.
    End = 20,
    /// How many more bytes of the request body the node may send.
    Credit = 21,
    /// The answer to [`ToWorker::Probe`]. Belongs to no call.
    Alive = 22,
}

/// The frame kinds of one direction.
pub trait FrameKind: Copy + TryFromBytes {
    /// Returns the kind with this number.
    fn of_number(number: u32) -> Option<Self> {
        Self::try_read_from_bytes(number.as_bytes()).ok()
    }

    /// Returns the kind's number in the protocol.
    fn number(self) -> u32;

    /// Returns how many bytes may follow the header.
    fn bounds(self) -> RangeInclusive<usize>;
}

/// Most bytes of a head and of a tail.
const HEAD: usize = HEAD_MAX as usize;
const TAIL: usize = TAIL_MAX as usize;

impl FrameKind for ToWorker {
    fn number(self) -> u32 {
        self as u32
    }

    fn bounds(self) -> RangeInclusive<usize> {
        match self {
            Self::Authority | Self::Data => 1..=FRAME_MAX,
            Self::Configure => size_of::<WorkerOptions>()..=size_of::<WorkerOptions>(),
            Self::Begin => 1..=HEAD,
            Self::End => 0..=TAIL,
            Self::Cancel | Self::Probe => 0..=0,
            Self::Credit => size_of::<u32>()..=size_of::<u32>(),
            Self::Unconnected => 1..=REASON_MAX,
        }
    }
}

impl FrameKind for FromWorker {
    fn number(self) -> u32 {
        self as u32
    }

    fn bounds(self) -> RangeInclusive<usize> {
        match self {
            Self::Need | Self::Alive => 0..=0,
            Self::Head => 1..=HEAD,
            Self::Failed => 1..=REASON_MAX,
            Self::Data => 1..=FRAME_MAX,
            Self::End => 0..=TAIL,
            Self::Credit => size_of::<u32>()..=size_of::<u32>(),
        }
    }
}

/// How a worker treats connections, and the timeouts of a request. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WorkerOptions {
    /// Most idle connections.
    pub idle_max: u64,
    /// Most idle connections to one origin.
    pub idle_per_origin: u64,
    /// How long a connection may be idle.
    pub idle: u64,
    /// How old a connection may be when it is reused.
    pub age: u64,
    /// Longest time for a connection: name resolution, connecting, TLS. Also the default if a
    /// function sets no timeout.
    pub connect: u64,
    /// Longest time from then to the response head, likewise.
    pub first_byte: u64,
    /// Longest time from one piece of the response body to the next, likewise.
    pub between_bytes: u64,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000_000;
        Self {
            idle_max: 64,
            idle_per_origin: 16,
            // Less than the 60 or 75 seconds after which most servers close.
            idle: 50 * SECOND,
            // So that a name's new address is used eventually.
            age: 600 * SECOND,
            connect: 30 * SECOND,
            first_byte: 600 * SECOND,
            between_bytes: 600 * SECOND,
        }
    }
}

impl WorkerOptions {
    /// Returns the timeouts of a request: those of the function where it sets any, limited by
    /// these.
    #[must_use]
    pub fn of_request(&self, wanted: Timeouts) -> Timeouts {
        let least = |wanted: u64, most: u64| match wanted {
            0 => most,
            wanted => wanted.min(most),
        };
        Timeouts {
            connect: least(wanted.connect, self.connect),
            first_byte: least(wanted.first_byte, self.first_byte),
            between_bytes: least(wanted.between_bytes, self.between_bytes),
        }
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<K> {
    /// The call that the frame belongs to; 0 if it belongs to none.
    pub call: u64,
    /// The kind of the frame.
    pub kind: K,
    /// The content, within the kind's bounds.
    pub bytes: Bytes,
}

impl<K: FrameKind> Frame<K> {
    /// Takes the first frame from the received bytes. Returns `None` if it is incomplete.
    ///
    /// # Errors
    /// Returns [`ProtocolViolation`] if the kind is unknown or the length is out of its bounds.
    /// Nothing after such a header can be read either.
    pub fn take(received: &mut BytesMut) -> Result<Option<Self>, ProtocolViolation> {
        let Ok((header, rest)) = FrameHeader::read_from_prefix(received) else {
            return Ok(None);
        };
        let kind = K::of_number(header.kind).ok_or(ProtocolViolation)?;
        let bytes = usize::try_from(header.length).unwrap_or(usize::MAX);
        if !kind.bounds().contains(&bytes) {
            return Err(ProtocolViolation);
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        // A slice would keep the whole receive buffer in memory for as long as the frame lives.
        let copied = rest.get(..bytes).map(Bytes::copy_from_slice);
        received.advance(size_of::<FrameHeader>() + bytes);
        Ok(Some(Self {
            call: header.call,
            kind,
            bytes: copied.unwrap_or_default(),
        }))
    }

    /// Returns the number of bytes in a credit frame; `None` if the content is not a credit.
    #[must_use]
    pub fn credit(&self) -> Option<usize> {
        let credit = u32::read_from_bytes(&self.bytes).ok()?;
        usize::try_from(credit).ok()
    }
}

/// Appends a frame to `out`. If the length is outside the kind's bounds, which is the caller's
/// error, the other side rejects the frame.
pub fn put<K: FrameKind>(out: &mut BytesMut, call: u64, kind: K, bytes: &[u8]) {
    debug_assert!(kind.bounds().contains(&bytes.len()));
    let header = FrameHeader {
        call,
        kind: kind.number(),
        length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
    };
    out.reserve(size_of::<FrameHeader>() + bytes.len());
    out.put_slice(header.as_bytes());
    out.put_slice(bytes);
}

/// Returns a frame in a buffer of its own.
#[must_use]
pub fn frame<K: FrameKind>(call: u64, kind: K, bytes: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    put(&mut out, call, kind, bytes);
    out
}

/// Encodes a credit.
#[must_use]
pub fn credit_bytes(bytes: usize) -> [u8; 4] {
    // Never more than a window.
    u32::try_from(bytes).unwrap_or(u32::MAX).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut bytes = BytesMut::new();
        put(&mut bytes, 7, ToWorker::Begin, b"head");
        put(&mut bytes, u64::MAX, ToWorker::End, b"");
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let mut received = BytesMut::from(first);
            let mut frames = Vec::new();
            while let Some(frame) = Frame::<ToWorker>::take(&mut received).unwrap() {
                frames.push(frame);
            }
            received.extend_from_slice(second);
            while let Some(frame) = Frame::<ToWorker>::take(&mut received).unwrap() {
                frames.push(frame);
            }
            assert!(received.is_empty());
            let read: Vec<_> = frames
                .iter()
                .map(|f| (f.call, f.kind, &f.bytes[..]))
                .collect();
            let sent: [(_, _, &[u8]); 2] = [
                (7, ToWorker::Begin, b"head"),
                (u64::MAX, ToWorker::End, b""),
            ];
            assert_eq!(read, sent);
        }
    }

    #[test]
    fn a_frame_does_not_retain_the_receive_buffer() {
        let mut received = BytesMut::new();
        put(&mut received, 7, FromWorker::Data, b"x");
        put(&mut received, 7, FromWorker::Data, &[0; FRAME_MAX]);
        let frame = Frame::<FromWorker>::take(&mut received).unwrap().unwrap();
        assert!(frame.bytes.is_unique() && !received.is_empty());
    }

    #[test]
    fn a_length_outside_its_bounds_is_refused_before_its_bytes_are_there() {
        for (kind, length) in [
            (FromWorker::Need, 1_u32),
            (FromWorker::Data, 0),
            (FromWorker::Data, 65_537),
            (FromWorker::End, 16_385),
            (FromWorker::Head, u32::MAX),
            (FromWorker::Credit, 3),
        ] {
            let header = FrameHeader {
                call: 1,
                kind: kind.number(),
                length,
            };
            let mut received = BytesMut::from(header.as_bytes());
            let taken = Frame::<FromWorker>::take(&mut received);
            assert_eq!(taken, Err(ProtocolViolation), "{kind:?} {length}");
        }
        let other = FrameHeader {
            call: 1,
            kind: ToWorker::Begin.number(),
            length: 1,
        };
        let mut received = BytesMut::from(other.as_bytes());
        let taken = Frame::<FromWorker>::take(&mut received);
        assert_eq!(taken, Err(ProtocolViolation));
    }
}
