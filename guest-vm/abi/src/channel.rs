//! Channels: how bytes pass between node and guest, both ways.
//!
//! A channel is two ring buffers, one to the guest and one to the host. What passes through one of
//! them is a *message*: a head, a body and a tail, one behind the other as bytes of one count. How
//! long the head is, how far the body has come and how long the tail is are words of whoever writes
//! them ([`ChannelWords`]); where the rings lie and what a channel is for ([`ChannelKind`]) are
//! constants of this module. Which channels are open is the node's to say, and it keeps that in its
//! own memory. So a guest can lie about counters and nothing else. See
//! `docs/decisions/0019-calls-are-channels.md`.
//!
//! Channel 0 is the invocation: its message to the guest is the request, that to the host
//! the response. A tail are trailers.

use core::ops::{Index, IndexMut};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::area::Area;
use crate::ring::RingBuffer;

/// How many channels a mailbox has.
pub const CHANNELS: usize = 24;

/// How many of them are for requests that a function makes: as many as it may have under way at
/// once.
pub const CALLS: usize = 16;

/// Most bytes of a head.
pub const HEAD_MAX: u64 = 64 << 10;

/// Most bytes of a tail. So much of a ring is kept free of the body, so that a tail never
/// waits for room.
pub const TAIL_MAX: u64 = 16 << 10;

/// What comes to the guest on the channel of the invocation.
const INVOCATION_TO_GUEST: Area = Area::new(0x4_1000, 1 << 20);

/// What comes to the host on the channel of the invocation.
const INVOCATION_TO_HOST: Area = Area::new(0x14_2000, 1 << 20);

/// The rings of all other channels: the end of the mailbox.
pub(crate) const OTHERS: Area = Area::new(0x24_2000, other_offset(CHANNELS as u8));

/// Bytes of each ring of channels other than the invocation.
const OTHER_RING: u64 = 128 << 10;

/// Bytes of each ring of the first call, which is that of a function that makes one at a time: the
/// more of an answer is there when its guest is woken, the fewer times it is. The others have less,
/// for what a guest can write to counts for each instance.
const FIRST_CALL_RING: u64 = 512 << 10;

/// How many bytes of a small invocation's request lie right before the words. The ring
/// begins there, and goes on at its area's start.
const FIRST_TO_GUEST: u64 = 4 << 10;

/// What a channel is for: what its messages are, and who speaks first. Like the places of its
/// rings it is a constant: nothing in a mailbox says it, so nothing can lie about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChannelKind {
    /// A request to the guest, then the response to the host. Their heads are
    /// [`RequestHead`](crate::wire::RequestHead) and
    /// [`ResponseHead`](crate::wire::ResponseHead), their tails trailers.
    Invocation = 0,
    /// What a function is made of beside its code, before any request: a script to its engine, or
    /// the bundle of a function's files. The head is its length, as a little-endian `u64`; nothing
    /// comes back.
    Script = 1,
    /// Records of the store ([`crate::store`]), for as long as an invocation lasts: one of the
    /// guest's, then one of the node's. Neither message has a head, and neither ends.
    Store = 2,
    /// The secrets of an invocation, to the guest: all of the message is its head
    /// ([`crate::secrets`]), which is there before the invocation begins; nothing comes back.
    Secrets = 3,
    /// A request that the function makes, then its response. Their heads are
    /// [`OutgoingHead`](crate::outgoing::OutgoingHead) and [`Answer`](crate::outgoing::Answer),
    /// their tails [`Tail`](crate::outgoing::Tail). It has [`CALLS`] channels, each of which is
    /// used again, see [`ChannelWords::turn`].
    Call = 4,
}

impl ChannelKind {
    /// All there are.
    pub const ALL: [Self; 5] = [
        Self::Invocation,
        Self::Script,
        Self::Store,
        Self::Secrets,
        Self::Call,
    ];

    /// The one channel of this kind; of calls the first.
    #[must_use]
    pub const fn channel(self) -> Channel {
        Channel(self as u8)
    }
}

/// A channel, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel(u8);

impl Channel {
    /// That of the invocation.
    pub const INVOCATION: Self = ChannelKind::Invocation.channel();

    /// That of a script, or of files.
    pub const SCRIPT: Self = ChannelKind::Script.channel();

    /// That of the store.
    pub const STORE: Self = ChannelKind::Store.channel();

    /// That of secrets.
    pub const SECRETS: Self = ChannelKind::Secrets.channel();

    /// Those of calls.
    pub fn calls() -> impl Iterator<Item = Self> {
        let first = ChannelKind::Call as u8;
        (first..first + CALLS as u8).map(Self)
    }

    /// The channel of that number, if there is one.
    #[must_use]
    pub const fn new(number: usize) -> Option<Self> {
        if number < CHANNELS {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// What it is for; none where nothing is yet. Such a channel is never open.
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

    /// Its number, below [`CHANNELS`].
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// Its bit among those that are open.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self.0
    }

    /// Where its bytes to the guest are.
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

    /// Where its bytes to the host are.
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

/// Bytes of each ring of a channel other than the invocation.
const fn other_size(number: u8) -> u64 {
    const FIRST_CALL: u8 = ChannelKind::Call as u8;
    match number {
        FIRST_CALL => FIRST_CALL_RING,
        _ => OTHER_RING,
    }
}

/// Bytes of the rings before those of a channel other than the invocation.
const fn other_offset(number: u8) -> u64 {
    let (mut before, mut bytes) = (1, 0);
    while before < number {
        bytes += 2 * other_size(before);
        before += 1;
    }
    bytes
}

/// The ring of that place among a channel's.
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

/// One of something for each channel.
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

/// What one side says of a channel. Each side has a set of them, which only it writes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ChannelWords {
    /// Bytes of head and body that it ever put into its ring.
    pub written: u64,
    /// Bytes that it ever took from the other's ring.
    pub read: u64,
    /// Bytes of its head; 0 until all of it is in the ring.
    pub head: u32,
    /// 0 while more of the body may come. Then one more than the bytes of the tail, which
    /// lie behind the last of the body.
    pub end: u32,
    /// How often the channel was used before, where it is used again: all other words begin at 0
    /// with each turn. The guest counts up when it lets go of what passes, whole or not, and has
    /// its other words 0 after that; the node counts up when it has let go, too, and sees these
    /// zeroes. A channel is free for the guest where both say the same turn and the node's other
    /// words are 0. The last word: a copy from front to back that has what was written after a turn
    /// has the turn.
    pub turn: u64,
}

impl ChannelWords {
    /// Whether nothing was said in this turn.
    #[must_use]
    pub const fn is_untouched(&self) -> bool {
        self.written == 0 && self.read == 0 && self.head == 0 && self.end == 0
    }

    /// The bytes of the tail, once the body is whole.
    #[must_use]
    pub const fn tail(&self) -> Option<u32> {
        self.end.checked_sub(1)
    }

    /// What [`ChannelWords::end`] says of a whole body with a tail of so many bytes.
    #[must_use]
    pub const fn end_with(tail: u32) -> u32 {
        tail + 1
    }
}

/// What a guest waits for: a set of events of channels, and room in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits(u64);

impl Waits {
    /// Room in the log.
    pub const LOG: Self = Self(1 << (2 * CHANNELS));

    /// Bytes to read on a channel, or the end of what comes.
    #[must_use]
    pub const fn bytes(channel: Channel) -> Self {
        Self(1 << (2 * channel.0))
    }

    /// Room to write on a channel.
    #[must_use]
    pub const fn room(channel: Channel) -> Self {
        Self(2 << (2 * channel.0))
    }

    /// The set that a word of the mailbox stands for. Bits without a meaning are nothing
    /// that ever happens.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The word of the mailbox that stands for it.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All events of a channel.
    #[must_use]
    pub const fn of(channel: Channel) -> Self {
        Self::bytes(channel).and(Self::room(channel))
    }

    /// What is in both.
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether any of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing is waited for.
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
    fn what_is_waited_for_is_told_apart() {
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
    fn a_turn_alone_is_nothing_that_was_said_in_it() {
        let mut words = ChannelWords {
            turn: 7,
            ..ChannelWords::default()
        };
        assert!(words.is_untouched());
        words.end = 1;
        assert!(!words.is_untouched());
    }

    #[test]
    fn an_end_says_how_long_the_tail_is() {
        let mut words = ChannelWords::default();
        assert_eq!(words.tail(), None);
        words.end = ChannelWords::end_with(0);
        assert_eq!(words.tail(), Some(0));
        words.end = u32::MAX;
        assert_eq!(words.tail(), Some(u32::MAX - 1));
    }
}
