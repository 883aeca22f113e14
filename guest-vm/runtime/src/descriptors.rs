//! File descriptors of a core module: 0, 1 and 2, the folder of its files where it has some, and
//! what it opens.

use alloc::vec;
use alloc::vec::Vec;

use crate::files::{Node, ROOT};

/// Most descriptors that are open at once.
const OPEN_MAX: usize = 1024;

/// What a standard stream stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The request body.
    Stdin,
    /// The response.
    Stdout,
    /// The log.
    Stderr,
}

/// A file that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub(crate) node: Node,
    /// Where what is read or written next begins.
    pub(crate) at: u64,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// `fdflags`, as they were asked for.
    pub(crate) flags: u16,
}

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Stream(Stream),
    File(OpenFile),
    Folder {
        node: Node,
        /// It was there before the function ran.
        is_preopened: bool,
    },
}

impl Descriptor {
    /// The node that it holds.
    pub(crate) fn node(&self) -> Option<Node> {
        match self {
            Self::Stream(_) => None,
            Self::File(OpenFile { node, .. }) | Self::Folder { node, .. } => Some(*node),
        }
    }
}

/// Which descriptors are open.
#[derive(Debug)]
pub(crate) struct Descriptors {
    open: Vec<Option<Descriptor>>,
    has_files: bool,
}

impl Descriptors {
    /// What a function begins with.
    pub(crate) fn new(has_files: bool) -> Self {
        let mut open = vec![
            Some(Descriptor::Stream(Stream::Stdin)),
            Some(Descriptor::Stream(Stream::Stdout)),
            Some(Descriptor::Stream(Stream::Stderr)),
        ];
        if has_files {
            open.push(Some(Descriptor::Folder {
                node: ROOT,
                is_preopened: true,
            }));
        }
        Self { open, has_files }
    }

    /// Whether they are what every function begins with.
    pub(crate) fn are_untouched(&self) -> bool {
        let open = self.open.iter().rposition(Option::is_some);
        let open = self.open.get(..open.map_or(0, |last| last + 1));
        open == Some(&Self::new(self.has_files).open)
    }

    /// What the descriptor stands for; none where it is not open.
    pub(crate) fn get(&self, descriptor: u32) -> Option<Descriptor> {
        let index = usize::try_from(descriptor).ok()?;
        self.open.get(index).copied().flatten()
    }

    /// The file that it stands for, to change how that is open.
    pub(crate) fn file_mut(&mut self, descriptor: u32) -> Option<&mut OpenFile> {
        let index = usize::try_from(descriptor).ok()?;
        match self.open.get_mut(index)?.as_mut()? {
            Descriptor::File(file) => Some(file),
            Descriptor::Stream(_) | Descriptor::Folder { .. } => None,
        }
    }

    /// The lowest number that is free behind the standard streams, for this; none where too many
    /// are open.
    pub(crate) fn add(&mut self, descriptor: Descriptor) -> Option<u32> {
        let free = self.open.iter().skip(3).position(Option::is_none);
        let index = free.map_or(self.open.len(), |index| index + 3);
        if index >= OPEN_MAX {
            return None;
        }
        match self.open.get_mut(index) {
            Some(place) => *place = Some(descriptor),
            None => self.open.push(Some(descriptor)),
        }
        u32::try_from(index).ok()
    }

    /// Closes the descriptor, and says what it stood for; none where it is not open.
    pub(crate) fn close(&mut self, descriptor: u32) -> Option<Descriptor> {
        let index = usize::try_from(descriptor).ok()?;
        self.open.get_mut(index)?.take()
    }

    /// Moves what `from` stands for to `to`, and says what that stood for, unless it is the same.
    /// Both must be open; nothing changes where one is not.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Option<Option<Descriptor>> {
        let moved = self.get(from)?;
        let replaced = self.get(to)?;
        if from == to {
            return Some(None);
        }
        self.close(from)?;
        let index = usize::try_from(to).ok()?;
        *self.open.get_mut(index)? = Some(moved);
        Some(Some(replaced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_stands_for_nothing() {
        let mut descriptors = Descriptors::new(false);
        assert!(descriptors.are_untouched());
        let stdin = Descriptor::Stream(Stream::Stdin);
        assert_eq!(descriptors.close(0), Some(stdin));
        assert_eq!(descriptors.close(0), None);
        assert_eq!(descriptors.get(0), None);
        assert_eq!(descriptors.get(3), None);
        assert!(!descriptors.are_untouched());
    }

    #[test]
    fn renumbering_moves_what_it_stands_for() {
        let mut descriptors = Descriptors::new(false);
        let stdout = Descriptor::Stream(Stream::Stdout);
        assert_eq!(descriptors.renumber(2, 1), Some(Some(stdout)));
        let stderr = Descriptor::Stream(Stream::Stderr);
        assert_eq!(descriptors.get(1), Some(stderr));
        assert_eq!(descriptors.get(2), None);
        assert_eq!(descriptors.renumber(1, 2), None);
        assert_eq!(descriptors.renumber(1, 1), Some(None));
    }

    #[test]
    fn what_is_opened_gets_the_lowest_number_that_is_free() {
        let mut descriptors = Descriptors::new(true);
        let file = Descriptor::Folder {
            node: 7,
            is_preopened: false,
        };
        assert!(descriptors.close(0).is_some());
        assert_eq!(descriptors.add(file), Some(4));
        assert_eq!(descriptors.add(file), Some(5));
        descriptors.close(4);
        assert_eq!(descriptors.add(file), Some(4));
        for number in 6..OPEN_MAX {
            assert_eq!(descriptors.add(file), u32::try_from(number).ok());
        }
        assert_eq!(descriptors.add(file), None);
        for number in 4..OPEN_MAX {
            descriptors.close(number.try_into().unwrap());
        }
        assert!(!descriptors.are_untouched());
        assert!(Descriptors::new(true).are_untouched());
    }
}
