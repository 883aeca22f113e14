//! The instances that wait for a pager: those forked before all of their seed was present. Each is
//! woken for every page that it requested. When the pager has read all pages, it releases them; if
//! it ends before that, it ends them.

use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use faasw_abi::memory_map::PAGE;
use faasw_fri::userfault::{Addresses, Faults};
use rustix::io::Errno;

use super::{Pager, SeedReadError};

/// The maximum number of ranges of memory, and of code, that an instance registers. Each is a
/// system call and a piece of a mapping. Pages in between that are not stored are filled with
/// zeros.
const RANGES_MAX: usize = 64;

/// Ends an instance that will never have all of its memory.
pub trait InstanceEnder: std::fmt::Debug + Send + Sync {
    /// Starts ending the instance's process.
    fn end(&self);
}

/// The addresses of an instance's memory and code in the address space of its process.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBases {
    /// The start of its RAM.
    pub ram: u64,
    /// The start of its code.
    pub code: u64,
}

/// An instance some of whose pages are not present yet.
#[derive(Debug)]
pub(super) struct Waiter {
    faults: Arc<Faults>,
    bases: MemoryBases,
    ranges: Vec<Addresses>,
    ender: Box<dyn InstanceEnder>,
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    all: Vec<Arc<Waiter>>,
    /// Whether no more waiters are added.
    has_ended: bool,
}

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Releases all waiters because everything is present; no more are added.
    pub(super) fn release_all(&mut self) {
        self.has_ended = true;
        for waiter in std::mem::take(&mut self.all) {
            for range in &waiter.ranges {
                // The instance may have ended meanwhile.
                let _ = waiter.faults.unregister(*range);
            }
        }
    }
}

/// The registration of an instance with a pager. It is dropped when the instance has ended or has
/// all of its memory.
#[derive(Debug)]
pub struct PagerRegistration {
    pager: Weak<Pager>,
    waiter: Weak<Waiter>,
}

impl Drop for PagerRegistration {
    fn drop(&mut self) {
        if let Some(pager) = self.pager.upgrade() {
            let waiter = &self.waiter;
            let is_other = |other: &Arc<Waiter>| !std::ptr::eq(Arc::as_ptr(other), waiter.as_ptr());
            pager.waiters.lock().all.retain(is_other);
        }
    }
}

impl Pager {
    /// Registers an instance that was forked from the seed, so that it waits for pages that are not
    /// present yet. Its guest must not have run. Returns `None` if everything is present.
    ///
    /// # Errors
    /// Returns `CANCELED` if the missing pages will never come, `INVAL` if the instance's addresses
    /// overflow, or the error of a registration with the addresses that its sandbox reported.
    pub fn attach(
        self: &Arc<Self>,
        faults: Arc<Faults>,
        bases: MemoryBases,
        ender: Box<dyn InstanceEnder>,
    ) -> Result<Option<PagerRegistration>, Errno> {
        let mut waiters = self.waiters.lock();
        let (missing, missing_code) = (self.missing(), self.missing_code());
        if waiters.has_ended {
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
            ender,
        });
        let registration = PagerRegistration {
            pager: Arc::downgrade(self),
            waiter: Arc::downgrade(&waiter),
        };
        waiters.all.push(waiter);
        Ok(Some(registration))
    }

    /// Stops adding waiters, and ends the instances that still wait.
    pub(super) fn end_all(&self) {
        let left = {
            let mut waiters = self.waiters.lock();
            waiters.has_ended = true;
            std::mem::take(&mut waiters.all)
        };
        // The waiters are dropped here; the instances keep their descriptors until they have ended.
        left.iter().for_each(|waiter| waiter.ender.end());
    }

    /// Reads the pages that instances wait for.
    pub(super) fn answer_all(&self) -> Result<(), SeedReadError> {
        // The lock is not held while pages are read, so that instances can be added.
        let waiters = self.waiters.lock().all.clone();
        waiters.iter().try_for_each(|waiter| self.answer(waiter))
    }

    /// Reads the pages that one instance waits for.
    fn answer(&self, waiter: &Waiter) -> Result<(), SeedReadError> {
        while let Some(address) = waiter.faults.next().map_err(SeedReadError::Faults)? {
            let start = address & !(PAGE - 1);
            let page = Addresses { start, bytes: PAGE };
            let is_stored = self.fill(start, waiter.bases)?;
            // The instance may have ended meanwhile.
            let _ = if is_stored {
                waiter.faults.wake(page)
            } else {
                waiter.faults.zero(page)
            };
        }
        Ok(())
    }
}
