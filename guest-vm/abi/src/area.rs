//! Areas of the mailbox.

/// A part of the mailbox: offset and size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Offset from the start of the mailbox, in bytes.
    pub offset: u64,
    /// Size, in bytes.
    pub size: u64,
}

impl Area {
    pub(crate) const fn new(offset: u64, size: u64) -> Self {
        Self { offset, size }
    }
}
