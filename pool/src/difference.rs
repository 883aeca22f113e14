//! What a function's seed needs done in a shell that is an image of its parent.
//!
//! Found out once for each seed, by comparing contents: layers are sealed, so what
//! differs stays what it is.

use faasw_abi::memory_map::pte::PRESENT;
use faasw_abi::memory_map::{BOOT_PAGE, PAGE, PML4, RODATA_END, TABLE_ZONE_END, TEXT};
use faasw_fri::messages::{FILLED_MAX, MAPPED_MAX, OWN_MAX, VcpuState};
use faasw_seedtree::{Extent, Seed};
use rustix::io::Errno;

/// Pages that are copied at most: each takes 0.3 us and is the instance's own from then
/// on, where a mapping of any size takes 5 to 15 us and a fault for each page used.
const FILLED_PAGES: u64 = 256;
/// A layer of more bytes is not even compared: copying it would be too much anyway.
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
}

impl Difference {
    /// That of `seed` to its parent; nothing where it has none.
    ///
    /// # Errors
    /// The system's.
    pub fn of(seed: &Seed<Box<VcpuState>>) -> Result<Self, Errno> {
        let mut difference = Self::default();
        if seed.parent.is_none() {
            return Ok(difference);
        }
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

    fn above(&mut self, seed: &Seed<Box<VcpuState>>, start: u64, end: u64) -> Result<(), Errno> {
        let whole = Extent { start, end };
        if start >= end {
            return Ok(());
        }
        if start >= RODATA_END && seed.layer.data_bytes() <= COMPARED_BYTES {
            let differing = seed.differences(whole)?;
            let all = self.filled.iter().chain(&differing);
            let (count, pages) = all.fold((0, 0), |(count, pages), extent| {
                (count + 1, pages + extent.bytes() / PAGE)
            });
            if count <= FILLED_MAX && pages <= FILLED_PAGES {
                self.filled.extend(differing);
                return Ok(());
            }
        }
        self.mapped.push(whole);
        Ok(())
    }
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
