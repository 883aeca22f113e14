//! Open files of this process: how many it may have, and which of them are kept for what must go
//! on.
//!
//! The kernel gives each descriptor the lowest free number, so a new one with the number `n` says
//! that at least `n` are open. That needs no count, and includes those that other code of this
//! process opened.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

/// Open files that the clients of functions and their instances leave alone: for the operator's
/// connections, and for a deployment, which takes about twenty.
pub const RESERVED: u64 = 48;

/// Open files that the seed of a function takes: its layer, and its code.
pub const OF_A_SEED: u64 = 2;

/// How many files this process may have open.
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The first descriptor number of those that are kept, with so many `reserved`.
#[must_use]
pub fn first_reserved(limit: u64, reserved: u64) -> RawFd {
    // Small limits keep a quarter at most: the rest is what the process is for.
    let reserved = reserved.min(limit / 4);
    RawFd::try_from(limit - reserved).unwrap_or(RawFd::MAX)
}

/// Whether this process has opened so many files that the next is one of those that are kept.
#[must_use]
pub fn are_scarce() -> bool {
    are_scarce_of(limit())
}

fn are_scarce_of(limit: u64) -> bool {
    let first = first_reserved(limit, RESERVED);
    lowest_free().is_none_or(|lowest| lowest >= first)
}

/// The lowest free descriptor number; nothing if none can be had.
#[must_use]
pub fn lowest_free() -> Option<RawFd> {
    Some(spare()?.as_raw_fd())
}

/// Opens a descriptor that is good for nothing but being closed when another one is needed.
#[must_use]
pub fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_begins_below_the_limit() {
        assert_eq!(first_reserved(1024, 48), 976);
        assert_eq!(first_reserved(100, 48), 75);
        assert_eq!(first_reserved(0, 48), 0);
        assert_eq!(first_reserved(u64::MAX, 48), RawFd::MAX);
    }

    #[test]
    fn they_are_scarce_where_the_next_is_one_of_those_that_are_kept() {
        assert!(!are_scarce_of(u64::MAX));
        assert!(are_scarce_of(1));
    }
}
