//! Making a layer of what an instance changed of its parent's.

use std::os::fd::OwnedFd;

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::{FriExtent, OWN_MAX};
use faasw_seedtree::coalesce;
use rustix::io::Errno;

use crate::guest_memory::Mapping;
use crate::page_map::PageMap;

/// What a child changed of its parent is taken over in stretches of this size:
/// where changes are dense, the child absorbs the region, so that forks of it map
/// few windows.
const UNIT: u64 = 64 << 10;

/// Writes the private pages of `ram`, and those between them that join the child's
/// stretches, to `layer`, each at its own address. Pages of zeroes stay holes.
/// Says which stretches the child now has of its own.
///
/// # Errors
/// The system's.
pub fn write(page_map: &PageMap, ram: Mapping, layer: &OwnedFd) -> Result<Vec<FriExtent>, Errno> {
    let own = coalesce(&page_map.all_written(ram)?, UNIT, OWN_MAX);
    let mut told = Vec::with_capacity(own.len());
    for extent in own {
        let extent = FriExtent {
            start: extent.start,
            end: extent.end.min(ram.bytes()),
        };
        for address in (extent.start..extent.end).step_by(PAGE as usize) {
            let page = ram.page(address)?;
            if page != [0; PAGE as usize] {
                put(layer, address, &page)?;
            }
        }
        told.push(extent);
    }
    Ok(told)
}

fn put(file: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::pwrite(file, bytes, at)?;
        bytes = bytes.get(written..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}
