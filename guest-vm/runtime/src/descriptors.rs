//! File descriptors of a core module: 0, 1 and 2, the folder of its files if it has some, that of
//! temporary files, and those that it opens.

use alloc::vec::Vec;

use crate::files::Node;

/// Maximum number of open descriptors.
const OPEN_MAX: usize = 1024;

/// The meaning of a standard stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The request body.
    Stdin,
    /// The response.
    Stdout,
    /// The log.
    Stderr,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub(crate) node: Node,
    /// Position of the next read or write.
    pub(crate) at: u64,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// `fdflags`, as the function set them.
    pub(crate) flags: u16,
}

/// The object behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Stream(Stream),
    File(OpenFile),
    Folder {
        node: Node,
        /// Whether the folder was open before the function ran.
        is_preopened: bool,
    },
}

impl Descriptor {
    /// Returns the node that the descriptor holds.
    pub(crate) fn node(&self) -> Option<Node> {
        match self {
            Self::Stream(_) => None,
            Self::File(OpenFile { node, .. }) | Self::Folder { node, .. } => Some(*node),
        }
    }
}

/// Returns the descriptors of a function before it runs.
fn initial(preopened: &[Node]) -> impl Iterator<Item = Descriptor> {
    let streams = [Stream::Stdin, Stream::Stdout, Stream::Stderr].map(Descriptor::Stream);
    let folders = preopened.iter().map(|node| Descriptor::Folder {
        node: *node,
        is_preopened: true,
    });
    streams.into_iter().chain(folders)
}

/// The open descriptors.
#[derive(Debug)]
pub(crate) struct Descriptors {
    open: Vec<Option<Descriptor>>,
    /// The folders that were open before the function ran.
    preopened: Vec<Node>,
}

impl Descriptors {
    /// Returns the initial descriptors of a function, for which these folders are open.
    pub(crate) fn new(preopened: Vec<Node>) -> Self {
        let open = initial(&preopened).map(Some).collect();
        Self { open, preopened }
    }

    /// Returns whether the descriptors are the initial ones.
    pub(crate) fn are_untouched(&self) -> bool {
        let open = self.open.iter().rposition(Option::is_some);
        let open = self.open.get(..open.map_or(0, |last| last + 1));
        open.is_some_and(|open| open.iter().copied().eq(initial(&self.preopened).map(Some)))
    }

    /// Returns the object behind a descriptor, or `None` if it is not open.
    pub(crate) fn get(&self, descriptor: u32) -> Option<Descriptor> {
        let index = usize::try_from(descriptor).ok()?;
        self.open.get(index).copied().flatten()
    }

    /// Returns the open file behind a descriptor, for changes.
    pub(crate) fn file_mut(&mut self, descriptor: u32) -> Option<&mut OpenFile> {
        let index = usize::try_from(descriptor).ok()?;
        match self.open.get_mut(index)?.as_mut()? {
            Descriptor::File(file) => Some(file),
            Descriptor::Stream(_) | Descriptor::Folder { .. } => None,
        }
    }

    /// Adds a descriptor with the lowest free number above the standard streams. Returns `None` if
    /// too many are open.
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

    /// Closes the descriptor, and returns the object behind it, or `None` if it is not open.
    pub(crate) fn close(&mut self, descriptor: u32) -> Option<Descriptor> {
        let index = usize::try_from(descriptor).ok()?;
        self.open.get_mut(index)?.take()
    }

    /// Moves the object of `from` to `to`, and returns the former object of `to`, unless both are
    /// the same. Returns `None`, without a change, if one of them is not open.
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
    use crate::files::ROOT;
    use alloc::vec;

    #[test]
    fn a_closed_descriptor_stands_for_nothing() {
        let mut descriptors = Descriptors::new(Vec::new());
        assert!(descriptors.are_untouched());
        let stdin = Descriptor::Stream(Stream::Stdin);
        assert_eq!(descriptors.close(0), Some(stdin));
        assert_eq!(descriptors.close(0), None);
        assert_eq!(descriptors.get(0), None);
        assert_eq!(descriptors.get(3), None);
        assert!(!descriptors.are_untouched());
    }

    #[test]
    fn renumbering_moves_the_descriptor() {
        let mut descriptors = Descriptors::new(Vec::new());
        let stdout = Descriptor::Stream(Stream::Stdout);
        assert_eq!(descriptors.renumber(2, 1), Some(Some(stdout)));
        let stderr = Descriptor::Stream(Stream::Stderr);
        assert_eq!(descriptors.get(1), Some(stderr));
        assert_eq!(descriptors.get(2), None);
        assert_eq!(descriptors.renumber(1, 2), None);
        assert_eq!(descriptors.renumber(1, 1), Some(None));
    }

    #[test]
    fn an_opened_file_gets_the_lowest_free_descriptor() {
        let mut descriptors = Descriptors::new(vec![ROOT]);
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
        assert!(Descriptors::new(vec![ROOT]).are_untouched());
    }
}
