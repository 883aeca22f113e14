//! Func-images of a node's seeds: where they are, and what they are called
//! (docs/decisions/0023).
//!
//! Reading and writing blocks, on a disk: neither is done on the runtime's own threads. What
//! cannot be read or written is not there; seeds are made without.

mod account;
mod describe;
mod disk;
mod given;
mod host;
mod keep;
mod pinned;
#[cfg(test)]
mod tests;
mod tidy;
mod travel;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use faasw_abi::memory_map::{RODATA_END, TEXT};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_common::text::Line;
use faasw_fri::messages::VcpuState;
use faasw_seedtree::Owner;
use faasw_seedtree::image::{Filling, Image, ImageError, ImageKey, Purpose};
use zerocopy::FromBytes;

pub use self::travel::{Arriving, ExportError, Origin};

use self::account::Account;
use self::disk::{Disk, DiskFile, Real, Status};
use self::pinned::CR2;
use self::tidy::Wanted;
use crate::ablation::Mechanism;
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
/// their code is there, so they stay until nobody has used them for long.
const ENGINE: &str = "engine-";

/// No image takes more than this part of the budget: one function's is not to be in all others'
/// place.
const SHARE: u64 = 8;

/// The part of a disk that is left to others is its size divided by this, but at most
/// [`LEFT_FREE_MAX`].
const LEFT_FREE: u64 = 20;

/// The most bytes of a disk that are left to others.
const LEFT_FREE_MAX: u64 = 4 << 30;

/// Versions that are gone, at most, whose images may still be under way.
const GONE_MOST: usize = 1 << 16;

/// A guest may begin before so many bytes are there which requests have not used so far: less is
/// read in the time that it takes to have it wait for them.
const FILLED_LATER: u64 = 1 << 20;

/// A snapshot that was read, and what brings the rest of its memory, if some is missing.
pub(crate) struct Restored {
    /// The snapshot.
    pub frozen: Frozen,
    /// What brings the rest, and where that is.
    pub filling: Option<(Filling, Place)>,
}

/// What requests use beside the memory that is an image's own, as far as it says.
#[derive(Debug)]
pub(crate) struct Uses<'a> {
    /// Of compiled code.
    pub code: &'a PageSet,
    /// Of the memory that the parent has, with what the image leaves to that.
    pub parent_memory: PageSet,
}

/// How a snapshot is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner<'a> {
    /// What its layer is called.
    pub layer: &'a str,
    /// Whose it is.
    pub owner: Owner,
}

/// A file that an image was read from.
pub(crate) struct Place {
    name: String,
    path: PathBuf,
    /// By which it is told from one that is written in its place.
    known: Option<Status>,
    /// What the layer is called.
    layer: String,
}

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
    /// Whether somebody else writes what is in the folder.
    is_given: bool,
    disk: Box<dyn Disk>,
    /// A file that is being written. Nobody else writes to one of this name, whatever else there
    /// is in the folder.
    unfinished: PathBuf,
    /// How many images have come from elsewhere: each has a file of its own until it is whole.
    arrivals: AtomicU64,
    /// Held while the one file is written, and while the folder is read.
    writing: Mutex<()>,
    /// Versions that are gone: what is written of them by now is not to be there. Held for
    /// as long as a name changes, never while anything is read or written.
    gone: Mutex<HashSet<ImageId>>,
    /// What there is. Held for a moment, last of all.
    account: Mutex<Account>,
    /// Names of what is wanted, until all else was removed.
    wanted: Mutex<Wanted>,
    /// Whether the disk had too little free for the last image. The log says so once.
    is_disk_short: AtomicBool,
}

impl Images {
    /// Bytes of the secret that images are sealed with.
    pub const SECRET: usize = ImageKey::BYTES;

    /// Those in a folder, which exists, sealed with a secret. They may take `budget` bytes
    /// together; beyond that those go that were used longest ago.
    #[must_use]
    pub fn new(folder: PathBuf, secret: &[u8; Self::SECRET], budget: u64) -> Self {
        Self::on(Box::new(Real), folder, secret, budget)
    }

    fn on(disk: Box<dyn Disk>, folder: PathBuf, secret: &[u8; Self::SECRET], budget: u64) -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        // Processes of other namespaces, and of before, may have this number, too.
        let random = ImageKey::secret().unwrap_or_default();
        let random = u64::from_le_bytes(random.first_chunk().copied().unwrap_or_default());
        let unfinished = format!("{UNFINISHED}-{}-{number}-{random:016x}", std::process::id());
        let key = ImageKey::new(secret);
        let shared = SHARED.map(|name| key.name(&[b"shared", name.as_bytes()]));
        Self {
            unfinished: folder.join(unfinished),
            folder,
            key,
            host: host::describe(),
            budget,
            is_given: false,
            disk,
            arrivals: AtomicU64::default(),
            writing: Mutex::default(),
            gone: Mutex::default(),
            account: Mutex::new(Account::new(shared)),
            wanted: Mutex::default(),
            is_disk_short: AtomicBool::new(false),
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

    /// What the file of a seed's image is called.
    pub(crate) fn file_name(&self, of: &ImageOf) -> String {
        self.name(&of.what)
    }

    /// What that of a function version's is called.
    pub(crate) fn file_name_of(&self, id: &ImageId) -> String {
        self.name(&What::Function(*id))
    }

    /// Bytes of the image that is in the file of this name, as they were noted last; nothing
    /// where there is none. No file is looked at.
    pub(crate) fn known_bytes(&self, file_name: &str) -> Option<u64> {
        lock(&self.account).bytes_of(file_name)
    }

    /// The same of a function version's image.
    #[must_use]
    pub fn known_bytes_of(&self, id: &ImageId) -> Option<u64> {
        self.known_bytes(&self.file_name_of(id))
    }

    fn purpose(&self, of: &ImageOf) -> Purpose {
        // Its name, too: whoever renames files brings nothing into another's place.
        let name = self.name(&of.what);
        let mut parts = vec![self.host.as_slice(), name.as_bytes()];
        parts.extend(of.purpose.iter().map(Vec::as_slice));
        Purpose::of(&parts)
    }

    /// The snapshot that there is an image of, if it was made over this parent and is sound, as far
    /// as that is known by then: where it may be filled later and is large, the rest of its memory
    /// comes later. What is used of its code, and of its parent's memory, is told as soon as it is
    /// known; whoever is told has that of the parent there, or the image is not read.
    pub(crate) fn restore(
        &self,
        of: &ImageOf,
        parent: Option<&Arc<Frozen>>,
        manner: Manner<'_>,
        may_be_filled: impl FnOnce() -> bool,
        uses: impl FnOnce(&Uses<'_>) -> bool,
    ) -> Option<Restored> {
        let layer = manner.layer;
        let path = self.path(&of.what);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.note_gone(&self.name(&of.what), &path);
                return None;
            }
            Err(error) => {
                tracing::warn!(layer, %error, "a func-image cannot be read");
                return None;
            }
        };
        let place = Place {
            name: self.name(&of.what),
            path,
            known: file.status().ok(),
            layer: layer.to_owned(),
        };
        match self.read(file.clone(), of, parent, manner, may_be_filled, uses) {
            Ok((frozen, filling)) => {
                // The budget asks for it, at the next start as well.
                let _ = file.note_use(SystemTime::now());
                self.note_use(&place);
                Some(Restored {
                    frozen,
                    filling: filling.map(|filling| (filling, place)),
                })
            }
            Err(error) => {
                self.refuse(&place, &error);
                None
            }
        }
    }

    /// An image is not used, or not any more. It goes if its file is at fault.
    pub(crate) fn refuse(&self, place: &Place, error: &ImageError) {
        let (layer, told) = (&place.layer, Line(error));
        // Nobody's fault: what it was made over, or this faasw, is another.
        if matches!(error, ImageError::Parent | ImageError::Purpose) {
            tracing::debug!(layer, error = %told, "a func-image is stale")
        } else {
            tracing::warn!(layer, error = %told, "a func-image is not used")
        }
        if error.is_of_the_file() {
            // Another one is written in its place, or was by now.
            let _gone = self.gone();
            if self.is_still(place) {
                self.remove_named(&place.name);
            }
        }
    }

    fn read(
        &self,
        file: Arc<dyn DiskFile>,
        of: &ImageOf,
        parent: Option<&Arc<Frozen>>,
        manner: Manner<'_>,
        may_be_filled: impl FnOnce() -> bool,
        uses: impl FnOnce(&Uses<'_>) -> bool,
    ) -> Result<(Frozen, Option<Filling>), ImageError> {
        let Manner { layer, owner } = manner;
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
            && !is_next(parent.state().vcpu(), &state)
        {
            return Err(ImageError::Senseless("its vCPU's state"));
        }
        let (code, parent_memory) = (image.used_code(), image.used_of_parent());
        if !uses(&Uses {
            code,
            parent_memory,
        }) {
            // That is not the file's fault.
            let what = "what it was made over cannot be read";
            return Err(std::io::Error::other(what).into());
        }
        let beside = Box::new(state).into();
        let is_much = image.later_bytes() >= FILLED_LATER && !Mechanism::ImageParts.is_off();
        if is_much && may_be_filled() {
            let (frozen, filling) = image.restore_first(layer, parent.cloned(), beside, owner)?;
            return Ok((frozen, Some(filling)));
        }
        let memory = image.read_layer(layer, parent.map(|parent| &**parent))?;
        if parent.is_none() {
            // As when it was booted: every guest reads it.
            for range in image.own().intersection(&TEXT_AND_DATA.into()).iter() {
                gather(&memory, range.start.address().get(), range.bytes());
            }
        }
        let frozen = image.restore(memory, parent.cloned(), beside, owner)?;
        Ok((frozen, None))
    }

    /// An image was used that had this size, unless it is gone by now.
    fn note_use(&self, place: &Place) {
        let _gone = self.gone();
        if let Some(known) = place.known
            && self.is_still(place)
        {
            lock(&self.account).note(&place.name, known.bytes);
        }
    }

    /// Somebody else has removed an image, unless it was written again by now.
    fn note_gone(&self, name: &str, path: &Path) {
        let _gone = self.gone();
        let status = self.disk.status(path);
        if status.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            lock(&self.account).forget(name);
        }
    }

    /// Whether a name is that of the file which it was.
    fn is_still(&self, place: &Place) -> bool {
        let now = self.disk.status(&place.path);
        let known = place.known.map(|known| known.identity);
        now.is_ok_and(|now| known == Some(now.identity))
    }

    /// Bytes of the image of a function version, of whatever use it may be, if there is one.
    /// Looks at the name of a file only.
    pub(crate) fn bytes_of(&self, id: &ImageId) -> Option<u64> {
        let file = self.disk.status(&self.path(&What::Function(*id)));
        file.ok().filter(|file| file.is_file).map(|file| file.bytes)
    }

    /// When the image of a function version was used last, if there is one, of whatever use it
    /// may be.
    #[must_use]
    pub fn used(&self, id: &ImageId) -> Option<SystemTime> {
        let file = self.disk.status(&self.path(&What::Function(*id)));
        file.ok().map(|file| file.used)
    }

    /// Bytes that images may take yet before others have to go, by what is known of them.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        let all = lock(&self.account).bytes_beside("");
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
            self.remove_named(&self.name(&What::Function(*id)));
        }
        if let Some(version) = version {
            all.remove(&version);
        }
    }

    fn gone(&self) -> MutexGuard<'_, HashSet<ImageId>> {
        lock(&self.gone)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has left an unfinished file at most.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
