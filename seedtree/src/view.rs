//! The memory of an instance of a snapshot, and where it differs from that of an instance of its
//! parent.

use faasw_abi::memory_map;
use faasw_abi::pages::{GuestAddress, PageRange, PageSet};
use rustix::io::Errno;

use crate::layer::Layer;
use crate::overlay::Window;
use crate::snapshot::Snapshot;

/// Size of a page, in bytes.
const PAGE: usize = memory_map::PAGE as usize;
/// Number of pages that are compared at once.
const COMPARED: u32 = 16;

/// A snapshot's memory, composed of its layers.
#[derive(Debug)]
pub struct View<'a> {
    layers: Vec<&'a Layer>,
    windows: &'a [Window],
}

impl View<'_> {
    /// Fills `out` with the memory at `address`.
    ///
    /// # Errors
    /// Returns the error of `pread`, `IO` if a layer ends too early, and `INVAL` if a window names
    /// no layer.
    pub fn read(&self, address: GuestAddress, out: &mut [u8]) -> Result<(), Errno> {
        out.fill(0);
        let address = address.get();
        let end = address.saturating_add(out.len() as u64);
        for Window { range, layer } in self.windows {
            let [start, stop] = [range.start, range.end].map(|page| page.address().get());
            let (start, stop) = (start.max(address), stop.min(end));
            if start >= stop {
                continue;
            }
            let part = (start - address) as usize..(stop - address) as usize;
            let (part, layer) = match (out.get_mut(part), self.layers.get(*layer as usize)) {
                (Some(part), Some(layer)) => (part, layer),
                _ => return Err(Errno::INVAL),
            };
            if rustix::io::pread(layer, &mut *part, start)? != part.len() {
                return Err(Errno::IO);
            }
        }
        Ok(())
    }
}

impl<S> Snapshot<S> {
    /// Returns the snapshot's memory.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            layers: self.layers(),
            windows: self.windows(),
        }
    }

    /// Returns the pages of `range` that differ from the parent's. Without a parent, returns the
    /// pages that are not zero.
    ///
    /// # Errors
    /// Returns the errors of [`View::read`].
    pub fn differences(&self, range: PageRange) -> Result<PageSet, Errno> {
        let ours = self.view();
        let parent = self.parent().map(|parent| parent.view());
        let mut differing = PageSet::new();
        let mut pair = [(); 2].map(|()| vec![0; COMPARED as usize * PAGE]);
        let mut rest = range;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(COMPARED);
            let [now, before] = pair
                .each_mut()
                .map(|buffer| buffer.split_at_mut(piece.bytes() as usize).0);
            ours.read(piece.start.address(), now)?;
            if let Some(parent) = &parent {
                parent.read(piece.start.address(), before)?;
            }
            let contents = now.chunks(PAGE).zip(before.chunks(PAGE));
            for (page, (now, before)) in piece.pages().zip(contents) {
                if now != before {
                    differing.push(PageRange::one(page));
                }
            }
            rest = behind;
        }
        Ok(differing)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layer::LayerBuilder;

    const P: u64 = PAGE as u64;

    fn layer(contents: &[(u64, u8)], own: &[PageRange]) -> Layer {
        let builder = LayerBuilder::new("test", 64 * P).unwrap();
        for (page, byte) in contents {
            builder.write(page * P, &[*byte; PAGE]).unwrap();
        }
        builder.freeze_at(own.iter().copied().collect()).unwrap()
    }

    fn snapshot(parent: Option<Arc<Snapshot<()>>>, layer: Layer) -> Snapshot<()> {
        Snapshot::new(parent, layer, (), 0).unwrap()
    }

    fn range(start: u64, end: u64) -> PageRange {
        PageRange::of_bytes(start * P, end * P)
    }

    #[test]
    fn differing_pages_are_found_whether_written_or_emptied() {
        let parent = Arc::new(snapshot(
            None,
            layer(&[(1, 1), (2, 2), (3, 3), (20, 9)], &[range(0, 32)]),
        ));
        assert_eq!(
            parent.differences(range(0, 64)).unwrap().ranges(),
            [range(1, 4), range(20, 21)]
        );
        // Page 1 is as before, page 2 emptied, page 3 changed, page 40 new.
        let child = snapshot(
            Some(parent),
            layer(&[(1, 1), (3, 7), (40, 4)], &[range(0, 8), range(40, 44)]),
        );
        assert_eq!(
            child.differences(range(0, 64)).unwrap().ranges(),
            [range(2, 4), range(40, 41)]
        );
        assert_eq!(
            child.differences(range(3, 40)).unwrap().ranges(),
            [range(3, 4)]
        );
        let mut read = [5; 2 * PAGE];
        child
            .view()
            .read(GuestAddress::new(19 * P), &mut read)
            .unwrap();
        assert!(read[..PAGE] == [0; PAGE] && read[PAGE..] == [9; PAGE]);
    }
}
