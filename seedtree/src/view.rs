//! What an instance of a seed finds in its memory, and where that differs from what
//! an instance of its parent finds.

use rustix::io::Errno;

use crate::extent::Extent;
use crate::layer::Layer;
use crate::overlay::Window;
use crate::seed::Seed;

/// Size of a page, in bytes.
const PAGE: usize = 4096;
/// Pages that are compared at once.
const COMPARED: usize = 16;

/// A seed's memory, put together from its layers.
#[derive(Debug)]
pub struct View<'a> {
    layers: Vec<&'a Layer>,
    windows: Vec<Window>,
}

impl View<'_> {
    /// Fills `out` with what is at `address`.
    ///
    /// # Errors
    /// The system's; `IO` when a layer ends before.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        out.fill(0);
        let end = address.saturating_add(out.len() as u64);
        for Window { extent, layer } in &self.windows {
            let (start, stop) = (extent.start.max(address), extent.end.min(end));
            if start >= stop {
                continue;
            }
            let part = (start - address) as usize..(stop - address) as usize;
            let (part, layer) = match (out.get_mut(part), self.layers.get(*layer)) {
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

impl<S> Seed<S> {
    /// Its memory.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            layers: self.layers(),
            windows: self.windows(),
        }
    }

    /// The pages of `stretch`, which are whole, that differ from the parent's, in order;
    /// those with anything in them where there is no parent.
    ///
    /// # Errors
    /// The system's.
    pub fn differences(&self, stretch: Extent) -> Result<Vec<Extent>, Errno> {
        let ours = self.view();
        let parent = self.parent.as_ref().map(|parent| parent.view());
        let mut differing: Vec<Extent> = Vec::new();
        let mut pair = [vec![0; COMPARED * PAGE], vec![0; COMPARED * PAGE]];
        let mut at = stretch.start;
        while at < stretch.end {
            let length = pair[0].len().min((stretch.end - at) as usize);
            let [now, before] = pair.each_mut().map(|buffer| buffer.split_at_mut(length).0);
            ours.read(at, now)?;
            if let Some(parent) = &parent {
                parent.read(at, before)?;
            }
            for (now, before) in now.chunks(PAGE).zip(before.chunks(PAGE)) {
                let end = at + now.len() as u64;
                if now != before {
                    match differing.last_mut() {
                        Some(last) if last.end == at => last.end = end,
                        _ => differing.push(Extent { start: at, end }),
                    }
                }
                at = end;
            }
        }
        Ok(differing)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layer::LayerBuilder;
    use crate::seed::Level;

    const P: u64 = PAGE as u64;

    fn layer(contents: &[(u64, u8)], extents: Vec<Extent>) -> Layer {
        let builder = LayerBuilder::new("test", 64 * P).unwrap();
        for (page, byte) in contents {
            builder.write(page * P, &[*byte; PAGE]).unwrap();
        }
        builder.freeze_at(extents).unwrap()
    }

    fn extent(start: u64, end: u64) -> Extent {
        Extent {
            start: start * P,
            end: end * P,
        }
    }

    #[test]
    fn pages_that_differ_are_told_whether_they_were_written_or_emptied() {
        let parent = Arc::new(Seed {
            level: Level::Guest,
            parent: None,
            layer: layer(&[(1, 1), (2, 2), (3, 3), (20, 9)], vec![extent(0, 32)]),
            state: (),
            monotonic_nanoseconds: 0,
        });
        assert_eq!(
            parent.differences(extent(0, 64)).unwrap(),
            [extent(1, 4), extent(20, 21)]
        );
        // Page 1 as it was, page 2 emptied, page 3 changed, page 40 new.
        let child = Seed {
            level: Level::Engine,
            parent: Some(parent),
            layer: layer(
                &[(1, 1), (3, 7), (40, 4)],
                vec![extent(0, 8), extent(40, 44)],
            ),
            state: (),
            monotonic_nanoseconds: 0,
        };
        assert_eq!(
            child.differences(extent(0, 64)).unwrap(),
            [extent(2, 4), extent(40, 41)]
        );
        assert_eq!(child.differences(extent(3, 40)).unwrap(), [extent(3, 4)]);
        let mut read = [5; 2 * PAGE];
        child.view().read(19 * P, &mut read).unwrap();
        assert!(read[..PAGE] == [0; PAGE] && read[PAGE..] == [9; PAGE]);
    }
}
