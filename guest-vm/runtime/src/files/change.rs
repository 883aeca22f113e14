//! Changes of files. Each call succeeds completely, or changes nothing; only a write may be
//! partial.

use alloc::string::{String, ToString};
use core::ops::Deref;
use core::time::Duration;

use faasw_abi::files::Kind;
use faasw_abi::files::bundle::EntryObject;

use super::content::Content;
use super::folder::Folder;
use super::{
    Body, Changed, ENGINE_ROOT, FileError, Files, MemoryBudget, NODE, Node, Opening, ROOT, Times,
};

/// Maximum bytes of a link's target.
const TARGET_MAX: usize = 4096;

/// A function's files with what a change of them needs: the memory that pays for it, and the time.
pub(crate) struct FileSystem<'a> {
    files: &'a mut Files,
    room: &'a mut dyn MemoryBudget,
    now: Duration,
}

impl Deref for FileSystem<'_> {
    type Target = Files;

    fn deref(&self) -> &Files {
        self.files
    }
}

impl Files {
    /// Returns the files for changes, which are paid for from `room`.
    pub(crate) fn with<'a>(
        &'a mut self,
        room: &'a mut dyn MemoryBudget,
        now: Duration,
    ) -> FileSystem<'a> {
        FileSystem {
            files: self,
            room,
            now,
        }
    }

    pub(super) fn put(&mut self, node: Node, body: Body) {
        let changed = Changed {
            body,
            links: 1,
            times: Times::default(),
        };
        self.changed.insert(node, changed);
    }

    fn touch(&mut self, node: Node, touch: impl FnOnce(&mut Times)) {
        if let Some(changed) = self.changed.get_mut(&node) {
            touch(&mut changed.times);
        }
    }

    /// Returns a node for a change.
    fn changed_mut(
        &mut self,
        node: Node,
        room: &mut dyn MemoryBudget,
    ) -> Result<&mut Changed, FileError> {
        if !self.changed.contains_key(&node) {
            match self.bundled(node).ok_or(FileError::NoEntry)? {
                EntryObject::File(content) => {
                    room.take(NODE)?;
                    self.put(node, Body::File(Content::of(content)));
                }
                EntryObject::Link(target) => {
                    room.take(NODE + target.len())?;
                    self.put(node, Body::Link(target.into()));
                }
                EntryObject::Folder { .. } => {
                    self.folder_mut(node, room)?;
                }
            }
        }
        self.changed.get_mut(&node).ok_or(FileError::NoEntry)
    }

    fn content_mut(
        &mut self,
        node: Node,
        room: &mut dyn MemoryBudget,
    ) -> Result<&mut Content, FileError> {
        match &mut self.changed_mut(node, room)?.body {
            Body::File(content) => Ok(content),
            Body::Folder(_) | Body::Link(_) => Err(FileError::IsFolder),
        }
    }

    fn may_open(&self, node: Node, is_folder: bool, how: Opening) -> Result<(), FileError> {
        match self.kind(node)? {
            Kind::Link => Err(FileError::Loop),
            Kind::File if how.folder || is_folder => Err(FileError::NotFolder),
            Kind::Folder if how.write || how.truncate || how.create => Err(FileError::IsFolder),
            Kind::File | Kind::Folder => Ok(()),
        }
    }

    /// Returns the folder and name of a path at which an object that is no folder can be added.
    fn free(&self, base: Node, path: &str) -> Result<(Node, String), FileError> {
        let place = self.walk(base, path, false)?;
        match (place.node, place.name) {
            (Some(node), _) if place.is_folder && self.kind(node)? != Kind::Folder => {
                Err(FileError::NotFolder)
            }
            (None, Some(name)) if !place.is_folder => Ok((place.folder, name.to_string())),
            (None, _) => Err(FileError::NoEntry),
            (Some(_), _) => Err(FileError::Exists),
        }
    }

    /// Returns whether a folder is another one, or somewhere in it.
    fn is_within(&self, folder: Node, other: Node) -> bool {
        let mut at = folder;
        loop {
            if at == other {
                return true;
            }
            let parent = self.parent(at);
            if parent == at {
                return false;
            }
            at = parent;
        }
    }
}

impl FileSystem<'_> {
    /// Adds a new node to a folder that has no entry with this name.
    fn add(&mut self, folder: Node, name: &str, body: Body) -> Result<Node, FileError> {
        let Self { files, room, now } = self;
        let node = files.next;
        let next = node
            .checked_sub(1)
            .filter(|next| *next >= files.bundled_count());
        let next = next.ok_or(FileError::NoSpace)?;
        let target = match &body {
            Body::Link(target) => target.len(),
            Body::File(_) | Body::Folder(_) => 0,
        };
        files.folder_mut(folder, *room)?;
        room.take(NODE + target)?;
        if let Err(error) = files.folder_mut(folder, *room)?.add(name, node, *room) {
            room.release(NODE + target);
            return Err(error);
        }
        files.next = next;
        files.put(node, body);
        files.touch(node, |times| *times = Times::all(*now));
        files.touch(folder, |times| times.modified = *now);
        Ok(node)
    }

    /// Adds the bundle to an engine's folder `/`, at the path where the script sees it.
    pub(crate) fn attach(&mut self) -> Result<(), FileError> {
        let mount = self.mount.clone();
        let Some((folders, name)) = mount.rsplit_once('/').filter(|_| mount != "/") else {
            // Only an unchanged folder shows the bundle.
            self.files.changed.remove(&ENGINE_ROOT);
            return Ok(());
        };
        let mut folder = ENGINE_ROOT;
        for part in folders.split('/').filter(|part| !part.is_empty()) {
            folder = match self.child(folder, part) {
                Some(child) => child,
                None => self.add(folder, part, Body::Folder(Folder::within(folder)))?,
            };
        }
        if self.child(folder, name).is_some() {
            return Err(FileError::Exists);
        }
        let Self { files, room, .. } = self;
        files.folder_mut(folder, *room)?.add(name, ROOT, *room)?;
        files.mounted_in = folder;
        Ok(())
    }

    /// Removes a node that is in no folder, once it is not open any more.
    fn drop_unused(&mut self, node: Node) {
        let is_unused = |changed: &Changed| changed.links == 0;
        if self.open.contains_key(&node) || !self.changed.get(&node).is_some_and(is_unused) {
            return;
        }
        if let Some(changed) = self.files.changed.remove(&node) {
            let more = match &changed.body {
                Body::File(content) => content.cost(),
                Body::Folder(folder) => folder.cost(),
                Body::Link(target) => target.len(),
            };
            self.room.release(NODE + more);
        }
    }

    /// Reduces the number of folders that a node is in.
    fn unlink_node(&mut self, node: Node) {
        if let Some(changed) = self.files.changed.get_mut(&node) {
            changed.links = changed.links.saturating_sub(1);
            self.drop_unused(node);
        }
    }

    /// Counts an opening of a node, which stays until it is closed.
    pub(crate) fn hold(&mut self, node: Node) {
        *self.files.open.entry(node).or_default() += 1;
    }

    /// Counts a closing of a node.
    pub(crate) fn close(&mut self, node: Node) {
        let Some(count) = self.files.open.get_mut(&node) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.files.open.remove(&node);
            self.drop_unused(node);
        }
    }

    /// Opens the object at a path, and holds it until [`FileSystem::close`].
    pub(crate) fn open(&mut self, base: Node, path: &str, how: Opening) -> Result<Node, FileError> {
        if how.create && how.folder {
            return Err(FileError::Invalid);
        }
        let place = self.walk(base, path, how.follow && !(how.create && how.exclusive))?;
        let node = match (place.node, place.name) {
            (Some(_), _) if how.create && how.exclusive => return Err(FileError::Exists),
            (Some(node), _) => {
                self.may_open(node, place.is_folder, how)?;
                node
            }
            (None, Some(name)) if how.create => {
                if place.is_folder {
                    return Err(FileError::IsFolder);
                }
                let (folder, name) = (place.folder, name.to_string());
                self.add(folder, &name, Body::File(Content::of(&[])))?
            }
            (None, _) => return Err(FileError::NoEntry),
        };
        if how.truncate && matches!(self.kind(node), Ok(Kind::File)) {
            self.set_size(node, 0)?;
        }
        self.hold(node);
        Ok(node)
    }

    /// Writes to a file, and returns the number of bytes.
    pub(crate) fn write(&mut self, node: Node, at: u64, bytes: &[u8]) -> Result<usize, FileError> {
        let Self { files, room, now } = self;
        let written = files.content_mut(node, *room)?.write(at, bytes, *room)?;
        if written > 0 {
            files.touch(node, |times| (times.modified, times.changed) = (*now, *now));
        }
        Ok(written)
    }

    /// Truncates a file, or extends it by zeroes.
    pub(crate) fn set_size(&mut self, node: Node, size: u64) -> Result<(), FileError> {
        let Self { files, room, now } = self;
        files.content_mut(node, *room)?.set_size(size, *room)?;
        files.touch(node, |times| (times.modified, times.changed) = (*now, *now));
        Ok(())
    }

    /// Sets the given times of a node.
    pub(crate) fn set_times(
        &mut self,
        node: Node,
        accessed: Option<Duration>,
        modified: Option<Duration>,
    ) -> Result<(), FileError> {
        let times = &mut self.files.changed_mut(node, self.room)?.times;
        times.accessed = accessed.unwrap_or(times.accessed);
        times.modified = modified.unwrap_or(times.modified);
        times.changed = self.now;
        Ok(())
    }

    /// Returns the time of a change.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// Makes an empty folder.
    pub(crate) fn create_folder(&mut self, base: Node, path: &str) -> Result<(), FileError> {
        let place = self.walk(base, path, false)?;
        let (None, Some(name)) = (place.node, place.name) else {
            return Err(FileError::Exists);
        };
        let (folder, name) = (place.folder, name.to_string());
        self.add(folder, &name, Body::Folder(Folder::within(folder)))?;
        Ok(())
    }

    /// Makes a link. Its target need not exist, but must not be an absolute path.
    pub(crate) fn create_link(
        &mut self,
        target: &str,
        base: Node,
        path: &str,
    ) -> Result<(), FileError> {
        match target {
            _ if target.is_empty() => return Err(FileError::NoEntry),
            _ if target.len() > TARGET_MAX => return Err(FileError::NameTooLong),
            _ if target.contains('\0') => return Err(FileError::Invalid),
            _ if target.starts_with('/') => return Err(FileError::LeadsOut),
            _ => {}
        }
        let (folder, name) = self.free(base, path)?;
        self.add(folder, &name, Body::Link(target.into()))?;
        Ok(())
    }

    /// Adds another entry for a file or a link.
    pub(crate) fn link(&mut self, from: (Node, &str), to: (Node, &str)) -> Result<(), FileError> {
        let node = self.find(from.0, from.1, false)?;
        if self.kind(node)? == Kind::Folder {
            return Err(FileError::NotPermitted);
        }
        let (folder, name) = self.free(to.0, to.1)?;
        let Self { files, room, .. } = self;
        files.changed_mut(node, *room)?;
        files.folder_mut(folder, *room)?.add(&name, node, *room)?;
        let changed = files.changed_mut(node, *room)?;
        changed.links = changed.links.saturating_add(1);
        Ok(())
    }

    /// Removes a file or a link.
    pub(crate) fn unlink(&mut self, base: Node, path: &str) -> Result<(), FileError> {
        let place = self.walk(base, path, false)?;
        let node = place.node.ok_or(FileError::NoEntry)?;
        if self.kind(node)? == Kind::Folder {
            return Err(FileError::IsFolder);
        }
        let node = place.existing(self)?;
        let (folder, name) = (place.folder, place.name.ok_or(FileError::Busy)?.to_string());
        self.remove_entry(folder, &name, node)
    }

    /// Removes an empty folder.
    pub(crate) fn remove_folder(&mut self, base: Node, path: &str) -> Result<(), FileError> {
        let place = self.walk(base, path, false)?;
        let node = place.node.ok_or(FileError::NoEntry)?;
        if self.kind(node)? != Kind::Folder {
            return Err(FileError::NotFolder);
        }
        if self.has_entries(node) {
            return Err(FileError::NotEmpty);
        }
        let (folder, name) = (place.folder, place.name.ok_or(FileError::Busy)?.to_string());
        self.forget_folder(node)?;
        self.remove_entry(folder, &name, node)
    }

    /// Removes the entry of a node from a folder.
    fn remove_entry(&mut self, folder: Node, name: &str, node: Node) -> Result<(), FileError> {
        let folder = self.files.folder_mut(folder, self.room)?;
        folder.remove(name, self.room);
        self.unlink_node(node);
        Ok(())
    }

    /// Marks a folder of the bundle as changed, so that open descriptors of it see its removal,
    /// too.
    fn forget_folder(&mut self, node: Node) -> Result<(), FileError> {
        self.files.folder_mut(node, self.room).map(drop)
    }

    /// Moves an object, and replaces a file or an empty folder at the target.
    pub(crate) fn rename(&mut self, from: (Node, &str), to: (Node, &str)) -> Result<(), FileError> {
        let source = self.walk(from.0, from.1, false)?;
        let node = source.existing(self)?;
        let source_name = source.name.ok_or(FileError::Busy)?.to_string();
        let target = self.walk(to.0, to.1, false)?;
        let target_name = target.name.ok_or(FileError::Busy)?.to_string();
        let is_folder = self.kind(node)? == Kind::Folder;
        if !is_folder && target.is_folder {
            return Err(FileError::NotFolder);
        }
        let (source, over, target) = (source.folder, target.node, target.folder);
        if over == Some(node) {
            return Ok(());
        }
        if is_folder && self.is_within(target, node) {
            return Err(FileError::Invalid);
        }
        if let Some(over) = over {
            match (is_folder, self.kind(over)? == Kind::Folder) {
                (true, false) => return Err(FileError::NotFolder),
                (false, true) => return Err(FileError::IsFolder),
                (true, true) if self.has_entries(over) => return Err(FileError::NotEmpty),
                (true, true) => self.forget_folder(over)?,
                (false, false) => {}
            }
        }
        let Self { files, room, now } = self;
        // All steps that may need memory come before the first change.
        if is_folder {
            files.folder_mut(node, *room)?;
        }
        files.folder_mut(source, *room)?;
        let folder = files.folder_mut(target, *room)?;
        if over.is_none() {
            folder.add(&target_name, node, *room)?;
        } else {
            folder.replace(&target_name, node);
        }
        files.folder_mut(source, *room)?.remove(&source_name, *room);
        if let Some(Changed {
            body: Body::Folder(folder),
            ..
        }) = files.changed.get_mut(&node)
        {
            folder.parent = target;
        }
        for folder in [source, target] {
            files.touch(folder, |times| times.modified = *now);
        }
        if let Some(over) = over {
            self.unlink_node(over);
        }
        Ok(())
    }
}
