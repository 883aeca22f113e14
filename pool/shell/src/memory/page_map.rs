//! Which pages of its memory an instance has used, from the kernel's page tables:
//! the guest is not asked.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{GuestAddress, Page, PageRange, PageSet};
use faasw_seedtree::limits::SET_MAX;
use rustix::io::Errno;
use vmm_sys_util::ioctl::{_IOC_READ, _IOC_WRITE, ioctl_expr};

use crate::memory::mapping::Mapping;

/// `struct pm_scan_arg` (Documentation/admin-guide/mm/pagemap.rst), which the
/// headers of older systems lack.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The number of the call (`linux/fs.h`).
pub(crate) const PAGEMAP_SCAN: u32 = ioctl_expr(
    _IOC_READ | _IOC_WRITE,
    b'f' as u32,
    16,
    size_of::<Scan>() as u32,
) as u32;
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO_PAGE: u64 = 1 << 5;

/// An entry of `/proc/PID/pagemap`, one a page, for systems without the call.
const ENTRY_BYTES: usize = 8;
const ENTRY_FILE: u64 = 1 << 61;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_PRESENT: u64 = 1 << 63;
/// Entries that are read at once.
const ENTRIES: u32 = 1024;

/// Which pages are asked for.
#[derive(Clone, Copy)]
enum Wanted {
    /// Of this process alone. Where entries are read, pages of zeroes are among
    /// them: too many, which is no harm.
    Private,
    /// Mapped, and still the file's.
    Shared,
}

impl Wanted {
    fn categories(self) -> Scan {
        match self {
            // Neither of a file nor the page of zeroes, and there or swapped out.
            Self::Private => Scan {
                inverted: FILE | ZERO_PAGE,
                all_of: FILE | ZERO_PAGE,
                any_of: PRESENT | SWAPPED,
                ..Scan::default()
            },
            Self::Shared => Scan {
                all_of: FILE | PRESENT,
                ..Scan::default()
            },
        }
    }

    fn is(self, entry: u64) -> bool {
        match self {
            Self::Private => {
                entry & ENTRY_FILE == 0 && entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0
            }
            Self::Shared => entry & ENTRY_FILE != 0 && entry & ENTRY_PRESENT != 0,
        }
    }
}

impl AsRawFd for PageMap {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The way to ask; opened while the process may still look at itself.
pub struct PageMap(File);

impl PageMap {
    /// Opens this process's.
    ///
    /// # Errors
    /// The system's, as where there is no `/proc`.
    pub fn open() -> Result<Self, Errno> {
        File::open("/proc/self/pagemap")
            .map(Self)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))
    }

    /// Whether the system answers `PAGEMAP_SCAN`.
    pub fn scans(&self) -> bool {
        let mut nothing = Scan {
            size: size_of::<Scan>() as u64,
            ..Scan::default()
        };
        // SAFETY: the structure is as the kernel has it; no page is looked at.
        unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                PAGEMAP_SCAN as libc::Ioctl,
                &raw mut nothing,
            ) >= 0
        }
    }

    /// The pages of `ram` from `from` on that are private to this process, in order: how
    /// many ranges, and where the next call goes on; its end when all were told.
    ///
    /// # Errors
    /// The system's.
    pub fn written(
        &self,
        ram: Mapping,
        from: Page,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        self.find(Wanted::Private, ram, from, out)
    }

    /// All pages of `ram` that are private to this process.
    ///
    /// # Errors
    /// As [`PageMap::written`].
    pub fn all_written(&self, ram: Mapping) -> Result<PageSet, Errno> {
        all(ram, |from, out| self.written(ram, from, out))
    }

    /// All pages of `ram` that are mapped and still the file's.
    ///
    /// # Errors
    /// As [`PageMap::written`].
    pub fn all_read(&self, ram: Mapping) -> Result<PageSet, Errno> {
        all(ram, |from, out| self.find(Wanted::Shared, ram, from, out))
    }

    fn find(
        &self,
        wanted: Wanted,
        ram: Mapping,
        from: Page,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        match self.scan(wanted, ram, from, out) {
            // Before Linux 6.7 there is no such call.
            Err(Errno::NOTTY) => self.read(wanted, ram, from, out),
            found => found,
        }
    }

    /// The same by reading an entry for each page: a hundred times slower.
    fn read(
        &self,
        wanted: Wanted,
        ram: Mapping,
        from: Page,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        let mut entries = [0; ENTRIES as usize * ENTRY_BYTES];
        let mut count = 0_usize;
        let mut rest = PageRange::new(from, ram.pages().end);
        while !rest.is_empty() {
            let (here, behind) = rest.split_at(ENTRIES);
            let (part, _) = entries.split_at_mut(here.count() as usize * ENTRY_BYTES);
            let first = ram.address() / PAGE + u64::from(here.start.number());
            let place = first * ENTRY_BYTES as u64;
            self.0
                .read_exact_at(part, place)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            for (page, entry) in here.pages().zip(part.as_chunks::<ENTRY_BYTES>().0) {
                if !wanted.is(u64::from_ne_bytes(*entry)) {
                    continue;
                }
                let last = count.checked_sub(1).and_then(|last| out.get_mut(last));
                match last {
                    Some(last) if last.end == page => last.end = page.next(),
                    _ => {
                        let Some(slot) = out.get_mut(count) else {
                            return Ok((count, page));
                        };
                        *slot = PageRange::one(page);
                        count += 1;
                    }
                }
            }
            rest = behind;
        }
        Ok((count, rest.start))
    }

    fn scan(
        &self,
        wanted: Wanted,
        ram: Mapping,
        from: Page,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        let mut regions = [Region::default(); SET_MAX];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: ram.address() + from.address().get().min(ram.bytes()),
            end: ram.address() + ram.bytes(),
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            region_count: SET_MAX as u64,
            ..wanted.categories()
        };
        // SAFETY: the structure is as the kernel has it, and has room for as
        // many regions as it says.
        let found = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                PAGEMAP_SCAN as libc::Ioctl,
                &raw mut scan,
            )
        };
        let found = usize::try_from(found).map_err(|_| {
            Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
        })?;
        let found = found.min(SET_MAX);
        let page = |address: u64| {
            let inside = GuestAddress::new(address.saturating_sub(ram.address()));
            inside.page().ok_or(Errno::IO)
        };
        for (to, from) in out.iter_mut().zip(&regions).take(found) {
            *to = PageRange::new(page(from.start)?, page(from.end)?);
        }
        Ok((found, page(scan.walk_end)?))
    }
}

/// Most ranges that are kept at once: a guest decides how many there are.
const RANGES_MAX: usize = 1 << 16;

/// Asks until everything was told; `TOOBIG` when there are more than
/// [`RANGES_MAX`].
fn all(
    ram: Mapping,
    ask: impl Fn(Page, &mut [PageRange; SET_MAX]) -> Result<(usize, Page), Errno>,
) -> Result<PageSet, Errno> {
    let mut all = PageSet::new();
    let mut from = ram.pages().start;
    while from < ram.pages().end {
        let mut ranges = [PageRange::default(); SET_MAX];
        let (count, next) = ask(from, &mut ranges)?;
        if all.ranges().len() + count > RANGES_MAX {
            return Err(Errno::TOOBIG);
        }
        for range in ranges.iter().take(count) {
            all.push(*range);
        }
        if next <= from {
            return Err(Errno::IO);
        }
        from = next;
    }
    Ok(all)
}

const _: () = assert!(size_of::<Scan>() == 96 && size_of::<Region>() == 24 && PAGE == 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::arena::Arena;
    use crate::memory::guest_memory;
    use faasw_abi::memory_map::{FRAMES, SMALL_FRAME_WINDOW};
    use rustix::fs::MemfdFlags;
    use std::os::fd::OwnedFd;

    /// No more than is never in large pages.
    const RAM: u64 = FRAMES + SMALL_FRAME_WINDOW;
    const LAYER: u64 = 8 << 20;

    fn found(ram: Mapping, map: &PageMap, wanted: Wanted, by_call: bool) -> PageSet {
        let told = all(ram, |from, out| {
            if by_call {
                map.scan(wanted, ram, from, out)
            } else {
                map.read(wanted, ram, from, out)
            }
        });
        told.unwrap()
    }

    #[test]
    fn more_ranges_than_are_kept_are_too_many() {
        let ram = guest_memory::private_ram(&mut Arena::default(), &[], 1 << 30, &[]).unwrap();
        let found = |gap: u32| {
            all(ram, |from, out| {
                let mut at = from.number();
                for slot in &mut *out {
                    *slot = PageRange::one(Page::new(at));
                    at += gap;
                }
                Ok((SET_MAX, Page::new(at)))
            })
        };
        let many = found(4).unwrap();
        assert_eq!(many.ranges().len(), RANGES_MAX);
        assert_eq!(found(3), Err(Errno::TOOBIG));
    }

    /// More ranges than one answer holds, of a layer and of fresh memory.
    #[test]
    fn what_was_written_and_read_is_found_by_entries_as_by_the_call() {
        let layer: OwnedFd = rustix::fs::memfd_create("layer", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&layer, RAM).unwrap();
        rustix::io::pwrite(&layer, &vec![1; LAYER as usize], 0).unwrap();
        let window = faasw_seedtree::Window {
            range: PageRange::of_bytes(0, LAYER),
            layer: 0,
        };
        let ram =
            guest_memory::private_ram(&mut Arena::default(), &[layer], RAM, &[window]).unwrap();
        let mut written = PageSet::new();
        for page in (0..RAM / PAGE).filter(|page| page % 7 == 3 && page % 1000 < 600) {
            written.push(PageRange::of_bytes(page * PAGE, (page + 1) * PAGE));
        }
        assert!(written.ranges().len() > SET_MAX);
        guest_memory::make_private(ram, &written);
        let (in_layer, last) = (Page::new(0), Page::new((LAYER / PAGE) as u32 - 2));
        for page in [in_layer, last] {
            assert_eq!(ram.page(page).unwrap(), [1; PAGE as usize]);
        }

        let map = PageMap::open().unwrap();
        let private = found(ram, &map, Wanted::Private, false);
        assert_eq!(private, written);
        let shared = found(ram, &map, Wanted::Shared, false);
        assert!(shared.contains(in_layer) && shared.contains(last));
        // The system maps what lies around a page that is touched, but not what is private.
        assert!(shared.intersection(&written).is_empty());
        assert!(shared.ranges().last().unwrap().end.address().get() <= LAYER);

        if !map.scans() {
            println!("WITHOUT PAGEMAP_SCAN (Linux 6.7): only entries were read");
            return;
        }
        assert_eq!(found(ram, &map, Wanted::Private, true), private);
        assert_eq!(found(ram, &map, Wanted::Shared, true), shared);
    }
}
