//! The doorbells. An `out` to [`PORT`] stops the guest, and its value gives the reason. An `out` to
//! [`PROGRESS`] notifies the node that the mailbox changed, and the guest runs on.

use zerocopy::{IntoBytes, TryFromBytes};

/// I/O port of the doorbell that stops the guest.
pub const PORT: u16 = 0x50;

/// I/O port of the doorbell that does not stop the guest: the host binds it to an eventfd.
pub const PROGRESS: u16 = 0x54;

/// The reason why the guest rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum Doorbell {
    /// No command is left, and code and configuration are loaded. Nothing of the function has run:
    /// the early freeze point of a function (level 2).
    Loaded = 1,
    /// No command is left, and the function is instantiated and waits for a request: the late
    /// freeze point, also after a further command such as the evaluation of an export.
    /// [`crate::mailbox::GuestWords`] hold the draws so far.
    Ready = 2,
    /// The run is over; [`crate::mailbox::GuestWords`] hold its outcome.
    Done = 3,
    /// The guest has nothing to do until [`crate::mailbox::GuestWords::wait_nanoseconds`] have
    /// passed or an event that it waits for occurs.
    Wait = 4,
    /// The guest itself failed; the report in the mailbox gives the reason. The guest does not
    /// continue.
    Fatal = 5,
    /// No command is left, and the guest is booted: the freeze point of level 0.
    Booted = 6,
    /// No command is left, and the engine and linkers exist: the freeze point of level 1.
    Linked = 7,
    /// The guest is about to use memory for the first time. The host may populate it at once, which
    /// costs less than a fault for each page. The guest continues afterwards.
    Populate = 8,
    /// The routine at [`crate::memory_map::REWRITE`] has ended.
    Rewritten = 9,
    /// The routine at [`crate::memory_map::TOUCH`] has ended.
    Touched = 10,
    /// The function's own code requests a freeze at this position, within a command: its func-entry
    /// point. [`crate::mailbox::GuestWords`] hold the draws so far.
    Entry = 11,
    /// A polling guest received no request within its polling time. It continues to poll if it is
    /// resumed.
    Unasked = 12,
}

impl Doorbell {
    /// Returns the ring that a value written to [`PORT`] stands for.
    #[must_use]
    pub fn from_u32(value: u32) -> Option<Self> {
        Self::try_read_from_bytes(value.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are part of the ABI: a change of one requires a new [`crate::ABI_VERSION`].
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
