//! The doorbells. An `out` to [`PORT`] stops the guest, and its value says why.
//! An `out` to [`PROGRESS`] tells the node to look at the mailbox, and the guest
//! runs on.

/// I/O port of the doorbell that stops the guest.
pub const PORT: u16 = 0x50;

/// I/O port of the doorbell that does not: the host binds it to an eventfd.
pub const PROGRESS: u16 = 0x54;

/// Why the guest rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ring {
    /// Code and configuration are loaded, nothing of the function has run: the
    /// early freeze point of a function (level 2).
    Loaded = 1,
    /// The function is instantiated and waits for a request: the late freeze
    /// point. The draws of [`crate::mailbox::GuestWords`] are final.
    Ready = 2,
    /// The run is over; [`crate::mailbox::GuestWords`] say how.
    Done = 3,
    /// Nothing to do until [`crate::mailbox::GuestWords::wait_nanoseconds`] have
    /// passed, or the host sees what the guest waits for.
    Wait = 4,
    /// The guest itself failed; the mailbox report says why. It does not go on.
    Fatal = 5,
    /// The guest is booted: the freeze point of level 0.
    Booted = 6,
    /// Engine and linkers are made, and what comes next is a function: the freeze
    /// point of level 1.
    Linked = 7,
    /// The guest is about to use memory that it never used: the host may have it
    /// ready at once, which costs less than a fault for each page. The guest goes on.
    Populate = 8,
    /// The end of [`crate::memory_map::REWRITE`].
    Rewritten = 9,
    /// The end of [`crate::memory_map::TOUCH`].
    Touched = 10,
}

impl Ring {
    /// The ring that a value written to [`PORT`] stands for.
    #[must_use]
    pub fn from_u32(value: u32) -> Option<Self> {
        [
            Self::Loaded,
            Self::Ready,
            Self::Done,
            Self::Wait,
            Self::Fatal,
            Self::Booted,
            Self::Linked,
            Self::Populate,
            Self::Rewritten,
            Self::Touched,
        ]
        .into_iter()
        .find(|ring| *ring as u32 == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ring_survives_the_port_and_nothing_else_does() {
        for value in 0..=64 {
            if let Some(ring) = Ring::from_u32(value) {
                assert_eq!(ring as u32, value);
            }
        }
        assert_eq!(Ring::from_u32(0), None);
        assert_eq!(Ring::from_u32(11), None);
        assert_eq!(Ring::from_u32(u32::MAX), None);
    }
}
