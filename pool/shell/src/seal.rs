//! Making a layer of what an instance changed of its parent's.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::limits::{OWN_MAX, WINDOWS_MAX};
use faasw_seedtree::{Window, laid_over};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::page_map::PageMap;

/// What a child changed of its parent is taken over in pieces of so many pages: where
/// changes are dense, the child absorbs the region, so that forks of it map few windows.
const UNIT: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// The pages that a child has of its own, of which `private` are private: few ranges, and so
/// few that they and the `windows` of its parent are no more windows than an instance may
/// have. Any seed can be forked as often as any other then, however deep it is.
fn own(private: &PageSet, all: PageRange, windows: &[Window]) -> PageSet {
    let mut most = OWN_MAX;
    loop {
        let own = private.coalesced(UNIT, most).intersection(&all.into());
        if most == 1 || laid_over(windows, &own, 0).len() <= WINDOWS_MAX {
            return own;
        }
        most -= 1;
    }
}

/// Writes the private pages of `ram`, and those between them that join the child's own,
/// to `layer`, each at its own address. Pages of zeroes stay holes. Says which the child
/// now has of its own.
///
/// # Errors
/// The system's.
pub fn write(
    page_map: &PageMap,
    ram: Mapping,
    windows: &[Window],
    layer: &OwnedFd,
) -> Result<PageSet, Errno> {
    let own = own(&page_map.all_written(ram)?, ram.pages(), windows);
    for page in own.iter().flat_map(|range| range.pages()) {
        let content = ram.page(page)?;
        if content != [0; PAGE as usize] {
            put(layer, page.address().get(), &content)?;
        }
    }
    Ok(own)
}

fn put(file: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::pwrite(file, bytes, at)?;
        bytes = bytes.get(written..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use faasw_abi::pages::Page;

    use super::*;

    #[test]
    fn a_chain_of_any_depth_has_as_many_windows_as_there_may_be() {
        let all = PageRange::new(Page::new(0), Page::new(1 << 16));
        let mut windows = vec![Window {
            range: all,
            layer: 0,
        }];
        for layer in 1..16 {
            // Each changes other pages, far apart: nothing is hidden by chance.
            let private: PageSet = (0..40)
                .map(|place| Page::new(place * 1600 + layer * 97))
                .map(PageRange::one)
                .collect();
            let own = own(&private, all, &windows);
            assert_eq!(private.without(&own), PageSet::new());
            windows = laid_over(&windows, &own, layer);
            assert!(windows.len() <= WINDOWS_MAX, "{}", windows.len());
        }
    }
}
