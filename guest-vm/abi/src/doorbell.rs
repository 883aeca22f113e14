//! The doorbells. An `out` to [`PORT`] stops the guest, and its value says why.
//! An `out` to [`PROGRESS`] tells the node to look at the mailbox, and the guest
//! runs on.

use zerocopy::{IntoBytes, TryFromBytes};

/// I/O port of the doorbell that stops the guest.
pub const PORT: u16 = 0x50;

/// I/O port of the doorbell that does not: the host binds it to an eventfd.
pub const PROGRESS: u16 = 0x54;

/// Why the guest rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum Doorbell {
    /// No command is left, and code and configuration are loaded; nothing of the function
    /// has run: the early freeze point of a function (level 2).
    Loaded = 1,
    /// No command is left, and the function is instantiated and waits for a request: the late
    /// freeze point, also after each export that was evaluated. The draws of
    /// [`crate::mailbox::GuestWords`] are those so far.
    Ready = 2,
    /// The run is over; [`crate::mailbox::GuestWords`] say how.
    Done = 3,
    /// Nothing to do until [`crate::mailbox::GuestWords::wait_nanoseconds`] have
    /// passed, or the host sees what the guest waits for.
    Wait = 4,
    /// The guest itself failed; the mailbox report says why. It does not go on.
    Fatal = 5,
    /// No command is left, and the guest is booted: the freeze point of level 0.
    Booted = 6,
    /// No command is left, and engine and linkers are made: the freeze point of level 1.
    Linked = 7,
    /// The guest is about to use memory that it never used: the host may have it
    /// ready at once, which costs less than a fault for each page. The guest goes on.
    Populate = 8,
    /// The end of [`crate::memory_map::REWRITE`].
    Rewritten = 9,
    /// The end of [`crate::memory_map::TOUCH`].
    Touched = 10,
    /// The function's own code says that it is to be frozen where it is, amid a command: its
    /// func-entry point. The draws of [`crate::mailbox::GuestWords`] are those so far.
    Entry = 11,
    /// Nobody has asked a guest that polls for anything for as long as it was to look. It goes on
    /// looking, if it is let go on.
    Unasked = 12,
}

impl Doorbell {
    /// The ring that a value written to [`PORT`] stands for.
    #[must_use]
    pub fn from_u32(value: u32) -> Option<Self> {
        Self::try_read_from_bytes(value.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What both sides of the boundary were built with: to change one is to raise
    /// [`crate::ABI_VERSION`].
    fn number(ring: Doorbell) -> u32 {
        match ring {
            Doorbell::Loaded => 1,
            Doorbell::Ready => 2,
            Doorbell::Done => 3,
            Doorbell::Wait => 4,
            Doorbell::Fatal => 5,
            Doorbell::Booted => 6,
            Doorbell::Linked => 7,
            Doorbell::Populate => 8,
            Doorbell::Rewritten => 9,
            Doorbell::Touched => 10,
            Doorbell::Entry => 11,
            Doorbell::Unasked => 12,
        }
    }

    #[test]
    fn each_number_is_its_ring_and_no_other_number_is_one() {
        for value in (0..=1000).chain([u32::MAX]) {
            let is_known = (1..=12).contains(&value);
            let read = Doorbell::from_u32(value).map(number);
            assert_eq!(read, is_known.then_some(value));
        }
    }
}
