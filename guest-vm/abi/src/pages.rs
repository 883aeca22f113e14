//! Pages of guest-physical memory: addresses, pages, ranges and sets of them.
//!
//! All code on both sides of the VM boundary and between processes uses these types. Pages are
//! numbers of 32 bits (16 TiB, while a guest has at most some GiB). So a range cannot be
//! misaligned, and the address of a page cannot overflow. A range from another side may be empty,
//! reversed, out of order or beyond a guest's memory, and nothing else.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::memory_map::PAGE;

/// A guest-physical address, in bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct GuestAddress(u64);

impl GuestAddress {
    /// Returns the address of a byte.
    #[must_use]
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// Returns the number of the address.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the page that contains the address; `None` if the page's number exceeds 32 bits.
    #[must_use]
    pub fn page(self) -> Option<Page> {
        u32::try_from(self.0 / PAGE).ok().map(Page)
    }
}

/// A page of guest-physical memory.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct Page(u32);

impl Page {
    /// Returns the page with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the page.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the address of the page's first byte.
    #[must_use]
    pub const fn address(self) -> GuestAddress {
        GuestAddress(self.0 as u64 * PAGE)
    }

    /// Returns the next page, or this page if it is the last.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A range of pages. It is empty unless the end is behind the start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PageRange {
    /// First page.
    pub start: Page,
    /// The page after the last one.
    pub end: Page,
}

impl PageRange {
    /// All pages that have a number, except the last one.
    pub const ALL: Self = Self {
        start: Page(0),
        end: Page(u32::MAX),
    };

    /// Returns the range from `start` to `end`, excluding `end`.
    #[must_use]
    pub const fn new(start: Page, end: Page) -> Self {
        Self { start, end }
    }

    /// Returns the range from one byte to another, both of which must begin a page.
    ///
    /// # Panics
    /// Panics if one does not begin a page, or is beyond the last page. Use it for constants and
    /// checked values.
    #[must_use]
    pub const fn of_bytes(start: u64, end: u64) -> Self {
        assert!(start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE));
        assert!(start / PAGE <= u32::MAX as u64 && end / PAGE <= u32::MAX as u64);
        Self {
            start: Page((start / PAGE) as u32),
            end: Page((end / PAGE) as u32),
        }
    }

    /// Returns the pages that contain any of these bytes, as far as pages have numbers.
    #[must_use]
    pub fn around(start: u64, end: u64) -> Self {
        let number = |page: u64| Page(u32::try_from(page).unwrap_or(u32::MAX));
        Self {
            start: number(start / PAGE),
            end: number(end.div_ceil(PAGE)),
        }
    }

    /// Returns a range of one page.
    #[must_use]
    pub const fn one(page: Page) -> Self {
        Self {
            start: page,
            end: page.next(),
        }
    }

    /// Returns whether the range is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Returns the number of pages.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.end.0.saturating_sub(self.start.0) as u64
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.count() * PAGE
    }

    /// Returns whether the range contains this page.
    #[must_use]
    pub fn contains(self, page: Page) -> bool {
        self.start <= page && page < self.end
    }

    /// Returns whether the range contains all of `other`.
    #[must_use]
    pub fn holds(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// Returns the pages that both ranges contain; perhaps none.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }

    /// Splits the range behind its first `count` pages, or behind all of them if it has fewer.
    #[must_use]
    pub fn split_at(self, count: u32) -> (Self, Self) {
        let at = self.start.0.saturating_add(count).min(self.end.0);
        let at = Page(at.max(self.start.0));
        (Self::new(self.start, at), Self::new(at, self.end))
    }

    /// Returns an iterator over the pages.
    pub fn pages(self) -> impl DoubleEndedIterator<Item = Page> + use<> {
        (self.start.0..self.end.0).map(Page)
    }

    /// Returns the range, widened to whole units of `unit` pages.
    #[must_use]
    pub fn widened(self, unit: NonZeroU32) -> Self {
        let unit = unit.get();
        Self {
            start: Page(self.start.0 - self.start.0 % unit),
            end: Page(
                self.end
                    .0
                    .checked_next_multiple_of(unit)
                    .unwrap_or(u32::MAX),
            ),
        }
    }
}

/// A set of pages, as ordered ranges that neither touch nor are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PageSet(Vec<PageRange>);

impl PageSet {
    /// Returns an empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the valid prefix of ranges from an untrusted source: those at the start that are in
    /// order, not empty, and within `within`. The first invalid range and all that follow it are
    /// dropped.
    #[must_use]
    pub fn from_reported_clipped(reported: &[PageRange], within: PageRange) -> Self {
        let mut set = Self::new();
        let mut end = within.start;
        for range in reported {
            if range.is_empty() || range.start < end || !within.holds(*range) {
                break;
            }
            end = range.end;
            set.push(*range);
        }
        set
    }

    /// Returns the ranges from an untrusted source as a set, if all of them are valid.
    #[must_use]
    pub fn from_reported(reported: &[PageRange], within: PageRange) -> Option<Self> {
        let set = Self::from_reported_clipped(reported, within);
        let all: u64 = reported.iter().map(|range| range.count()).sum();
        let has_empty = reported.iter().any(|range| range.is_empty());
        (!has_empty && set.count() == all).then_some(set)
    }

    /// Returns the ranges, in order.
    #[must_use]
    pub fn ranges(&self) -> &[PageRange] {
        &self.0
    }

    /// Returns an iterator over the ranges, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = PageRange> + '_ {
        self.0.iter().copied()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iter().map(PageRange::count).sum()
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count() * PAGE
    }

    /// Adds pages; without a search if they are behind all others.
    pub fn push(&mut self, range: PageRange) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if range.start < last.start => {
                *self = self.union(&Self::from(range));
            }
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.0.push(range),
        }
    }

    /// Returns whether the set contains this page.
    #[must_use]
    pub fn contains(&self, page: Page) -> bool {
        let range = self.0.get(self.first_behind(page));
        range.is_some_and(|range| range.contains(page))
    }

    /// Returns the first ranges, those with the lowest addresses, with at most `most` pages in all:
    /// whole ranges only.
    #[must_use]
    pub fn first_ranges(&self, most: u64) -> Self {
        let mut pages = 0;
        let fits = |range: &&PageRange| {
            pages += range.count();
            pages <= most
        };
        Self(self.0.iter().take_while(fits).copied().collect())
    }

    /// Returns the first page of the set in a range.
    #[must_use]
    pub fn first_in(&self, range: PageRange) -> Option<Page> {
        let next = self.0.get(self.first_behind(range.start))?;
        let both = next.intersection(range);
        (!both.is_empty()).then_some(both.start)
    }

    /// Returns the index of the first range that ends behind `page`.
    fn first_behind(&self, page: Page) -> usize {
        self.0.partition_point(|range| range.end <= page)
    }

    /// Cuts `range` into pieces that are wholly in the set or wholly out of it, in order. Each
    /// piece comes with whether it is in the set.
    pub fn cut(&self, range: PageRange) -> impl Iterator<Item = (PageRange, bool)> + use<'_> {
        let mut at = range.start;
        let mut ahead = self.0.iter().skip(self.first_behind(at)).peekable();
        core::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (end, is_in) = match ahead.peek() {
                Some(next) if next.start <= at => {
                    let end = next.end;
                    ahead.next();
                    (end, true)
                }
                Some(next) => (next.start, false),
                None => (range.end, false),
            };
            let piece = PageRange::new(at, end.min(range.end));
            at = piece.end;
            Some((piece, is_in))
        })
    }

    /// Returns the pages of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Returns the pages of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.pieces(other, true)
    }

    /// Returns the pages that `other` does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.pieces(other, false)
    }

    fn pieces(&self, other: &Self, wanted: bool) -> Self {
        let pieces = self.iter().flat_map(|range| other.cut(range));
        pieces
            .filter(|(_, is_in)| *is_in == wanted)
            .map(|(piece, _)| piece)
            .collect()
    }

    /// Returns the set widened to whole units of `unit` pages, with the nearest ranges joined until
    /// at most `most` are left (at least one).
    ///
    /// A range costs an instance a mapping. A page that is not needed costs nothing but the chance
    /// to be a hole. So few and wide ranges are better.
    #[must_use]
    pub fn coalesced(&self, unit: NonZeroU32, most: usize) -> Self {
        let Self(ranges) = self.iter().map(|range| range.widened(unit)).collect();
        let Some(last) = ranges.len().checked_sub(most.max(1) + 1) else {
            return Self(ranges);
        };
        // Joining two ranges leaves the other gaps as they are, so the smallest gaps can be
        // selected once, which matters because a guest decides how many there are. Of equal gaps
        // the first is joined.
        let gap = |left: &PageRange, right: &PageRange| right.start.0.saturating_sub(left.end.0);
        let pairs = ranges.iter().zip(ranges.iter().skip(1)).zip(1_usize..);
        let mut gaps: Vec<(u32, usize)> = pairs
            .map(|((left, right), place)| (gap(left, right), place))
            .collect();
        let (_, largest_joined, _) = gaps.select_nth_unstable(last);
        let largest_joined = *largest_joined;
        let mut joined: Vec<PageRange> = Vec::new();
        for (place, range) in ranges.into_iter().enumerate() {
            match joined.last_mut() {
                Some(left) if (gap(left, &range), place) <= largest_joined => left.end = range.end,
                _ => joined.push(range),
            }
        }
        Self(joined)
    }
}

impl From<PageRange> for PageSet {
    fn from(range: PageRange) -> Self {
        let mut set = Self::new();
        set.push(range);
        set
    }
}

/// Collects ranges in any order, overlapping or not.
impl FromIterator<PageRange> for PageSet {
    fn from_iter<I: IntoIterator<Item = PageRange>>(ranges: I) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut set = Self::new();
        for range in ranges {
            set.push(range);
        }
        set
    }
}

/// Space for ranges in a message: those before the first empty one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Ranges<const MOST: usize>([PageRange; MOST]);

impl<const MOST: usize> Ranges<MOST> {
    /// Returns the ranges of a set, the nearest ones joined if there is no space for all.
    #[must_use]
    pub fn covering(set: &PageSet) -> Self {
        let fitting;
        let set = if set.0.len() > MOST {
            fitting = set.coalesced(NonZeroU32::MIN, MOST);
            &fitting
        } else {
            set
        };
        let mut reported = Self::default();
        for (slot, range) in reported.0.iter_mut().zip(set.iter()) {
            *slot = range;
        }
        reported
    }

    /// Returns the ranges of a set, if there is space for all.
    #[must_use]
    pub fn of(set: &PageSet) -> Option<Self> {
        (set.0.len() <= MOST).then(|| Self::covering(set))
    }

    /// Returns the ranges of the message, unchecked.
    #[must_use]
    pub fn as_slice(&self) -> &[PageRange] {
        let count = self.0.iter().take_while(|range| !range.is_empty()).count();
        self.0.get(..count).unwrap_or_default()
    }
}

impl<const MOST: usize> Default for Ranges<MOST> {
    fn default() -> Self {
        Self([PageRange::default(); MOST])
    }
}
