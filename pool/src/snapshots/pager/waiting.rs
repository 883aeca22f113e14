//! Who waits for what a pager brings: instances that were forked before all of their seed was
//! there. Each is told of what it asked for, and of the end, whichever that is.

use std::num::NonZeroU32;
use std::sync::{Arc, MutexGuard, Weak};

use faasw_abi::memory_map::PAGE;
use faasw_fri::userfault::{Addresses, Faults};
use rustix::io::Errno;

use super::{Pager, Unreadable, lock};

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
pub(super) struct Waiter {
    faults: Arc<Faults>,
    bases: Bases,
    ranges: Vec<Addresses>,
    ending: Box<dyn Ending>,
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    all: Vec<Arc<Waiter>>,
    /// Nobody is taken up any more.
    is_over: bool,
}

impl Waiters {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All is there: nobody waits any more, nor is anybody taken up.
    pub(super) fn let_go(&mut self) {
        self.is_over = true;
        for waiter in std::mem::take(&mut self.all) {
            for range in &waiter.ranges {
                // Whoever has ended meanwhile waits for nothing.
                let _ = waiter.faults.unregister(*range);
            }
        }
    }
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

impl Pager {
    /// From now on an instance that was forked from the seed waits for what is not there. Its
    /// guest must not have run. Nothing where all is there.
    ///
    /// # Errors
    /// The system's, where its sandbox has lied; `CANCELED` when the pages will never come.
    pub fn attach(
        self: &Arc<Self>,
        faults: Arc<Faults>,
        bases: Bases,
        ending: Box<dyn Ending>,
    ) -> Result<Option<Paged>, Errno> {
        let mut waiters = self.waiters();
        let (missing, missing_code) = (self.missing(), self.missing_code());
        if waiters.is_over {
            return if missing.is_empty() && missing_code.is_empty() {
                Ok(None)
            } else {
                Err(Errno::CANCELED)
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

    /// Nobody is taken up any more, and the instances that still wait are ended.
    pub(super) fn end_all(&self) {
        let left = {
            let mut waiters = self.waiters();
            waiters.is_over = true;
            std::mem::take(&mut waiters.all)
        };
        // What they are told by is theirs to keep until they have ended.
        left.iter().for_each(|waiter| waiter.ending.end());
    }

    /// Brings what instances wait for.
    pub(super) fn answer_all(&self) -> Result<(), Unreadable> {
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
            let _ = if is_stored {
                waiter.faults.wake(page)
            } else {
                waiter.faults.zero(page)
            };
        }
        Ok(())
    }

    pub(super) fn waiters(&self) -> MutexGuard<'_, Waiters> {
        lock(&self.waiters)
    }
}
