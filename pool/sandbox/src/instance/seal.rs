//! Making a layer of the pages that an instance changed of its parent.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_seedtree::limits::{OWN_MAX, WINDOWS_MAX};
use faasw_seedtree::{Window, overlay_layer, write_at};
use rustix::io::Errno;

use crate::instance::seed_memory::SeedMemory;
use crate::memory::mapping::Mapping;
use crate::memory::page_map::PageMap;

/// A child takes over its changes in units of so many pages: where changes are dense, the child
/// absorbs the region, so that forks of it map few windows.
const UNIT: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// The number of ranges of its own that is usually enough for a child: each is a mapping of every
/// fork, and splits the mapping behind it in two.
const FEW: usize = 12;

/// Pages whose absorption costs less than more mappings would. A child that would absorb more pages
/// has as many ranges as it may, and no units: a language engine's scripts change single pages all
/// over its memory.
const LITTLE: u64 = 256;

/// Private pages are released in aligned pieces of so many: the kernel frees a large page once all
/// of it was released.
const PIECE: NonZeroU32 = NonZeroU32::new((LARGE_PAGE / PAGE) as u32).unwrap();

/// Returns the pages that a child has of its own, of which `changed` have changed. They make few
/// ranges: together with the `windows` of the parent, no more windows than an instance may have. So
/// any seed can be forked, however deep it is.
fn own(changed: &PageSet, all: PageRange, windows: &[Window]) -> PageSet {
    let absorbed = changed.coalesced(UNIT, FEW).count() - changed.count();
    let (unit, mut most) = if absorbed <= LITTLE {
        (UNIT, FEW)
    } else {
        (NonZeroU32::MIN, OWN_MAX)
    };
    loop {
        let own = changed.coalesced(unit, most).intersection(&all.into());
        if most == 1 || overlay_layer(windows, &own, 0).len() <= WINDOWS_MAX {
            return own;
        }
        most -= 1;
    }
}

/// Writes the pages of `ram` that an instance of `source` has changed, and those between them that
/// join the child's own, to `layer`, each at its own address. Pages of zeroes stay holes. Returns
/// the pages that the child now has of its own. The instance cannot be used afterwards: each page
/// is released once it is written, so that no memory is taken twice.
///
/// # Errors
/// Returns `TOOBIG` if there are too many ranges of private pages; otherwise the error of the page
/// map or of writing.
pub fn write(
    page_map: &PageMap,
    ram: Mapping,
    source: &SeedMemory,
    layer: &OwnedFd,
) -> Result<PageSet, Errno> {
    let private = page_map.all_written(ram)?;
    let own = own(&private, ram.pages(), &source.windows);
    for range in own.iter() {
        for (piece, is_private) in private.cut(range) {
            if is_private {
                take_over(ram, piece, layer)?;
            } else {
                // The parent's own holes stay holes: reading them through the mapping would fill
                // them.
                for page in piece.pages() {
                    put_unless_zero(layer, page, &source.page(page)?)?;
                }
            }
        }
    }
    Ok(own)
}

fn take_over(ram: Mapping, range: PageRange, layer: &OwnedFd) -> Result<(), Errno> {
    let mut rest = range;
    while !rest.is_empty() {
        let behind = PageRange::one(rest.start).widened(PIECE).end;
        let piece = PageRange::new(rest.start, behind.min(rest.end));
        for page in piece.pages() {
            put_unless_zero(layer, page, &ram.page(page)?)?;
        }
        ram.release(piece)?;
        rest.start = piece.end;
    }
    Ok(())
}

fn put_unless_zero(layer: &OwnedFd, page: Page, content: &[u8]) -> Result<(), Errno> {
    if content == [0; PAGE as usize] {
        return Ok(());
    }
    write_at(layer, page.address().get(), content)
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::memory::arena::Arena;
    use crate::memory::guest_memory;

    #[test]
    fn a_chain_of_any_depth_has_as_many_windows_as_there_may_be() {
        let all = PageRange::new(Page::new(0), Page::new(1 << 16));
        let mut windows = vec![Window {
            range: all,
            layer: 0,
        }];
        for layer in 1..16 {
            // Each layer changes other pages, far apart: no layer hides another by chance.
            let changed: PageSet = (0..40)
                .map(|place| Page::new(place * 1600 + layer * 97))
                .map(PageRange::one)
                .collect();
            let own = own(&changed, all, &windows);
            assert_eq!(changed.without(&own), PageSet::new());
            windows = overlay_layer(&windows, &own, layer);
            assert!(windows.len() <= WINDOWS_MAX, "{}", windows.len());
        }
    }

    #[test]
    fn single_pages_far_apart_are_taken_over_alone() {
        let all = PageRange::new(Page::new(0), Page::new(1 << 16));
        let windows = [Window {
            range: all,
            layer: 0,
        }];
        let every = |step: u32, count: u32| -> PageSet {
            (0..count)
                .map(|place| PageRange::one(Page::new(place * step)))
                .collect()
        };
        // Like the pages that a script changes in its engine's memory.
        let scattered = every(200, 40);
        assert_eq!(own(&scattered, all, &windows), scattered);
        // More pages than there may be ranges: the nearest ones are joined.
        let dense_then_scattered = scattered.union(&every(2, 40));
        let taken = own(&dense_then_scattered, all, &windows);
        assert!(taken.ranges().len() <= OWN_MAX);
        assert!(taken.count() <= dense_then_scattered.count() + 40);
        // Pages that lie close are taken over with the pages between them.
        let close = every(3, 40);
        let taken = own(&close, all, &windows);
        assert_eq!(taken.ranges().len(), 1);
    }

    const RAM: u64 = 64 << 20;

    fn file(name: &str) -> OwnedFd {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, RAM).unwrap();
        file
    }

    /// Returns how many pages a file holds.
    fn held(file: &OwnedFd) -> u64 {
        u64::try_from(rustix::fs::fstat(file).unwrap().st_blocks).unwrap() * 512 / PAGE
    }

    fn word(file: &OwnedFd, page: u64) -> u64 {
        let mut word = [0; 8];
        rustix::io::pread(file, &mut word, page * PAGE).unwrap();
        u64::from_le_bytes(word)
    }

    #[test]
    fn written_pages_are_released_and_holes_stay_holes() {
        let [parent, layer] = ["parent", "child"].map(file);
        write_at(&parent, 720 * PAGE, &[7]).unwrap();
        let window = Window {
            range: PageRange::of_bytes(0, 2048 * PAGE),
            layer: 0,
        };
        let source = SeedMemory::new(vec![parent], &[window], PageSet::new());
        let layers = &source.layers;
        let ram = guest_memory::private_ram(&mut Arena::default(), layers, RAM, &source.windows);
        let ram = ram.unwrap();
        // Some pages over the parent's, from within one large page to the next, and some beyond.
        let written = (5..600).chain(760..761).chain(4000..4100);
        for page in written.clone() {
            ram.put(page * PAGE, &[page]).unwrap();
        }
        // Writing over a hole of a file fills the hole.
        assert_eq!(held(&layers[0]), 1 + 595 + 1);
        let map = PageMap::open().unwrap();
        let own = write(&map, ram, &source, &layer).unwrap();
        assert!(
            written
                .clone()
                .all(|page| own.contains(Page::new(page as u32)))
        );
        assert!(written.clone().all(|page| word(&layer, page) == page));
        assert_eq!(map.all_written(ram).unwrap(), PageSet::new());
        // In the gaps, the pages that the parent has.
        let gaps = own.intersection(&PageRange::of_bytes(720 * PAGE, 721 * PAGE).into());
        assert_eq!(held(&layer), written.count() as u64 + gaps.count());
        assert_eq!(held(&layers[0]), 1 + 595 + 1);
    }
}
