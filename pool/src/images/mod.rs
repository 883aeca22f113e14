//! Func-images of a node's seeds: their files and their names (docs/decisions/0023).
//!
//! Reading and writing images may block on the disk, so neither is done on the runtime's own
//! threads. An image that cannot be read or written is treated as missing; its seed is made without
//! it.

mod cleanup;
mod describe;
mod disk;
mod host;
mod identity;
mod image_account;
mod read_only;
#[cfg(test)]
mod tests;
mod transfer;
mod vcpu_layout;
mod write;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use faasw_abi::memory_map::{RODATA_END, TEXT};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_common::Lock;
use faasw_common::text::Line;
use faasw_fri::messages::VcpuState;
use faasw_seedtree::Owner;
use faasw_seedtree::image::{Image, ImageError, ImageKey, LayerFill, Purpose};
use zerocopy::FromBytes;

pub(crate) use self::identity::SHARED;
pub use self::identity::{ImageId, ImageIdentity};
pub use self::transfer::{ExportError, ImageImport, ImageOrigin};
pub(crate) use self::write::ImageWrite;

use self::disk::{Disk, DiskFile, Status, SystemDisk};
use self::identity::{ImageKind, UNFINISHED, WantedImages};
use self::image_account::ImageAccount;
use self::vcpu_layout::CR2;
use crate::ablation::Mechanism;
use crate::snapshots::{SeedSnapshot, gather};

/// The range of a booted guest's memory that large pages are used for.
const TEXT_AND_DATA: PageRange = PageRange::of_bytes(TEXT, RODATA_END);

/// The number of image folders that this process has opened. A folder that it has dropped may still
/// be written to.
static FOLDERS: AtomicU64 = AtomicU64::new(0);

/// Each image takes at most the budget divided by this, so that the image of one function does not
/// displace those of all others.
const SHARE: u64 = 8;

/// The maximum number of removed versions that are remembered because their images may still be
/// being written.
const GONE_MAX: usize = 1 << 16;

/// A guest may start before an image is completely read if at least this many bytes remain that
/// requests have not used so far. Fewer bytes are read in the time that it takes to make the guest
/// wait for them.
const DEFERRED_MIN: u64 = 1 << 20;

/// A snapshot that was read, and the filling for the rest of its memory, if some is missing.
pub(crate) struct Restored {
    /// The snapshot.
    pub frozen: SeedSnapshot,
    /// The filling that reads the rest, and the file that it reads.
    pub filling: Option<(LayerFill, ImageFile)>,
}

/// The pages that requests use beside the image's own memory, as far as the image records them.
#[derive(Debug)]
pub(crate) struct ImageUses<'a> {
    /// The used pages of compiled code.
    pub code: &'a PageSet,
    /// The used pages of the parent's memory, including those that the image leaves to the parent.
    pub parent_memory: PageSet,
}

/// The layer's name and owner for a snapshot that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerLabel<'a> {
    /// The name of the layer.
    pub layer: &'a str,
    /// The owner of the snapshot.
    pub owner: Owner,
}

/// A file that an image was read from.
pub(crate) struct ImageFile {
    name: String,
    path: PathBuf,
    /// The status of the file when it was opened, which distinguishes it from a file that has
    /// replaced it.
    known: Option<Status>,
    /// The name of the layer.
    layer: String,
}

/// A folder of func-images that belongs to one node, and the key that seals them. A holder of the
/// key can read the contents of the functions' memory.
#[derive(Debug)]
pub struct Images {
    folder: PathBuf,
    key: ImageKey,
    /// The description of this build, processor and system, for which images are valid.
    host: Vec<u8>,
    budget: u64,
    /// Whether another program writes the folder.
    is_read_only: bool,
    disk: Box<dyn Disk>,
    /// The path of the image that is being written. No other process writes to this name, whatever
    /// else there is in the folder.
    unfinished: PathBuf,
    /// The number of images received from other nodes. Each has a file of its own until it is
    /// complete.
    arrivals: AtomicU64,
    /// Held while an image is written, and while the folder is read.
    writing: Lock<()>,
    /// Versions that are gone; images of these that are still being written are discarded. Held
    /// while a name changes, never while a file is read or written.
    gone: Lock<HashSet<ImageId>>,
    /// The account of existing images. It is locked last, and only for a moment.
    account: Lock<ImageAccount>,
    /// The names of the images that are wanted, until all others have been removed.
    wanted: Lock<WantedImages>,
    /// Whether the disk had too little free space for the last image, so that the log reports it
    /// once.
    is_disk_short: AtomicBool,
}

impl Images {
    /// The size in bytes of the secret that images are sealed with.
    pub const SECRET: usize = ImageKey::BYTES;

    /// Opens the images in an existing folder, sealed with a secret. They may take `budget` bytes
    /// together; beyond that the least recently used images are removed.
    #[must_use]
    pub fn new(folder: PathBuf, secret: &[u8; Self::SECRET], budget: u64) -> Self {
        Self::on(Box::new(SystemDisk), folder, secret, budget)
    }

    fn on(disk: Box<dyn Disk>, folder: PathBuf, secret: &[u8; Self::SECRET], budget: u64) -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        // Processes of other PID namespaces, and earlier ones, may have had the same process ID.
        let random = ImageKey::secret().unwrap_or_default();
        let random = u64::from_le_bytes(random.first_chunk().copied().unwrap_or_default());
        let unfinished = format!("{UNFINISHED}-{}-{number}-{random:016x}", std::process::id());
        let key = ImageKey::new(secret);
        let shared = SHARED.map(|name| ImageKind::Shared(name.to_owned()).file_name(&key));
        Self {
            unfinished: folder.join(unfinished),
            folder,
            key,
            host: host::describe(),
            budget,
            is_read_only: false,
            disk,
            arrivals: AtomicU64::default(),
            writing: Lock::default(),
            gone: Lock::default(),
            account: Lock::new(ImageAccount::new(shared)),
            wanted: Lock::default(),
            is_disk_short: AtomicBool::new(false),
        }
    }

    /// Returns a new random secret.
    ///
    /// # Errors
    /// Returns an error if the system has no randomness.
    pub fn secret() -> io::Result<[u8; Self::SECRET]> {
        ImageKey::secret().map_err(io::Error::other)
    }

    /// Returns the file name of a seed's image.
    pub(crate) fn file_name(&self, of: &ImageIdentity) -> String {
        of.kind.file_name(&self.key)
    }

    /// Returns the file name of a function version's image.
    pub(crate) fn file_name_of(&self, id: &ImageId) -> String {
        ImageKind::Function(*id).file_name(&self.key)
    }

    /// Returns the size in bytes of the image with this file name, as noted last, or `None` if
    /// there is none. No file is accessed.
    pub(crate) fn known_bytes(&self, file_name: &str) -> Option<u64> {
        self.account.lock().bytes_of(file_name)
    }

    /// Returns the noted size of a function version's image, as `known_bytes` does.
    #[must_use]
    pub fn known_bytes_of(&self, id: &ImageId) -> Option<u64> {
        self.known_bytes(&self.file_name_of(id))
    }

    fn purpose(&self, of: &ImageIdentity) -> Purpose {
        // The purpose includes the file name, so that a renamed file is not accepted in another's
        // place.
        let name = of.kind.file_name(&self.key);
        let mut parts = vec![self.host.as_slice(), name.as_bytes()];
        parts.extend(of.purpose.iter().map(Vec::as_slice));
        Purpose::of(&parts)
    }

    /// Returns the snapshot from its image, if the image was made over this parent and is valid, as
    /// far as that is known at this point. If `may_be_filled` returns true and the rest is large,
    /// the rest of the memory is read later. `uses` receives the used pages of the code and of the
    /// parent's memory as soon as they are known. It makes those of the parent present; if it
    /// returns false, the image is not read.
    pub(crate) fn restore(
        &self,
        of: &ImageIdentity,
        parent: Option<&Arc<SeedSnapshot>>,
        label: LayerLabel<'_>,
        may_be_filled: impl FnOnce() -> bool,
        uses: impl FnOnce(&ImageUses<'_>) -> bool,
    ) -> Option<Restored> {
        let layer = label.layer;
        let path = self.path(&of.kind);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.note_gone(&of.kind.file_name(&self.key), &path);
                return None;
            }
            Err(error) => {
                tracing::warn!(layer, %error, "a func-image cannot be read");
                return None;
            }
        };
        let image_file = ImageFile {
            name: of.kind.file_name(&self.key),
            path,
            known: file.status().ok(),
            layer: layer.to_owned(),
        };
        match self.read(file.clone(), of, parent, label, may_be_filled, uses) {
            Ok((frozen, filling)) => {
                // The eviction order depends on the time of use, after the next start as well.
                let _ = file.note_use(SystemTime::now());
                self.note_use(&image_file);
                Some(Restored {
                    frozen,
                    filling: filling.map(|filling| (filling, image_file)),
                })
            }
            Err(error) => {
                self.reject(&image_file, &error);
                None
            }
        }
    }

    /// Stops using an image, and removes it if its file is at fault.
    pub(crate) fn reject(&self, file: &ImageFile, error: &ImageError) {
        let (layer, error_text) = (&file.layer, Line(error));
        // Not a fault: the image belongs to another parent or to another build of faasw.
        if matches!(error, ImageError::Parent | ImageError::Purpose) {
            tracing::debug!(layer, error = %error_text, "a func-image is stale")
        } else {
            tracing::warn!(layer, error = %error_text, "a func-image is not used")
        }
        if error.is_of_the_file() {
            // A new image is written in its place, or has been already.
            let _gone = self.gone.lock();
            if self.is_still(file) {
                self.remove_named(&file.name);
            }
        }
    }

    fn read(
        &self,
        file: Arc<dyn DiskFile>,
        of: &ImageIdentity,
        parent: Option<&Arc<SeedSnapshot>>,
        label: LayerLabel<'_>,
        may_be_filled: impl FnOnce() -> bool,
        uses: impl FnOnce(&ImageUses<'_>) -> bool,
    ) -> Result<(SeedSnapshot, Option<LayerFill>), ImageError> {
        let LayerLabel { layer, owner } = label;
        let image = Image::open(file, &self.key)?;
        if image.purpose() != self.purpose(of) {
            return Err(ImageError::Purpose);
        }
        // Checked before all of it is read.
        if image.parent() != parent.and_then(|parent| parent.content())
            || image.parent().is_none() != parent.is_none()
        {
            return Err(ImageError::Parent);
        }
        let state = VcpuState::read_from_bytes(image.state());
        let state = state.map_err(|_| ImageError::Senseless("its vCPU state is invalid"))?;
        if let Some(parent) = parent
            && !is_next(parent.state().vcpu(), &state)
        {
            return Err(ImageError::Senseless("its vCPU state is invalid"));
        }
        let (code, parent_memory) = (image.used_code(), image.used_of_parent());
        if !uses(&ImageUses {
            code,
            parent_memory,
        }) {
            // The file is not at fault.
            let what = "what it was made over cannot be read";
            return Err(std::io::Error::other(what).into());
        }
        let beside = Box::new(state).into();
        let is_much = image.later_bytes() >= DEFERRED_MIN && !Mechanism::ImageParts.is_off();
        if is_much && may_be_filled() {
            let (frozen, filling) = image.restore_first(layer, parent.cloned(), beside, owner)?;
            return Ok((frozen, Some(filling)));
        }
        let memory = image.read_layer(layer, parent.map(|parent| &**parent))?;
        if parent.is_none() {
            // Every guest reads this range, so it gets large pages, as after a boot.
            for range in image.own().intersection(&TEXT_AND_DATA.into()).iter() {
                gather(&memory, range.start.address().get(), range.bytes());
            }
        }
        let frozen = image.restore(memory, parent.cloned(), beside, owner)?;
        Ok((frozen, None))
    }

    /// Notes that an image of this size was used, unless it has been removed since.
    fn note_use(&self, file: &ImageFile) {
        let _gone = self.gone.lock();
        if let Some(known) = file.known
            && self.is_still(file)
        {
            self.account.lock().note(&file.name, known.bytes);
        }
    }

    /// Notes that another program has removed an image, unless it has been written again since.
    fn note_gone(&self, name: &str, path: &Path) {
        let _gone = self.gone.lock();
        let status = self.disk.status(path);
        if status.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            self.account.lock().forget(name);
        }
    }

    /// Returns whether the name still refers to the same file.
    fn is_still(&self, file: &ImageFile) -> bool {
        let now = self.disk.status(&file.path);
        let known = file.known.map(|known| known.identity);
        now.is_ok_and(|now| known == Some(now.identity))
    }

    /// Returns the size in bytes of a function version's image if there is one, valid or not. Only
    /// looks at the file's status.
    pub(crate) fn bytes_of(&self, id: &ImageId) -> Option<u64> {
        let file = self.disk.status(&self.path(&ImageKind::Function(*id)));
        file.ok().filter(|file| file.is_file).map(|file| file.bytes)
    }

    /// Returns when the image of a function version was last used, if there is one, valid or not.
    #[must_use]
    pub fn used(&self, id: &ImageId) -> Option<SystemTime> {
        let file = self.disk.status(&self.path(&ImageKind::Function(*id)));
        file.ok().map(|file| file.used)
    }

    /// Returns how many more bytes images may take before others are evicted, by the account.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        let all = self.account.lock().bytes_beside("");
        self.budget.saturating_sub(all)
    }

    /// Records that `version` serves from now on and that the versions in `gone` do not. The images
    /// of the latter are removed, and those of them that are being written are discarded.
    pub fn serve(&self, version: Option<ImageId>, gone: &[ImageId]) {
        let mut all = self.gone.lock();
        if all.len() + gone.len() > GONE_MAX {
            // Images of the forgotten versions are no longer being written by now.
            all.clear();
        }
        for id in gone {
            all.insert(*id);
            self.remove_named(&ImageKind::Function(*id).file_name(&self.key));
        }
        if let Some(version) = version {
            all.remove(&version);
        }
    }
}

/// Returns whether a vCPU can have come from one state to the other by running at privilege level
/// 3, which changes general and vector registers and the address of the last page fault.
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
