//! The doorbell: one `out` to [`PORT`] whose value says why the guest rings.

/// I/O port of the doorbell.
pub const PORT: u16 = 0x50;

/// Why the guest rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ring {
    /// Engine and compiled code are loaded, nothing of the function has run:
    /// the early freeze point.
    Loaded = 1,
    /// The function is instantiated and waits for a request: the late freeze
    /// point. The draws of [`crate::mailbox::Header`] are final.
    Ready = 2,
    /// The run is over; [`crate::mailbox::Header`] says how.
    Done = 3,
    /// The log area is full and must be emptied before the guest goes on.
    LogFull = 4,
    /// Nothing to do until [`crate::mailbox::Header::wait_nanoseconds`] have passed.
    Wait = 5,
    /// The guest itself failed; the mailbox report says why. It does not go on.
    Fatal = 6,
}

impl Ring {
    /// The ring that a value written to [`PORT`] stands for.
    #[must_use]
    pub fn from_u32(value: u32) -> Option<Self> {
        [
            Self::Loaded,
            Self::Ready,
            Self::Done,
            Self::LogFull,
            Self::Wait,
            Self::Fatal,
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
        assert_eq!(Ring::from_u32(7), None);
        assert_eq!(Ring::from_u32(u32::MAX), None);
    }
}
