//! How long this host takes to find an instance's private pages.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::Window;
use faasw_seedtree::limits::SET_MAX;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::memory::arena::Arena;
use crate::memory::guest_memory;
use crate::memory::page_map::PageMap;

/// The size of a guest's memory for the measurement: the default of functions.
const RAM: u64 = 128 << 20;
/// The part of it that is in the seed's layer, about as much as for a small function.
const LAYER: u64 = 12 << 20;
/// Pages that an instance writes, about as many as for a small function.
const WRITTEN: u64 = 40;

/// Measures how long the search for the private pages of a small function's instance takes: the
/// median of 21 runs. Also returns whether the kernel has `PAGEMAP_SCAN`.
///
/// # Errors
/// Returns the kernel's error, such as `ENOENT` if there is no `/proc`.
pub fn search_time() -> Result<(bool, Duration), Errno> {
    const ROUNDS: usize = 21;
    let layer: OwnedFd = rustix::fs::memfd_create("faasw-trial", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&layer, LAYER)?;
    let window = Window {
        range: PageRange::of_bytes(0, LAYER),
        layer: 0,
    };
    let mut arena = Arena::default();
    // SAFETY: no VM has this memory, and nothing uses it after this function.
    unsafe { arena.release_at_end() };
    let ram = guest_memory::private_ram(&mut arena, &[layer], RAM, &[window])?;
    let mut written = PageSet::new();
    for index in 0..WRITTEN {
        let page = index * (LAYER / PAGE / WRITTEN) * PAGE;
        written.push(PageRange::of_bytes(page, page + PAGE));
    }
    guest_memory::make_private(ram, &written);
    let map = PageMap::open()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for mut rest in map.where_private(ram, &[window])?.iter() {
            while !rest.is_empty() {
                let mut ranges = [PageRange::default(); SET_MAX];
                let (_, next) = map.written(ram, rest, &mut ranges)?;
                if next <= rest.start {
                    return Err(Errno::IO);
                }
                rest.start = next;
            }
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let median = times.get(ROUNDS / 2).copied().unwrap_or_default();
    Ok((map.scans(), median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_for_private_pages_is_timed() {
        let (_, time) = search_time().unwrap();
        assert!(time > Duration::ZERO);
    }
}
