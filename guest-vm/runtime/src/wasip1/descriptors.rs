//! File descriptors 0, 1 and 2.

use super::errno::Errno;

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// The request body.
    Stdin,
    /// The response.
    Stdout,
    /// The log.
    Stderr,
}

/// Which descriptors are open.
#[derive(Debug)]
pub(crate) struct Descriptors([Option<Stream>; 3]);

impl Default for Descriptors {
    fn default() -> Self {
        Self([
            Some(Stream::Stdin),
            Some(Stream::Stdout),
            Some(Stream::Stderr),
        ])
    }
}

impl Descriptors {
    /// Whether they are what every function begins with.
    pub(crate) fn are_untouched(&self) -> bool {
        self.0 == Self::default().0
    }

    /// What the descriptor stands for.
    pub(super) fn get(&self, descriptor: u32) -> Result<Stream, Errno> {
        usize::try_from(descriptor)
            .ok()
            .and_then(|index| self.0.get(index).copied().flatten())
            .ok_or(Errno::Badf)
    }

    /// Closes the descriptor.
    pub(super) fn close(&mut self, descriptor: u32) -> Result<Stream, Errno> {
        usize::try_from(descriptor)
            .ok()
            .and_then(|index| self.0.get_mut(index)?.take())
            .ok_or(Errno::Badf)
    }

    /// Moves what `from` stands for to `to`, which must be open as well.
    pub(super) fn renumber(&mut self, from: u32, to: u32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from == to {
            return Ok(());
        }
        let moved = self.close(from)?;
        let slot = usize::try_from(to)
            .ok()
            .and_then(|index| self.0.get_mut(index))
            .ok_or(Errno::Badf)?;
        *slot = Some(moved);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_is_bad() {
        let mut descriptors = Descriptors::default();
        assert_eq!(descriptors.close(0), Ok(Stream::Stdin));
        assert_eq!(descriptors.close(0), Err(Errno::Badf));
        assert_eq!(descriptors.get(0), Err(Errno::Badf));
        assert_eq!(descriptors.get(3), Err(Errno::Badf));
    }

    #[test]
    fn renumbering_moves_the_stream() {
        let mut descriptors = Descriptors::default();
        descriptors.renumber(2, 1).unwrap();
        assert_eq!(descriptors.get(1), Ok(Stream::Stderr));
        assert_eq!(descriptors.get(2), Err(Errno::Badf));
        assert_eq!(descriptors.renumber(1, 2), Err(Errno::Badf));
        descriptors.renumber(1, 1).unwrap();
    }
}
