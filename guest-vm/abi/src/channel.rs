//! Channels: how bytes pass between node and guest, both ways.
//!
//! A channel is two ring buffers, one to the guest and one to the host. Each of them carries a
//! *message*: a head, a body and a tail, which are consecutive bytes under one counter. The sender
//! of a message writes the words ([`ChannelWords`]) for the length of the head, the progress of the
//! body and the length of the tail. The positions of the rings and the purpose of a channel
//! ([`ChannelKind`]) are constants of this module. The node decides which channels are open, and
//! keeps that in its own memory. So a guest can lie about counters and nothing else. See
//! `docs/decisions/0019-calls-are-channels.md`.
//!
//! Channel 0 is the invocation: its message to the guest is the request, and its message to the
//! host is the response. The tails are trailers.

use core::ops::{Index, IndexMut};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::area::Area;
use crate::ring::RingBuffer;

/// Number of channels of a mailbox.
pub const CHANNELS: usize = 24;

/// Number of channels for requests that a function makes: the maximum that it may have under way at
/// once.
pub const CALLS: usize = 16;

/// Maximum bytes of a head.
pub const HEAD_MAX: u64 = 64 << 10;

/// Maximum bytes of a tail. The body never uses this part of a ring's capacity, so that a tail
/// never waits for space.
pub const TAIL_MAX: u64 = 16 << 10;

/// The ring to the guest of the invocation's channel.
const INVOCATION_TO_GUEST: Area = Area::new(0x4_1000, 1 << 20);

/// The ring to the host of the invocation's channel.
const INVOCATION_TO_HOST: Area = Area::new(0x14_2000, 1 << 20);

/// The rings of all other channels: the end of the mailbox.
pub(crate) const OTHERS: Area = Area::new(0x24_2000, other_offset(CHANNELS as u8));

/// Bytes of each ring of the channels 1 to 23, except the first call.
const OTHER_RING: u64 = 128 << 10;

/// Bytes of each ring of the first call, which functions use that make one call at a time. The
/// larger the part of a response that is present when the guest wakes, the fewer wake-ups it needs.
/// The other rings are smaller because memory that a guest can write counts for each instance.
const FIRST_CALL_RING: u64 = 512 << 10;

/// Number of bytes of the request of a small invocation that lie right before the words. The ring
/// begins there and continues at the start of its area.
const FIRST_TO_GUEST: u64 = 4 << 10;

/// The purpose of a channel, which determines its messages and which side sends first. Like the
/// positions of the rings it is a constant: nothing in a mailbox states it, so nothing can lie
/// about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChannelKind {
    /// A request to the guest, then the response to the host. Their heads are
    /// [`RequestHead`](crate::wire::RequestHead) and
    /// [`ResponseHead`](crate::wire::ResponseHead), their tails trailers.
    Invocation = 0,
    /// Parts of a function besides its code, before any request: a script for its engine, or the
    /// bundle of its files. The head is the length, as a little-endian `u64`. The guest sends no
    /// message back.
    Script = 1,
    /// Records of the store ([`crate::store`]) during an invocation: alternately one of the guest's
    /// and one of the node's. The messages have no head and do not end.
    Store = 2,
    /// The secrets of an invocation, to the guest. The message consists of its head only
    /// ([`crate::secrets`]), which is present before the invocation begins. The guest sends no
    /// message back.
    Secrets = 3,
    /// A request that the function makes, then its response. Their heads are
    /// [`OutgoingHead`](crate::outgoing::OutgoingHead) and [`Answer`](crate::outgoing::Answer),
    /// their tails [`Tail`](crate::outgoing::Tail). This kind has [`CALLS`] channels, each of which
    /// is reused, see [`ChannelWords::turn`].
    Call = 4,
}

impl ChannelKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Invocation,
        Self::Script,
        Self::Store,
        Self::Secrets,
        Self::Call,
    ];

    /// Returns the only channel of this kind, or the first channel of calls.
    #[must_use]
    pub const fn channel(self) -> Channel {
        Channel(self as u8)
    }
}

/// A channel, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel(u8);

impl Channel {
    /// The channel of the invocation.
    pub const INVOCATION: Self = ChannelKind::Invocation.channel();

    /// The channel of a script, or of files.
    pub const SCRIPT: Self = ChannelKind::Script.channel();

    /// The channel of the store.
    pub const STORE: Self = ChannelKind::Store.channel();

    /// The channel of secrets.
    pub const SECRETS: Self = ChannelKind::Secrets.channel();

    /// Returns the channels of calls.
    pub fn calls() -> impl Iterator<Item = Self> {
        let first = ChannelKind::Call as u8;
        (first..first + CALLS as u8).map(Self)
    }

    /// Returns the channel with that number, if it exists.
    #[must_use]
    pub const fn new(number: usize) -> Option<Self> {
        if number < CHANNELS {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Returns the purpose of the channel, or `None` for a channel without a purpose. Such a
    /// channel is never open.
    #[must_use]
    pub const fn kind(self) -> Option<ChannelKind> {
        const CALL: u8 = ChannelKind::Call as u8;
        const LAST_CALL: u8 = CALL + CALLS as u8 - 1;
        match self.0 {
            0 => Some(ChannelKind::Invocation),
            1 => Some(ChannelKind::Script),
            2 => Some(ChannelKind::Store),
            3 => Some(ChannelKind::Secrets),
            CALL..=LAST_CALL => Some(ChannelKind::Call),
            _ => None,
        }
    }

    /// Returns the number of the channel, below [`CHANNELS`].
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// Returns the bit of the channel in [`crate::mailbox::HostWords::open`].
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self.0
    }

    /// Returns the ring to the guest.
    #[must_use]
    pub const fn to_guest(self) -> RingBuffer {
        match self.0 {
            0 => RingBuffer {
                area: INVOCATION_TO_GUEST,
                first: INVOCATION_TO_GUEST.size - FIRST_TO_GUEST,
            },
            number => other_ring(number, 0),
        }
    }

    /// Returns the ring to the host.
    #[must_use]
    pub const fn to_host(self) -> RingBuffer {
        match self.0 {
            0 => RingBuffer {
                area: INVOCATION_TO_HOST,
                first: 0,
            },
            number => other_ring(number, 1),
        }
    }
}

/// Returns the bytes of each ring of a channel other than the invocation.
const fn other_size(number: u8) -> u64 {
    const FIRST_CALL: u8 = ChannelKind::Call as u8;
    match number {
        FIRST_CALL => FIRST_CALL_RING,
        _ => OTHER_RING,
    }
}

/// Returns the bytes of all rings that precede those of a channel other than the invocation.
const fn other_offset(number: u8) -> u64 {
    let (mut before, mut bytes) = (1, 0);
    while before < number {
        bytes += 2 * other_size(before);
        before += 1;
    }
    bytes
}

/// Returns a channel's ring at position `place`: 0 to the guest, 1 to the host.
const fn other_ring(number: u8, place: u64) -> RingBuffer {
    let size = other_size(number);
    RingBuffer {
        area: Area {
            offset: OTHERS.offset + other_offset(number) + place * size,
            size,
        },
        first: 0,
    }
}

/// A table with one item for each channel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct PerChannel<T>(pub [T; CHANNELS]);

#[expect(
    clippy::indexing_slicing,
    reason = "a channel's number is less than CHANNELS"
)]
impl<T> Index<Channel> for PerChannel<T> {
    type Output = T;

    fn index(&self, channel: Channel) -> &T {
        &self.0[channel.number()]
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "a channel's number is less than CHANNELS"
)]
impl<T> IndexMut<Channel> for PerChannel<T> {
    fn index_mut(&mut self, channel: Channel) -> &mut T {
        &mut self.0[channel.number()]
    }
}

/// The words of one side of a channel. Each side has such words, which only it writes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ChannelWords {
    /// Bytes of head and body that this side has put into its ring so far.
    pub written: u64,
    /// Bytes that this side has taken from the other side's ring so far.
    pub read: u64,
    /// Bytes of the head; 0 until all of it is in the ring.
    pub head: u32,
    /// 0 while more of the body may follow. Then one more than the bytes of the tail, which follow
    /// the last byte of the body.
    pub end: u32,
    /// How often the channel was used before, if it is reused. All other words begin at 0 in each
    /// turn. The guest increments this word when it releases the channel, whether or not the
    /// messages are complete, and its other words are 0 after that. The node increments its own
    /// word once it has released the channel, too, and sees these zeroes. A channel is free for the
    /// guest if both sides have the same turn and the node's other words are 0. This word is the
    /// last one: a copy from front to back that includes later writes of a turn also includes the
    /// turn.
    pub turn: u64,
}

impl ChannelWords {
    /// Returns whether no word was written in this turn.
    #[must_use]
    pub const fn is_untouched(&self) -> bool {
        self.written == 0 && self.read == 0 && self.head == 0 && self.end == 0
    }

    /// Returns the bytes of the tail, once the body is complete.
    #[must_use]
    pub const fn tail(&self) -> Option<u32> {
        self.end.checked_sub(1)
    }

    /// Returns [`ChannelWords::end`] for a complete body with a tail of `tail` bytes.
    #[must_use]
    pub const fn end_with(tail: u32) -> u32 {
        tail + 1
    }
}

/// The events that a guest waits for: a set of events of channels, and space in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits(u64);

impl Waits {
    /// Space in the log.
    pub const LOG: Self = Self(1 << (2 * CHANNELS));

    /// Bytes to read on a channel, or the end of the incoming message.
    #[must_use]
    pub const fn bytes(channel: Channel) -> Self {
        Self(1 << (2 * channel.0))
    }

    /// Space to write on a channel.
    #[must_use]
    pub const fn room(channel: Channel) -> Self {
        Self(2 << (2 * channel.0))
    }

    /// Returns the set that a word of the mailbox stands for. Bits without a meaning are events
    /// that never occur.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word of the mailbox that stands for the set.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns all events of a channel.
    #[must_use]
    pub const fn of(channel: Channel) -> Self {
        Self::bytes(channel).and(Self::room(channel))
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the sets have an event in common.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether the set has no events.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{COMMANDS, LOG, MAILBOX_BYTES, REPORT, WORDS};

    fn channels() -> impl Iterator<Item = Channel> {
        (0..CHANNELS).map(|number| Channel::new(number).unwrap())
    }

    #[test]
    fn areas_and_rings_lie_apart_and_fill_the_mailbox() {
        let rings = channels().flat_map(|channel| [channel.to_guest(), channel.to_host()]);
        let mut areas: alloc::vec::Vec<Area> = rings.map(|ring| ring.area).collect();
        areas.extend([REPORT, LOG.area, COMMANDS, WORDS]);
        areas.sort_by_key(|area| area.offset);
        let mut at = 0;
        for area in areas {
            assert_eq!(area.offset, at, "{area:?}");
            assert!(area.size.is_multiple_of(4096), "{area:?}");
            at += area.size;
        }
        assert_eq!(at, MAILBOX_BYTES);
        assert_eq!(Channel::new(CHANNELS), None);
    }

    #[test]
    fn each_kind_has_channels_of_its_own() {
        for kind in ChannelKind::ALL {
            assert_eq!(kind.channel().kind(), Some(kind));
        }
        let with_kind = channels().filter(|channel| channel.kind().is_some());
        assert_eq!(with_kind.count(), ChannelKind::ALL.len() - 1 + CALLS);
        assert!(Channel::calls().all(|channel| channel.kind() == Some(ChannelKind::Call)));
        assert_eq!(Channel::calls().count(), CALLS);
        assert_eq!(Channel::INVOCATION.number(), 0);
    }

    #[test]
    fn every_ring_holds_a_head_and_a_tail_at_once() {
        for channel in channels() {
            for ring in [channel.to_guest(), channel.to_host()] {
                assert!(ring.area.size >= 2 * (HEAD_MAX + TAIL_MAX) - HEAD_MAX);
                assert!(ring.first < ring.area.size);
            }
        }
    }

    #[test]
    fn a_small_invocation_lies_in_three_pages_one_behind_the_other() {
        let [request, none] = Channel::INVOCATION.to_guest().pieces(0, 4096);
        assert_eq!(request.offset + 4096, WORDS.offset);
        assert_eq!((request.length, none.length), (4096, 0));
        let [response, none] = Channel::INVOCATION.to_host().pieces(0, 4096);
        assert_eq!(response.offset, WORDS.offset + WORDS.size);
        assert_eq!((response.length, none.length), (4096, 0));
    }

    #[test]
    fn kinds_of_waiting_are_distinguished() {
        let mut all = alloc::vec![Waits::LOG];
        for channel in channels() {
            all.extend([Waits::bytes(channel), Waits::room(channel)]);
        }
        for (index, one) in all.iter().enumerate() {
            for (other_index, other) in all.iter().enumerate() {
                assert_eq!(one.has(*other), index == other_index);
            }
            assert_eq!(Waits::from_word(one.word()), *one);
        }
    }

    #[test]
    fn a_turn_without_a_message_is_empty() {
        let mut words = ChannelWords {
            turn: 7,
            ..ChannelWords::default()
        };
        assert!(words.is_untouched());
        words.end = 1;
        assert!(!words.is_untouched());
    }

    #[test]
    fn an_end_carries_the_length_of_the_tail() {
        let mut words = ChannelWords::default();
        assert_eq!(words.tail(), None);
        words.end = ChannelWords::end_with(0);
        assert_eq!(words.tail(), Some(0));
        words.end = u32::MAX;
        assert_eq!(words.tail(), Some(u32::MAX - 1));
    }
}
