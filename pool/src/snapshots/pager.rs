//! The pager: brings the rest of a seed's memory from its image, and of its code from its artifact,
//! while guests of it run (Catalyzer §3.2, on-demand paging; REAP §5.2, prefetching beside it).
//!
//! A thread of its own for each seed that is being read, for as long as that takes. It looks at
//! what guests wait for ([`Faults`]) between two pieces of what nobody has asked for yet. One
//! answers for memory and code: all faults of a process are told in one place. A guest whose page
//! cannot be brought is never let go on: its process ends.

use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{GuestAddress, Page, PageSet};
use faasw_fri::userfault::{Addresses, Faults};
use faasw_seedtree::image::{Filling, ImageError};
use rustix::io::Errno;

use super::code::{CodeError, CodeFilling};

/// Ranges of memory, and as many of code, that an instance waits in at most: each is a call, and a
/// piece of a mapping. What lies between is brought as zeroes where nobody has a page.
const RANGES_MAX: usize = 64;

/// Ends an instance that will never have all of its memory.
pub trait Ending: std::fmt::Debug + Send + Sync {
    /// Asks for the end of its process.
    fn end(&self);
}

/// Where an instance has what it waits for, in its process's address space.
#[derive(Clone, Copy, Debug)]
pub struct Bases {
    /// Its RAM begins there.
    pub ram: u64,
    /// Its code does.
    pub code: u64,
}

/// An instance some of whose pages are not there yet.
#[derive(Debug)]
struct Waiter {
    faults: Arc<Faults>,
    bases: Bases,
    ranges: Vec<Addresses>,
    ending: Box<dyn Ending>,
}

#[derive(Debug, Default)]
struct Waiters {
    all: Vec<Arc<Waiter>>,
    /// Nobody is taken up any more.
    is_over: bool,
}

/// Brings one seed's pages. Its thread has it; when that is gone, layer and code are whole or of no
/// use.
#[derive(Debug)]
pub struct Pager {
    /// Nothing where all of its memory is there.
    memory: Option<Filling>,
    /// Nothing where all of its code is.
    code: Option<CodeFilling>,
    waiters: Mutex<Waiters>,
}

/// What cannot be brought to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Memory, of its image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Code, of its artifact.
    #[error("its code: {0}")]
    Code(#[from] CodeError),
    /// The instances that wait cannot be asked what for.
    #[error("nobody can be asked what they wait for: {0}")]
    Faults(Errno),
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

/// What guests have waited for.
#[derive(Debug)]
pub struct Late {
    /// How often one asked for a page, or a piece of code, that was not there yet.
    pub asked: u64,
    /// What came of memory by that.
    pub memory: PageSet,
    /// What came of code, counted from its beginning.
    pub code: PageSet,
}

/// How it ended.
#[derive(Debug)]
pub enum Outcome {
    /// Layer and code are whole.
    Whole(Late),
    /// Nobody wanted it any more.
    Unwanted,
    /// It will never be: nothing of it is to be used.
    Failed(Unreadable),
}

impl Pager {
    /// One for a seed of which some pages are there.
    pub fn new(memory: Option<Filling>, code: Option<CodeFilling>) -> Arc<Self> {
        Arc::new(Self {
            memory,
            code,
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
                Ok(true) => Outcome::Whole(self.late()),
                Ok(false) => Outcome::Unwanted,
                Err(error) => Outcome::Failed(error),
            };
            let is_whole = matches!(outcome, Outcome::Whole(_));
            // Whoever asks for the seed from now on is not told this one, nor reads its image.
            ended(outcome);
            self.give_up();
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

    /// Pages of memory that are not there yet.
    pub fn missing(&self) -> PageSet {
        let memory = self.memory.as_ref();
        memory.map_or_else(PageSet::new, Filling::missing)
    }

    /// Pages of code that are not there yet, counted from its beginning.
    pub fn missing_code(&self) -> PageSet {
        let code = self.code.as_ref();
        code.map_or_else(PageSet::new, CodeFilling::missing)
    }

    /// What guests asked for before it was there.
    fn late(&self) -> Late {
        let (memory, code) = (self.memory.as_ref(), self.code.as_ref());
        let asked = memory.map_or(0, Filling::asked);
        Late {
            asked: asked.saturating_add(code.map_or(0, CodeFilling::asked)),
            memory: memory.map_or_else(PageSet::new, Filling::late),
            code: code.map_or_else(PageSet::new, CodeFilling::late),
        }
    }

    fn give_up(&self) {
        if let Some(memory) = &self.memory {
            memory.give_up();
        }
        if let Some(code) = &self.code {
            code.give_up();
        }
    }

    /// From now on an instance that was forked from the seed waits for what is not there. Its
    /// guest must not have run. Nothing where all is there.
    ///
    /// # Errors
    /// The system's, where its shell has lied; `CANCELED` when the pages will never come.
    pub fn attach(
        self: &Arc<Self>,
        faults: Arc<Faults>,
        bases: Bases,
        ending: Box<dyn Ending>,
    ) -> Result<Option<Paged>, Errno> {
        let mut waiters = self.waiters();
        let (missing, missing_code) = (self.missing(), self.missing_code());
        if waiters.is_over {
            return match missing.is_empty() && missing_code.is_empty() {
                true => Ok(None),
                false => Err(Errno::CANCELED),
            };
        }
        let mut ranges = Vec::new();
        for (base, missing) in [(bases.ram, missing), (bases.code, missing_code)] {
            for range in missing.coalesced(NonZeroU32::MIN, RANGES_MAX).iter() {
                let start = base.checked_add(range.start.address().get());
                ranges.push(Addresses {
                    start: start.ok_or(Errno::INVAL)?,
                    bytes: range.bytes(),
                });
            }
        }
        for range in &ranges {
            faults.register(*range)?;
        }
        let waiter = Arc::new(Waiter {
            faults,
            bases,
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
    fn bring(&self, is_wanted: &impl Fn() -> bool) -> Result<bool, Unreadable> {
        loop {
            self.answer_all()?;
            if !is_wanted() {
                return Ok(false);
            }
            let brought_code = match &self.code {
                Some(code) => code.fill_next()?,
                None => false,
            };
            if brought_code && self.memory.is_some() {
                self.answer_all()?;
            }
            let brought_memory = match &self.memory {
                Some(memory) => memory.fill_next()?,
                None => false,
            };
            if !brought_code && !brought_memory {
                break;
            }
        }
        let mut waiters = self.waiters();
        if let Some(code) = &self.code {
            code.finish()?;
        }
        if let Some(memory) = &self.memory {
            memory.finish()?;
        }
        waiters.is_over = true;
        for waiter in std::mem::take(&mut waiters.all) {
            for range in &waiter.ranges {
                // Whoever has ended meanwhile waits for nothing.
                let _ = waiter.faults.unregister(*range);
            }
        }
        Ok(true)
    }

    /// Brings what instances wait for.
    fn answer_all(&self) -> Result<(), Unreadable> {
        // Nobody is kept from being taken up meanwhile.
        let waiters = self.waiters().all.clone();
        waiters.iter().try_for_each(|waiter| self.answer(waiter))
    }

    /// Brings what an instance waits for.
    fn answer(&self, waiter: &Waiter) -> Result<(), Unreadable> {
        while let Some(address) = waiter.faults.next().map_err(Unreadable::Faults)? {
            let start = address & !(PAGE - 1);
            let page = Addresses { start, bytes: PAGE };
            let is_stored = self.fill(start, waiter.bases)?;
            // Whoever has ended meanwhile waits for nothing.
            let _ = match is_stored {
                true => waiter.faults.wake(page),
                false => waiter.faults.zero(page),
            };
        }
        Ok(())
    }

    /// Has the page at an address of an instance there; says whether it is one that is stored.
    fn fill(&self, address: u64, bases: Bases) -> Result<bool, Unreadable> {
        let page =
            |base: u64| -> Option<Page> { GuestAddress::new(address.checked_sub(base)?).page() };
        if let (Some(code), Some(at)) = (&self.code, page(bases.code))
            && code.has(at)
        {
            return Ok(code.fill_page(at)?);
        }
        match (&self.memory, page(bases.ram)) {
            (Some(memory), Some(at)) => Ok(memory.fill_page(at)?),
            _ => Ok(false),
        }
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
