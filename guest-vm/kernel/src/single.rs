//! State of a machine with one CPU and without interrupts.

use core::cell::UnsafeCell;

/// A static that one vCPU without interrupts uses.
///
/// Nothing preempts the guest: it has one vCPU, interrupts are off, and exceptions either never
/// return or touch only the state of [`crate::trap`]. So access is exclusive if calls of
/// [`Single::with`] are not nested.
pub struct Single<T>(UnsafeCell<T>);

// SAFETY: there is one vCPU, so no second thread can exist to share it with.
unsafe impl<T> Sync for Single<T> {}

impl<T> Single<T> {
    /// Returns a static that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Runs `body` with the value.
    ///
    /// # Safety
    /// `body` must not access the same static again, not even through an allocation.
    pub unsafe fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: one vCPU, and the caller promises not to nest.
        body(unsafe { &mut *self.0.get() })
    }
}
