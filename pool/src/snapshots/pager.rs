//! The pager: brings the rest of a seed's memory from its image while guests of it run (Catalyzer
//! §3.2, on-demand paging; REAP §5.2, prefetching beside it).
//!
//! A thread of its own for each seed that is being read, for as long as that takes. It looks at
//! what guests wait for ([`Faults`]) between two pieces of what nobody has asked for yet. A guest
//! whose page cannot be brought is never let go on: its process ends.

use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{GuestAddress, PageSet};
use faasw_fri::userfault::{Addresses, Faults};
use faasw_seedtree::image::{Filling, ImageError};
use rustix::io::Errno;

/// Ranges of memory that an instance waits in at most: each is a call, and a piece of a mapping.
/// What lies between is brought as zeroes where nobody has a page.
const RANGES_MAX: usize = 64;

/// Ends an instance that will never have all of its memory.
pub trait Ending: std::fmt::Debug + Send + Sync {
    /// Asks for the end of its process.
    fn end(&self);
}

/// An instance some of whose pages are not there yet.
#[derive(Debug)]
struct Waiter {
    faults: Arc<Faults>,
    /// Where its RAM begins in its address space.
    ram: u64,
    ranges: Vec<Addresses>,
    ending: Box<dyn Ending>,
}

#[derive(Debug, Default)]
struct Waiters {
    all: Vec<Arc<Waiter>>,
    /// Nobody is taken up any more.
    is_over: bool,
}

/// Brings one seed's pages. Its thread has it; when that is gone, the layer is whole or of no use.
#[derive(Debug)]
pub struct Pager {
    filling: Filling,
    waiters: Mutex<Waiters>,
}

/// An instance is looked after. Dropping it says that it has ended, or has all of its memory.
#[derive(Debug)]
pub struct Paged {
    pager: Weak<Pager>,
    waiter: Weak<Waiter>,
}

impl Drop for Paged {
    fn drop(&mut self) {
        if let Some(pager) = self.pager.upgrade() {
            let waiter = &self.waiter;
            let is_other = |other: &Arc<Waiter>| !std::ptr::eq(Arc::as_ptr(other), waiter.as_ptr());
            pager.waiters().all.retain(is_other);
        }
    }
}

/// How it ended.
#[derive(Debug)]
pub enum Outcome {
    /// The layer is whole. So many pages were asked for before they were there.
    Whole(u64),
    /// Nobody wanted it any more.
    Unwanted,
    /// It will never be: nothing of it is to be used.
    Failed(ImageError),
}

impl Pager {
    /// One for a layer of which some pages are there.
    pub fn new(filling: Filling) -> Arc<Self> {
        Arc::new(Self {
            filling,
            waiters: Mutex::default(),
        })
    }

    /// Brings the rest, as long as it `is_wanted`, on a thread of its own, which says how that
    /// `ended` before instances hear of it.
    ///
    /// # Errors
    /// The system's, when there can be no more threads: the layer is of no use then.
    pub fn start(
        self: Arc<Self>,
        is_wanted: impl Fn() -> bool + Send + 'static,
        ended: impl FnOnce(Outcome) + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name("faasw-pager".to_owned());
        thread.spawn(move || {
            let outcome = match self.bring(&is_wanted) {
                Ok(true) => Outcome::Whole(self.filling.asked()),
                Ok(false) => Outcome::Unwanted,
                Err(error) => Outcome::Failed(error),
            };
            let is_whole = matches!(outcome, Outcome::Whole(_));
            // Whoever asks for the seed from now on is not told this one, nor reads its image.
            ended(outcome);
            self.filling.give_up();
            if !is_whole {
                let left = {
                    let mut waiters = self.waiters();
                    waiters.is_over = true;
                    std::mem::take(&mut waiters.all)
                };
                // What they are told by is theirs to keep until they have ended.
                left.iter().for_each(|waiter| waiter.ending.end());
            }
        })?;
        Ok(())
    }

    /// Pages that are not there yet.
    pub fn missing(&self) -> PageSet {
        self.filling.missing()
    }

    /// From now on an instance that was forked from the seed waits for what is not there. Its
    /// guest must not have run. Nothing where all is there.
    ///
    /// # Errors
    /// The system's, where its shell has lied; `CANCELED` when the pages will never come.
    pub fn attach(
        self: &Arc<Self>,
        faults: Arc<Faults>,
        ram: u64,
        ending: Box<dyn Ending>,
    ) -> Result<Option<Paged>, Errno> {
        let mut waiters = self.waiters();
        let missing = self.filling.missing();
        if waiters.is_over {
            return match missing.is_empty() {
                true => Ok(None),
                false => Err(Errno::CANCELED),
            };
        }
        let ranges = missing.coalesced(NonZeroU32::MIN, RANGES_MAX);
        let ranges: Option<Vec<Addresses>> = ranges
            .iter()
            .map(|range| {
                let start = ram.checked_add(range.start.address().get())?;
                let bytes = range.bytes();
                Some(Addresses { start, bytes })
            })
            .collect();
        let ranges = ranges.ok_or(Errno::INVAL)?;
        for range in &ranges {
            faults.register(*range)?;
        }
        let waiter = Arc::new(Waiter {
            faults,
            ram,
            ranges,
            ending,
        });
        let paged = Paged {
            pager: Arc::downgrade(self),
            waiter: Arc::downgrade(&waiter),
        };
        waiters.all.push(waiter);
        Ok(Some(paged))
    }

    /// Brings all pages; says whether it did, or nobody wanted it.
    fn bring(&self, is_wanted: &impl Fn() -> bool) -> Result<bool, ImageError> {
        loop {
            // Nobody is kept from being taken up meanwhile.
            let waiters = self.waiters().all.clone();
            for waiter in &waiters {
                self.answer(waiter)?;
            }
            if !is_wanted() {
                return Ok(false);
            }
            if !self.filling.fill_next()? {
                break;
            }
        }
        let mut waiters = self.waiters();
        self.filling.finish()?;
        waiters.is_over = true;
        for waiter in std::mem::take(&mut waiters.all) {
            for range in &waiter.ranges {
                // Whoever has ended meanwhile waits for nothing.
                let _ = waiter.faults.unregister(*range);
            }
        }
        Ok(true)
    }

    /// Brings what an instance waits for.
    fn answer(&self, waiter: &Waiter) -> Result<(), ImageError> {
        while let Some(address) = waiter.faults.next().map_err(ImageError::Layer)? {
            let start = address & !(PAGE - 1);
            let page = Addresses { start, bytes: PAGE };
            let at = GuestAddress::new(start.wrapping_sub(waiter.ram)).page();
            let is_stored = match at {
                Some(at) => self.filling.fill_page(at)?,
                None => false,
            };
            // Whoever has ended meanwhile waits for nothing.
            let _ = match is_stored {
                true => waiter.faults.wake(page),
                false => waiter.faults.zero(page),
            };
        }
        Ok(())
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the system makes single pages of files in memory unless it is asked for large ones:
/// with others a page of zeroes that is touched would stand for pages beside it that are still to
/// come (`Documentation/admin-guide/mm/transhuge.rst`).
pub fn has_small_pages() -> bool {
    const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
    let is_small = |setting: &Path| {
        // A system without such pages has no such file.
        let Ok(text) = std::fs::read_to_string(setting) else {
            return true;
        };
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        matches!(chosen, Some(("never" | "deny" | "advise" | "inherit", _)))
    };
    let sizes = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let folders = sizes.map(|size| size.path()).chain([PathBuf::from(FOLDER)]);
    let mut settings = folders.map(|folder| folder.join("shmem_enabled"));
    settings.all(|setting| is_small(&setting))
}
