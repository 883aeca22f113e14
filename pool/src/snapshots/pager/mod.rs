//! The pager reads the rest of a seed's memory from its image, and of its code from its artifact,
//! while guests of it run (Catalyzer §3.1, on-demand paging; REAP §5.2, prefetching beside it).
//!
//! Each seed that is being read has a thread of its own for as long as that takes. Between two
//! pieces that no guest has requested yet, the thread checks for page faults of guests
//! ([`faasw_fri::userfault::Faults`]). One pager serves memory and code, because all faults of a
//! process are reported on one descriptor. The pager of a script also reads what is missing of its
//! language engine, beside the engine's own pager: a page that several of them need is read by one
//! of them. A guest whose page cannot be read never continues: its process is ended.

mod waiting;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use faasw_abi::pages::{GuestAddress, Page, PageSet};
use faasw_seedtree::image::{Filling, ImageError};
use faasw_seedtree::reading::in_turns;
use rustix::io::Errno;

pub use self::waiting::{Bases, InstanceEnder, Paged};

use self::waiting::Waiters;
use super::code::{CodeError, CodeFilling};

/// Reads one seed's pages. Its thread owns it; when the thread is gone, layer and code are either
/// complete or unusable.
#[derive(Debug)]
pub struct Pager {
    /// `None` if all of the seed's own memory is present.
    memory: Option<Filling>,
    /// `None` if all of the code is present, or if the code belongs to an ancestor.
    code: Option<CodeFilling>,
    /// The pages of memory that are the seed's own, not an ancestor's.
    own: PageSet,
    /// The pager of the parent seed, if some of that is missing.
    above: Option<Arc<Pager>>,
    /// How often a guest of this seed waited for a page of an ancestor.
    asked_above: AtomicU64,
    waiters: Mutex<Waiters>,
    /// An error that another pager has found in what this one reads.
    found: Mutex<Option<Unreadable>>,
    /// The number of callers of [`Self::bring_first`]; the thread leaves disk and processors to
    /// them.
    ahead: Mutex<usize>,
    none_ahead: Condvar,
    /// Whether the thread has reported its end.
    is_over: Mutex<bool>,
    over: Condvar,
}

/// Marks a pager's thread as ended, however it ends, and ends the instances that still wait.
struct Over<'a>(&'a Pager);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // Without effect if the seed is complete; no instance waits then.
        self.0.give_up();
        self.0.end_all();
        *lock(&self.0.is_over) = true;
        self.0.over.notify_all();
    }
}

/// Makes a pager's thread wait while this exists: another thread reads pages before it continues.
struct Ahead<'a>(&'a Pager);

impl<'a> Ahead<'a> {
    fn of(pager: &'a Pager) -> Self {
        *lock(&pager.ahead) += 1;
        Self(pager)
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        let mut ahead = lock(&self.0.ahead);
        *ahead = ahead.saturating_sub(1);
        self.0.none_ahead.notify_all();
    }
}

/// Why a seed's memory or code cannot be read completely.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The image of the memory is unreadable.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The artifact of the code is unreadable.
    #[error("its code: {0}")]
    Code(#[from] CodeError),
    /// An ancestor is unreadable.
    #[error("what it descends from: {0}")]
    Above(Box<Unreadable>),
    /// An ancestor is unreadable, as the ancestor's own pager has reported.
    #[error("what it descends from cannot be read to its end")]
    Parent,
    /// A reading thread failed.
    #[error(transparent)]
    Reader(#[from] io::Error),
    /// The page faults of waiting instances cannot be received.
    #[error("nobody can be asked what they wait for: {0}")]
    Faults(Errno),
}

/// The pages that guests have waited for.
#[derive(Debug)]
pub struct Late {
    /// How often a guest requested a page or a piece of code that was not present yet.
    pub asked: u64,
    /// The pages of memory that were read for that reason.
    pub memory: PageSet,
    /// The pages of code that were read for that reason, counted from the beginning of the code.
    pub code: PageSet,
}

/// How a pager ended.
#[derive(Debug)]
pub enum Outcome {
    /// Layer and code are complete.
    Whole(Late),
    /// The seed was not wanted any more.
    Unwanted,
    /// The seed cannot be completed; no part of it may be used.
    Failed(Unreadable),
}

impl Pager {
    /// Creates the pager of a seed of which some pages are present. `own` are the pages of its own
    /// layer; the pager `above` reads what is missing of its parent.
    pub fn new(
        memory: Option<Filling>,
        code: Option<CodeFilling>,
        own: PageSet,
        above: Option<Arc<Self>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            memory,
            code,
            own,
            above,
            asked_above: AtomicU64::new(0),
            waiters: Mutex::default(),
            found: Mutex::default(),
            ahead: Mutex::default(),
            none_ahead: Condvar::new(),
            is_over: Mutex::default(),
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
        ended: impl FnOnce(Outcome) + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name("faasw-pager".to_owned());
        thread.spawn(move || {
            let _over = Over(&self);
            let outcome = match self.bring(&is_wanted) {
                Ok(true) => Outcome::Whole(self.late()),
                Ok(false) => Outcome::Unwanted,
                Err(error) => Outcome::Failed(self.told(error)),
            };
            // Once this has returned, the graph neither returns a failed seed nor reads its image.
            ended(outcome);
        })?;
        Ok(())
    }

    /// Returns the pages of memory that are not present yet.
    pub fn missing(&self) -> PageSet {
        let memory = self.memory.as_ref();
        let own = memory.map_or_else(PageSet::new, Filling::missing);
        match &self.above {
            Some(above) => own.union(&above.missing().without(&self.own)),
            None => own,
        }
    }

    /// Returns the pages of code that are not present yet, counted from the beginning of the code.
    pub fn missing_code(&self) -> PageSet {
        let code = self.code();
        code.map_or_else(PageSet::new, CodeFilling::missing)
    }

    /// Returns the pages that guests requested before they were present.
    fn late(&self) -> Late {
        let (memory, code) = (self.memory.as_ref(), self.code.as_ref());
        Late {
            asked: self.asked(),
            memory: memory.map_or_else(PageSet::new, Filling::late),
            code: code.map_or_else(PageSet::new, CodeFilling::late),
        }
    }

    /// Returns the filling of the code, an ancestor's if the code belongs to one.
    fn code(&self) -> Option<&CodeFilling> {
        let above = || self.above.as_ref().and_then(|above| above.code());
        self.code.as_ref().or_else(above)
    }

    /// Reads these pages of memory and of code, which instances of a child use, with several
    /// threads and before the pager's thread continues. Blocks.
    ///
    /// # Errors
    /// Returns [`Unreadable`] if a page cannot be read.
    pub fn bring_first(&self, memory: &PageSet, code: &PageSet) -> Result<(), Unreadable> {
        let _ahead = Ahead::of(self);
        let both: [&(dyn Fn() -> Result<(), Unreadable> + Sync); 2] = [
            &|| match &self.memory {
                Some(filling) => Ok(filling.fill_set(memory)?),
                None => Ok(()),
            },
            &|| match self.code() {
                Some(filling) => Ok(filling.fill_set(code)?),
                None => Ok(()),
            },
        ];
        in_turns(&both, both.len(), |fill| fill())
    }

    /// Converts an error to the one to report. For an ancestor's error, waits until the ancestor's
    /// pager has reported it, so that the seed is not made of that ancestor again.
    fn told(&self, error: Unreadable) -> Unreadable {
        match (error, &self.above) {
            (Unreadable::Above(error), Some(above)) => {
                above.cannot_be(*error);
                Unreadable::Parent
            }
            (error, _) => error,
        }
    }

    /// Reports an error that another pager has found in what this one reads. This pager's thread
    /// ends with it. Waits until that has happened.
    pub fn cannot_be(&self, error: Unreadable) {
        *lock(&self.found) = Some(error);
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            let waited = self.over.wait(is_over);
            is_over = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns how often a guest requested a page that was not present yet.
    fn asked(&self) -> u64 {
        let memory = self.memory.as_ref().map_or(0, Filling::asked);
        let code = self.code.as_ref().map_or(0, CodeFilling::asked);
        let above = self.asked_above.load(Ordering::Relaxed);
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
    fn bring(&self, is_wanted: &impl Fn() -> bool) -> Result<bool, Unreadable> {
        loop {
            self.answer_all()?;
            if self.waiters().is_empty() {
                self.let_ahead();
            }
            if let Some(error) = lock(&self.found).take() {
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
            if !self.bring_next()? {
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
        waiters.let_go();
        Ok(true)
    }

    /// Waits until no other thread is in [`Self::bring_first`].
    fn let_ahead(&self) {
        let mut ahead = lock(&self.ahead);
        while *ahead > 0 {
            let waited = self.none_ahead.wait(ahead);
            ahead = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns this pager and those above it, each with whether it is above.
    fn line(&self) -> impl Iterator<Item = (&Self, bool)> {
        let line = std::iter::successors(Some(self), |pager| pager.above.as_deref());
        line.zip(std::iter::once(false).chain(std::iter::repeat(true)))
    }

    /// Reads some more of the seed's own pages and of those missing above it, by turns. Returns
    /// whether there were any.
    fn bring_next(&self) -> Result<bool, Unreadable> {
        let mut brought = false;
        for (of, is_above) in self.line() {
            if let Some(code) = &of.code {
                brought |= code.fill_next().map_err(|error| said(error, is_above))?;
                self.answer_all()?;
            }
            if let Some(memory) = &of.memory {
                let filled = memory.fill_next();
                brought |= filled.map_err(|error| said(error, is_above))?;
                self.answer_all()?;
            }
        }
        Ok(brought)
    }

    /// Makes the page at an address of an instance present. Returns whether the page is stored.
    fn fill(&self, address: u64, bases: Bases) -> Result<bool, Unreadable> {
        let page =
            |base: u64| -> Option<Page> { GuestAddress::new(address.checked_sub(base)?).page() };
        let (at, code_at) = (page(bases.ram), page(bases.code));
        let count_above = |is_late: bool| {
            self.asked_above
                .fetch_add(is_late.into(), Ordering::Relaxed);
        };
        for (of, is_above) in self.line() {
            let filled = match (&of.code, code_at, at) {
                (Some(code), Some(at), _) if code.has(at) => {
                    count_above(is_above && code.is_missing(at));
                    code.fill_page(at).map_err(Unreadable::from)
                }
                (.., Some(at)) if of.own.contains(at) => match &of.memory {
                    Some(memory) => {
                        count_above(is_above && memory.is_missing(at));
                        memory.fill_page(at).map_err(Unreadable::from)
                    }
                    None => Ok(false),
                },
                _ => continue,
            };
            return filled.map_err(|error| said(error, is_above));
        }
        Ok(false)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an error of the seed itself or of an ancestor.
fn said(error: impl Into<Unreadable>, is_above: bool) -> Unreadable {
    if is_above {
        Unreadable::Above(Box::new(error.into()))
    } else {
        error.into()
    }
}
