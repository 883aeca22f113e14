//! The files of a function: a read-only bundle, and over it the function's changes.
//!
//! ```text
//! preview 1, wasi:filesystem ──▶ Files ──▶ changed: nodes that are new or changed
//!                                  │            │ pages of a file that were not written
//!                                  └────────────┴──▶ bundle, in place (Catalyzer, section 4.2)
//! ```
//!
//! A node of the bundle is identified by its index, a new one by a number from the other end.
//! Changes are in the instance's own memory, within the function's limit, and the reset reverts
//! them. A changed folder is copied as names, a changed file page by page. A [`path`](self) never
//! leads above the folder that it begins at, by `..` or by a link. So a descriptor limits its
//! holder to that folder.
//!
//! Every function also has an empty folder `/tmp`, which takes no memory before the function writes
//! to it: in the bundle's root folder if the function sees the bundle at `/`, otherwise beside it.
//!
//! A language engine is instantiated before it has a script and the script's files. C libraries
//! look up the preopened folders only once, often at that time. So an engine has a single one, `/`,
//! which later contains the bundle at its path.

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

use faasw_abi::files::bundle::{Bundle, EntryObject};
use faasw_abi::files::{FilesError, Kind};

pub(crate) use self::change::FileSystem;
use self::content::Content;
use self::folder::Folder;

/// An object at a path, by its number.
pub(crate) type Node = u32;

/// The root folder of the bundle.
pub(crate) const ROOT: Node = 0;

/// The folder for temporary files.
pub(crate) const TEMPORARY: Node = Node::MAX;

/// The folder `/` of a language engine. The numbers of new nodes descend from here.
pub(crate) const ENGINE_ROOT: Node = TEMPORARY - 1;

/// Path of [`TEMPORARY`], and its name in the root folder of a bundle at `/`.
const TEMPORARY_PATH: &str = "/tmp";
const TEMPORARY_NAME: &str = "tmp";

/// Maximum bytes of a file.
const SIZE_MAX: u64 = 1 << 32;

/// The reason why an operation on files failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileError {
    /// There is an object already.
    Exists,
    /// There is no such object.
    NoEntry,
    /// The object is no folder.
    NotFolder,
    /// The object is a folder.
    IsFolder,
    /// The folder is not empty.
    NotEmpty,
    /// The path has too many links, or ends with one that is not to be followed.
    Loop,
    /// A name or a path is too long.
    NameTooLong,
    /// The path leads out of the folder that it begins at.
    LeadsOut,
    /// The operation is not permitted for this object.
    NotPermitted,
    /// An argument is invalid.
    Invalid,
    /// The function's memory is used up.
    NoSpace,
    /// A file would exceed the maximum size.
    TooLarge,
    /// The object is the root folder.
    Busy,
}

/// The memory that the function may use, from which nodes are paid for.
pub(crate) trait MemoryBudget {
    /// Reserves this many bytes.
    fn take(&mut self, bytes: usize) -> Result<(), FileError>;

    /// Releases this many bytes.
    fn release(&mut self, bytes: usize);
}

/// Memory of a node besides its names and pages, in bytes.
const NODE: usize = 256;

/// A node that is new or changed.
#[derive(Debug)]
struct Changed {
    body: Body,
    /// Number of folders that contain the node. At 0 the node is removed once it is not open.
    links: u32,
    times: Times,
}

/// Times of the last accesses and changes, since 1970. Those of a bundle's files are not recorded.
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

/// The attributes of a node.
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
    /// Whether it is an error if the object exists.
    pub(crate) exclusive: bool,
    /// Whether the object must be a folder.
    pub(crate) folder: bool,
    pub(crate) truncate: bool,
    pub(crate) write: bool,
    /// Whether a link at the end of the path is followed.
    pub(crate) follow: bool,
}

/// Where a function has its folder for temporary files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TemporaryFolder {
    /// Preopened, beside the bundle if there is one.
    #[default]
    Beside,
    /// An entry of the function's folder `/`.
    Inside,
    /// The bundle has an object of its own at that path.
    Replaced,
}

/// The files of a function.
#[derive(Debug)]
pub(crate) struct Files {
    bundle: Option<Bundle<'static>>,
    /// Absolute path at which the function sees the bundle.
    mount: String,
    temporary: TemporaryFolder,
    /// Whether they are a language engine's, whose folder `/` contains everything.
    is_engine: bool,
    /// The folder that contains the bundle's root folder: that folder itself, unless an engine's
    /// folder contains it.
    mounted_in: Node,
    changed: BTreeMap<Node, Changed>,
    /// Number of times that each node is open.
    open: BTreeMap<Node, u32>,
    next: Node,
    /// The node whose opening is the func-entry point.
    entry: Option<Node>,
}

impl Default for Files {
    /// Returns the files of a function without a bundle.
    fn default() -> Self {
        Self {
            bundle: None,
            mount: String::new(),
            temporary: TemporaryFolder::default(),
            is_engine: false,
            mounted_in: ROOT,
            changed: BTreeMap::new(),
            open: BTreeMap::new(),
            next: ENGINE_ROOT - 1,
            entry: None,
        }
    }
}

impl Files {
    /// Returns the path at which the function sees its bundle, if there is one.
    pub(crate) fn mount_path(&self) -> Option<&str> {
        self.bundle.as_ref().map(|_| self.mount.as_str())
    }

    /// Returns the files of a bundle, for a function that sees them at `mount`.
    ///
    /// # Errors
    /// Returns a [`FilesError`] if the bundle is invalid.
    pub(crate) fn new(bundle: &'static [u8], mount: String) -> Result<Self, FilesError> {
        let mut files = Self::default();
        files.mount(bundle, mount)?;
        Ok(files)
    }

    /// Returns the files of a language engine without a script.
    pub(crate) fn of_engine() -> Self {
        Self {
            temporary: TemporaryFolder::Inside,
            is_engine: true,
            ..Self::default()
        }
    }

    /// Adds a bundle to files without one, at `mount`. An engine's folder `/` contains it only
    /// after [`FileSystem::attach`].
    ///
    /// # Errors
    /// Returns a [`FilesError`] if the bundle is invalid.
    pub(crate) fn mount(&mut self, bundle: &'static [u8], mount: String) -> Result<(), FilesError> {
        let bundle = Bundle::read(bundle)?;
        self.temporary = match mount.as_str() {
            "/" if bundle.named(ROOT, TEMPORARY_NAME).is_none() => TemporaryFolder::Inside,
            "/" | TEMPORARY_PATH => TemporaryFolder::Replaced,
            _ if self.is_engine => TemporaryFolder::Inside,
            _ => TemporaryFolder::Beside,
        };
        self.bundle = Some(bundle);
        self.mount = mount;
        Ok(())
    }

    /// Returns the folders that are open before the function runs, in the order of their
    /// descriptors, and their paths.
    pub(crate) fn preopened(&self) -> impl Iterator<Item = (Node, &str)> {
        let bundle = match self.bundle {
            _ if self.is_engine => Some((ENGINE_ROOT, "/")),
            Some(_) => Some((ROOT, self.mount.as_str())),
            None => None,
        };
        let is_beside = self.temporary == TemporaryFolder::Beside;
        let temporary = is_beside.then_some((TEMPORARY, TEMPORARY_PATH));
        bundle.into_iter().chain(temporary)
    }

    /// Makes opening the file at an absolute path the func-entry point.
    ///
    /// # Errors
    /// Returns [`FileError::NoEntry`] if the path is outside of the mount or has no object, and
    /// [`FileError::IsFolder`] if the object is no file. Also returns the other errors of the path
    /// lookup.
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

    /// Returns whether a node is the file of the func-entry point.
    pub(crate) fn is_entry(&self, node: Node) -> bool {
        self.entry == Some(node)
    }

    /// Returns whether the files are as deployed.
    pub(crate) fn are_untouched(&self) -> bool {
        self.changed.is_empty()
    }

    fn body(&self, node: Node) -> Option<&Body> {
        self.changed.get(&node).map(|changed| &changed.body)
    }

    /// Returns the folder of the bundle that an unchanged folder shows: the root folder for an
    /// engine's folder `/` if the bundle is at that path.
    fn shown(&self, folder: Node) -> Node {
        match folder {
            ENGINE_ROOT if self.mount == "/" => ROOT,
            folder => folder,
        }
    }

    fn bundled(&self, node: Node) -> Option<EntryObject<'static>> {
        let is_own = match node {
            TEMPORARY => self.temporary != TemporaryFolder::Replaced,
            ENGINE_ROOT => self.is_engine && self.mount != "/",
            _ => false,
        };
        if is_own {
            return Some(EntryObject::Folder { first: 0, count: 0 });
        }
        self.bundle?.entry(self.shown(node)).map(|entry| entry.what)
    }

    /// Returns the number of the bundle's nodes.
    fn bundled_count(&self) -> Node {
        self.bundle.map_or(0, |bundle| bundle.count())
    }

    /// Returns the name of the folder for temporary files in an unchanged folder, if that folder
    /// contains it.
    fn temporary_name(&self, folder: Node) -> Option<&'static str> {
        let root = if self.is_engine { ENGINE_ROOT } else { ROOT };
        let is_there = folder == root && self.temporary == TemporaryFolder::Inside;
        is_there.then_some(TEMPORARY_NAME)
    }

    /// Returns the kind of a node.
    pub(crate) fn kind(&self, node: Node) -> Result<Kind, FileError> {
        match (self.body(node), self.bundled(node)) {
            (Some(Body::File(_)), _) | (None, Some(EntryObject::File(_))) => Ok(Kind::File),
            (Some(Body::Folder(_)), _) | (None, Some(EntryObject::Folder { .. })) => {
                Ok(Kind::Folder)
            }
            (Some(Body::Link(_)), _) | (None, Some(EntryObject::Link(_))) => Ok(Kind::Link),
            (None, None) => Err(FileError::NoEntry),
        }
    }

    /// Returns the target of a link.
    fn target(&self, node: Node) -> Option<&str> {
        match (self.body(node), self.bundled(node)) {
            (Some(Body::Link(target)), _) => Some(target),
            (None, Some(EntryObject::Link(target))) => Some(target),
            _ => None,
        }
    }

    /// Returns the attributes of a node.
    pub(crate) fn stat(&self, node: Node) -> Result<Stat, FileError> {
        let kind = self.kind(node)?;
        let changed = self.changed.get(&node);
        let size = match (self.body(node), self.bundled(node)) {
            (Some(Body::File(content)), _) => content.size(),
            (None, Some(EntryObject::File(content))) => content.len() as u64,
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

    /// Copies the content of a file from a position on, and returns the number of bytes.
    pub(crate) fn read(&self, node: Node, at: u64, out: &mut [u8]) -> Result<usize, FileError> {
        match (self.body(node), self.bundled(node)) {
            (Some(Body::File(content)), _) => Ok(content.read(at, out)),
            (None, Some(EntryObject::File(content))) => Ok(content::read_from(content, at, out)),
            (None, None) => Err(FileError::NoEntry),
            _ => Err(FileError::IsFolder),
        }
    }
}
