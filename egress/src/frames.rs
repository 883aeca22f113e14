//! Frames: what node and worker say to each other, over a stream.
//!
//! ```text
//!   call u64 │ kind u32 │ length u32 │ bytes
//! ```
//!
//! in the machine's byte order, for both run on it. The length is held against the kind's bounds
//! before a byte behind it is waited for. Heads and tails are spelled as in
//! [`faasw_abi::outgoing`]; those of an upstream are made by the worker, and the node does not
//! look into them.
//!
//! ```text
//!   node ── Authority…, Configure ─────────────────────────────▶ worker   once, first
//!   node ── Begin, Data…, End, Cancel, Credit, Unconnected ────▶ worker
//!   node ◀── Need, Head or Failed, Data…, End, Credit ────────── worker
//! ```
//!
//! Of each call at most [`WINDOW`] bytes of data are under way each way: who sends has that much
//! credit at first, and then what [`Credit`](ToWorker::Credit) frames give back. A piece counts as
//! [`PIECE_MIN`] bytes at least, both ways: so a window bounds how many are kept, too.

use std::ops::RangeInclusive;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use faasw_abi::channel::{HEAD_MAX, TAIL_MAX};
use faasw_abi::outgoing::Timeouts;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Most bytes in a frame, behind its header.
pub const FRAME_MAX: usize = 64 << 10;

/// Most bytes of a call's data that are under way, each way.
pub const WINDOW: usize = 128 << 10;

/// The same for the answers of a few calls at once that go on for long: so that whoever passes them
/// on has more to do each time it is woken. What its receiver gives back makes it so.
pub const LARGE_WINDOW: usize = 512 << 10;

/// What a piece of data takes of the window at least: keeping a byte takes more than a byte.
pub const PIECE_MIN: usize = 256;

/// What a piece of data takes of the window.
#[must_use]
pub fn cost(bytes: usize) -> usize {
    bytes.max(PIECE_MIN)
}

/// Most bytes that say why there is no connection.
const REASON_MAX: usize = 1 << 10;

/// What begins each frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FrameHeader {
    call: u64,
    kind: u32,
    length: u32,
}

/// What the node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum ToWorker {
    /// A certificate that is trusted besides the usual roots, in DER. Of no call.
    Authority = 1,
    /// [`WorkerOptions`]: what ends the configuration. Of no call.
    Configure = 2,
    /// A call begins: an [`OutgoingHead`](faasw_abi::outgoing::OutgoingHead).
    Begin = 3,
    /// A piece of its body.
    Data = 4,
    /// The body's end: a [`Tail`](faasw_abi::outgoing::Tail).
    End = 5,
    /// Nobody wants the call any more.
    Cancel = 6,
    /// How many bytes more of the answer's data may be sent.
    Credit = 7,
    /// There is no connection for a [`FromWorker::Need`]: a failed
    /// [`Answer`](faasw_abi::outgoing::Answer).
    Unconnected = 8,
    /// Is anybody there? Of no call. Answered with [`FromWorker::Alive`], at once.
    Probe = 9,
}

/// What the worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum FromWorker {
    /// The call wants a new connection to where it goes.
    Need = 16,
    /// The answer's head.
    Head = 17,
    /// There is no answer, and why: a failed [`Answer`](faasw_abi::outgoing::Answer). The call is
    /// over.
    Failed = 18,
    /// A piece of the answer's body.
    Data = 19,
    /// The answer's end: a [`Tail`](faasw_abi::outgoing::Tail). The call is over.
    End = 20,
    /// How many bytes more of the request's data may be sent.
    Credit = 21,
    /// Somebody is. Of no call.
    Alive = 22,
}

/// A direction's kinds.
pub trait FrameKind: Copy {
    /// The kind that travels as this number.
    fn of_number(number: u32) -> Option<Self>;

    /// The number that it travels as.
    fn number(self) -> u32;

    /// How many bytes may follow its header.
    fn bounds(self) -> RangeInclusive<usize>;
}

/// Most bytes of a head and of a tail.
const HEAD: usize = HEAD_MAX as usize;
const TAIL: usize = TAIL_MAX as usize;

impl FrameKind for ToWorker {
    fn of_number(number: u32) -> Option<Self> {
        Self::try_read_from_bytes(number.as_bytes()).ok()
    }

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
    fn of_number(number: u32) -> Option<Self> {
        Self::try_read_from_bytes(number.as_bytes()).ok()
    }

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

/// How a worker treats connections, and how long parts of a request take at most. Times are in
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WorkerOptions {
    /// Most idle connections.
    pub idle_max: u64,
    /// Most of them to one origin.
    pub idle_per_origin: u64,
    /// How long one may be idle.
    pub idle: u64,
    /// How old one may be when it is used again.
    pub age: u64,
    /// Most for a connection: name, connecting, TLS. Also where a function says nothing.
    pub connect: u64,
    /// Most from then to an answer's head, likewise.
    pub first_byte: u64,
    /// Most from one piece of an answer's body to the next, likewise.
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
            // So that a name's new address is seen at last.
            age: 600 * SECOND,
            connect: 30 * SECOND,
            first_byte: 600 * SECOND,
            between_bytes: 600 * SECOND,
        }
    }
}

impl WorkerOptions {
    /// The times of a request: the function's where it has said any, and these at most.
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
    /// The call that it is of.
    pub call: u64,
    /// What it is.
    pub kind: K,
    /// What it has, within the kind's bounds.
    pub bytes: Bytes,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No kind has that number, in this direction.
    #[error("{0} is no kind of a frame")]
    Kind(u32),
    /// The length is not within the kind's bounds.
    #[error("a frame of kind {0} cannot have {1} bytes")]
    Length(u32, u32),
}

impl<K: FrameKind> Frame<K> {
    /// Takes the first frame from what has been received; `None` while it is not all there.
    ///
    /// # Errors
    /// When no frame begins like that: then nothing behind it can be read either.
    pub fn take(received: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Ok((header, rest)) = FrameHeader::read_from_prefix(received) else {
            return Ok(None);
        };
        let FrameHeader { call, kind, length } = header;
        let bounds = K::of_number(kind).ok_or(FrameError::Kind(kind))?;
        let bytes = usize::try_from(length).map_err(|_| FrameError::Length(kind, length))?;
        if !bounds.bounds().contains(&bytes) {
            return Err(FrameError::Length(kind, length));
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        // A slice would keep all that was received with it for as long as it is kept.
        let copied = rest.get(..bytes).map(Bytes::copy_from_slice);
        received.advance(size_of::<FrameHeader>() + bytes);
        Ok(Some(Self {
            call,
            kind: bounds,
            bytes: copied.unwrap_or_default(),
        }))
    }

    /// How many bytes a frame's credit is of; `None` where it is none.
    #[must_use]
    pub fn credit(&self) -> Option<usize> {
        let credit = u32::read_from_bytes(&self.bytes).ok()?;
        usize::try_from(credit).ok()
    }
}

/// Spells a frame behind what is in `out`. Bytes outside the kind's bounds are the caller's
/// fault, and make a frame that the other side refuses.
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

/// A frame by itself.
#[must_use]
pub fn frame<K: FrameKind>(call: u64, kind: K, bytes: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    put(&mut out, call, kind, bytes);
    out
}

/// The bytes of a credit.
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
    fn a_frame_does_not_keep_what_was_received_with_it() {
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
            let error = FrameError::Length(kind.number(), length);
            assert_eq!(Frame::<FromWorker>::take(&mut received), Err(error));
        }
        let other = FrameHeader {
            call: 1,
            kind: ToWorker::Begin.number(),
            length: 1,
        };
        let mut received = BytesMut::from(other.as_bytes());
        let error = FrameError::Kind(ToWorker::Begin.number());
        assert_eq!(Frame::<FromWorker>::take(&mut received), Err(error));
    }
}
