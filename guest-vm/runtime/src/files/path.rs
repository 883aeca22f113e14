//! Path lookup, relative to a folder. No path leads above the folder that it begins at.

use alloc::vec;
use alloc::vec::Vec;

use faasw_abi::files::{Kind, NAME_MAX};

use super::{FileError, Files, Node};

/// Maximum number of links on a path.
const LINKS_MAX: usize = 40;

/// Maximum bytes of a path.
const PATH_MAX: usize = 4096;

/// Maximum number of remaining parts of a path, including those of links.
const PARTS_MAX: usize = 8192;

/// The result of a path lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathLookup<'a> {
    /// The folder that contains the last part.
    pub(super) folder: Node,
    /// The last part; `None` if the path ends with `.` or `..`, at a folder that it passed through.
    pub(super) name: Option<&'a str>,
    /// The object at the path.
    pub(super) node: Option<Node>,
    /// Whether the path requires a folder.
    pub(super) is_folder: bool,
}

impl PathLookup<'_> {
    /// Returns the object, which must be a folder if the path requires one.
    pub(super) fn existing(&self, files: &Files) -> Result<Node, FileError> {
        let node = self.node.ok_or(FileError::NoEntry)?;
        if self.is_folder && files.kind(node)? != Kind::Folder {
            Err(FileError::NotFolder)
        } else {
            Ok(node)
        }
    }
}

/// Returns the parts of a path, the last first, and whether the path requires a folder.
fn parts(path: &str) -> Result<(Vec<&str>, bool), FileError> {
    if path.is_empty() {
        return Err(FileError::NoEntry);
    }
    if path.len() > PATH_MAX {
        return Err(FileError::NameTooLong);
    }
    if path.contains('\0') {
        return Err(FileError::Invalid);
    }
    if path.starts_with('/') {
        return Err(FileError::LeadsOut);
    }
    let parts = path.rsplit('/').filter(|part| !part.is_empty());
    Ok((parts.collect(), path.ends_with('/')))
}

impl Files {
    /// Looks up a path from a folder on. Links are followed; one at the end only with `follow`, or
    /// if the path requires a folder.
    pub(super) fn walk<'a>(
        &'a self,
        base: Node,
        path: &'a str,
        follow: bool,
    ) -> Result<PathLookup<'a>, FileError> {
        if self.kind(base)? != Kind::Folder {
            return Err(FileError::NotFolder);
        }
        let (mut left, mut is_folder) = parts(path)?;
        let (mut through, mut links) = (vec![base], 0);
        while let Some(part) = left.pop() {
            let folder = through.last().copied().unwrap_or(base);
            let name = match part {
                "." => continue,
                ".." => {
                    through.pop();
                    if through.is_empty() {
                        return Err(FileError::LeadsOut);
                    }
                    continue;
                }
                name if name.len() > NAME_MAX => return Err(FileError::NameTooLong),
                name => name,
            };
            let is_last = left.is_empty();
            let node = self.child(folder, name);
            let kind = node.map(|node| self.kind(node)).transpose()?;
            if let (Some(node), Some(Kind::Link)) = (node, kind)
                && (!is_last || follow || is_folder)
            {
                links += 1;
                let (more, leads_to_folder) = parts(self.target(node).unwrap_or_default())?;
                if links > LINKS_MAX || left.len() + more.len() > PARTS_MAX {
                    return Err(FileError::Loop);
                }
                is_folder |= is_last && leads_to_folder;
                left.extend(more);
                continue;
            }
            if is_last {
                return Ok(PathLookup {
                    folder,
                    name: Some(name),
                    node,
                    is_folder,
                });
            }
            match (node, kind) {
                (Some(node), Some(Kind::Folder)) => through.push(node),
                (Some(_), _) => return Err(FileError::NotFolder),
                (None, _) => return Err(FileError::NoEntry),
            }
        }
        let folder = through.last().copied().unwrap_or(base);
        Ok(PathLookup {
            folder,
            name: None,
            node: Some(folder),
            is_folder: true,
        })
    }

    /// Returns the object at a path.
    pub(crate) fn find(&self, base: Node, path: &str, follow: bool) -> Result<Node, FileError> {
        self.walk(base, path, follow)?.existing(self)
    }

    /// Returns the target of the link at a path.
    pub(crate) fn read_link(&self, base: Node, path: &str) -> Result<&str, FileError> {
        let node = self.find(base, path, false)?;
        self.target(node).ok_or(FileError::Invalid)
    }
}
