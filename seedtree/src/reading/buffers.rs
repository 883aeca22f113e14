//! The buffers of the threads that read.

use std::fmt;

use faasw_common::Lock;

use super::{PART, PARTS_AT_ONCE};

/// The alignment of direct reads, in memory and in the file (open(2), `O_DIRECT`).
const ALIGNED: usize = 4096;

/// A buffer that a disk can write to without a copy.
pub struct AlignedBuffer(Vec<u8>);

impl AlignedBuffer {
    /// Allocates a buffer of at least `bytes` bytes, in whole pages.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.next_multiple_of(ALIGNED) + ALIGNED])
    }

    /// Returns the whole buffer.
    pub fn all(&mut self) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        let end = self.0.len() + skip - ALIGNED;
        self.0.get_mut(skip..end).unwrap_or_default()
    }

    /// Returns the first bytes of the buffer; `None` if it is smaller.
    pub fn first(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.all().get_mut(..bytes)
    }
}

/// A pool of buffers for reading parts: each reader returns its buffer for the next one.
#[derive(Default)]
pub struct BufferPool(Lock<Vec<AlignedBuffer>>);

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").finish_non_exhaustive()
    }
}

impl BufferPool {
    /// Calls `reads` with one of the buffers.
    pub fn with<T>(&self, reads: impl FnOnce(&mut AlignedBuffer) -> T) -> T {
        let free = self.0.lock().pop();
        let mut buffer = free.unwrap_or_else(|| AlignedBuffer::new(PART * PARTS_AT_ONCE));
        let read = reads(&mut buffer);
        self.0.lock().push(buffer);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_buffers_are_aligned_for_direct_io() {
        let mut buffer = AlignedBuffer::new(5000);
        assert_eq!(buffer.all().as_ptr().addr() % 4096, 0);
        assert_eq!(buffer.all().len(), 8192);
        assert_eq!(buffer.first(4096).unwrap().len(), 4096);
        assert!(buffer.first(8193).is_none());
    }
}
