//! What an instance came from: the seed's layers, as they lie in its memory.

use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};

use faasw_abi::memory_map::{PAGE, TABLE_ZONE_END};
use faasw_abi::pages::{GuestAddress, Page, PageRange, PageSet};
use faasw_seedtree::Window;
use rustix::io::Errno;

use crate::memory::guest_memory;
use crate::memory::mapping::Mapping;
use crate::vm::Vm;

/// Pages that are compared at once. Each stays in every parked instance's stack, twice.
const COMPARED: u32 = 1;
const COMPARED_BYTES: usize = COMPARED as usize * PAGE as usize;

/// The page of the zone for page tables that a guest takes last.
const LAST_TABLE: Page = PageRange::of_bytes(TABLE_ZONE_END - PAGE, TABLE_ZONE_END).start;

/// Room for copies of pages that are compared. Clearing it is more than to copy the two pages of
/// a piece of one, and there are many such: so it is made once for all of them.
pub struct Copies {
    theirs: [u8; COMPARED_BYTES],
    ours: [u8; COMPARED_BYTES],
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            theirs: [0; COMPARED_BYTES],
            ours: [0; COMPARED_BYTES],
        }
    }
}

/// What an instance's memory is brought back to.
pub struct Source {
    /// The seed's layers, root first; none any more after the first reset.
    pub layers: Vec<OwnedFd>,
    /// Where they are mapped, in order.
    pub windows: Vec<Window>,
    /// What instances usually write.
    pub write_set: PageSet,
    /// Where the seed's contents were copied to: the seed's parent is mapped there. The
    /// first reset maps the seed, except in the write set, which is always filled again.
    pub copied: PageSet,
    /// What else was made private ahead without being in the write set; what is mapped
    /// there is the seed's. The first reset gives it back.
    pub lent: PageSet,
    /// The layers once more, see [`Source::open_view`]; nothing until it was tried.
    view: Option<Option<Mapping>>,
    /// Whether there may be page tables anywhere, once it was looked at.
    has_tables_beyond: OnceCell<bool>,
}

impl Source {
    /// A seed that is mapped where its windows say, and nothing was done ahead.
    pub fn new(layers: Vec<OwnedFd>, windows: &[Window], write_set: PageSet) -> Self {
        Self {
            layers,
            windows: windows.to_vec(),
            write_set,
            copied: PageSet::new(),
            lent: PageSet::new(),
            view: None,
            has_tables_beyond: OnceCell::new(),
        }
    }

    /// Maps the seed once more, read-only and as it is in RAM, for resets to copy from:
    /// that takes two thirds of reading its layers. Without room for it they are read.
    pub fn open_view(&mut self, vm: &mut Vm) {
        let Self {
            layers, windows, ..
        } = &*self;
        if self.view.is_none() {
            self.view = Some(guest_memory::view(&mut vm.arena, layers, windows).ok());
        }
    }

    /// Lets the layers' files go once the view has all that is needed of them. What stays is
    /// mapped.
    pub fn close_layers(&mut self) {
        if self.view.flatten().is_some() {
            self.layers.clear();
        }
    }

    /// The windows of pages behind `page`, and of itself.
    fn windows_from(&self, page: Page) -> &[Window] {
        let first = self
            .windows
            .partition_point(|window| window.range.end <= page);
        self.windows.get(first..).unwrap_or_default()
    }

    fn layer(&self, window: &Window) -> Result<&OwnedFd, Errno> {
        let layer = self.layers.get(window.layer as usize);
        layer.ok_or(Errno::INVAL)
    }

    /// A page as the seed has it.
    ///
    /// # Errors
    /// The system's.
    pub fn page(&self, page: Page) -> Result<[u8; PAGE as usize], Errno> {
        let mut content = [0; PAGE as usize];
        self.read(page, &mut content)?;
        Ok(content)
    }

    /// Whether the seed may have page tables beyond their zone, and so anywhere: the zone is
    /// full.
    ///
    /// # Errors
    /// The system's.
    pub fn has_tables_beyond(&self) -> Result<bool, Errno> {
        if let Some(known) = self.has_tables_beyond.get() {
            return Ok(*known);
        }
        let last = self.page(LAST_TABLE)?;
        Ok(*self
            .has_tables_beyond
            .get_or_init(|| last != [0; PAGE as usize]))
    }

    /// Fills `out` with what the seed has from `first` on: whole pages.
    fn read(&self, first: Page, out: &mut [u8]) -> Result<(), Errno> {
        let mut at = first.address().get();
        let mut rest = out;
        for window in self.windows_from(first) {
            let [start, end] = [window.range.start, window.range.end].map(|page| page.address());
            let gap = start.get().saturating_sub(at);
            let (fresh, behind) = rest.split_at_mut(rest.len().min(gap as usize));
            fresh.fill(0);
            at += fresh.len() as u64;
            let length = end.get().saturating_sub(at) as usize;
            let (now, later) = behind.split_at_mut(behind.len().min(length));
            if !now.is_empty() {
                match self.view.flatten() {
                    Some(view) => view.read(GuestAddress::new(at), now)?,
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

    /// Fills pages of `ram` with what the seed has there.
    ///
    /// # Errors
    /// The system's.
    pub fn fill(&self, ram: Mapping, range: PageRange) -> Result<(), Errno> {
        let mut rest = range;
        for window in self.windows_from(range.start) {
            let here = window.range.intersection(rest);
            if here.is_empty() {
                break;
            }
            ram.zero(PageRange::new(rest.start, here.start))?;
            match self.view.flatten() {
                Some(view) => ram.copy(view, here)?,
                None => ram.fill(self.layer(window)?.as_fd(), here)?,
            }
            rest.start = here.end;
        }
        ram.zero(rest)
    }

    /// Maps pages of `ram` as the seed has them, as far as it has any there: while its
    /// layers' files are there.
    ///
    /// # Errors
    /// The system's; `INVAL` where a window's layer is missing.
    pub fn map(&self, ram: Mapping, range: PageRange) -> Result<(), Errno> {
        for window in self.windows_from(range.start) {
            let here = window.range.intersection(range);
            if here.is_empty() {
                break;
            }
            let here = Window {
                range: here,
                ..*window
            };
            guest_memory::map_window(ram, &self.layers, &here)?;
        }
        Ok(())
    }

    /// The pages of `range` that differ from the seed's.
    ///
    /// # Errors
    /// The system's.
    pub fn changes(&self, ram: Mapping, range: PageRange) -> Result<PageSet, Errno> {
        let mut changes = PageSet::new();
        for page in range.pages() {
            if self.page(page)? != ram.page(page)? {
                changes.push(PageRange::one(page));
            }
        }
        Ok(changes)
    }

    /// How many pages of `range` differ from the seed's.
    ///
    /// # Errors
    /// The system's.
    pub fn changed(
        &self,
        ram: Mapping,
        range: PageRange,
        copies: &mut Copies,
    ) -> Result<u64, Errno> {
        let mut count = 0;
        let mut rest = range;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(COMPARED);
            let (theirs, _) = copies.theirs.split_at_mut(piece.bytes() as usize);
            let (ours, _) = copies.ours.split_at_mut(piece.bytes() as usize);
            self.read(piece.start, theirs)?;
            ram.read(piece.start.address(), ours)?;
            let pages = theirs.chunks(PAGE as usize).zip(ours.chunks(PAGE as usize));
            count += pages.filter(|(theirs, ours)| theirs != ours).count() as u64;
            rest = behind;
        }
        Ok(count)
    }

    /// Gives back what a specialised zygote had besides its write set, at the first reset after
    /// [`crate::instance::reset::memory`]: what it once was not to wait for need not stay its own.
    ///
    /// # Errors
    /// The system's.
    pub fn settle(&mut self, ram: Mapping) -> Result<(), Errno> {
        for piece in self.copied.without(&self.write_set).iter() {
            self.map(ram, piece)?;
        }
        self.copied = PageSet::new();
        self.lent = PageSet::new();
        Ok(())
    }
}
