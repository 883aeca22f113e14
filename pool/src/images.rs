//! Func-images of a node's seeds: where they are, and what they are called
//! (docs/decisions/0023).
//!
//! Reading and writing blocks, on a disk: neither is done on the runtime's own threads. What
//! cannot be read or written is not there; seeds are made without.

mod host;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use faasw_abi::memory_map::{RODATA_END, TEXT};
use faasw_abi::pages::PageRange;
use faasw_fri::messages::VcpuState;
use faasw_seedtree::Owner;
use faasw_seedtree::image::{Image, ImageError, ImageKey, Purpose};
use faasw_text::Line;
use rustix::fs::OFlags;
use zerocopy::{FromBytes, IntoBytes};

use crate::snapshots::{Frozen, gather};

/// The seeds that all functions share, as their recipes call them.
pub(crate) const SHARED: [&str; 2] = ["guest", "linkers"];

/// What large pages are for in a booted guest.
const TEXT_AND_DATA: PageRange = PageRange::of_bytes(TEXT, RODATA_END);

/// What the name of a file begins with that is being written; no name of an image does.
const UNFINISHED: &str = ".unfinished";

/// How many folders this process has had: one that it has no more may still be written to.
static FOLDERS: AtomicU64 = AtomicU64::new(0);

/// What the names of language engines' images begin with: whose they are is known only once
/// their code is there, so they stay until nobody has used them for [`UNUSED`].
const ENGINE: &str = "engine-";
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// No image takes more than this part of the budget: one function's is not to be in all others'
/// place.
const SHARE: u64 = 8;

/// This part of a disk is left to others.
const LEFT_FREE: u64 = 20;

/// Versions that are gone, at most, whose images may still be under way.
const GONE_MOST: usize = 1 << 16;

/// What a seed's image is called, and what it is good for beside this build and processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOf {
    what: What,
    purpose: Vec<Vec<u8>>,
}

/// Whose memory it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Shared(String),
    /// By the digest of its code, and what it does with it.
    Engine([u8; 32], Vec<u8>),
    Function(ImageId),
}

impl ImageOf {
    fn new(what: What, purpose: &[&[u8]]) -> Self {
        Self {
            what,
            purpose: purpose.iter().map(|part| part.to_vec()).collect(),
        }
    }

    /// That of what all functions share.
    pub(crate) fn shared(name: &str) -> Self {
        Self::new(What::Shared(name.to_owned()), &[])
    }

    /// That of a language engine, whose code has this digest and does these commands.
    pub(crate) fn engine(code: &[u8; 32], commands: &[u8]) -> Self {
        Self::new(What::Engine(*code, commands.to_vec()), &[])
    }

    /// That of a function version; it is good for that.
    pub(crate) fn function(id: &ImageId, purpose: &[&[u8]]) -> Self {
        Self::new(What::Function(*id), purpose)
    }
}

/// What names a function version's image: no other version's, of whatever function, has it.
pub type ImageId = [u8; 32];

/// A folder of func-images that belongs to one node, and the key that seals them. Whoever has
/// that reads what is in the functions' memory.
#[derive(Debug)]
pub struct Images {
    folder: PathBuf,
    key: ImageKey,
    /// What a snapshot is good for: this build on such a processor and system.
    host: Vec<u8>,
    budget: u64,
    /// A file that is being written.
    unfinished: PathBuf,
    /// Held while that is.
    writing: Mutex<()>,
    /// Versions that are gone: what is written of them by now is not to be there. Held for
    /// as long as a name changes, never while anything is read or written.
    gone: Mutex<HashSet<ImageId>>,
}

impl Images {
    /// Bytes of the secret that images are sealed with.
    pub const SECRET: usize = ImageKey::BYTES;

    /// Those in a folder, which exists, sealed with a secret. They may take `budget` bytes together;
    /// beyond that those go that were used longest ago.
    #[must_use]
    pub fn new(folder: PathBuf, secret: &[u8; Self::SECRET], budget: u64) -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let unfinished = format!("{UNFINISHED}-{}-{number}", std::process::id());
        Self {
            unfinished: folder.join(unfinished),
            folder,
            key: ImageKey::new(secret),
            host: host::describe(),
            budget,
            writing: Mutex::default(),
            gone: Mutex::default(),
        }
    }

    /// A secret that nobody has yet.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn secret() -> io::Result<[u8; Self::SECRET]> {
        ImageKey::secret().map_err(io::Error::other)
    }

    fn name(&self, what: &What) -> String {
        match what {
            What::Shared(name) => self.key.name(&[b"shared", name.as_bytes()]),
            What::Engine(code, commands) => {
                let name = self.key.name(&[b"engine", code, commands]);
                format!("{ENGINE}{name}")
            }
            What::Function(id) => self.key.name(&[b"function", id]),
        }
    }

    fn path(&self, what: &What) -> PathBuf {
        self.folder.join(self.name(what))
    }

    fn purpose(&self, of: &ImageOf) -> Purpose {
        // Its name, too: whoever renames files brings nothing into another's place.
        let name = self.name(&of.what);
        let mut parts = vec![self.host.as_slice(), name.as_bytes()];
        parts.extend(of.purpose.iter().map(Vec::as_slice));
        Purpose::of(&parts)
    }

    /// The snapshot that there is an image of, if it was made over this parent and is sound.
    pub(crate) fn restore(
        &self,
        of: &ImageOf,
        layer: &str,
        parent: Option<&Arc<Frozen>>,
        owner: Owner,
    ) -> Option<Frozen> {
        let path = self.path(&of.what);
        let file = match open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(layer, %error, "a func-image cannot be read");
                return None;
            }
        };
        // The budget asks for it.
        let _ = file.set_modified(SystemTime::now());
        let known = file.metadata();
        match self.read(file, of, layer, parent, owner) {
            Ok(frozen) => Some(frozen),
            Err(error) => {
                // Nobody's fault: what it was made over, or this faasw, is another.
                let is_stale = matches!(error, ImageError::Parent | ImageError::Purpose);
                let told = Line(&error);
                match is_stale {
                    true => tracing::debug!(layer, error = %told, "a func-image is stale"),
                    false => tracing::warn!(layer, error = %told, "a func-image is not used"),
                }
                if error.is_of_the_file() {
                    // Another one is written in its place, or was by now.
                    let _gone = self.gone();
                    let is_same = |now: fs::Metadata| {
                        known
                            .is_ok_and(|known| (known.dev(), known.ino()) == (now.dev(), now.ino()))
                    };
                    if fs::symlink_metadata(&path).is_ok_and(is_same) {
                        let _ = fs::remove_file(path);
                    }
                }
                None
            }
        }
    }

    fn read(
        &self,
        file: File,
        of: &ImageOf,
        layer: &str,
        parent: Option<&Arc<Frozen>>,
        owner: Owner,
    ) -> Result<Frozen, ImageError> {
        let image = Image::open(file, &self.key)?;
        if image.purpose() != self.purpose(of) {
            return Err(ImageError::Purpose);
        }
        // Before all of it is read.
        if image.parent() != parent.and_then(|parent| parent.content())
            || image.parent().is_none() != parent.is_none()
        {
            return Err(ImageError::Parent);
        }
        let state = VcpuState::read_from_bytes(image.state());
        let state = state.map_err(|_| ImageError::Senseless("its vCPU's state"))?;
        if let Some(parent) = parent
            && !is_next(parent.state(), &state)
        {
            return Err(ImageError::Senseless("its vCPU's state"));
        }
        let memory = image.read_layer(layer, parent.map(|parent| &**parent))?;
        if parent.is_none() {
            // As when it was booted: every guest reads it.
            for range in image.own().intersection(&TEXT_AND_DATA.into()).iter() {
                gather(&memory, range.start.address().get(), range.bytes());
            }
        }
        image.restore(memory, parent.cloned(), Box::new(state).into(), owner)
    }

    /// Writes the image of a snapshot, whole or not at all, in place of what there was; says how
    /// many bytes it has. One whose parent has none has none, and neither has one for which there
    /// is no room.
    pub(crate) fn keep(&self, of: &ImageOf, frozen: &Frozen) -> Option<u64> {
        let _writing = lock(&self.writing);
        let most = frozen.layer().data_bytes();
        if !self.has_room(most) {
            tracing::debug!(bytes = most, "there is no room for a func-image");
            return None;
        }
        match self.write(of, frozen) {
            Ok(bytes) => bytes,
            Err(error) => {
                // On a full disk a half file would stay in its own way.
                let _ = fs::remove_file(&self.unfinished);
                if !matches!(error, ImageError::Parent) {
                    tracing::warn!(error = %Line(&error), "a func-image was not written");
                }
                None
            }
        }
    }

    fn write(&self, of: &ImageOf, frozen: &Frozen) -> Result<Option<u64>, ImageError> {
        // Whatever somebody has put there.
        let _ = fs::remove_file(&self.unfinished);
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.unfinished)?;
        let state: &VcpuState = frozen.state();
        let content = frozen.write_image(state.as_bytes(), self.purpose(of), &self.key, &file)?;
        file.sync_all()?;
        let path = self.path(&of.what);
        {
            let gone = self.gone();
            if matches!(&of.what, What::Function(id) if gone.contains(id)) {
                let _ = fs::remove_file(&self.unfinished);
                return Ok(None);
            }
            // No file of ours.
            let _ = fs::remove_dir(&path);
            fs::rename(&self.unfinished, path)?;
        }
        File::open(&self.folder)?.sync_all()?;
        frozen.has_content(content);
        Ok(Some(file.metadata()?.len()))
    }

    /// Makes room for so many bytes more; says whether there is.
    fn has_room(&self, bytes: u64) -> bool {
        if bytes > self.budget / SHARE || !self.fit(self.budget - bytes) {
            return false;
        }
        let Ok(disk) = rustix::fs::statvfs(&self.folder) else {
            return false;
        };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let all = disk.f_blocks.saturating_mul(disk.f_frsize);
        free.saturating_sub(bytes) > all / LEFT_FREE
    }

    /// Has all images take this many bytes at most, if they can: functions' that were used
    /// longest ago go first, then engines', which those are made over.
    fn fit(&self, budget: u64) -> bool {
        let mut images = self.files();
        let mut total: u64 = images.iter().map(|image| image.bytes).sum();
        let shared = SHARED.map(|name| self.name(&What::Shared(name.to_owned())));
        images.sort_by_key(|image| (image.name.starts_with(ENGINE), image.used));
        for image in images {
            if total <= budget {
                break;
            }
            let path = self.folder.join(&image.name);
            // Functions' images are nothing without those.
            if !shared.contains(&image.name) && fs::remove_file(path).is_ok() {
                total = total.saturating_sub(image.bytes);
            }
        }
        total <= budget
    }

    fn files(&self) -> Vec<Kept> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let told = entries.filter_map(|entry| {
            let file = entry.metadata().ok()?;
            Some(Kept {
                name: entry.file_name().into_string().ok()?,
                bytes: file.len(),
                used: file.modified().ok()?,
            })
        });
        told.collect()
    }

    /// Bytes of the image of a function version, of whatever use it may be, if there is one.
    /// Looks at the name of a file only.
    pub(crate) fn bytes_of(&self, id: &ImageId) -> Option<u64> {
        let file = fs::symlink_metadata(self.path(&What::Function(*id)));
        file.ok().map(|file| file.len())
    }

    /// When the image of a function version was used last, if there is one, of whatever use it
    /// may be.
    #[must_use]
    pub fn used(&self, id: &ImageId) -> Option<SystemTime> {
        let file = fs::symlink_metadata(self.path(&What::Function(*id)));
        file.ok()?.modified().ok()
    }

    /// Bytes that images may take yet before others have to go.
    #[must_use]
    pub fn room(&self) -> u64 {
        let all: u64 = self.files().iter().map(|image| image.bytes).sum();
        self.budget.saturating_sub(all)
    }

    /// A version of a function serves from now on, and these do not: what is there of theirs
    /// goes, and what is being written of them does not come.
    pub fn serve(&self, version: Option<ImageId>, gone: &[ImageId]) {
        let mut all = self.gone();
        if all.len() + gone.len() > GONE_MOST {
            // Whatever was under way of those is not any more.
            all.clear();
        }
        for id in gone {
            all.insert(*id);
            let _ = fs::remove_file(self.path(&What::Function(*id)));
        }
        if let Some(version) = version {
            all.remove(&version);
        }
    }

    /// Removes all images but those of what all functions share, of these function versions, and
    /// of language engines that were used of late.
    pub fn retain<'a>(&self, versions: impl IntoIterator<Item = &'a ImageId>) {
        let shared = SHARED.map(|name| What::Shared(name.to_owned()));
        let versions = versions.into_iter().map(|id| What::Function(*id));
        let wanted: HashSet<String> = shared
            .into_iter()
            .chain(versions)
            .map(|what| self.name(&what))
            .collect();
        let now = SystemTime::now();
        for Kept { name, used, .. } in self.files() {
            let is_recent = || now.duration_since(used).is_ok_and(|age| age < UNUSED);
            let is_engine = name.starts_with(ENGINE);
            if !wanted.contains(&name) && (!is_engine || !is_recent()) {
                let _ = fs::remove_file(self.folder.join(name));
            }
        }
        self.fit(self.budget);
    }

    /// Removes all images of function versions, for room; says whether there was any.
    pub fn clear(&self) -> bool {
        let count = || self.files().len();
        let before = count();
        self.retain([]);
        count() < before
    }

    /// Removes all images, of everything.
    pub fn remove_all(&self) {
        for Kept { name, .. } in self.files() {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    fn gone(&self) -> MutexGuard<'_, HashSet<ImageId>> {
        lock(&self.gone)
    }
}

/// A file in the folder.
struct Kept {
    name: String,
    bytes: u64,
    used: SystemTime,
}

/// Opens a file, and nothing else that may stand there: who waits for it is not to wait for ever.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no file")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has left an unfinished file at most.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Offset and length of CR2, where the CPU notes page faults, in `struct kvm_sregs`.
const CR2: std::ops::Range<usize> = 232..240;

/// Whether a vCPU may have come from one state to the other: by running at privilege level 3,
/// which changes general and vector registers, and where a page fault was.
fn is_next(before: &VcpuState, after: &VcpuState) -> bool {
    let system = |state: &VcpuState| {
        let mut sregs = state.sregs;
        if let Some(cr2) = sregs.get_mut(CR2) {
            cr2.fill(0);
        }
        (sregs, state.xcrs)
    };
    system(before) == system(after)
}
