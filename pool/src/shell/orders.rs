//! What a shell is told to become.

use faasw_fri::messages::{FILLED_MAX, Fork, FriExtent, FriWindow, Image, MAPPED_MAX, WINDOWS_MAX};
use faasw_seedtree::Extent;

use crate::difference::Difference;
use crate::error::PlatformError;
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

/// The image of a seed, with what its instances use.
///
/// # Errors
/// When it has more windows than an order has room for.
pub fn image(
    frozen: &Frozen,
    ram_bytes: u64,
    working_set: &PageSets,
) -> Result<Image, PlatformError> {
    if frozen.windows.len() > WINDOWS_MAX {
        return Err(too_many());
    }
    let mut image = Image::empty(ram_bytes, &frozen.seed.state);
    for (slot, window) in image.windows.iter_mut().zip(&frozen.windows) {
        *slot = FriWindow {
            extent: fri(window.extent),
            layer: window.layer as u64,
        };
        image.window_count += 1;
    }
    image.write_set_count = put(&mut image.write_set, &working_set.written);
    image.read_set_count = put(&mut image.read_set, &working_set.read);
    Ok(image)
}

/// Puts where a seed differs from its parent.
///
/// # Errors
/// When that is more than an order has room for: where it was left out, the parent's
/// memory would show.
pub fn put_difference(order: &mut Fork, difference: &Difference) -> Result<(), PlatformError> {
    if difference.filled.len() > FILLED_MAX || difference.mapped.len() > MAPPED_MAX {
        return Err(too_many());
    }
    order.filled_count = put(&mut order.filled, &difference.filled);
    order.mapped_count = put(&mut order.mapped, &difference.mapped);
    order.forgets_tables = u64::from(difference.forgets_tables);
    Ok(())
}

fn too_many() -> PlatformError {
    PlatformError::Protocol("a seed has more stretches than an order can name".to_owned())
}

fn fri(extent: Extent) -> FriExtent {
    FriExtent {
        start: extent.start,
        end: extent.end,
    }
}

/// Puts as many extents as fit, which is enough for what is only a hint; says how many.
fn put(slots: &mut [FriExtent], extents: &[Extent]) -> u64 {
    for (slot, extent) in slots.iter_mut().zip(extents) {
        *slot = fri(*extent);
    }
    slots.len().min(extents.len()) as u64
}
