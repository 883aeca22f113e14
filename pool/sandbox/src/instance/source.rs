//! The seed of an instance: its layers, and where they lie in the instance's memory.

use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};

use faasw_abi::memory_map::{PAGE, TABLE_ZONE_END};
use faasw_abi::pages::{GuestAddress, Page, PageRange, PageSet};
use faasw_seedtree::Window;
use rustix::io::Errno;

use crate::memory::guest_memory;
use crate::memory::mapping::Mapping;
use crate::vm::Vm;

/// Pages that are compared at once. Their copies stay on every warm instance's stack, twice.
const COMPARED: u32 = 1;
const COMPARED_BYTES: usize = COMPARED as usize * PAGE as usize;

/// The page of the zone for page tables that a guest takes last.
const LAST_TABLE: Page = PageRange::of_bytes(TABLE_ZONE_END - PAGE, TABLE_ZONE_END).start;

/// Buffers for copies of pages that are compared. Clearing them costs more than copying the two
/// pages of a one-page piece, and there are many such pieces: so they are made once for all pieces.
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

/// The seed that an instance's memory is reset to.
pub struct Source {
    /// The seed's layers, root first. Empty after the first reset if the view replaces them.
    pub layers: Vec<OwnedFd>,
    /// The windows through which the layers are mapped, in order.
    pub windows: Vec<Window>,
    /// The pages that instances usually write.
    pub write_set: PageSet,
    /// Pages to which the seed's contents were copied; the seed's parent is mapped there. The
    /// first reset maps the seed there, except in the write set, which is always filled again.
    pub copied: PageSet,
    /// Other pages that were made private in advance without being in the write set; the seed is
    /// mapped there. The first reset releases them.
    pub lent: PageSet,
    /// A second mapping of the layers, see [`Source::open_view`]; `None` until it was tried.
    view: Option<Option<Mapping>>,
    /// Whether there may be page tables anywhere, once this was determined.
    has_tables_beyond: OnceCell<bool>,
}

impl Source {
    /// Returns a seed that is mapped as its windows say, without pages that were copied or made
    /// private in advance.
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

    /// Maps the seed once more, read-only and at the same offsets as in RAM, for resets to copy
    /// from: this takes two thirds of the time of reading its layers. If there is no room for the
    /// view, the layers are read.
    pub fn open_view(&mut self, vm: &mut Vm) {
        let Self {
            layers, windows, ..
        } = &*self;
        if self.view.is_none() {
            self.view = Some(guest_memory::view(&mut vm.arena, layers, windows).ok());
        }
    }

    /// Closes the layers' files if there is a view, which then is enough. The view stays mapped.
    pub fn close_layers(&mut self) {
        if self.view.flatten().is_some() {
            self.layers.clear();
        }
    }

    /// Returns the windows that end after `page`.
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

    /// Returns a page with the seed's contents.
    ///
    /// # Errors
    /// Returns `INVAL` if a window's layer is missing; otherwise the error of reading it.
    pub fn page(&self, page: Page) -> Result<[u8; PAGE as usize], Errno> {
        let mut content = [0; PAGE as usize];
        self.read(page, &mut content)?;
        Ok(content)
    }

    /// Whether the seed may have page tables beyond their zone, and so anywhere: the zone is full.
    ///
    /// # Errors
    /// As [`Source::page`].
    pub fn has_tables_beyond(&self) -> Result<bool, Errno> {
        if let Some(known) = self.has_tables_beyond.get() {
            return Ok(*known);
        }
        let last = self.page(LAST_TABLE)?;
        Ok(*self
            .has_tables_beyond
            .get_or_init(|| last != [0; PAGE as usize]))
    }

    /// Fills `out` with the seed's contents from `first` on: whole pages.
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

    /// Fills pages of `ram` with the seed's contents.
    ///
    /// # Errors
    /// Returns `INVAL` if a window's layer is missing or the pages do not lie in `ram`; otherwise
    /// the error of reading a layer.
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

    /// Maps the seed's layers to pages of `ram`, where the seed has a window. The layers' files
    /// must still be open.
    ///
    /// # Errors
    /// Returns `INVAL` if a window's layer is missing; otherwise the error of `mmap`.
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

    /// Returns the pages of `range` that differ from the seed's.
    ///
    /// # Errors
    /// As [`Source::page`], and `INVAL` if the range does not lie in `ram`.
    pub fn changes(&self, ram: Mapping, range: PageRange) -> Result<PageSet, Errno> {
        let mut changes = PageSet::new();
        for page in range.pages() {
            if self.page(page)? != ram.page(page)? {
                changes.push(PageRange::one(page));
            }
        }
        Ok(changes)
    }

    /// Returns how many pages of `range` differ from the seed's.
    ///
    /// # Errors
    /// As [`Source::changes`].
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

    /// Maps the seed to the pages that were copied to a specialised zygote, except for its write
    /// set. Each reset calls this after [`crate::instance::reset::memory`]; only the first finds
    /// such pages. Pages that were made private so that the first request need not wait do not stay
    /// private.
    ///
    /// # Errors
    /// As [`Source::map`].
    pub fn settle(&mut self, ram: Mapping) -> Result<(), Errno> {
        for piece in self.copied.without(&self.write_set).iter() {
            self.map(ram, piece)?;
        }
        self.copied = PageSet::new();
        self.lent = PageSet::new();
        Ok(())
    }
}
