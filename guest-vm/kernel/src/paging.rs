//! Page tables of the virtual space for linear memories.
//!
//! The host makes the tables below [`LINEAR_BASE`]. The tables above are made here, from privilege
//! level 3, by ordinary writes to memory. Whole 2 MiB ranges are mapped by large pages while RAM
//! allows it, so that growing a memory costs one entry for each 2 MiB and no exit to the host.

use core::ptr;

use faasw_abi::memory_map::pte::{self, ADDRESS, LARGE, NO_EXECUTE, PRESENT, TABLE, WRITABLE};
use faasw_abi::memory_map::{LARGE_PAGE, LINEAR_BASE, PAGE, PML4};

use crate::frames::{self, Frame};
use crate::host;
use crate::single::Single;
use crate::trap::flush_tlb;

/// Number of new pages from which on the host is requested to populate them at once: an exit costs
/// as much as a few faults.
const MANY: u64 = 64;

/// RAM is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfFrames;

/// The permitted accesses to a range of memory. Nothing here is ever executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The no-execute bit if the host's EFER.NXE makes it valid, else 0.
static NO_EXECUTE_BIT: Single<u64> = Single::new(0);

/// Decides whether entries carry the no-execute bit.
pub fn init(no_execute: bool) {
    // SAFETY: the closure stores a number.
    unsafe { NO_EXECUTE_BIT.with(|bit| *bit = if no_execute { NO_EXECUTE } else { 0 }) }
}

fn leaf(access: Access) -> u64 {
    // SAFETY: the closure copies a number.
    let no_execute = unsafe { NO_EXECUTE_BIT.with(|bit| *bit) };
    no_execute
        | match access {
            Access::Read => pte::READ,
            Access::ReadWrite => pte::READ_WRITE,
        }
}

/// An entry of one of this guest's page tables.
#[derive(Clone, Copy)]
struct Entry(*mut u64);

impl Entry {
    /// Returns the entry of `table` for `address` at the level whose entries span `1 << shift`
    /// bytes.
    fn of(table: u64, address: u64, shift: u32) -> Self {
        let offset = ((address >> shift) & 511) * 8;
        Self(ptr::with_exposed_provenance_mut((table + offset) as usize))
    }

    fn get(self) -> u64 {
        // SAFETY: only tables made by the host or here are walked, all mapped one to one.
        unsafe { ptr::read_volatile(self.0) }
    }

    fn set(self, value: u64) {
        // SAFETY: as above; the mapping that the entry changes is the caller's own.
        unsafe { ptr::write_volatile(self.0, value) }
    }

    /// Returns the table that the entry points to, and makes it if it is missing.
    fn table(self) -> Result<u64, OutOfFrames> {
        let now = self.get();
        if now & PRESENT != 0 {
            return Ok(now & ADDRESS);
        }
        let table = frames::table().ok_or(OutOfFrames)?.address();
        self.set(table | TABLE);
        Ok(table)
    }
}

/// Returns the page-directory entry for `address`, and makes the tables above it.
fn directory_entry(address: u64) -> Result<Entry, OutOfFrames> {
    let directories = Entry::of(PML4, address, 39).table()?;
    let directory = Entry::of(directories, address, 30).table()?;
    Ok(Entry::of(directory, address, 21))
}

/// Returns the page-directory entry for `address` if the tables above it exist.
fn existing_directory_entry(address: u64) -> Option<Entry> {
    let top = Entry::of(PML4, address, 39).get();
    if top & PRESENT == 0 {
        return None;
    }
    let next = Entry::of(top & ADDRESS, address, 30).get();
    if next & PRESENT == 0 {
        return None;
    }
    Some(Entry::of(next & ADDRESS, address, 21))
}

/// Returns the first address after the 2 MiB page that contains `address`.
fn next_large(address: u64) -> u64 {
    (address & !(LARGE_PAGE - 1)) + LARGE_PAGE
}

/// Replaces a large mapping by 512 small ones of the same memory.
fn split(entry: Entry) -> Result<u64, OutOfFrames> {
    let large = entry.get();
    let table = frames::table().ok_or(OutOfFrames)?.address();
    let bits = large & !(ADDRESS | LARGE);
    for index in 0..512 {
        Entry::of(table, index * PAGE, 12).set(((large & ADDRESS) + index * PAGE) | bits);
    }
    entry.set(table | TABLE);
    Ok(table)
}

/// Makes `start..end` usable with `access`, with zeroed memory for pages that had none. Both bounds
/// are page-aligned and above [`LINEAR_BASE`].
///
/// # Errors
/// Returns [`OutOfFrames`] if RAM is used up. Pages that were mapped until then stay mapped.
pub fn commit(start: u64, end: u64, access: Access) -> Result<(), OutOfFrames> {
    let bits = leaf(access);
    let mut stale = false;
    let mut at = start;
    while at < end {
        let entry = directory_entry(at)?;
        let stop = next_large(at).min(end);
        let whole = at.is_multiple_of(LARGE_PAGE) && stop - at == LARGE_PAGE;
        let now = entry.get();
        if whole
            && now == 0
            && let Some(frame) = frames::large()
        {
            entry.set(frame.address() | bits | LARGE);
            at = stop;
            continue;
        }
        if now & LARGE != 0 {
            if now & !ADDRESS == bits | LARGE {
                at = stop;
                continue;
            }
            stale = true;
            if whole {
                entry.set(now & ADDRESS | bits | LARGE);
                at = stop;
                continue;
            }
            split(entry)?;
        }
        let table = entry.table()?;
        let wanted = (stop - at) / PAGE;
        if wanted >= MANY
            && Entry::of(table, at, 12).get() & PRESENT == 0
            && let Some(start) = frames::next_small(wanted)
        {
            host::populate(start, wanted * PAGE);
        }
        while at < stop {
            let entry = Entry::of(table, at, 12);
            let now = entry.get();
            let frame = if now & PRESENT == 0 {
                frames::small().ok_or(OutOfFrames)?.address()
            } else {
                // An added right needs no flush: a stale entry faults once and is looked up again.
                stale |= now & WRITABLE != 0 && bits & WRITABLE == 0;
                now & ADDRESS
            };
            entry.set(frame | bits);
            at += PAGE;
        }
    }
    if stale {
        flush_tlb();
    }
    Ok(())
}

/// Unmaps `start..end` and frees its frames.
///
/// # Errors
/// Returns [`OutOfFrames`] if a large page had to be split and there was no frame for the table.
/// The rest of the range is left unchanged.
pub fn release(start: u64, end: u64) -> Result<(), OutOfFrames> {
    let mut stale = false;
    let mut at = start;
    while at < end {
        let stop = next_large(at).min(end);
        let Some(entry) = existing_directory_entry(at) else {
            at = stop;
            continue;
        };
        let now = entry.get();
        if now & PRESENT == 0 {
            at = stop;
            continue;
        }
        stale = true;
        if now & LARGE != 0 {
            if at.is_multiple_of(LARGE_PAGE) && stop - at == LARGE_PAGE {
                entry.set(0);
                frames::free_large(Frame::at(now & ADDRESS));
                at = stop;
                continue;
            }
            split(entry)?;
        }
        let table = entry.get() & ADDRESS;
        while at < stop {
            let entry = Entry::of(table, at, 12);
            let now = entry.get();
            if now & PRESENT != 0 {
                entry.set(0);
                frames::free_small(Frame::at(now & ADDRESS));
            }
            at += PAGE;
        }
    }
    if stale {
        flush_tlb();
    }
    Ok(())
}

/// The next virtual address to reserve.
static NEXT: Single<u64> = Single::new(LINEAR_BASE);

/// End of the virtual addresses (exclusive): the lower half of the canonical space ends here.
const LINEAR_END: u64 = 1 << 47;

/// Reserves `bytes` of virtual space, aligned to a large page, with nothing mapped in it or right
/// after it. Space is never reserved twice: it is far larger than the need of one request.
pub fn reserve(bytes: u64) -> Option<u64> {
    // SAFETY: the closure computes.
    unsafe {
        NEXT.with(|next| {
            let start = *next;
            let end = start
                .checked_add(bytes)?
                .checked_next_multiple_of(LARGE_PAGE)?
                .checked_add(LARGE_PAGE)?;
            if end > LINEAR_END {
                return None;
            }
            *next = end;
            Some(start)
        })
    }
}
