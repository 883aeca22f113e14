//! Layers over layers (Catalyzer §3.2's overlay memory, over a tree as in AFaaS §4):
//! which layer a page of an instance comes from.

use crate::extent::Extent;

/// A stretch of an instance's memory, and the layer that it is mapped from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The stretch.
    pub extent: Extent,
    /// The layer's place in the chain, the root being 0.
    pub layer: usize,
}

/// Lays the extents of a chain of layers, root first, over each other: where
/// several have a page, the last one counts. What comes out is sorted and
/// disjoint; each layer's extents must be, too.
#[must_use]
pub fn overlay<'a>(chain: impl IntoIterator<Item = &'a [Extent]>) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for (layer, extents) in chain.into_iter().enumerate() {
        let mut kept: Vec<Window> = Vec::new();
        for window in windows {
            kept.extend(without(window.extent, extents).map(|extent| Window { extent, ..window }));
        }
        kept.extend(extents.iter().map(|extent| Window {
            extent: *extent,
            layer,
        }));
        kept.sort_by_key(|window| window.extent.start);
        windows = kept;
    }
    windows
}

/// What is left of `whole` where none of `holes` is.
fn without(whole: Extent, holes: &[Extent]) -> impl Iterator<Item = Extent> + use<'_> {
    let inside = holes
        .iter()
        .copied()
        .filter(move |hole| hole.start < whole.end && whole.start < hole.end);
    // Each gap ends where the next hole begins, the last one with the whole.
    let end = Extent {
        start: whole.end,
        end: whole.end,
    };
    let mut at = whole.start;
    inside.chain([end]).filter_map(move |hole| {
        let gap = Extent {
            start: at,
            end: hole.start,
        };
        at = hole.end;
        (gap.start < gap.end).then_some(gap)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter()
            .map(|(start, end)| Extent {
                start: *start,
                end: *end,
            })
            .collect()
    }

    fn laid(chain: &[Vec<Extent>]) -> Vec<(u64, u64, usize)> {
        overlay(chain.iter().map(Vec::as_slice))
            .iter()
            .map(|window| (window.extent.start, window.extent.end, window.layer))
            .collect()
    }

    #[test]
    fn a_child_hides_what_it_has_of_its_own() {
        let root = extents(&[(0, 100), (200, 300)]);
        let child = extents(&[(10, 20), (90, 210), (400, 500)]);
        assert_eq!(
            laid(&[root.clone(), child]),
            [
                (0, 10, 0),
                (10, 20, 1),
                (20, 90, 0),
                (90, 210, 1),
                (210, 300, 0),
                (400, 500, 1)
            ]
        );
        assert_eq!(
            laid(&[root, extents(&[(0, 300)])]),
            [(0, 300, 1)],
            "a parent may be hidden wholly"
        );
    }

    /// Against the plain meaning: the last layer that has a page.
    #[test]
    fn every_page_comes_from_the_last_layer_that_has_it() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        for _ in 0..500 {
            let chain: Vec<Vec<Extent>> = (0..1 + next(4))
                .map(|_| {
                    let mut at = 0;
                    let mut list = Vec::new();
                    for _ in 0..next(6) {
                        let start = at + next(20);
                        let end = start + 1 + next(20);
                        list.push(Extent { start, end });
                        at = end + 1;
                    }
                    list
                })
                .collect();
            let windows = overlay(chain.iter().map(Vec::as_slice));
            assert!(
                windows
                    .windows(2)
                    .all(|pair| pair[0].extent.end <= pair[1].extent.start)
            );
            for page in 0..260 {
                let has = |extent: &Extent| extent.start <= page && page < extent.end;
                let expected = chain.iter().rposition(|layer| layer.iter().any(has));
                let found = windows.iter().find(|window| has(&window.extent));
                assert_eq!(
                    found.map(|window| window.layer),
                    expected,
                    "{chain:?} {page}"
                );
            }
        }
    }
}
