//! Which pages of its memory an instance has used, from the kernel's page tables:
//! the guest is not asked.

use std::fs::File;
use std::os::fd::AsRawFd;

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::{FriExtent, SET_MAX};
use faasw_seedtree::Extent;
use rustix::io::Errno;

use crate::guest_memory::Mapping;

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

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610_u32 as libc::Ioctl;
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO_PAGE: u64 = 1 << 5;

/// The way to ask; opened while the process may still look at itself.
pub struct PageMap(File);

impl PageMap {
    /// `None` where the system has none.
    pub fn open() -> Option<Self> {
        File::open("/proc/self/pagemap").ok().map(Self)
    }

    /// The stretches of `ram` from `from` on that are private to this process, as
    /// guest-physical addresses in order: how many, and where the next call goes
    /// on; its end when all were told.
    ///
    /// # Errors
    /// `NOTTY` where the system has no such call (before Linux 6.7); its other errors.
    pub fn written(
        &self,
        ram: Mapping,
        from: u64,
        out: &mut [FriExtent; SET_MAX],
    ) -> Result<(usize, u64), Errno> {
        let private = Scan {
            // Neither of a file nor the page of zeroes, and there or swapped out.
            inverted: FILE | ZERO_PAGE,
            all_of: FILE | ZERO_PAGE,
            any_of: PRESENT | SWAPPED,
            ..Scan::default()
        };
        self.scan(private, ram, from, out)
    }

    /// All stretches of `ram` that are private to this process, in order.
    ///
    /// # Errors
    /// As [`PageMap::written`].
    pub fn all_written(&self, ram: Mapping) -> Result<Vec<Extent>, Errno> {
        all(ram, |from, out| self.written(ram, from, out))
    }

    /// All stretches of `ram` that are mapped and still the file's, in order.
    ///
    /// # Errors
    /// As [`PageMap::written`].
    pub fn all_read(&self, ram: Mapping) -> Result<Vec<Extent>, Errno> {
        all(ram, |from, out| {
            let shared = Scan {
                all_of: FILE | PRESENT,
                ..Scan::default()
            };
            self.scan(shared, ram, from, out)
        })
    }

    fn scan(
        &self,
        categories: Scan,
        ram: Mapping,
        from: u64,
        out: &mut [FriExtent; SET_MAX],
    ) -> Result<(usize, u64), Errno> {
        let mut regions = [Region::default(); SET_MAX];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: ram.address() + from.min(ram.bytes()),
            end: ram.address() + ram.bytes(),
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            region_count: SET_MAX as u64,
            ..categories
        };
        // SAFETY: the structure is as the kernel has it, and has room for as
        // many regions as it says.
        let found = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        let found = usize::try_from(found).map_err(|_| {
            Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
        })?;
        let found = found.min(SET_MAX);
        for (to, from) in out.iter_mut().zip(&regions).take(found) {
            *to = FriExtent {
                start: from.start.saturating_sub(ram.address()),
                end: from.end.saturating_sub(ram.address()),
            };
        }
        Ok((found, scan.walk_end.saturating_sub(ram.address())))
    }
}

/// Asks until everything was told.
fn all(
    ram: Mapping,
    ask: impl Fn(u64, &mut [FriExtent; SET_MAX]) -> Result<(usize, u64), Errno>,
) -> Result<Vec<Extent>, Errno> {
    let mut all = Vec::new();
    let mut from = 0;
    while from < ram.bytes() {
        let mut stretches = [FriExtent::default(); SET_MAX];
        let (count, next) = ask(from, &mut stretches)?;
        all.extend(stretches.iter().take(count).map(|stretch| Extent {
            start: stretch.start,
            end: stretch.end,
        }));
        if next <= from {
            return Err(Errno::IO);
        }
        from = next;
    }
    Ok(all)
}

const _: () = assert!(size_of::<Scan>() == 96 && size_of::<Region>() == 24 && PAGE == 4096);
