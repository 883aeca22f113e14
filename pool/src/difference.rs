//! What a function's seed needs done in a shell that is an image of its parent.
//!
//! Found out once for each seed, by comparing contents: layers are sealed, so what
//! differs stays what it is.

use faasw_abi::memory_map::pte::PRESENT;
use faasw_abi::memory_map::{BOOT_PAGE, PAGE, PML4, RODATA_END, TABLE_ZONE_END, TEXT};
use faasw_fri::messages::{FILLED_MAX, MAPPED_MAX, OWN_MAX, VcpuState};
use faasw_seedtree::{Extent, Seed, coalesce};
use rustix::io::Errno;

use crate::preset;

/// Most that is copied, in bytes: a page takes 0.3 to 1 us and is the instance's own
/// from then on, where a mapping of any size takes 5 to 15 us and a fault for each page
/// that is used.
const FILLED_BYTES: u64 = 1 << 20;
/// What is copied rather than mapped, in bytes.
const LITTLE: u64 = 4 * PAGE;
/// What is more is not even compared, holes included, for a function decides how far
/// apart it writes: copying it would be too much anyway.
const COMPARED_BYTES: u64 = 16 << 20;
/// Stretches of one extent's tables that are mapped apart.
const STRETCHES: usize = MAPPED_MAX / OWN_MAX - 1;
/// Bytes of an entry of a page table.
const ENTRY: usize = 8;

/// How a seed differs from its parent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Pages to be copied, in order.
    pub filled: Vec<Extent>,
    /// Stretches of its own layer to be mapped, in order.
    pub mapped: Vec<Extent>,
    /// Whether its page tables change what the parent's translate, and not only
    /// translate more. Nothing keeps an entry that is not present, neither KVM's shadows
    /// nor the CPU.
    pub forgets_tables: bool,
    /// What is private in a shell that is preset.
    private: Vec<Extent>,
    /// Bytes of memory that were compared.
    compared: u64,
}

impl Difference {
    /// Bytes that an instance has as its own when it was forked from a preset shell: what
    /// was private there, what is copied, and `written`, all sorted.
    #[must_use]
    pub fn private_bytes(&self, written: &[Extent]) -> u64 {
        let mut all = [self.private.as_slice(), &self.filled, written].concat();
        all.sort_by_key(|extent| extent.start);
        let mut end = 0;
        all.iter().fold(0, |bytes, extent| {
            let start = extent.start.max(end);
            end = end.max(extent.end);
            bytes + extent.end.saturating_sub(start)
        })
    }

    /// That of `seed` to its parent; nothing where it has none.
    ///
    /// # Errors
    /// The system's.
    pub fn of(seed: &Seed<Box<VcpuState>>) -> Result<Self, Errno> {
        let Some(parent) = &seed.parent else {
            return Ok(Self::default());
        };
        let mut difference = Self {
            private: preset::written(parent)?,
            ..Self::default()
        };
        for own in seed.layer.extents() {
            let cut = own.end.min(TEXT).max(own.start);
            difference.below_text(seed, own.start, cut)?;
            difference.above(seed, cut, own.end)?;
        }
        Ok(difference)
    }

    /// Tables and what else leads to ring 0: mapped, so that a page of them that is
    /// private is known to have been written by the guest.
    fn below_text(
        &mut self,
        seed: &Seed<Box<VcpuState>>,
        start: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let mut mapped = Vec::new();
        for differing in seed.differences(Extent { start, end })? {
            for page in (differing.start..differing.end).step_by(PAGE as usize) {
                self.forgets_tables |= changes_translations(seed, page)?;
            }
            // Every activation writes the boot page.
            let parts = [
                (differing.start, differing.end.min(BOOT_PAGE)),
                (differing.start.max(BOOT_PAGE + PAGE), differing.end),
            ];
            let parts = parts.map(|(start, end)| Extent { start, end });
            mapped.extend(parts.iter().filter(|part| part.start < part.end));
            if differing.start <= BOOT_PAGE && BOOT_PAGE < differing.end {
                self.filled.push(Extent {
                    start: BOOT_PAGE,
                    end: BOOT_PAGE + PAGE,
                });
            }
        }
        if mapped.len() > STRETCHES {
            // Its layer has all of this extent.
            mapped = vec![Extent { start, end }];
        }
        self.mapped.extend(mapped);
        Ok(())
    }

    /// What is private in the shell already is copied, and what is little; the rest is
    /// mapped: a first write to a page takes 2 us.
    fn above(&mut self, seed: &Seed<Box<VcpuState>>, start: u64, end: u64) -> Result<(), Errno> {
        let whole = Extent { start, end };
        if start >= end {
            return Ok(());
        }
        let compared = self.compared.saturating_add(whole.bytes());
        if start < RODATA_END || compared > COMPARED_BYTES {
            self.mapped.push(whole);
            return Ok(());
        }
        self.compared = compared;
        let (mut filled, mut mapped) = (self.filled.clone(), Vec::new());
        for differing in seed.differences(whole)? {
            for (piece, is_private) in cut(differing, &self.private) {
                if is_private || piece.bytes() <= LITTLE {
                    filled.push(piece);
                } else {
                    mapped.push(piece);
                }
            }
        }
        let bytes: u64 = filled.iter().map(|extent| extent.bytes()).sum();
        if filled.len() <= FILLED_MAX && bytes <= FILLED_BYTES {
            self.filled = filled;
            // Its layer has all of this extent, and so what is between them.
            self.mapped.extend(coalesce(&mapped, PAGE, STRETCHES));
        } else {
            self.mapped.push(whole);
        }
        Ok(())
    }
}

/// Cuts `stretch` where those of `sorted` begin and end; says of each piece whether it
/// lies in one.
fn cut(stretch: Extent, sorted: &[Extent]) -> Vec<(Extent, bool)> {
    let mut pieces = Vec::new();
    let mut at = stretch.start;
    for other in sorted {
        let (start, end) = (other.start.max(at), other.end.min(stretch.end));
        if start >= end {
            continue;
        }
        pieces.push((
            Extent {
                start: at,
                end: start,
            },
            false,
        ));
        pieces.push((Extent { start, end }, true));
        at = end;
    }
    let end = stretch.end;
    pieces.push((Extent { start: at, end }, false));
    pieces.retain(|(piece, _)| piece.start < piece.end);
    pieces
}

/// Whether a page has a translation of the parent's that the seed does not have there.
fn changes_translations(seed: &Seed<Box<VcpuState>>, page: u64) -> Result<bool, Errno> {
    let (Some(parent), true) = (&seed.parent, (PML4..TABLE_ZONE_END).contains(&page)) else {
        return Ok(false);
    };
    let mut pages = [[0; PAGE as usize]; 2];
    let [before, now] = &mut pages;
    parent.view().read(page, before)?;
    seed.view().read(page, now)?;
    // Beyond the zone tables could be anywhere.
    let is_last = page == TABLE_ZONE_END - PAGE && *before != [0; PAGE as usize];
    let entries = before.as_chunks::<ENTRY>().0.iter();
    let lost = entries
        .zip(now.as_chunks::<ENTRY>().0)
        .any(|(before, now)| before != now && u64::from_le_bytes(*before) & PRESENT != 0);
    Ok(is_last || lost)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use faasw_abi::memory_map::pte::TABLE;
    use faasw_abi::memory_map::{DATA, HEAP, TABLE_ZONE};
    use faasw_seedtree::{Layer, LayerBuilder, Level};
    use zerocopy::FromZeros;

    use super::*;

    type State = Box<VcpuState>;

    fn layer(words: &[(u64, u64)], extents: Vec<Extent>) -> Layer {
        let builder = LayerBuilder::new("test", 32 << 20).unwrap();
        for (address, word) in words {
            builder.write(*address, &word.to_le_bytes()).unwrap();
        }
        builder.freeze_at(extents).unwrap()
    }

    fn seed(parent: Option<Arc<Seed<State>>>, layer: Layer) -> Seed<State> {
        Seed {
            level: Level::Engine,
            parent,
            layer,
            state: Box::new(VcpuState::new_zeroed()),
            monotonic_nanoseconds: 0,
        }
    }

    fn extent(start: u64, pages: u64) -> Extent {
        let end = start + pages * PAGE;
        Extent { start, end }
    }

    /// That of a child with these words to a parent with these.
    fn difference(parent: &[(u64, u64)], child: &[(u64, u64)]) -> Difference {
        let whole = vec![extent(0, 16 << 8)];
        let parent = Arc::new(seed(None, layer(parent, whole)));
        let own = vec![
            extent(0, 16),
            extent(TABLE_ZONE, 16),
            extent(DATA, 16),
            extent(HEAP, 256),
        ];
        Difference::of(&seed(Some(parent), layer(child, own))).unwrap()
    }

    #[test]
    fn what_only_adds_translations_leaves_the_others_alone() {
        let entry = |at: u64| (PML4 + 8 * at, (TABLE_ZONE + at * PAGE) | TABLE);
        let added = difference(&[entry(0)], &[entry(0), entry(1)]);
        assert_eq!(added.mapped, [extent(PML4, 1)]);
        assert!(!added.forgets_tables && added.filled.is_empty());
        let gone = difference(&[entry(0), entry(1)], &[entry(0)]);
        assert!(gone.forgets_tables);
        let another = difference(&[entry(0)], &[(PML4, DATA | TABLE)]);
        assert!(another.forgets_tables);
        // A table that the parent has beyond what is compared.
        let last = TABLE_ZONE_END - PAGE;
        assert!(!changes_translations(&seed(None, layer(&[], Vec::new())), last).unwrap());
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
            found.filled,
            [
                extent(BOOT_PAGE, 1),
                extent(DATA + PAGE, 1),
                // Emptied.
                extent(HEAP, 1),
                extent(far, 1)
            ]
        );
        assert_eq!(
            found.mapped,
            [
                extent(BOOT_PAGE + PAGE, 1),
                extent(TABLE_ZONE, 1),
                extent(far + 64 * PAGE, 8)
            ]
        );
    }
}
