//! What an instance came from: the seed's layers, as they lie in its memory.

use std::os::fd::{AsFd, OwnedFd};

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::{FriExtent, FriWindow};
use rustix::io::Errno;

use crate::guest_memory::{self, Mapping};
use crate::stretches::without;
use crate::vm::Vm;

/// Bytes that are compared at once: few calls, and little that stays with a shell.
const COMPARED: usize = 16 << 10;

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
    /// The layers once more, see [`Source::open_view`]; nothing until it was tried.
    view: Option<Option<Mapping>>,
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
    /// that takes two thirds of reading its layers. Without room for it they are read.
    pub fn open_view(&mut self, vm: &mut Vm) {
        let Self {
            layers, windows, ..
        } = &*self;
        if self.view.is_none() {
            self.view = Some(guest_memory::view(&mut vm.arena, layers, windows).ok());
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
                match self.view.flatten() {
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

    /// Fills a stretch of `ram` with what the seed has there.
    ///
    /// # Errors
    /// The system's.
    pub fn fill(&self, ram: Mapping, stretch: FriExtent) -> Result<(), Errno> {
        let mut at = stretch.start;
        for window in self.windows_from(stretch.start) {
            let start = window.extent.start.clamp(at, stretch.end);
            let end = window.extent.end.clamp(start, stretch.end);
            ram.zero(FriExtent {
                start: at,
                end: start,
            })?;
            if start < end {
                let here = FriExtent { start, end };
                match self.view.flatten() {
                    Some(view) => ram.copy(view, here)?,
                    None => ram.fill(self.layer(window)?.as_fd(), here)?,
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

    /// Cuts `stretch` where pages that differ from the seed's begin and end; says of each
    /// piece whether they do.
    ///
    /// # Errors
    /// The system's.
    pub fn changes(
        &self,
        ram: Mapping,
        stretch: FriExtent,
    ) -> Result<Vec<(FriExtent, bool)>, Errno> {
        let mut cut: Vec<(FriExtent, bool)> = Vec::new();
        for start in (stretch.start..stretch.end).step_by(PAGE as usize) {
            let end = start + PAGE;
            let differs = self.page(start)? != ram.page(start)?;
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
    pub fn changed(&self, ram: Mapping, stretch: FriExtent) -> Result<u64, Errno> {
        let mut count = 0;
        let (mut theirs, mut ours) = ([0; COMPARED], [0; COMPARED]);
        let mut at = stretch.start;
        while at < stretch.end {
            let length = COMPARED.min((stretch.end - at) as usize);
            let (theirs, _) = theirs.split_at_mut(length);
            let (ours, _) = ours.split_at_mut(length);
            self.read(at, theirs)?;
            ram.read(at, ours)?;
            let pages = theirs.chunks(PAGE as usize).zip(ours.chunks(PAGE as usize));
            count += pages.filter(|(theirs, ours)| theirs != ours).count() as u64;
            at += length as u64;
        }
        Ok(count)
    }

    /// Gives back what a preset shell had besides its write set, at the first reset after
    /// [`crate::reset::memory`]: what it once was not to wait for need not stay its own.
    ///
    /// # Errors
    /// The system's.
    pub fn settle(&mut self, ram: Mapping) -> Result<(), Errno> {
        for piece in without(&self.copied, &self.write_set) {
            for window in self.windows_from(piece.start) {
                let extent = FriExtent {
                    start: window.extent.start.max(piece.start),
                    end: window.extent.end.min(piece.end),
                };
                if extent.start >= extent.end {
                    break;
                }
                guest_memory::map_window(ram, &self.layers, &FriWindow { extent, ..*window })?;
            }
        }
        self.copied.clear();
        self.lent.clear();
        Ok(())
    }
}
