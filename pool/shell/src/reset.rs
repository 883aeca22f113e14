//! Giving an instance its seed's exact memory back.
//!
//! Which pages are the instance's own is asked of the kernel's page tables. Those
//! that the seed's instances usually write are filled again from the seed (reset
//! by copy: their second-level table entries stay warm); what is private beyond
//! them is let go, so that an instance that once grew does not stay large.
//!
//! Where the hardware does not walk the guest's page tables, KVM keeps shadows of
//! them, which a change behind its back leaves stale: [`Tables`] says what is to be
//! done about it. A guest of ours changes few tables, and none of the pages that
//! lead to ring 0; one that did is not reset ([`Trouble::Broken`]).

use std::os::fd::{AsFd, OwnedFd};

use faasw_abi::mailbox::RESPONSE_BODY;
use faasw_abi::memory_map::{
    EXCEPTION_STACK_TOP, GDT, HOST_TABLES_END, IDT, MAILBOX, PAGE, PML4, RODATA_END, TABLE_ZONE,
    TABLE_ZONE_END, TEXT,
};
use faasw_fri::messages::{FriExtent, FriWindow, SET_MAX, VcpuState};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::guest_memory::{self, Mapping};
use crate::page_map::PageMap;
use crate::state::{Change, Unready};
use crate::vm::Vm;

/// Private pages beyond the write set that are kept warm.
const SPARE_PAGES: u64 = 64;
/// Bytes of an entry of a page table.
const ENTRY: usize = 8;
/// Most entries whose shadows are dropped one by one; as many fit where their list
/// is put.
const ENTRIES_MAX: usize = 4096;
/// Bytes that are compared at once: few calls, and little that stays with a shell.
const COMPARED: usize = 16 << 10;
/// Bytes of a mailbox that are kept warm.
const MAILBOX_KEPT: u64 = 256 << 10;

/// What an instance's memory is brought back to.
pub struct Source {
    /// The seed's layers, root first.
    pub layers: Vec<OwnedFd>,
    /// Where they are mapped, in order.
    pub windows: Vec<FriWindow>,
    /// What instances usually write, in order.
    pub write_set: Vec<FriExtent>,
    /// Where the seed's contents were copied to, in order: the seed's parent is mapped
    /// there. The first reset maps the seed, except in the write set, which is always
    /// filled again.
    pub copied: Vec<FriExtent>,
    /// What else was made private ahead without being in the write set, in order; what
    /// is mapped there is the seed's. The first reset gives it back.
    pub lent: Vec<FriExtent>,
    /// The layers once more, see [`Source::open_view`].
    view: Option<Mapping>,
}

impl Source {
    /// A seed that is mapped where its windows say, and nothing was done ahead.
    pub fn new(layers: Vec<OwnedFd>, windows: &[FriWindow], write_set: &[FriExtent]) -> Self {
        Self {
            layers,
            windows: windows.to_vec(),
            write_set: write_set.to_vec(),
            copied: Vec::new(),
            lent: Vec::new(),
            view: None,
        }
    }

    /// Maps the seed once more, read-only and as it is in RAM, for resets to copy from:
    /// that takes half as long as to read its layers. Without room for it they are read.
    pub fn open_view(&mut self, vm: &mut Vm) {
        if self.view.is_none() {
            self.view = guest_memory::view(&mut vm.arena, &self.layers, &self.windows).ok();
        }
    }

    /// The windows that end behind `address`.
    fn windows_from(&self, address: u64) -> &[FriWindow] {
        let first = self
            .windows
            .partition_point(|window| window.extent.end <= address);
        self.windows.get(first..).unwrap_or_default()
    }

    fn layer(&self, window: &FriWindow) -> Result<&OwnedFd, Errno> {
        usize::try_from(window.layer)
            .ok()
            .and_then(|place| self.layers.get(place))
            .ok_or(Errno::INVAL)
    }

    /// The page at `address` as the seed has it.
    ///
    /// # Errors
    /// The system's.
    pub fn page(&self, address: u64) -> Result<[u8; PAGE as usize], Errno> {
        let mut page = [0; PAGE as usize];
        self.read(address, &mut page)?;
        Ok(page)
    }

    /// Fills `out` with what the seed has from `address` on: whole pages.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        let mut at = address;
        let mut rest = out;
        for window in self.windows_from(address) {
            let gap = window.extent.start.saturating_sub(at);
            let (fresh, behind) = rest.split_at_mut(rest.len().min(gap as usize));
            fresh.fill(0);
            at += fresh.len() as u64;
            let length = window.extent.end.saturating_sub(at) as usize;
            let (now, later) = behind.split_at_mut(behind.len().min(length));
            if !now.is_empty() {
                match self.view {
                    Some(view) => view.read(at, now)?,
                    None => {
                        let read = rustix::io::pread(self.layer(window)?, &mut *now, at)?;
                        if read != now.len() {
                            return Err(Errno::IO);
                        }
                    }
                }
                at += now.len() as u64;
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        rest.fill(0);
        Ok(())
    }
}

/// How an instance's memory is to be brought back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// KVM keeps shadows of page tables.
    pub shadowed: bool,
    /// What of the write set was not used is to be counted: each of its pages is
    /// compared with the seed's.
    pub counts_unused: bool,
}

/// What became of the guest's page tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    /// None was ever written, nor could be.
    #[default]
    Untouched,
    /// They are as they were, perhaps again: what the CPU remembers must go.
    Touched,
    /// These entries had changed, by the guest and now by the reset. KVM has
    /// shadows of them.
    Entries(Vec<u64>),
    /// Too many had, or the root was written.
    Many,
}

impl Tables {
    /// Whether shadows of them are stale.
    pub fn have_changed(&self) -> bool {
        matches!(self, Self::Entries(_) | Self::Many)
    }
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Pages filled again.
    pub filled: u64,
    /// Pages let go.
    pub let_go: u64,
    /// Private pages that were not in the write set.
    pub outside: u64,
    /// Pages of the write set that were as the seed has them, if they were counted.
    pub unused: u64,
    /// What became of the guest's page tables.
    pub tables: Tables,
    /// Ring 0 may have been entered. Every way there writes to the ring-0 stack, whose
    /// page is private then; but only where the tables that lead to stack, gates and
    /// task are known to be the seed's throughout, which takes shadows of them and a
    /// root that was never written.
    pub ring_0_entered: bool,
}

/// Why an instance could not be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The guest has written this page, which no guest of ours does.
    Broken(u64),
    /// The guest has changed this of its vCPU, which takes ring 0.
    Changed(Change),
    /// The system failed.
    System(Errno),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<Unready> for Trouble {
    fn from(unready: Unready) -> Self {
        match unready {
            Unready::Changed(change) => Self::Changed(change),
            Unready::System(errno) => Self::System(errno),
        }
    }
}

/// Brings `ram` back.
///
/// # Errors
/// [`Trouble::Broken`] when the instance must end; the system's.
pub fn memory(
    page_map: &PageMap,
    source: &Source,
    ram: Mapping,
    manner: Manner,
) -> Result<Restored, Trouble> {
    let mut reset = Reset {
        source,
        ram,
        manner,
        kept: 0,
        done: Restored::default(),
    };
    let mut from = 0;
    while from < ram.bytes() {
        let mut stretches = [FriExtent::default(); SET_MAX];
        let (count, next) = page_map.written(ram, from, &mut stretches)?;
        for stretch in stretches.iter().take(count) {
            reset.stretch(*stretch)?;
        }
        if next <= from {
            return Err(Errno::IO.into());
        }
        from = next;
    }
    Ok(reset.done)
}

struct Reset<'a> {
    source: &'a Source,
    ram: Mapping,
    manner: Manner,
    kept: u64,
    done: Restored,
}

impl Reset<'_> {
    fn stretch(&mut self, stretch: FriExtent) -> Result<(), Trouble> {
        self.inspect(stretch)?;
        let source = self.source;
        for (piece, is_usual) in split(stretch, &source.write_set) {
            if is_usual {
                self.usual(piece)?;
                continue;
            }
            for (piece, is_copied) in split(piece, &source.copied) {
                if is_copied {
                    // Soon gone, see `settle`.
                    self.done.let_go += pages(piece);
                    continue;
                }
                for (piece, is_lent) in split(piece, &source.lent) {
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

    fn usual(&mut self, piece: FriExtent) -> Result<(), Errno> {
        if self.manner.counts_unused {
            self.done.unused += pages(piece) - changed(self.source, self.ram, piece)?;
        }
        self.fill(piece)
    }

    fn outside(&mut self, piece: FriExtent) -> Result<(), Errno> {
        self.done.outside += pages(piece);
        self.kept += pages(piece);
        if self.kept <= SPARE_PAGES {
            self.fill(piece)
        } else {
            self.let_go(piece)
        }
    }

    /// Gives back what the guest did not use.
    fn lent(&mut self, piece: FriExtent) -> Result<(), Errno> {
        for (piece, has_changed) in changes(self.source, self.ram, piece)? {
            if has_changed {
                self.outside(piece)?;
            } else {
                self.let_go(piece)?;
            }
        }
        Ok(())
    }

    fn let_go(&mut self, piece: FriExtent) -> Result<(), Errno> {
        self.done.let_go += pages(piece);
        self.ram.let_go(piece)
    }

    fn fill(&mut self, piece: FriExtent) -> Result<(), Errno> {
        self.done.filled += pages(piece);
        fill(self.source, self.ram, piece)
    }

    /// Looks for what makes an instance unfit, before anything is brought back.
    fn inspect(&mut self, stretch: FriExtent) -> Result<(), Trouble> {
        if let Some(page) = first_in(stretch, TEXT, RODATA_END) {
            return Err(Trouble::Broken(page));
        }
        self.done.ring_0_entered |=
            first_in(stretch, EXCEPTION_STACK_TOP - PAGE, EXCEPTION_STACK_TOP).is_some();
        if !self.manner.shadowed {
            // The hardware's own walks write accessed bits and so make tables
            // private; what the guest did to them ends with the flush of its TLB. They
            // may have led anywhere meanwhile.
            self.done.tables = Tables::Touched;
            self.done.ring_0_entered = true;
            return Ok(());
        }
        for (start, end) in [(GDT, IDT + PAGE), (PML4 + PAGE, HOST_TABLES_END)] {
            if let Some(page) = first_in(stretch, start, end) {
                return Err(Trouble::Broken(page));
            }
        }
        if first_in(stretch, PML4, PML4 + PAGE).is_some() {
            // It may have led elsewhere, and back: to other gates and another stack.
            self.done.ring_0_entered = true;
            self.done.tables = Tables::Many;
        }
        let first = stretch.start.max(TABLE_ZONE);
        for page in (first..stretch.end.min(TABLE_ZONE_END)).step_by(PAGE as usize) {
            self.inspect_table(page)?;
        }
        Ok(())
    }

    /// Takes note of the entries of a table that have changed.
    fn inspect_table(&mut self, page: u64) -> Result<(), Trouble> {
        let before = self.source.page(page)?;
        let now = self.ram.page(page)?;
        if now == before {
            if self.done.tables == Tables::Untouched {
                self.done.tables = Tables::Touched;
            }
            return Ok(());
        }
        // Tables beyond the zone could be anywhere.
        if page == TABLE_ZONE_END - PAGE {
            return Err(Trouble::Broken(page));
        }
        let changed = before
            .chunks_exact(ENTRY)
            .zip(now.chunks_exact(ENTRY))
            .enumerate()
            .filter(|(_, (before, now))| before != now)
            .map(|(index, _)| page + (index * ENTRY) as u64);
        let mut entries = match std::mem::take(&mut self.done.tables) {
            Tables::Many => {
                self.done.tables = Tables::Many;
                return Ok(());
            }
            Tables::Entries(entries) => entries,
            Tables::Untouched | Tables::Touched => Vec::new(),
        };
        entries.extend(changed);
        self.done.tables = if entries.len() > ENTRIES_MAX {
            Tables::Many
        } else {
            Tables::Entries(entries)
        };
        Ok(())
    }
}

fn pages(stretch: FriExtent) -> u64 {
    (stretch.end - stretch.start) / PAGE
}

/// Fills a stretch of `ram` with what the seed has there.
///
/// # Errors
/// The system's.
pub fn fill(source: &Source, ram: Mapping, stretch: FriExtent) -> Result<(), Errno> {
    let mut at = stretch.start;
    for window in source.windows_from(stretch.start) {
        let start = window.extent.start.clamp(at, stretch.end);
        let end = window.extent.end.clamp(start, stretch.end);
        ram.zero(FriExtent {
            start: at,
            end: start,
        })?;
        if start < end {
            let here = FriExtent { start, end };
            match source.view {
                Some(view) => ram.copy(view, here)?,
                None => ram.fill(source.layer(window)?.as_fd(), here)?,
            }
        }
        at = end;
        if at == stretch.end {
            return Ok(());
        }
    }
    ram.zero(FriExtent {
        start: at,
        end: stretch.end,
    })
}

/// Gives back what a preset shell had besides its write set, at the first reset after
/// [`memory`]: what it once was not to wait for need not stay its own.
///
/// # Errors
/// The system's.
pub fn settle(source: &mut Source, ram: Mapping) -> Result<(), Errno> {
    for piece in without(&source.copied, &source.write_set) {
        for window in source.windows_from(piece.start) {
            let extent = FriExtent {
                start: window.extent.start.max(piece.start),
                end: window.extent.end.min(piece.end),
            };
            if extent.start >= extent.end {
                break;
            }
            guest_memory::map_window(ram, &source.layers, &FriWindow { extent, ..*window })?;
        }
    }
    source.copied.clear();
    source.lent.clear();
    Ok(())
}

/// What is left of `stretches` where none of `holes` is; both in order.
pub fn without(stretches: &[FriExtent], holes: &[FriExtent]) -> Vec<FriExtent> {
    stretches
        .iter()
        .flat_map(|stretch| split(*stretch, holes))
        .filter_map(|(piece, is_hole)| (!is_hole).then_some(piece))
        .collect()
}

/// Cuts `stretch` where pages that differ from the seed's begin and end; says of each
/// piece whether they do.
///
/// # Errors
/// The system's.
pub fn changes(
    source: &Source,
    ram: Mapping,
    stretch: FriExtent,
) -> Result<Vec<(FriExtent, bool)>, Errno> {
    let mut cut: Vec<(FriExtent, bool)> = Vec::new();
    for start in (stretch.start..stretch.end).step_by(PAGE as usize) {
        let end = start + PAGE;
        let differs = source.page(start)? != ram.page(start)?;
        match cut.last_mut() {
            Some((last, same)) if *same == differs => last.end = end,
            _ => cut.push((FriExtent { start, end }, differs)),
        }
    }
    Ok(cut)
}

/// How many pages of `stretch` differ from the seed's.
///
/// # Errors
/// The system's.
pub fn changed(source: &Source, ram: Mapping, stretch: FriExtent) -> Result<u64, Errno> {
    let mut count = 0;
    let (mut theirs, mut ours) = ([0; COMPARED], [0; COMPARED]);
    let mut at = stretch.start;
    while at < stretch.end {
        let length = COMPARED.min((stretch.end - at) as usize);
        let (theirs, _) = theirs.split_at_mut(length);
        let (ours, _) = ours.split_at_mut(length);
        source.read(at, theirs)?;
        ram.read(at, ours)?;
        let pages = theirs.chunks(PAGE as usize).zip(ours.chunks(PAGE as usize));
        count += pages.filter(|(theirs, ours)| theirs != ours).count() as u64;
        at += length as u64;
    }
    Ok(count)
}

/// The first page of `stretch` that lies in `start..end`.
fn first_in(stretch: FriExtent, start: u64, end: u64) -> Option<u64> {
    let first = stretch.start.max(start);
    (first < stretch.end.min(end)).then_some(first)
}

/// All of two lists, in order; what overlaps is not joined.
pub fn union(left: &[FriExtent], right: &[FriExtent]) -> Vec<FriExtent> {
    let mut all = [left, right].concat();
    all.sort_by_key(|extent| extent.start);
    all
}

/// Cuts `stretch` into pieces that are wholly inside or outside of `sorted`.
pub fn split(
    stretch: FriExtent,
    sorted: &[FriExtent],
) -> impl Iterator<Item = (FriExtent, bool)> + use<'_> {
    let mut at = stretch.start;
    std::iter::from_fn(move || {
        if at >= stretch.end {
            return None;
        }
        let start = at;
        let next = sorted.iter().find(|extent| extent.end > start);
        let (end, inside) = match next {
            Some(extent) if extent.start <= start => (extent.end, true),
            Some(extent) => (extent.start, false),
            None => (stretch.end, false),
        };
        at = end.min(stretch.end);
        Some((FriExtent { start, end: at }, inside))
    })
}

/// Makes KVM drop what it remembers of tables that were changed behind its back.
/// The mailbox is written to; it is to be wiped afterwards. The vCPU must have been
/// checked.
///
/// # Errors
/// KVM's.
pub fn translations(
    vm: &mut Vm,
    state: &VcpuState,
    mailbox: Mapping,
    tables: &Tables,
) -> Result<(), Errno> {
    match tables {
        Tables::Untouched | Tables::Touched => Ok(()),
        Tables::Many => vm.forget_tables(),
        Tables::Entries(entries) => {
            mailbox.put(RESPONSE_BODY.offset, entries)?;
            vm.rewrite(state, MAILBOX + RESPONSE_BODY.offset, entries.len() as u64)
        }
    }
}

/// Wipes every page that the mailbox's file has, whoever wrote it.
///
/// # Errors
/// The system's.
pub fn mailbox(file: &OwnedFd, mapping: Mapping) -> Result<(), Errno> {
    let mut at = 0;
    let mut kept = 0;
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(mapping.bytes());
        let keep = end.min(start + (MAILBOX_KEPT - kept));
        if start < keep {
            mapping.zero(FriExtent { start, end: keep })?;
            kept += keep - start;
        }
        if keep < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, keep, end - keep)?;
        }
        if end >= mapping.bytes() {
            return Ok(());
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> FriExtent {
        FriExtent { start, end }
    }

    fn pieces(stretch: FriExtent, sorted: &[FriExtent]) -> Vec<(u64, u64, bool)> {
        split(stretch, sorted)
            .map(|(piece, inside)| (piece.start, piece.end, inside))
            .collect()
    }

    #[test]
    fn a_stretch_is_cut_where_sets_begin_and_end() {
        let set = [extent(10, 20), extent(30, 40)];
        assert_eq!(
            pieces(extent(5, 50), &set),
            [
                (5, 10, false),
                (10, 20, true),
                (20, 30, false),
                (30, 40, true),
                (40, 50, false)
            ]
        );
        assert_eq!(pieces(extent(12, 15), &set), [(12, 15, true)]);
        assert_eq!(pieces(extent(20, 30), &set), [(20, 30, false)]);
        assert_eq!(pieces(extent(0, 5), &[]), [(0, 5, false)]);
        assert_eq!(pieces(extent(5, 5), &set), []);
    }

    #[test]
    fn what_lies_in_a_window_is_found() {
        assert_eq!(first_in(extent(0, 10), 5, 7), Some(5));
        assert_eq!(first_in(extent(6, 10), 5, 7), Some(6));
        assert_eq!(first_in(extent(7, 10), 5, 7), None);
        assert_eq!(first_in(extent(0, 5), 5, 7), None);
    }
}
