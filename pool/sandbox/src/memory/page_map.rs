//! Which pages of its memory an instance has used, from the kernel's page tables, without the
//! guest's help.

use std::fs::File;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{GuestAddress, Page, PageRange, PageSet};
use faasw_seedtree::Window;
use faasw_seedtree::limits::SET_MAX;
use rustix::io::Errno;
use vmm_sys_util::ioctl::{_IOC_READ, _IOC_WRITE, ioctl_expr};

use crate::memory::mapping::Mapping;

/// `struct pm_scan_arg` (Documentation/admin-guide/mm/pagemap.rst), which older systems' headers
/// lack.
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

/// An entry of `/proc/PID/pagemap`, one per page, for kernels without the call.
const ENTRY_BYTES: usize = 8;
const ENTRY_FILE: u64 = 1 << 61;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_PRESENT: u64 = 1 << 63;
/// Entries that are read at once.
const ENTRIES: u32 = 1024;

/// The unit in which fresh memory is checked if entries are read: the range of one table of the
/// lowest level. If nothing is resident there, this process mostly has no such table.
const BLOCK: NonZeroU32 = NonZeroU32::new((LARGE_PAGE / PAGE) as u32).unwrap();
/// Blocks that are checked with one call.
const BLOCKS: u32 = 16;

/// The kind of pages to find.
#[derive(Clone, Copy)]
enum PageKind {
    /// Pages that are private to this process. If entries are read, the shared page of zeroes
    /// counts as well; that is more than necessary, and harmless.
    Private,
    /// Pages that are mapped and still the file's.
    Shared,
}

impl PageKind {
    fn categories(self) -> Scan {
        match self {
            // Neither of a file nor the page of zeroes, and either present or swapped out.
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
        self.file.as_raw_fd()
    }
}

/// This process's page map. It is opened while the process may still inspect itself.
pub struct PageMap {
    file: File,
    scans: bool,
}

impl PageMap {
    /// Opens this process's page map.
    ///
    /// # Errors
    /// Returns the kernel's error, such as `ENOENT` if there is no `/proc`.
    pub fn open() -> Result<Self, Errno> {
        let file = File::open("/proc/self/pagemap")
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))?;
        let scans = scans(&file);
        Ok(Self { file, scans })
    }

    /// Returns the page map without use of `PAGEMAP_SCAN`, as on kernels before Linux 6.7: for
    /// tests and measurements.
    #[must_use]
    pub fn without_scan(self) -> Self {
        Self {
            scans: false,
            ..self
        }
    }

    /// Whether the kernel has `PAGEMAP_SCAN` (Linux 6.7 and later).
    pub fn scans(&self) -> bool {
        self.scans
    }

    /// Returns the pages of `ram` in which to search for private ones, in order. With
    /// `PAGEMAP_SCAN`, which skips ranges without page tables, these are all pages.
    ///
    /// Without it the kernel returns an entry for each page, also if there is no page: 1.4 us for
    /// 2 MiB. So blocks of fresh memory (all memory outside of `windows`) in which no page is
    /// resident (`mincore`) are left out. They are released instead, because a page may have been
    /// swapped out. Then its contents are zeroes again, like the seed's.
    ///
    /// # Errors
    /// Returns the error of `mincore` or `madvise`.
    pub fn where_private(&self, ram: Mapping, windows: &[Window]) -> Result<PageSet, Errno> {
        let all = PageSet::from(ram.pages());
        if self.scans {
            return Ok(all);
        }
        let layers: PageSet = windows.iter().map(|window| window.range).collect();
        let fresh = all.without(&layers);
        let mut resident = PageSet::new();
        for range in fresh.iter() {
            resident_blocks(ram, range, &mut resident)?;
        }
        for range in fresh.without(&resident).iter() {
            ram.release(range)?;
        }
        Ok(layers.union(&resident).intersection(&all))
    }

    /// Finds the pages of `within`, which lies in `ram`, that are private to this process, in
    /// order. Returns the number of ranges in `out`, and the page from which the next call
    /// continues: the end of `within` if all were found.
    ///
    /// # Errors
    /// Returns the error of the scan or of reading the page map.
    pub fn written(
        &self,
        ram: Mapping,
        within: PageRange,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        self.find(PageKind::Private, ram, within, out)
    }

    /// Returns all pages of `ram` that are private to this process.
    ///
    /// # Errors
    /// Returns the errors of [`PageMap::written`].
    pub fn all_written(&self, ram: Mapping) -> Result<PageSet, Errno> {
        all(ram, |within, out| self.written(ram, within, out))
    }

    /// Returns all pages of `ram` that are mapped and still the file's.
    ///
    /// # Errors
    /// Returns the errors of [`PageMap::written`].
    pub fn all_read(&self, ram: Mapping) -> Result<PageSet, Errno> {
        all(ram, |within, out| {
            self.find(PageKind::Shared, ram, within, out)
        })
    }

    fn find(
        &self,
        wanted: PageKind,
        ram: Mapping,
        within: PageRange,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        if self.scans {
            self.scan(wanted, ram, within, out)
        } else {
            self.read(wanted, ram, within, out)
        }
    }

    /// Does the same as [`PageMap::scan`] by reading an entry for each page.
    fn read(
        &self,
        wanted: PageKind,
        ram: Mapping,
        within: PageRange,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        let mut entries = [0; ENTRIES as usize * ENTRY_BYTES];
        let mut count = 0_usize;
        let mut rest = within;
        while !rest.is_empty() {
            let (here, behind) = rest.split_at(ENTRIES);
            let (part, _) = entries.split_at_mut(here.count() as usize * ENTRY_BYTES);
            let first = ram.address() / PAGE + u64::from(here.start.number());
            let place = first * ENTRY_BYTES as u64;
            self.file
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
        wanted: PageKind,
        ram: Mapping,
        within: PageRange,
        out: &mut [PageRange; SET_MAX],
    ) -> Result<(usize, Page), Errno> {
        let [start, end] = [within.start, within.end].map(|page| page.address().get());
        let mut regions = [Region::default(); SET_MAX];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: ram.address() + start.min(ram.bytes()),
            end: ram.address() + end.min(ram.bytes()),
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            region_count: SET_MAX as u64,
            ..wanted.categories()
        };
        // SAFETY: the structure has the kernel's layout, and has room for as many regions as it
        // states.
        let found = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
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

/// The most ranges that are kept at once: a guest decides how many there are.
const RANGES_MAX: usize = 1 << 16;

/// Repeats `ask` until all ranges were found. Returns `TOOBIG` if there are more than
/// [`RANGES_MAX`].
fn all(
    ram: Mapping,
    ask: impl Fn(PageRange, &mut [PageRange; SET_MAX]) -> Result<(usize, Page), Errno>,
) -> Result<PageSet, Errno> {
    let mut all = PageSet::new();
    let mut rest = ram.pages();
    while !rest.is_empty() {
        let mut ranges = [PageRange::default(); SET_MAX];
        let (count, next) = ask(rest, &mut ranges)?;
        if all.ranges().len() + count > RANGES_MAX {
            return Err(Errno::TOOBIG);
        }
        for range in ranges.iter().take(count) {
            all.push(*range);
        }
        if next <= rest.start {
            return Err(Errno::IO);
        }
        rest.start = next;
    }
    Ok(all)
}

/// Whether the kernel supports `PAGEMAP_SCAN` for this page map.
fn scans(file: &File) -> bool {
    let mut nothing = Scan {
        size: size_of::<Scan>() as u64,
        ..Scan::default()
    };
    // SAFETY: the structure has the kernel's layout; the range has no pages.
    unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            PAGEMAP_SCAN as libc::Ioctl,
            &raw mut nothing,
        ) >= 0
    }
}

/// Adds to `found` the blocks of `range`, which is fresh memory of `ram`, that have a resident
/// page. A page that was swapped out is not resident.
fn resident_blocks(ram: Mapping, range: PageRange, found: &mut PageSet) -> Result<(), Errno> {
    let mut resident = [0_u8; (BLOCK.get() * BLOCKS) as usize];
    let mut rest = range;
    while !rest.is_empty() {
        // Up to the end of a block, so that the next ones begin where tables do.
        let until_block = BLOCK.get() - rest.start.number() % BLOCK.get();
        let (here, behind) = rest.split_at(until_block + (BLOCKS - 1) * BLOCK.get());
        let (start, bytes) = ram.part(here)?;
        // SAFETY: there is a byte for each page; the mapping is this module's own.
        let failed = unsafe { libc::mincore(start.cast(), bytes, resident.as_mut_ptr()) } != 0;
        if failed {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        let (first, others) = resident.split_at(until_block as usize);
        let mut unseen = here;
        for states in std::iter::once(first).chain(others.chunks(BLOCK.get() as usize)) {
            let (block, later) = unseen.split_at(states.len() as u32);
            let states = states.get(..block.count() as usize).unwrap_or(states);
            // The other bits mean nothing.
            if states.iter().any(|state| state & 1 != 0) {
                found.push(block);
            }
            unseen = later;
        }
        rest = behind;
    }
    Ok(())
}

const _: () = assert!(size_of::<Scan>() == 96 && size_of::<Region>() == 24 && PAGE == 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::arena::Arena;
    use crate::memory::guest_memory;
    use crate::memory::guest_memory::LARGE_FROM;
    use faasw_abi::memory_map::{FRAMES, SMALL_FRAME_WINDOW};
    use rustix::fs::MemfdFlags;
    use std::os::fd::OwnedFd;

    /// All memory below the part that is in large pages.
    const RAM: u64 = FRAMES + SMALL_FRAME_WINDOW;
    const LAYER: u64 = 8 << 20;

    fn found(ram: Mapping, map: &PageMap, wanted: PageKind, by_call: bool) -> PageSet {
        let told = all(ram, |within, out| {
            if by_call {
                map.scan(wanted, ram, within, out)
            } else {
                map.read(wanted, ram, within, out)
            }
        });
        told.unwrap()
    }

    #[test]
    fn more_ranges_than_are_kept_are_too_many() {
        let ram = guest_memory::private_ram(&mut Arena::default(), &[], 1 << 30, &[]).unwrap();
        let found = |gap: u32| {
            all(ram, |within, out| {
                let mut at = within.start.number();
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

    /// Blocks of fresh memory with a private page each, at ends that are not ends of blocks.
    #[test]
    fn without_a_scan_all_is_looked_at_that_can_be_private() {
        let layer: OwnedFd = rustix::fs::memfd_create("layer", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&layer, LAYER).unwrap();
        let window = Window {
            range: PageRange::of_bytes(3 * PAGE, LAYER - 5 * PAGE),
            layer: 0,
        };
        let bytes = LARGE_FROM + 40 * LARGE_PAGE + 7 * PAGE;
        let ram =
            guest_memory::private_ram(&mut Arena::default(), &[layer], bytes, &[window]).unwrap();
        let map = PageMap::open().unwrap().without_scan();
        let layers = PageSet::from(window.range);
        assert_eq!(map.where_private(ram, &[window]).unwrap(), layers);
        let pages = bytes / PAGE;
        for page in [
            1,
            2,
            LAYER / PAGE - 1,
            LAYER / PAGE + 513,
            pages - 9,
            pages - 1,
        ] {
            let page = PageSet::from(PageRange::of_bytes(page * PAGE, (page + 1) * PAGE));
            guest_memory::make_private(ram, &page);
            let found = map.where_private(ram, &[window]).unwrap();
            assert!(page.without(&found).is_empty(), "{page:?} of {found:?}");
            assert!(layers.without(&found).is_empty(), "{layers:?} of {found:?}");
            let fresh = PageSet::from(ram.pages()).without(&found);
            assert!(
                map.all_written(ram)
                    .unwrap()
                    .intersection(&fresh)
                    .is_empty()
            );
        }
        assert!(map.all_written(ram).unwrap().count() >= 6);
        let whole = map.where_private(ram, &[window]).unwrap();
        assert!(whole.count() < pages / 2, "{whole:?}");
    }

    /// More ranges than one answer holds, of a layer and of fresh memory.
    #[test]
    fn page_map_entries_and_ioctl_find_the_same_pages() {
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
        let private = found(ram, &map, PageKind::Private, false);
        assert_eq!(private, written);
        let shared = found(ram, &map, PageKind::Shared, false);
        assert!(shared.contains(in_layer) && shared.contains(last));
        // The kernel maps pages around one that is touched, but not those that are private.
        assert!(shared.intersection(&written).is_empty());
        assert!(shared.ranges().last().unwrap().end.address().get() <= LAYER);

        if !map.scans() {
            println!("WITHOUT PAGEMAP_SCAN (Linux 6.7): only entries were read");
            return;
        }
        assert_eq!(found(ram, &map, PageKind::Private, true), private);
        assert_eq!(found(ram, &map, PageKind::Shared, true), shared);
    }
}
