//! Writing images: atomically, durably before they get their name, and within the budget.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use faasw_common::text::Line;
use faasw_seedtree::image::{Arrangement, ImageError};
use zerocopy::IntoBytes as _;

use super::disk::DiskSpace;
use super::{ImageIdentity, ImageKind, Images, SHARE};
use crate::ablation::Mechanism;
use crate::snapshots::SeedSnapshot;

/// The part of a disk that is left to other programs is its size divided by this, but at most
/// [`LEFT_FREE_MAX`].
const LEFT_FREE: u64 = 20;

/// The most bytes of a disk that are left to other programs.
const LEFT_FREE_MAX: u64 = 4 << 30;

/// Returns the arrangement of pages in images: the best one, except for mechanisms that a build for
/// measurements switches off.
fn arrangement() -> Arrangement {
    Arrangement {
        is_by_use: !Mechanism::ImageOrder.is_off(),
        leaves_out: !Mechanism::ImageGaps.is_off(),
    }
}

/// Returns whether a disk has room for `bytes` more bytes once `over` bytes have been evicted, of
/// `evictable`.
fn fits(space: DiskSpace, bytes: u64, over: u64, evictable: u64) -> bool {
    over <= evictable && leaves_enough(space, bytes, over)
}

/// Returns whether a disk has enough left for other programs with `bytes` more bytes and `over`
/// fewer.
fn leaves_enough(space: DiskSpace, bytes: u64, over: u64) -> bool {
    let left = space.free.saturating_add(over).saturating_sub(bytes);
    left > left_free(space)
}

/// Returns how many bytes of a disk are left to other programs.
fn left_free(space: DiskSpace) -> u64 {
    (space.all / LEFT_FREE).min(LEFT_FREE_MAX)
}

/// The outcome of [`Images::write_image`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageWrite {
    /// The image was written; this is its size in bytes.
    Written(u64),
    /// The image was not written because its parent has no image, its version is gone, or there was
    /// no room for it.
    NotTried,
    /// The attempt failed. It may have written as many bytes as the image has.
    Failed,
}

#[cfg(test)]
impl ImageWrite {
    /// Returns the size in bytes of the image if it was written.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Written(bytes) => Some(bytes),
            Self::NotTried | Self::Failed => None,
        }
    }
}

impl Images {
    /// Writes the image of a snapshot atomically, replacing an existing one. If the parent has no
    /// image, or if there is no room, no image is written.
    pub(crate) fn write_image(&self, of: &ImageIdentity, frozen: &SeedSnapshot) -> ImageWrite {
        let _writing = self.writing.lock();
        let has_image = |parent: &SeedSnapshot| parent.content().is_some();
        if frozen.parent().is_some_and(|parent| !has_image(parent)) {
            return ImageWrite::NotTried;
        }
        match self.write(of, frozen) {
            Ok(outcome) => outcome,
            Err(error) => {
                // On a full disk, an unfinished file would take the space that the next attempt
                // needs.
                self.remove_unfinished();
                tracing::warn!(error = %Line(&error), "a func-image was not written");
                ImageWrite::Failed
            }
        }
    }

    fn write(&self, of: &ImageIdentity, frozen: &SeedSnapshot) -> Result<ImageWrite, ImageError> {
        self.tidy_up()?;
        let (name, most) = (of.kind.file_name(&self.key), frozen.layer().data_bytes());
        if self.is_gone(of) {
            return Ok(ImageWrite::NotTried);
        }
        if !self.make_room_for(&name, most)? {
            tracing::debug!(bytes = most, "no disk space for a func-image");
            return Ok(ImageWrite::NotTried);
        }
        // A file that an earlier attempt could not remove.
        self.remove_unfinished();
        let file = self.disk.create(&self.unfinished)?;
        let state = frozen.state().vcpu().as_bytes();
        let purpose = self.purpose(of);
        let content = frozen.write_image_as(arrangement(), state, purpose, &self.key, &*file)?;
        file.sync()?;
        let bytes = file.status()?.bytes;
        // The header takes space, too.
        if !self.evict_to(self.budget.saturating_sub(bytes), &name) {
            self.remove_unfinished();
            tracing::debug!(bytes, "no disk space for a func-image");
            return Ok(ImageWrite::Failed);
        }
        {
            let gone = self.gone.lock();
            if matches!(&of.kind, ImageKind::Function(id) if gone.contains(id)) {
                self.remove_unfinished();
                return Ok(ImageWrite::NotTried);
            }
            self.disk.replace(&self.unfinished, &self.path(&of.kind))?;
            self.account.lock().note(&name, bytes);
        }
        // The image is there. A power failure might bring back its predecessor, which is older and
        // equally valid.
        frozen.set_content(content);
        if let Err(error) = self.disk.sync_folder(&self.folder) {
            let error = Line(&error);
            tracing::warn!(%error, "a func-image may not outlive a power failure");
        }
        Ok(ImageWrite::Written(bytes))
    }

    fn is_gone(&self, of: &ImageIdentity) -> bool {
        matches!(&of.kind, ImageKind::Function(id) if self.gone.lock().contains(id))
    }

    pub(super) fn remove_unfinished(&self) {
        // Removal is tried again before the next write, and at the next start.
        let _ = self.disk.remove(&self.unfinished);
    }

    /// Evicts other images so that `bytes` bytes fit under this name. Returns whether there is room
    /// for them now. If there would not be, nothing is evicted.
    pub(super) fn make_room_for(&self, name: &str, bytes: u64) -> Result<bool, ImageError> {
        if bytes > self.budget / SHARE {
            return Ok(false);
        }
        let (space, beside, evictable) = self.taken(name)?;
        let over = beside.saturating_add(bytes).saturating_sub(self.budget);
        self.warn_if_disk_is_short(space, bytes, over);
        Ok(fits(space, bytes, over, evictable) && self.evict_to(self.budget - bytes, name))
    }

    /// Logs a warning when the disk has too little free for an image, and not again until it has
    /// had enough for the largest one: images of different sizes must not repeat the warning.
    fn warn_if_disk_is_short(&self, space: DiskSpace, bytes: u64, over: u64) {
        let is_short = !leaves_enough(space, bytes, over);
        if is_short && !self.is_disk_short.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                folder = %self.folder.display(),
                free = space.free,
                left_free = left_free(space),
                "the disk has too little free space for func-images: until it has more, the seeds \
                 that no image has are made again after a start"
            );
        } else if leaves_enough(space, self.budget / SHARE, over) {
            self.is_disk_short.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether there is room for `bytes` more bytes if others were evicted. Evicts nothing.
    pub(super) fn has_room_for(&self, bytes: u64) -> Result<bool, ImageError> {
        let (space, taken, evictable) = self.taken("")?;
        let over = taken.saturating_add(bytes).saturating_sub(self.budget);
        Ok(fits(space, bytes, over, evictable))
    }

    /// Evicts images to make room for all that has been reserved, of which `bytes` bytes are not on
    /// the disk yet. Returns whether there is room for these.
    pub(super) fn make_room_within(&self, bytes: u64) -> Result<bool, ImageError> {
        let (space, taken, evictable) = self.taken("")?;
        let over = taken.saturating_sub(self.budget);
        Ok(fits(space, bytes, over, evictable) && self.evict_to(self.budget, ""))
    }

    /// Returns the space on the disk, the bytes of all images but `beside`, and the evictable part
    /// of those bytes.
    fn taken(&self, beside: &str) -> Result<(DiskSpace, u64, u64), ImageError> {
        let space = self.space()?;
        let account = self.account.lock();
        let evictable = account.evictable_beside(beside);
        Ok((space, account.bytes_beside(beside), evictable))
    }

    /// Returns the space on the disk. If the folder was removed, it is made again.
    fn space(&self) -> Result<DiskSpace, ImageError> {
        match self.disk.space(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.disk.make_folder(&self.folder)?;
                tracing::warn!("the folder of func-images was missing and is created again");
                self.account.lock().clear();
                Ok(self.disk.space(&self.folder)?)
            }
            space => Ok(space?),
        }
    }

    /// Evicts images, except `beside`, until they take at most `budget` bytes. Returns whether they
    /// do.
    pub(super) fn evict_to(&self, budget: u64, beside: &str) -> bool {
        let mut behind = None;
        loop {
            let next = {
                let account = self.account.lock();
                if account.bytes_beside(beside) <= budget {
                    return true;
                }
                account.next(behind, beside)
            };
            let Some((rank, name)) = next else {
                return false;
            };
            // An image that cannot be removed must not keep the others from being removed.
            behind = Some(rank);
            self.remove(&name);
        }
    }

    /// Removes the file of this name. Returns whether there is none now.
    pub(super) fn remove(&self, name: &str) -> bool {
        let _gone = self.gone.lock();
        self.remove_named(name)
    }

    /// As [`Self::remove`], for a caller that holds `gone`.
    pub(super) fn remove_named(&self, name: &str) -> bool {
        match self.disk.remove(&self.folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let error = Line(&error);
                tracing::warn!(%error, "an unused func-image cannot be removed");
                false
            }
            _ => {
                self.account.lock().forget(name);
                true
            }
        }
    }

    /// Returns the path at which the image is, or would be.
    pub(super) fn path(&self, kind: &ImageKind) -> PathBuf {
        self.folder.join(kind.file_name(&self.key))
    }
}
