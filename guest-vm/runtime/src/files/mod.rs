//! The files of a function: a bundle that is only read, and over it what the function has changed.
//!
//! ```text
//! preview 1, wasi:filesystem ──▶ Files ──▶ changed: nodes that are new, or others than in the bundle
//!                                  │            │ pages of a file that were not written
//!                                  └────────────┴──▶ bundle, where it lies (Catalyzer, section 4.2)
//! ```
//!
//! A node of the bundle is known by its place in the index, a new one by a number behind these.
//! What is changed lies in the instance's own memory, within the function's limit, and the reset
//! undoes it. Folders are copied when they change, as names; files page by page. [`path`](self)
//! never leads above the folder that it begins at, by `..` or by a link, so a descriptor is all
//! that there is for whoever has it.

mod change;
mod content;
mod folder;
mod path;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;

use faasw_abi::files::bundle::{Bundle, What};
use faasw_abi::files::{FilesError, Kind};

use self::content::Content;
use self::folder::Folder;

/// What is at a path, by its number.
pub(crate) type Node = u32;

/// The folder above all.
pub(crate) const ROOT: Node = 0;

/// Most bytes of a file.
const SIZE_MAX: u64 = 1 << 32;

/// Why something with files did not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileError {
    /// There is something already.
    Exists,
    /// There is nothing.
    NoEntry,
    /// A folder was expected.
    NotFolder,
    /// It is a folder.
    IsFolder,
    /// The folder has something.
    NotEmpty,
    /// Too many links on the way, or one at its end that is not to be followed.
    Loop,
    /// A name or a path is too long.
    NameTooLong,
    /// The path leads out of the folder that it begins at.
    LeadsOut,
    /// Not with this.
    NotPermitted,
    /// It makes no sense.
    Invalid,
    /// The function's memory is used up.
    NoSpace,
    /// A file would become larger than any may be.
    TooLarge,
    /// It is the folder above all.
    Busy,
}

/// What nodes take is paid for from the memory that the function may use.
pub(crate) trait Room {
    /// Takes so many bytes.
    fn take(&mut self, bytes: usize) -> Result<(), FileError>;

    /// Gives them back.
    fn give_back(&mut self, bytes: usize);
}

/// What a node takes, beside its names and pages, in bytes.
const NODE: usize = 256;

/// A node that is new or changed.
#[derive(Debug)]
struct Changed {
    body: Body,
    /// In how many folders it is. None: it goes when nobody has it open.
    links: u32,
    times: Times,
}

/// When a file was read and changed, since 1970. Nobody wrote down when those of a bundle were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) accessed: Duration,
    pub(crate) modified: Duration,
    pub(crate) changed: Duration,
}

impl Times {
    fn all(now: Duration) -> Self {
        Self {
            accessed: now,
            modified: now,
            changed: now,
        }
    }
}

#[derive(Debug)]
enum Body {
    File(Content),
    Folder(Folder),
    Link(Box<str>),
}

/// What there is to say of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) node: Node,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) links: u32,
    pub(crate) times: Times,
}

/// How a path is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    pub(crate) create: bool,
    /// It must not be there.
    pub(crate) exclusive: bool,
    /// It must be a folder.
    pub(crate) folder: bool,
    pub(crate) truncate: bool,
    pub(crate) write: bool,
    /// A link at its end is gone through.
    pub(crate) follow: bool,
}

/// The files of a function.
#[derive(Debug)]
pub(crate) struct Files {
    bundle: Bundle<'static>,
    /// Where they are for the function: an absolute path.
    mount: String,
    changed: BTreeMap<Node, Changed>,
    /// How often nodes are open.
    open: BTreeMap<Node, u32>,
    next: Node,
    /// Who opens this comes to its func-entry point.
    entry: Option<Node>,
}

impl Files {
    /// Those of a bundle, for a function that finds them at `mount`.
    ///
    /// # Errors
    /// When the bundle breaks its rules.
    pub(crate) fn new(bundle: &'static [u8], mount: String) -> Result<Self, FilesError> {
        let bundle = Bundle::read(bundle)?;
        Ok(Self {
            next: bundle.count(),
            bundle,
            mount,
            changed: BTreeMap::new(),
            open: BTreeMap::new(),
            entry: None,
        })
    }

    /// Makes the file at an absolute path the func-entry point of who opens it.
    ///
    /// # Errors
    /// When there is no file.
    pub(crate) fn freeze_at(&mut self, path: &str) -> Result<(), FileError> {
        let mount = self.mount.strip_suffix('/').unwrap_or(&self.mount);
        let within = path
            .strip_prefix(mount)
            .and_then(|rest| rest.strip_prefix('/'));
        let node = self.find(ROOT, within.ok_or(FileError::NoEntry)?, true)?;
        match self.kind(node)? {
            Kind::File => self.entry = Some(node),
            Kind::Folder | Kind::Link => return Err(FileError::IsFolder),
        }
        Ok(())
    }

    /// Whether a node is that file.
    pub(crate) fn is_entry(&self, node: Node) -> bool {
        self.entry == Some(node)
    }

    /// Where they are.
    pub(crate) fn mount(&self) -> &str {
        &self.mount
    }

    /// Whether all is as it was deployed.
    pub(crate) fn are_untouched(&self) -> bool {
        self.changed.is_empty()
    }

    fn body(&self, node: Node) -> Option<&Body> {
        self.changed.get(&node).map(|changed| &changed.body)
    }

    fn bundled(&self, node: Node) -> Option<What<'static>> {
        self.bundle.entry(node).map(|entry| entry.what)
    }

    /// What a node is.
    pub(crate) fn kind(&self, node: Node) -> Result<Kind, FileError> {
        match (self.body(node), self.bundled(node)) {
            (Some(Body::File(_)), _) | (None, Some(What::File(_))) => Ok(Kind::File),
            (Some(Body::Folder(_)), _) | (None, Some(What::Folder { .. })) => Ok(Kind::Folder),
            (Some(Body::Link(_)), _) | (None, Some(What::Link(_))) => Ok(Kind::Link),
            (None, None) => Err(FileError::NoEntry),
        }
    }

    /// Where a link leads.
    fn target(&self, node: Node) -> Option<&str> {
        match (self.body(node), self.bundled(node)) {
            (Some(Body::Link(target)), _) => Some(target),
            (None, Some(What::Link(target))) => Some(target),
            _ => None,
        }
    }

    /// All there is to say of a node.
    pub(crate) fn stat(&self, node: Node) -> Result<Stat, FileError> {
        let kind = self.kind(node)?;
        let changed = self.changed.get(&node);
        let size = match (self.body(node), self.bundled(node)) {
            (Some(Body::File(content)), _) => content.size(),
            (None, Some(What::File(content))) => content.len() as u64,
            _ => self.target(node).map_or(0, |target| target.len() as u64),
        };
        Ok(Stat {
            node,
            kind,
            size,
            links: changed.map_or(1, |changed| changed.links),
            times: changed.map(|changed| changed.times).unwrap_or_default(),
        })
    }

    /// Copies what a file has from a position on; says how many bytes.
    pub(crate) fn read(&self, node: Node, at: u64, out: &mut [u8]) -> Result<usize, FileError> {
        match (self.body(node), self.bundled(node)) {
            (Some(Body::File(content)), _) => Ok(content.read(at, out)),
            (None, Some(What::File(content))) => Ok(content::read_from(content, at, out)),
            (None, None) => Err(FileError::NoEntry),
            _ => Err(FileError::IsFolder),
        }
    }

    /// A node was opened: it stays until it is closed.
    pub(crate) fn hold(&mut self, node: Node) {
        *self.open.entry(node).or_default() += 1;
    }

    /// A node was closed.
    pub(crate) fn let_go(&mut self, node: Node, room: &mut impl Room) {
        let Some(count) = self.open.get_mut(&node) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.open.remove(&node);
            self.drop_unused(node, room);
        }
    }
}
