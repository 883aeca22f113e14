//! Overlays of layers (Catalyzer §3.1's overlay memory, over a tree as in AFaaS §4.3): the layer
//! that each page of an instance comes from.

use faasw_abi::pages::{PageRange, PageSet};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Pages of an instance's memory, and the layer that they are mapped from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Window {
    /// The pages.
    pub range: PageRange,
    /// Index of the layer in the chain; the root is 0.
    pub layer: u32,
}

/// Space for windows in a message: those before the first empty one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Windows<const MOST: usize>([Window; MOST]);

impl<const MOST: usize> Windows<MOST> {
    /// Returns the windows as a message, if there is space for all.
    #[must_use]
    pub fn of(windows: &[Window]) -> Option<Self> {
        let mut all = Self::default();
        all.0.get_mut(..windows.len())?.copy_from_slice(windows);
        Some(all)
    }

    /// Returns the windows of the message, unchecked.
    #[must_use]
    pub fn as_slice(&self) -> &[Window] {
        let is_there = |window: &&Window| !window.range.is_empty();
        let count = self.0.iter().take_while(is_there).count();
        self.0.get(..count).unwrap_or_default()
    }
}

impl<const MOST: usize> Default for Windows<MOST> {
    fn default() -> Self {
        Self([Window::default(); MOST])
    }
}

/// Overlays the pages of a chain of layers, root first: if several have a page, the last of them
/// counts. The result is in order.
#[must_use]
pub fn overlay<'a>(chain: impl IntoIterator<Item = &'a PageSet>) -> Vec<Window> {
    let all = (0..).zip(chain);
    all.fold(Vec::new(), |windows, (layer, own)| {
        overlay_layer(&windows, own, layer)
    })
}

/// Overlays a layer's own pages on `windows`. The result is in order.
#[must_use]
pub fn overlay_layer(windows: &[Window], own: &PageSet, layer: u32) -> Vec<Window> {
    let mut all: Vec<Window> = Vec::new();
    for window in windows {
        let pieces = own.cut(window.range).filter(|(_, is_own)| !is_own);
        all.extend(pieces.map(|(range, _)| Window { range, ..*window }));
    }
    all.extend(own.iter().map(|range| Window { range, layer }));
    all.sort_by_key(|window| window.range.start);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_abi::pages::Page;

    fn set(list: &[(u32, u32)]) -> PageSet {
        list.iter()
            .map(|(start, end)| PageRange::new(Page::new(*start), Page::new(*end)))
            .collect()
    }

    fn laid(chain: &[PageSet]) -> Vec<(u32, u32, u32)> {
        overlay(chain)
            .iter()
            .map(|window| {
                let PageRange { start, end } = window.range;
                (start.number(), end.number(), window.layer)
            })
            .collect()
    }

    #[test]
    fn a_childs_own_pages_hide_its_parents() {
        let root = set(&[(0, 100), (200, 300)]);
        let child = set(&[(10, 20), (90, 210), (400, 500)]);
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
            laid(&[root, set(&[(0, 300)])]),
            [(0, 300, 1)],
            "a parent may be hidden wholly"
        );
    }

    /// Compares with the definition: a page comes from the last layer that has it.
    #[test]
    fn every_page_is_taken_from_the_last_layer_that_has_it() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |bound: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % u64::from(bound)) as u32
        };
        for _ in 0..500 {
            let chain: Vec<PageSet> = (0..1 + next(4))
                .map(|_| {
                    let mut at = 0;
                    let mut list = Vec::new();
                    for _ in 0..next(6) {
                        let start = at + next(20);
                        let end = start + 1 + next(20);
                        list.push((start, end));
                        at = end + 1;
                    }
                    set(&list)
                })
                .collect();
            let windows = overlay(&chain);
            assert!(
                windows
                    .windows(2)
                    .all(|pair| pair[0].range.end <= pair[1].range.start)
            );
            for page in (0..260).map(Page::new) {
                let expected = chain.iter().rposition(|layer| layer.contains(page));
                let found = windows.iter().find(|window| window.range.contains(page));
                assert_eq!(
                    found.map(|window| window.layer as usize),
                    expected,
                    "{chain:?} {page:?}"
                );
            }
        }
    }

    #[test]
    fn a_message_holds_all_windows_or_none() {
        let windows = overlay(&[set(&[(0, 100), (200, 300)]), set(&[(10, 20)])]);
        assert_eq!(Windows::<4>::of(&windows).unwrap().as_slice(), windows);
        assert!(Windows::<3>::of(&windows).is_none());
        assert!(Windows::<3>::default().as_slice().is_empty());
    }
}
