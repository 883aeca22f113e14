//! The pager: brings the rest of a seed's memory from its image, and of its code from its artifact,
//! while guests of it run (Catalyzer §3.2, on-demand paging; REAP §5.2, prefetching beside it).
//!
//! A thread of its own for each seed that is being read, for as long as that takes. It looks at
//! what guests wait for ([`faasw_fri::userfault::Faults`]) between two pieces of what nobody has
//! asked for yet. One answers for memory and code: all faults of a process are told in one place. A
//! script's brings what is missing of its language engine, too, beside the engine's own: whatever
//! several want is read by one of them. A guest whose page cannot be brought is never let go on:
//! its process ends.

mod waiting;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use faasw_abi::pages::{GuestAddress, Page, PageSet};
use faasw_seedtree::image::{Filling, ImageError};
use faasw_seedtree::reading::in_turns;
use rustix::io::Errno;

pub use self::waiting::{Bases, Ending, Paged};

use self::waiting::Waiters;
use super::code::{CodeError, CodeFilling};

/// Brings one seed's pages. Its thread has it; when that is gone, layer and code are whole or of no
/// use.
#[derive(Debug)]
pub struct Pager {
    /// Nothing where all of its memory is there.
    memory: Option<Filling>,
    /// Nothing where all of its code is, or that is an ancestor's.
    code: Option<CodeFilling>,
    /// What of its memory is its own, and not an ancestor's.
    own: PageSet,
    /// Of the seed that it descends from, where some of that is missing.
    above: Option<Arc<Pager>>,
    /// How often one of its guests waited for what is an ancestor's.
    asked_above: AtomicU64,
    waiters: Mutex<Waiters>,
    /// What another has found that brings some of it.
    found: Mutex<Option<Unreadable>>,
    /// Who has something brought first: its thread leaves disk and processors to them.
    ahead: Mutex<usize>,
    none_ahead: Condvar,
    /// Whether its thread has said how it ended.
    is_over: Mutex<bool>,
    over: Condvar,
}

/// Says that a pager's thread is over, whatever becomes of it, and ends the instances that still
/// wait.
struct Over<'a>(&'a Pager);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // Nothing changes where it is whole, and nobody waits there.
        self.0.give_up();
        self.0.end_all();
        *lock(&self.0.is_over) = true;
        self.0.over.notify_all();
    }
}

/// Something is brought before a pager's thread goes on.
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

/// What cannot be brought to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Memory, of its image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Code, of its artifact.
    #[error("its code: {0}")]
    Code(#[from] CodeError),
    /// Of what it descends from.
    #[error("what it descends from: {0}")]
    Above(Box<Unreadable>),
    /// What it descends from, as whoever brings that has said.
    #[error("what it descends from cannot be read to its end")]
    Parent,
    /// Whoever read it did not come to an end.
    #[error(transparent)]
    Reader(#[from] io::Error),
    /// The instances that wait cannot be asked what for.
    #[error("nobody can be asked what they wait for: {0}")]
    Faults(Errno),
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
    /// One for a seed of which some pages are there, whose layer has these of its `own`; the one
    /// `above` brings what is missing of its parent.
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
            let _over = Over(&self);
            let outcome = match self.bring(&is_wanted) {
                Ok(true) => Outcome::Whole(self.late()),
                Ok(false) => Outcome::Unwanted,
                Err(error) => Outcome::Failed(self.told(error)),
            };
            // Whoever asks for the seed from now on is not told this one, nor reads its image.
            ended(outcome);
        })?;
        Ok(())
    }

    /// Pages of memory that are not there yet.
    pub fn missing(&self) -> PageSet {
        let memory = self.memory.as_ref();
        let own = memory.map_or_else(PageSet::new, Filling::missing);
        match &self.above {
            Some(above) => own.union(&above.missing().without(&self.own)),
            None => own,
        }
    }

    /// Pages of code that are not there yet, counted from its beginning.
    pub fn missing_code(&self) -> PageSet {
        let code = self.code();
        code.map_or_else(PageSet::new, CodeFilling::missing)
    }

    /// What guests asked for before it was there.
    fn late(&self) -> Late {
        let (memory, code) = (self.memory.as_ref(), self.code.as_ref());
        Late {
            asked: self.asked(),
            memory: memory.map_or_else(PageSet::new, Filling::late),
            code: code.map_or_else(PageSet::new, CodeFilling::late),
        }
    }

    /// What brings the code, an ancestor's where that is its.
    fn code(&self) -> Option<&CodeFilling> {
        let above = || self.above.as_ref().and_then(|above| above.code());
        self.code.as_ref().or_else(above)
    }

    /// Has these pages of memory there, and these of code: what instances of a child use of it. By
    /// several threads, before the pager comes to them. It blocks.
    ///
    /// # Errors
    /// When some cannot be brought.
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

    /// What it cannot bring, once whoever brings that for all has said so, too: what descends from
    /// that is not made of it again.
    fn told(&self, error: Unreadable) -> Unreadable {
        match (error, &self.above) {
            (Unreadable::Above(error), Some(above)) => {
                above.cannot_be(*error);
                Unreadable::Parent
            }
            (error, _) => error,
        }
    }

    /// Another than its thread has found what cannot be brought: it ends by that. Waits until it
    /// has.
    pub fn cannot_be(&self, error: Unreadable) {
        *lock(&self.found) = Some(error);
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            let waited = self.over.wait(is_over);
            is_over = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How often a guest asked for what was not there yet.
    fn asked(&self) -> u64 {
        let memory = self.memory.as_ref().map_or(0, Filling::asked);
        let code = self.code.as_ref().map_or(0, CodeFilling::asked);
        let above = self.asked_above.load(Ordering::Relaxed);
        memory.saturating_add(code).saturating_add(above)
    }

    /// No more will be there of what is its own.
    fn give_up(&self) {
        if let Some(memory) = &self.memory {
            memory.give_up();
        }
        if let Some(code) = &self.code {
            code.give_up();
        }
    }

    /// Brings all pages; says whether it did, or nobody wanted it.
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

    /// Waits until nobody has something brought first.
    fn let_ahead(&self) {
        let mut ahead = lock(&self.ahead);
        while *ahead > 0 {
            let waited = self.none_ahead.wait(ahead);
            ahead = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Itself and those above it, by whether they are.
    fn line(&self) -> impl Iterator<Item = (&Self, bool)> {
        let line = std::iter::successors(Some(self), |pager| pager.above.as_deref());
        line.zip(std::iter::once(false).chain(std::iter::repeat(true)))
    }

    /// Brings some more, its own and what is missing above it, by turns; says whether there was
    /// any.
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

    /// Has the page at an address of an instance there; says whether it is one that is stored.
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

/// An error of its own, or of what it descends from.
fn said(error: impl Into<Unreadable>, is_above: bool) -> Unreadable {
    if is_above {
        Unreadable::Above(Box::new(error.into()))
    } else {
        error.into()
    }
}
