//! File descriptors 0, 1 and 2 of a core module.

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
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

    /// What the descriptor stands for; none where it is not open.
    pub(crate) fn get(&self, descriptor: u32) -> Option<Stream> {
        let index = usize::try_from(descriptor).ok()?;
        self.0.get(index).copied().flatten()
    }

    /// Closes the descriptor, and says what it stood for; none where it is not open.
    pub(crate) fn close(&mut self, descriptor: u32) -> Option<Stream> {
        let index = usize::try_from(descriptor).ok()?;
        self.0.get_mut(index)?.take()
    }

    /// Moves what `from` stands for to `to`, and says what that is. Both must be open; nothing
    /// changes where one is not.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Option<Stream> {
        self.get(to)?;
        let moved = self.get(from)?;
        if from != to {
            self.close(from)?;
            let index = usize::try_from(to).ok()?;
            *self.0.get_mut(index)? = Some(moved);
        }
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_stands_for_nothing() {
        let mut descriptors = Descriptors::default();
        assert_eq!(descriptors.close(0), Some(Stream::Stdin));
        assert_eq!(descriptors.close(0), None);
        assert_eq!(descriptors.get(0), None);
        assert_eq!(descriptors.get(3), None);
    }

    #[test]
    fn renumbering_moves_the_stream() {
        let mut descriptors = Descriptors::default();
        assert_eq!(descriptors.renumber(2, 1), Some(Stream::Stderr));
        assert_eq!(descriptors.get(1), Some(Stream::Stderr));
        assert_eq!(descriptors.get(2), None);
        assert_eq!(descriptors.renumber(1, 2), None);
        assert_eq!(descriptors.renumber(1, 1), Some(Stream::Stderr));
    }
}
