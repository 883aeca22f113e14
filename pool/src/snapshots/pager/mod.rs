//! The pager reads the rest of a seed's memory from its image, and of its code from its artifact,
//! while guests of it run (Catalyzer §3.1, on-demand paging; REAP §5.2, prefetching beside it).
//!
//! Each seed that is being read has a thread of its own for as long as that takes. Between two
//! pieces that no guest has requested yet, the thread checks for page faults of guests
//! ([`faasw_fri::userfault::Faults`]). One pager serves memory and code, because all faults of a
//! process are reported on one descriptor. The pager of a script also reads what is missing of its
//! language engine, beside the engine's own pager: a page that several of them need is read by one
//! of them. A guest whose page cannot be read never continues: its process is ended.

mod waiters;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::thread;

use faasw_abi::pages::{GuestAddress, Page, PageSet};
use faasw_common::Lock;
use faasw_seedtree::image::{ImageError, LayerFill};
use faasw_seedtree::reading::read_concurrently;
use rustix::io::Errno;

pub use self::waiters::{InstanceEnder, MemoryBases, PagerRegistration};

use self::waiters::Waiters;
use super::code::{CodeError, CodeFill};

/// Reads one seed's pages. Its thread owns it; when the thread is gone, layer and code are either
/// complete or unusable.
#[derive(Debug)]
pub struct Pager {
    /// `None` if all of the seed's own memory is present.
    memory: Option<LayerFill>,
    /// `None` if all of the code is present, or if the code belongs to an ancestor.
    code: Option<CodeFill>,
    /// The pages of memory that are the seed's own, not an ancestor's.
    own: PageSet,
    /// The pager of the parent seed, if some of that is missing.
    above: Option<Arc<Pager>>,
    /// How often a guest of this seed waited for a page of an ancestor.
    requested_above: AtomicU64,
    waiters: Lock<Waiters>,
    /// An error that another pager has found in what this one reads.
    reported: Lock<Option<SeedReadError>>,
    /// The number of callers of [`Self::read_first`]; the thread leaves disk and processors to
    /// them.
    priority_reads: Lock<usize>,
    priority_reads_done: Condvar,
    /// Whether the thread has reported its end.
    has_ended: Lock<bool>,
    over: Condvar,
}

/// Marks a pager's thread as ended, however it ends, and ends the instances that still wait.
struct PagerEnd<'a>(&'a Pager);

impl Drop for PagerEnd<'_> {
    fn drop(&mut self) {
        // Without effect if the seed is complete; no instance waits then.
        self.0.give_up();
        self.0.end_all();
        *self.0.has_ended.lock() = true;
        self.0.over.notify_all();
    }
}

/// Makes a pager's thread wait while this exists: another thread reads pages before it continues.
struct PriorityRead<'a>(&'a Pager);

impl<'a> PriorityRead<'a> {
    fn of(pager: &'a Pager) -> Self {
        *pager.priority_reads.lock() += 1;
        Self(pager)
    }
}

impl Drop for PriorityRead<'_> {
    fn drop(&mut self) {
        let mut priority_reads = self.0.priority_reads.lock();
        *priority_reads = priority_reads.saturating_sub(1);
        self.0.priority_reads_done.notify_all();
    }
}

/// Why a seed's memory or code cannot be read completely.
#[derive(Debug, thiserror::Error)]
pub enum SeedReadError {
    /// The image of the memory is unreadable.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The artifact of the code is unreadable.
    #[error("its code: {0}")]
    Code(#[from] CodeError),
    /// An ancestor is unreadable.
    #[error("its parent: {0}")]
    Above(Box<SeedReadError>),
    /// An ancestor is unreadable, as the ancestor's own pager has reported.
    #[error("its parent cannot be read completely")]
    Parent,
    /// A reading thread failed.
    #[error(transparent)]
    Reader(#[from] io::Error),
    /// The page faults of waiting instances cannot be received.
    #[error("the page faults of waiting instances cannot be received: {0}")]
    Faults(Errno),
}

/// The pages that guests have waited for.
#[derive(Debug)]
pub struct LatePages {
    /// How often a guest requested a page or a piece of code that was not present yet.
    pub requested: u64,
    /// The pages of memory that were read for that reason.
    pub memory: PageSet,
    /// The pages of code that were read for that reason, counted from the beginning of the code.
    pub code: PageSet,
}

/// How a pager ended.
#[derive(Debug)]
pub enum PagingOutcome {
    /// Layer and code are complete.
    Complete(LatePages),
    /// The seed was not wanted any more.
    Unwanted,
    /// The seed cannot be completed; no part of it may be used.
    Failed(SeedReadError),
}

impl Pager {
    /// Creates the pager of a seed of which some pages are present. `own` are the pages of its own
    /// layer; the pager `above` reads what is missing of its parent.
    pub fn new(
        memory: Option<LayerFill>,
        code: Option<CodeFill>,
        own: PageSet,
        above: Option<Arc<Self>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            memory,
            code,
            own,
            above,
            requested_above: AtomicU64::new(0),
            waiters: Lock::default(),
            reported: Lock::default(),
            priority_reads: Lock::default(),
            priority_reads_done: Condvar::new(),
            has_ended: Lock::default(),
            over: Condvar::new(),
        })
    }

    /// Reads the rest on a thread of its own, as long as `is_wanted` returns true. The thread calls
    /// `ended` before it ends any waiting instance.
    ///
    /// # Errors
    /// Returns the error of the system if no thread can be started. The layer is unusable then.
    pub fn start(
        self: Arc<Self>,
        is_wanted: impl Fn() -> bool + Send + 'static,
        ended: impl FnOnce(PagingOutcome) + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name("faasw-pager".to_owned());
        thread.spawn(move || {
            let _over = PagerEnd(&self);
            let outcome = match self.read_all(&is_wanted) {
                Ok(true) => PagingOutcome::Complete(self.late()),
                Ok(false) => PagingOutcome::Unwanted,
                Err(error) => PagingOutcome::Failed(self.reported_error(error)),
            };
            // Once this has returned, the graph neither returns a failed seed nor reads its image.
            ended(outcome);
        })?;
        Ok(())
    }

    /// Returns the pages of memory that are not present yet.
    pub fn missing(&self) -> PageSet {
        let memory = self.memory.as_ref();
        let own = memory.map_or_else(PageSet::new, LayerFill::missing);
        match &self.above {
            Some(above) => own.union(&above.missing().without(&self.own)),
            None => own,
        }
    }

    /// Returns the pages of code that are not present yet, counted from the beginning of the code.
    pub fn missing_code(&self) -> PageSet {
        let code = self.code();
        code.map_or_else(PageSet::new, CodeFill::missing)
    }

    /// Returns the pages that guests requested before they were present.
    fn late(&self) -> LatePages {
        let (memory, code) = (self.memory.as_ref(), self.code.as_ref());
        LatePages {
            requested: self.requested(),
            memory: memory.map_or_else(PageSet::new, LayerFill::late),
            code: code.map_or_else(PageSet::new, CodeFill::late),
        }
    }

    /// Returns the source of the rest of the code, an ancestor's if the code belongs to one.
    fn code(&self) -> Option<&CodeFill> {
        let above = || self.above.as_ref().and_then(|above| above.code());
        self.code.as_ref().or_else(above)
    }

    /// Reads these pages of memory and of code, which instances of a child use, with several
    /// threads and before the pager's thread continues. Blocks.
    ///
    /// # Errors
    /// Returns [`SeedReadError`] if a page cannot be read.
    pub fn read_first(&self, memory: &PageSet, code: &PageSet) -> Result<(), SeedReadError> {
        let _priority_read = PriorityRead::of(self);
        let both: [&(dyn Fn() -> Result<(), SeedReadError> + Sync); 2] = [
            &|| match &self.memory {
                Some(filling) => Ok(filling.fill_set(memory)?),
                None => Ok(()),
            },
            &|| match self.code() {
                Some(filling) => Ok(filling.fill_set(code)?),
                None => Ok(()),
            },
        ];
        read_concurrently(&both, both.len(), |fill| fill())
    }

    /// Converts an error to the one to report. For an ancestor's error, waits until the ancestor's
    /// pager has reported it, so that the seed is not made of that ancestor again.
    fn reported_error(&self, error: SeedReadError) -> SeedReadError {
        match (error, &self.above) {
            (SeedReadError::Above(error), Some(above)) => {
                above.fail_with(*error);
                SeedReadError::Parent
            }
            (error, _) => error,
        }
    }

    /// Reports an error that another pager has found in what this one reads. This pager's thread
    /// ends with it. Waits until that has happened.
    pub fn fail_with(&self, error: SeedReadError) {
        *self.reported.lock() = Some(error);
        let has_ended = self.has_ended.lock();
        drop(self.over.wait_while(has_ended, |has_ended| !*has_ended));
    }

    /// Returns how often a guest requested a page that was not present yet.
    fn requested(&self) -> u64 {
        let memory = self.memory.as_ref().map_or(0, LayerFill::requested);
        let code = self.code.as_ref().map_or(0, CodeFill::requested);
        let above = self.requested_above.load(Ordering::Relaxed);
        memory.saturating_add(code).saturating_add(above)
    }

    /// Marks the seed's own pages that are still missing as never to come.
    fn give_up(&self) {
        if let Some(memory) = &self.memory {
            memory.give_up();
        }
        if let Some(code) = &self.code {
            code.give_up();
        }
    }

    /// Reads all pages. Returns whether it finished, or stopped because the seed was not wanted.
    fn read_all(&self, is_wanted: &impl Fn() -> bool) -> Result<bool, SeedReadError> {
        loop {
            self.answer_all()?;
            if self.waiters.lock().is_empty() {
                self.yield_to_priority_reads();
            }
            if let Some(error) = self.reported.lock().take() {
                return Err(error);
            }
            if !is_wanted() {
                return Ok(false);
            }
            #[cfg(feature = "trial")]
            if crate::trial::are_pagers_held() {
                thread::yield_now();
                continue;
            }
            if !self.read_next()? {
                break;
            }
        }
        let mut waiters = self.waiters.lock();
        if let Some(code) = &self.code {
            code.finish()?;
        }
        if let Some(memory) = &self.memory {
            memory.finish()?;
        }
        waiters.release_all();
        Ok(true)
    }

    /// Waits until no other thread is in [`Self::read_first`].
    fn yield_to_priority_reads(&self) {
        let priority_reads = self.priority_reads.lock();
        let done = &self.priority_reads_done;
        drop(done.wait_while(priority_reads, |count| *count > 0));
    }

    /// Returns this pager and those above it, each with whether it is above.
    fn lineage(&self) -> impl Iterator<Item = (&Self, bool)> {
        let lineage = std::iter::successors(Some(self), |pager| pager.above.as_deref());
        lineage.zip(std::iter::once(false).chain(std::iter::repeat(true)))
    }

    /// Reads some more of the seed's own pages and of those missing above it, by turns. Returns
    /// whether there were any.
    fn read_next(&self) -> Result<bool, SeedReadError> {
        let mut has_read = false;
        for (of, is_above) in self.lineage() {
            if let Some(code) = &of.code {
                has_read |= code
                    .fill_next()
                    .map_err(|error| at_level(error, is_above))?;
                self.answer_all()?;
            }
            if let Some(memory) = &of.memory {
                let filled = memory.fill_next();
                has_read |= filled.map_err(|error| at_level(error, is_above))?;
                self.answer_all()?;
            }
        }
        Ok(has_read)
    }

    /// Makes the page at an address of an instance present. Returns whether the page is stored.
    fn fill(&self, address: u64, bases: MemoryBases) -> Result<bool, SeedReadError> {
        let page =
            |base: u64| -> Option<Page> { GuestAddress::new(address.checked_sub(base)?).page() };
        let (at, code_at) = (page(bases.ram), page(bases.code));
        let count_above = |is_late: bool| {
            self.requested_above
                .fetch_add(is_late.into(), Ordering::Relaxed);
        };
        for (of, is_above) in self.lineage() {
            let filled = match (&of.code, code_at, at) {
                (Some(code), Some(at), _) if code.has(at) => {
                    count_above(is_above && code.is_missing(at));
                    code.fill_page(at).map_err(SeedReadError::from)
                }
                (.., Some(at)) if of.own.contains(at) => match &of.memory {
                    Some(memory) => {
                        count_above(is_above && memory.is_missing(at));
                        memory.fill_page(at).map_err(SeedReadError::from)
                    }
                    None => Ok(false),
                },
                _ => continue,
            };
            return filled.map_err(|error| at_level(error, is_above));
        }
        Ok(false)
    }
}

/// Converts an error of the seed itself or of an ancestor.
fn at_level(error: impl Into<SeedReadError>, is_above: bool) -> SeedReadError {
    if is_above {
        SeedReadError::Above(Box::new(error.into()))
    } else {
        error.into()
    }
}
