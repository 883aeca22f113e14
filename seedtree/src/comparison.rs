//! Computation of a snapshot's [`Difference`].
//!
//! The comparison of contents runs once for each snapshot: layers are sealed, so the result
//! stays true.

use std::num::NonZeroU32;

use faasw_abi::memory_map::pte::PRESENT;
use faasw_abi::memory_map::{BOOT_PAGE, PAGE, PML4, RODATA_END, TABLE_ZONE_END, TEXT};
use faasw_abi::pages::{Page, PageRange, PageSet};
use rustix::io::Errno;

use crate::difference::Difference;
use crate::limits::{FILLED_MAX, MAPPED_MAX, OWN_MAX};
use crate::snapshot::Snapshot;
use crate::view::View;

/// Maximum number of pages that are copied. A copy takes 0.3 to 1 us, and the page is private to
/// the instance from then on. A mapping of any size takes 5 to 15 us, and a fault for each page
/// that is used.
pub(crate) const FILLED_PAGES: u64 = 256;
/// Maximum pages of a piece that is copied rather than mapped.
const LITTLE: u64 = 4;
/// Maximum number of pages that are compared, holes included, because a function decides how far
/// apart it writes. More would be too much to copy anyway.
const COMPARED_PAGES: u64 = 4096;
/// Maximum number of pieces of one of the seed's own ranges that are mapped separately.
const PIECES: usize = MAPPED_MAX / OWN_MAX - 1;
/// The page that every activation writes.
pub(crate) const ACTIVATION: PageRange = PageRange::of_bytes(BOOT_PAGE, BOOT_PAGE + PAGE);
/// The pages of page tables.
const TABLES: PageRange = PageRange::of_bytes(PML4, TABLE_ZONE_END);
/// The page of the table zone that a guest takes last.
const LAST_TABLE: Page = PageRange::of_bytes(TABLE_ZONE_END - PAGE, TABLE_ZONE_END).start;
/// The first page of text, and the first page after read-only data.
const TEXT_BEGIN: Page = PageRange::of_bytes(TEXT, TEXT).start;
const DATA_BEGIN: Page = PageRange::of_bytes(RODATA_END, RODATA_END).start;
/// Bytes of an entry of a page table.
const ENTRY: usize = 8;

impl Difference {
    /// Returns the difference of `snapshot` from its parent, for zygotes that are specialised for
    /// the parent, with `private` as private pages.
    ///
    /// # Errors
    /// Returns the system's error, if a layer cannot be read.
    pub fn of<S>(snapshot: &Snapshot<S>, private: PageSet) -> Result<Self, Errno> {
        let mut difference = Self {
            private,
            ..Self::default()
        };
        if let Some(parent) = snapshot.parent() {
            difference.forgets_tables = has_tables_beyond(&parent.view())?;
        }
        for own in snapshot.layer().own().iter() {
            let text = TEXT_BEGIN.clamp(own.start, own.end);
            difference.below_text(snapshot, PageRange::new(own.start, text))?;
            difference.above(snapshot, PageRange::new(text, own.end))?;
        }
        Ok(difference)
    }

    /// Handles the page tables and the other pages that lead to ring 0. They are mapped, so that a
    /// private page of them is known to have been written by the guest.
    fn below_text<S>(&mut self, snapshot: &Snapshot<S>, whole: PageRange) -> Result<(), Errno> {
        let differing = snapshot.differences(whole)?;
        if let Some(parent) = snapshot.parent() {
            let (before, now) = (parent.view(), snapshot.view());
            for page in differing.iter().flat_map(|range| range.pages()) {
                self.forgets_tables |= changes_translations(&before, &now, page)?;
            }
        }
        let activation = ACTIVATION.into();
        self.filled = self.filled.union(&differing.intersection(&activation));
        let mut mapped = differing.without(&activation);
        if mapped.ranges().len() > PIECES {
            // The snapshot's layer has all of this range.
            mapped = PageSet::from(whole);
        }
        self.mapped = self.mapped.union(&mapped);
        Ok(())
    }

    /// Copies the pages that are private in the sandbox already, and small pieces. The rest is
    /// mapped: a first write to a page takes 2 us.
    fn above<S>(&mut self, snapshot: &Snapshot<S>, whole: PageRange) -> Result<(), Errno> {
        if whole.is_empty() {
            return Ok(());
        }
        let compared = self.compared.saturating_add(whole.count());
        if whole.start < DATA_BEGIN || compared > COMPARED_PAGES {
            self.mapped.push(whole);
            return Ok(());
        }
        self.compared = compared;
        let (mut filled, mut mapped) = (self.filled.clone(), PageSet::new());
        for differing in snapshot.differences(whole)?.iter() {
            for (piece, is_private) in self.private.cut(differing) {
                if is_private || piece.count() <= LITTLE {
                    filled.push(piece);
                } else {
                    mapped.push(piece);
                }
            }
        }
        if filled.ranges().len() <= FILLED_MAX && filled.count() <= FILLED_PAGES {
            self.filled = filled;
            // The snapshot's layer has all of this range, including what lies between the pieces.
            self.mapped = self
                .mapped
                .union(&mapped.coalesced(NonZeroU32::MIN, PIECES));
        } else {
            self.mapped.push(whole);
        }
        Ok(())
    }
}

/// Returns whether the page has a translation `before` that is changed or missing `now`.
fn changes_translations(before: &View<'_>, now: &View<'_>, page: Page) -> Result<bool, Errno> {
    if !TABLES.contains(page) {
        return Ok(false);
    }
    let mut pages = [[0; PAGE as usize]; 2];
    let [old, new] = &mut pages;
    before.read(page.address(), old)?;
    now.read(page.address(), new)?;
    let entries = old.as_chunks::<ENTRY>().0.iter();
    let lost = entries
        .zip(new.as_chunks::<ENTRY>().0)
        .any(|(old, new)| old != new && u64::from_le_bytes(*old) & PRESENT != 0);
    Ok(lost)
}

/// Returns whether page tables may lie outside their zone, and thus anywhere: the zone is full.
fn has_tables_beyond(view: &View<'_>) -> Result<bool, Errno> {
    let mut last = [0; PAGE as usize];
    view.read(LAST_TABLE.address(), &mut last)?;
    Ok(last != [0; PAGE as usize])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use faasw_abi::memory_map::pte::TABLE;
    use faasw_abi::memory_map::{DATA, HEAP, TABLE_ZONE};

    use super::*;
    use crate::layer::{Layer, LayerBuilder};

    fn layer(words: &[(u64, u64)], own: &[PageRange]) -> Layer {
        let builder = LayerBuilder::new("test", 32 << 20).unwrap();
        for (address, word) in words {
            builder.write(*address, &word.to_le_bytes()).unwrap();
        }
        builder.freeze_at(own.iter().copied().collect()).unwrap()
    }

    fn snapshot(parent: Option<Arc<Snapshot<()>>>, layer: Layer) -> Snapshot<()> {
        Snapshot::new(parent, layer, (), 0).unwrap()
    }

    fn pages(start: u64, count: u64) -> PageRange {
        PageRange::of_bytes(start, start + count * PAGE)
    }

    /// Returns the difference between a child with these words and a parent with these.
    fn difference(parent: &[(u64, u64)], child: &[(u64, u64)]) -> Difference {
        let whole = pages(0, 16 << 8);
        let parent = Arc::new(snapshot(None, layer(parent, &[whole])));
        let own = [
            pages(0, 16),
            pages(TABLE_ZONE, 16),
            pages(TABLE_ZONE_END - PAGE, 1),
            pages(DATA, 16),
            pages(HEAP, 256),
        ];
        snapshot(Some(parent), layer(child, &own))
            .difference()
            .clone()
    }

    #[test]
    fn added_translations_leave_existing_ones_unchanged() {
        let entry = |at: u64| (PML4 + 8 * at, (TABLE_ZONE + at * PAGE) | TABLE);
        let added = difference(&[entry(0)], &[entry(0), entry(1)]);
        assert_eq!(added.mapped.ranges(), [pages(PML4, 1)]);
        assert!(!added.forgets_tables && added.filled.is_empty());
        let gone = difference(&[entry(0), entry(1)], &[entry(0)]);
        assert!(gone.forgets_tables);
        let another = difference(&[entry(0)], &[(PML4, DATA | TABLE)]);
        assert!(another.forgets_tables);
    }

    #[test]
    fn where_a_parents_tables_may_be_anywhere_they_are_forgotten() {
        let last = TABLE_ZONE_END - PAGE;
        for own in [(HEAP, 1), (TABLE_ZONE, 3)] {
            assert!(difference(&[(last, 1)], &[own]).forgets_tables);
            // The child has further tables, which zygotes of the parent do not have.
            assert!(!difference(&[], &[own, (last, 1)]).forgets_tables);
        }
    }

    #[test]
    fn tables_are_mapped_and_data_is_copied() {
        let far = HEAP + 128 * PAGE;
        let words = [
            (BOOT_PAGE, 1),
            (BOOT_PAGE + PAGE, 2),
            (TABLE_ZONE, 3),
            (DATA + PAGE, 4),
            (far, 5),
        ];
        let many: Vec<(u64, u64)> = (0..8)
            .map(|page| (far + 64 * PAGE + page * PAGE, 6))
            .collect();
        let found = difference(&[(HEAP, 1)], &[&words[..], &many].concat());
        assert_eq!(
            found.filled.ranges(),
            [
                pages(BOOT_PAGE, 1),
                pages(DATA + PAGE, 1),
                // Emptied.
                pages(HEAP, 1),
                pages(far, 1)
            ]
        );
        assert_eq!(
            found.mapped.ranges(),
            [
                pages(BOOT_PAGE + PAGE, 1),
                pages(TABLE_ZONE, 1),
                pages(far + 64 * PAGE, 8)
            ]
        );
    }
}
