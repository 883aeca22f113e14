//! The entries of a folder, and their listing.
//!
//! Each entry has a number that no other entry of its folder ever has. A listing continues after
//! the last listed number, whatever was added and removed in the meantime.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faasw_abi::files::bundle::EntryObject;

use super::{
    Body, ENGINE_ROOT, FileError, Files, MemoryBudget, NODE, Node, ROOT, TEMPORARY, TemporaryFolder,
};

/// A changed folder.
#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) parent: Node,
    names: BTreeMap<Arc<str>, u64>,
    entries: BTreeMap<u64, (Arc<str>, Node)>,
    next: u64,
}

/// Returns the memory of an entry, in bytes.
fn cost(name: &str) -> usize {
    192 + name.len()
}

/// An entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderEntry<'a> {
    /// Number of the entry; the numbers ascend in a listing.
    pub(crate) number: u64,
    pub(crate) name: &'a str,
    pub(crate) node: Node,
}

impl Folder {
    /// Returns an empty folder.
    pub(super) fn within(parent: Node) -> Self {
        Self {
            parent,
            next: 1,
            ..Self::default()
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Node> {
        let number = self.names.get(name)?;
        self.entries.get(number).map(|(_, node)| *node)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds an entry with a name that the folder does not have.
    ///
    /// # Errors
    /// Returns [`FileError::NoSpace`] if there is no memory for it.
    pub(super) fn add(
        &mut self,
        name: &str,
        node: Node,
        room: &mut dyn MemoryBudget,
    ) -> Result<(), FileError> {
        room.take(cost(name))?;
        let name: Arc<str> = name.into();
        self.names.insert(name.clone(), self.next);
        self.entries.insert(self.next, (name, node));
        self.next += 1;
        Ok(())
    }

    /// Replaces the node of an entry, and returns the former node.
    pub(super) fn replace(&mut self, name: &str, node: Node) -> Option<Node> {
        let entry = self.entries.get_mut(self.names.get(name)?)?;
        Some(core::mem::replace(&mut entry.1, node))
    }

    pub(super) fn remove(&mut self, name: &str, room: &mut dyn MemoryBudget) -> Option<Node> {
        let number = self.names.remove(name)?;
        room.release(cost(name));
        self.entries.remove(&number).map(|(_, node)| node)
    }

    /// Returns the memory that the entries take.
    pub(super) fn cost(&self) -> usize {
        self.names.keys().map(|name| cost(name)).sum()
    }
}

impl Files {
    /// Returns the node of a name in a folder.
    pub(super) fn child(&self, folder: Node, name: &str) -> Option<Node> {
        match self.body(folder) {
            Some(Body::Folder(folder)) => folder.get(name),
            Some(_) => None,
            None if self.temporary_name(folder) == Some(name) => Some(TEMPORARY),
            None => self.bundle?.named(self.shown(folder), name),
        }
    }

    /// Returns the folder that contains a folder.
    pub(crate) fn parent(&self, folder: Node) -> Node {
        match self.body(folder) {
            Some(Body::Folder(folder)) => folder.parent,
            _ if folder == ROOT => self.mounted_in,
            _ if folder == TEMPORARY && self.temporary == TemporaryFolder::Inside => {
                if self.is_engine { ENGINE_ROOT } else { ROOT }
            }
            _ => self
                .bundle
                .and_then(|bundle| bundle.entry(folder))
                .map_or(folder, |entry| entry.parent),
        }
    }

    /// Returns at most `most` of a folder's entries after the one with this number.
    pub(crate) fn list(
        &self,
        folder: Node,
        behind: u64,
        most: usize,
    ) -> Result<Vec<FolderEntry<'_>>, FileError> {
        match (self.body(folder), self.bundled(folder)) {
            (Some(Body::Folder(folder)), _) => {
                let behind = behind.saturating_add(1);
                let entries = folder.entries.range(behind..).take(most);
                let listed = entries.map(|(number, (name, node))| FolderEntry {
                    number: *number,
                    name,
                    node: *node,
                });
                Ok(listed.collect())
            }
            (None, Some(EntryObject::Folder { first, count })) => {
                let from = u32::try_from(behind).unwrap_or(u32::MAX).min(count);
                let listed = (from..count).filter_map(|index| {
                    let node = first.checked_add(index)?;
                    Some(FolderEntry {
                        number: u64::from(index) + 1,
                        name: self.bundle?.entry(node)?.name,
                        node,
                    })
                });
                let temporary = self.temporary_name(folder).map(|name| FolderEntry {
                    number: u64::from(count) + 1,
                    name,
                    node: TEMPORARY,
                });
                let temporary = temporary.filter(|entry| entry.number > behind);
                Ok(listed.chain(temporary).take(most).collect())
            }
            (None, None) => Err(FileError::NoEntry),
            _ => Err(FileError::NotFolder),
        }
    }

    pub(super) fn has_entries(&self, folder: Node) -> bool {
        match (self.body(folder), self.bundled(folder)) {
            (Some(Body::Folder(folder)), _) => !folder.is_empty(),
            (None, Some(EntryObject::Folder { count, .. })) => {
                count > 0 || self.temporary_name(folder).is_some()
            }
            _ => false,
        }
    }

    /// Returns a folder for a change. From then on it has a copy of its names, with unchanged
    /// numbers.
    ///
    /// # Errors
    /// Returns an error if there is no memory for them, or if the folder was removed.
    pub(super) fn folder_mut(
        &mut self,
        node: Node,
        room: &mut dyn MemoryBudget,
    ) -> Result<&mut Folder, FileError> {
        if !self.changed.contains_key(&node) {
            let all = self.list(node, 0, usize::MAX)?;
            let names: usize = all.iter().map(|entry| cost(entry.name)).sum();
            room.take(NODE + names)?;
            let mut folder = Folder::within(self.parent(node));
            for entry in all {
                let name: Arc<str> = entry.name.into();
                folder.names.insert(name.clone(), entry.number);
                folder.entries.insert(entry.number, (name, entry.node));
                folder.next = entry.number + 1;
            }
            self.put(node, Body::Folder(folder));
        }
        match self.changed.get_mut(&node) {
            // The folder was removed, but is still open.
            Some(changed) if changed.links == 0 => Err(FileError::NoEntry),
            Some(changed) => match &mut changed.body {
                Body::Folder(folder) => Ok(folder),
                _ => Err(FileError::NotFolder),
            },
            None => Err(FileError::NoEntry),
        }
    }
}
