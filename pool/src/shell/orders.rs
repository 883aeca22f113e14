//! What a shell is told to become.

use faasw_fri::messages::{
    FILLED_MAX, Fork, FriExtent, FriWindow, Image, MAPPED_MAX, SET_MAX, VcpuState, WINDOWS_MAX,
};
use faasw_seedtree::Extent;

use crate::frozen::Frozen;
use crate::working_set::PageSets;

/// An order to become an instance of `image`, without code and difference. Boxed: it is
/// large, and futures hold it.
pub fn fork_order(origin: u64, image: Image) -> Box<Fork> {
    Box::new(Fork {
        code_bytes: 0,
        origin,
        image,
        filled_count: 0,
        filled: [FriExtent::default(); FILLED_MAX],
        mapped_count: 0,
        mapped: [FriExtent::default(); MAPPED_MAX],
        forgets_tables: 0,
    })
}

/// An image of fresh memory in this state.
pub fn empty_image(ram_bytes: u64, state: &VcpuState) -> Image {
    Image {
        ram_bytes,
        window_count: 0,
        windows: [FriWindow::default(); WINDOWS_MAX],
        write_set_count: 0,
        write_set: [FriExtent::default(); SET_MAX],
        read_set_count: 0,
        read_set: [FriExtent::default(); SET_MAX],
        state: *state,
    }
}

/// The image of a seed, with what its instances use.
pub fn image(frozen: &Frozen, ram_bytes: u64, working_set: &PageSets) -> Image {
    let mut image = empty_image(ram_bytes, &frozen.seed.state);
    for (slot, window) in image.windows.iter_mut().zip(&frozen.windows) {
        *slot = FriWindow {
            extent: fri(window.extent),
            layer: window.layer as u64,
        };
        image.window_count += 1;
    }
    image.write_set_count = put(&mut image.write_set, &working_set.written);
    image.read_set_count = put(&mut image.read_set, &working_set.read);
    image
}

fn fri(extent: Extent) -> FriExtent {
    FriExtent {
        start: extent.start,
        end: extent.end,
    }
}

/// Puts as many extents as fit; says how many.
pub fn put(slots: &mut [FriExtent], extents: &[Extent]) -> u64 {
    for (slot, extent) in slots.iter_mut().zip(extents) {
        *slot = fri(*extent);
    }
    slots.len().min(extents.len()) as u64
}
