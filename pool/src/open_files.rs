//! The open files of this process: how many it may have, and how many of them are reserved for work
//! that must continue.
//!
//! The kernel gives each descriptor the lowest free number, so a new one with the number `n` says
//! that at least `n` are open. That needs no count, and includes those that other code of this
//! process opened.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

/// Open files that clients of functions and instances may not use: they are for the operator's
/// connections, and for a deployment, which takes about twenty.
pub const RESERVED: u64 = 48;

/// The number of open files that a function's seed takes: its layer, and its code.
pub const DESCRIPTORS_PER_SEED: u64 = 2;

/// Returns how many files this process may have open.
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the first descriptor number of the reserved ones, if `reserved` are reserved.
#[must_use]
pub fn first_reserved(limit: u64, reserved: u64) -> RawFd {
    // Small limits reserve a quarter at most: the rest is for the process's purpose.
    let reserved = reserved.min(limit / 4);
    RawFd::try_from(limit - reserved).unwrap_or(RawFd::MAX)
}

/// Returns whether this process has opened so many files that the next one is a reserved one.
#[must_use]
pub fn are_scarce() -> bool {
    are_scarce_of(limit())
}

fn are_scarce_of(limit: u64) -> bool {
    let first = first_reserved(limit, RESERVED);
    lowest_free().is_none_or(|lowest| lowest >= first)
}

/// Returns the lowest free descriptor number, or `None` if there is none.
#[must_use]
pub fn lowest_free() -> Option<RawFd> {
    Some(spare()?.as_raw_fd())
}

/// Opens a descriptor whose only purpose is to be closed when another one is needed.
#[must_use]
pub fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_descriptors_begin_below_the_limit() {
        assert_eq!(first_reserved(1024, 48), 976);
        assert_eq!(first_reserved(100, 48), 75);
        assert_eq!(first_reserved(0, 48), 0);
        assert_eq!(first_reserved(u64::MAX, 48), RawFd::MAX);
    }

    #[test]
    fn descriptors_are_scarce_if_the_next_one_is_reserved() {
        assert!(!are_scarce_of(u64::MAX));
        assert!(are_scarce_of(1));
    }
}
