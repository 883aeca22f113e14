//! Resetting an instance's memory to exactly that of its seed.
//!
//! The kernel's page tables show which pages are private to the instance, unless it is known that
//! there are no others than before ([`KnownPages`]). Pages that the seed's instances usually write
//! are filled again from the seed (reset by copy: their second-level table entries stay warm). So
//! are a few others; the rest of the private pages are released, so that an instance that once grew
//! does not stay large.
//!
//! The meaning of a private page of the guest's page tables depends on how the host translates
//! addresses ([`PageWalk`]):
//!
//! - If walks leave such pages shared, a private one was written. A guest of ours writes few of
//!   them, and none of those that lead to ring 0. An instance whose guest wrote one of those is not
//!   reset ([`ResetFailure::Broken`]).
//! - If walks make them private, all of them are filled again from the seed like any other page.
//!   The CPU's translations are flushed, and all state that only ring 0 can change is compared each
//!   time.
//! - If KVM keeps shadows of tables, a change behind its back leaves those stale:
//!   [`PageTableState`] lists what has to be done about it.

use faasw_abi::memory_map::{
    EXCEPTION_STACK_TOP, GDT, HOST_TABLES_END, IDT, MAILBOX, PAGE, PML4, RODATA_END, TABLE_ZONE,
    TABLE_ZONE_END, TEXT,
};
use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_fri::messages::VcpuState;
use faasw_seedtree::limits::SET_MAX;
use rustix::io::Errno;

use crate::instance::known::KnownPages;
use crate::instance::seed_memory::{CompareBuffers, SeedMemory};
use crate::memory::mailbox::Mailbox;
use crate::memory::mapping::Mapping;
use crate::memory::page_map::PageMap;
use crate::vm::state::{Change, StateError};
use crate::vm::{FaultCount, PageWalk, Vm};

/// Private pages beyond the write set that are kept warm.
const SPARE_PAGES: u64 = 64;
/// Bytes of an entry of a page table.
const ENTRY: usize = 8;
/// Most entries whose shadows are dropped one by one. The mailbox has room for a list of as many.
const ENTRIES_MAX: usize = 4096;
/// Pages that no guest writes: its text and read-only data, and the descriptors and tables that
/// lead to ring 0.
const TEXTS: PageRange = PageRange::of_bytes(TEXT, RODATA_END);
const DESCRIPTORS: PageRange = PageRange::of_bytes(GDT, IDT + PAGE);
const HOST_TABLES: PageRange = PageRange::of_bytes(PML4 + PAGE, HOST_TABLES_END);
/// The root of the guest's page tables, the other tables, and the first page of the ring-0 stack.
const ROOT_TABLE: PageRange = PageRange::of_bytes(PML4, PML4 + PAGE);
const TABLES: PageRange = PageRange::of_bytes(TABLE_ZONE, TABLE_ZONE_END);
const EXCEPTION_STACK: PageRange =
    PageRange::of_bytes(EXCEPTION_STACK_TOP - PAGE, EXCEPTION_STACK_TOP);

/// Conditions of a reset.
#[derive(Clone, Copy, Debug)]
pub struct ResetConditions {
    /// How the host translates the guest's addresses.
    pub page_walk: PageWalk,
    /// Count the pages of the write set that were not used: each of its pages is compared with the
    /// seed's.
    pub counts_unused: bool,
    /// Page faults so far, if they are counted.
    pub faults: Option<FaultCount>,
}

/// The state of the guest's page tables after a reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PageTableState {
    /// No table was written, nor could be.
    #[default]
    Untouched,
    /// The tables have the seed's contents, perhaps again: the CPU's cached translations must be
    /// flushed.
    Touched,
    /// These entries had changed by the guest, and now by the reset, and KVM has shadows of them.
    Entries(Vec<u64>),
    /// KVM has shadows of tables, and one of these holds: too many entries had changed, the root
    /// was written, or the seed has tables beyond the zone that is inspected.
    Many,
}

/// The work that a reset has done.
#[derive(Clone, Debug, Default)]
pub struct ResetWork {
    /// The private pages were searched for, because they were not known for sure.
    pub looked: bool,
    /// Pages that were filled again.
    pub filled: u64,
    /// Pages that were released.
    pub released: u64,
    /// Private pages that are not in the write set.
    pub outside: u64,
    /// Pages of the write set whose contents equal the seed's, if they were counted.
    pub unused: u64,
    /// The state of the guest's page tables.
    pub tables: PageTableState,
    /// Ring 0 may have been entered. Every entry to ring 0 writes to the ring-0 stack, whose page
    /// is private then. That proves something only if the tables that lead to stack, gates and task
    /// state were the seed's throughout: if walks leave tables shared, and the root was never
    /// written.
    pub ring_0_entered: bool,
}

/// Why an instance could not be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetFailure {
    /// The guest has written this page, which no guest of ours does; or the page is private
    /// although the counts exclude it.
    Broken(u64),
    /// The guest has changed this part of its vCPU's state, which only ring 0 can do.
    Changed(Change),
    /// A system call failed.
    System(Errno),
}

impl From<Errno> for ResetFailure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<StateError> for ResetFailure {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Changed(change) => Self::Changed(change),
            StateError::System(errno) => Self::System(errno),
        }
    }
}

/// Resets `ram`. `known` has the private pages that the last reset left, and receives those that
/// this one leaves.
///
/// # Errors
/// Returns [`ResetFailure::Broken`] if the guest has written a page that it must not, or a private
/// page was not known; [`ResetFailure::System`] if a system call failed.
pub fn memory(
    page_map: &PageMap,
    source: &SeedMemory,
    ram: Mapping,
    known: &mut KnownPages,
    manner: ResetConditions,
) -> Result<ResetWork, ResetFailure> {
    let mut reset = MemoryReset {
        source,
        ram,
        manner,
        copies: manner.counts_unused.then(CompareBuffers::default),
        outside_kept: 0,
        kept: PageSet::new(),
        done: ResetWork::default(),
    };
    if source.has_tables_beyond()? {
        // A write to such a table is not noticed.
        reset.done.tables = if manner.page_walk.has_shadows() {
            PageTableState::Many
        } else {
            PageTableState::Touched
        };
    }
    if let Some(pages) = known.trust(manner.faults) {
        for range in pages.iter() {
            reset.range(range)?;
        }
        return Ok(reset.done);
    }
    reset.done.looked = true;
    let expected = known.expected(manner.faults);
    for mut rest in page_map.where_private(ram, &source.windows)?.iter() {
        while !rest.is_empty() {
            let mut ranges = [PageRange::default(); SET_MAX];
            let (count, next) = page_map.written(ram, rest, &mut ranges)?;
            for range in ranges.iter().take(count) {
                if let Some(pages) = expected {
                    refuse_others(*range, pages)?;
                }
                reset.range(*range)?;
            }
            if next <= rest.start {
                return Err(Errno::IO.into());
            }
            rest.start = next;
        }
    }
    let MemoryReset { kept, done, .. } = reset;
    known.learn(ram, &source.windows, kept, manner.faults);
    Ok(done)
}

struct MemoryReset<'a> {
    source: &'a SeedMemory,
    ram: Mapping,
    manner: ResetConditions,
    /// Buffers for counting unused pages.
    copies: Option<CompareBuffers>,
    /// The number of pages beyond the write set that stay.
    outside_kept: u64,
    /// The pages that stay private, if they were searched for.
    kept: PageSet,
    done: ResetWork,
}

impl MemoryReset<'_> {
    fn range(&mut self, range: PageRange) -> Result<(), ResetFailure> {
        self.inspect(range)?;
        let source = self.source;
        for (piece, is_usual) in source.write_set.cut(range) {
            if is_usual {
                self.usual(piece)?;
                continue;
            }
            for (piece, is_copied) in source.copied.cut(piece) {
                if is_copied {
                    // Released soon, see `settle`.
                    self.done.released += piece.count();
                    continue;
                }
                for (piece, is_lent) in source.lent.cut(piece) {
                    if is_lent {
                        self.lent(piece)?;
                    } else {
                        self.outside(piece)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn usual(&mut self, piece: PageRange) -> Result<(), Errno> {
        if let Some(copies) = &mut self.copies {
            self.done.unused += piece.count() - self.source.changed(self.ram, piece, copies)?;
        }
        self.fill(piece)
    }

    fn outside(&mut self, piece: PageRange) -> Result<(), Errno> {
        self.done.outside += piece.count();
        self.outside_kept += piece.count();
        if self.outside_kept <= SPARE_PAGES {
            self.fill(piece)
        } else {
            self.release(piece)
        }
    }

    /// Releases the pages that the guest did not change.
    fn lent(&mut self, piece: PageRange) -> Result<(), Errno> {
        let changes = self.source.changes(self.ram, piece)?;
        for (piece, has_changed) in changes.cut(piece) {
            if has_changed {
                self.outside(piece)?;
            } else {
                self.release(piece)?;
            }
        }
        Ok(())
    }

    fn release(&mut self, piece: PageRange) -> Result<(), Errno> {
        self.done.released += piece.count();
        self.ram.release(piece)
    }

    fn fill(&mut self, piece: PageRange) -> Result<(), Errno> {
        self.done.filled += piece.count();
        if self.done.looked {
            self.kept.push(piece);
        }
        self.source.fill(self.ram, piece)
    }

    /// Checks for pages that make an instance unfit, before anything is reset.
    fn inspect(&mut self, range: PageRange) -> Result<(), ResetFailure> {
        refuse(range, TEXTS)?;
        self.done.ring_0_entered |= !range.intersection(EXCEPTION_STACK).is_empty();
        if self.manner.page_walk.writes_tables() {
            // A private table proves nothing about the guest. A change that the guest made to it
            // ends with the flush of its TLB, but the table may have led anywhere until then.
            self.done.tables = PageTableState::Touched;
            self.done.ring_0_entered = true;
            return Ok(());
        }
        refuse(range, DESCRIPTORS)?;
        refuse(range, HOST_TABLES)?;
        let is_root_written = !range.intersection(ROOT_TABLE).is_empty();
        // The root may have led elsewhere and back: to other gates and another stack.
        self.done.ring_0_entered |= is_root_written;
        if !self.manner.page_walk.has_shadows() {
            if is_root_written || !range.intersection(TABLES).is_empty() {
                self.done.tables = PageTableState::Touched;
            }
            return Ok(());
        }
        if is_root_written {
            self.done.tables = PageTableState::Many;
        }
        for page in range.intersection(TABLES).pages() {
            self.inspect_table(page)?;
        }
        Ok(())
    }

    /// Adds the entries of a table that have changed.
    fn inspect_table(&mut self, page: Page) -> Result<(), ResetFailure> {
        if self.done.tables == PageTableState::Many {
            return Ok(());
        }
        let before = self.source.page(page)?;
        let now = self.ram.page(page)?;
        if now == before {
            if self.done.tables == PageTableState::Untouched {
                self.done.tables = PageTableState::Touched;
            }
            return Ok(());
        }
        // After the last page of the zone, further tables could be anywhere.
        let address = page.address().get();
        if page.next() == TABLES.end {
            return Err(ResetFailure::Broken(address));
        }
        let changed = before
            .chunks_exact(ENTRY)
            .zip(now.chunks_exact(ENTRY))
            .enumerate()
            .filter(|(_, (before, now))| before != now)
            .map(|(index, _)| address + (index * ENTRY) as u64);
        let mut entries = match std::mem::take(&mut self.done.tables) {
            PageTableState::Entries(entries) => entries,
            _ => Vec::new(),
        };
        entries.extend(changed);
        self.done.tables = if entries.len() > ENTRIES_MAX {
            PageTableState::Many
        } else {
            PageTableState::Entries(entries)
        };
        Ok(())
    }
}

/// Fails if any of the pages `written` is one that no guest writes.
fn refuse(written: PageRange, kept: PageRange) -> Result<(), ResetFailure> {
    let both = written.intersection(kept);
    if both.is_empty() {
        Ok(())
    } else {
        Err(ResetFailure::Broken(both.start.address().get()))
    }
}

/// Fails if any of the pages that were found is not a known one: it became private in a way that is
/// not counted.
fn refuse_others(found: PageRange, known: &PageSet) -> Result<(), ResetFailure> {
    let mut others = known.cut(found).filter(|(_, is_known)| !is_known);
    match others.next() {
        None => Ok(()),
        Some((other, _)) => Err(ResetFailure::Broken(other.start.address().get())),
    }
}

/// Makes KVM drop its shadows of tables that were changed behind its back. This writes to the
/// mailbox, which the caller must wipe afterwards. The vCPU must have been checked.
///
/// # Errors
/// Returns `INVAL` if the list does not fit the mailbox, `PROTO` if the guest's routine does not
/// end as it should, and otherwise KVM's error.
pub fn translations(
    vm: &mut Vm,
    state: &VcpuState,
    mailbox: &Mailbox,
    tables: &PageTableState,
) -> Result<(), Errno> {
    match tables {
        PageTableState::Untouched | PageTableState::Touched => Ok(()),
        PageTableState::Many => vm.forget_tables(),
        PageTableState::Entries(entries) => {
            let at = mailbox.lend(entries)?;
            vm.rewrite(state, MAILBOX + at, entries.len() as u64)
        }
    }
}
