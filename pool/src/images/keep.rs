//! Writing images: whole or not at all, durable before they have their name, and within what
//! they may take.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use faasw_common::text::Line;
use faasw_seedtree::image::{Arrangement, ImageError};
use zerocopy::IntoBytes as _;

use super::disk::Room;
use super::{ImageOf, Images, LEFT_FREE, LEFT_FREE_MAX, SHARE, What, lock};
use crate::ablation::Mechanism;
use crate::snapshots::Frozen;

/// How pages are in images: as is best, but for what a build for measurements is to do without.
fn arrangement() -> Arrangement {
    Arrangement {
        is_by_use: !Mechanism::ImageOrder.is_off(),
        leaves_out: !Mechanism::ImageGaps.is_off(),
    }
}

/// Whether a disk has room for so many bytes once others have gone that have as many as are `over`,
/// of those that may go.
fn fits(room: Room, bytes: u64, over: u64, evictable: u64) -> bool {
    over <= evictable && leaves_enough(room, bytes, over)
}

/// Whether a disk has enough left for others with so many bytes more and `over` fewer.
fn leaves_enough(room: Room, bytes: u64, over: u64) -> bool {
    let left = room.free.saturating_add(over).saturating_sub(bytes);
    left > left_free(room)
}

/// How many bytes of a disk are left to others.
fn left_free(room: Room) -> u64 {
    (room.all / LEFT_FREE).min(LEFT_FREE_MAX)
}

impl Images {
    /// Writes the image of a snapshot, whole or not at all, in place of what there was; says how
    /// many bytes it has. One whose parent has none has none, and neither has one for which there
    /// is no room.
    pub(crate) fn keep(&self, of: &ImageOf, frozen: &Frozen) -> Option<u64> {
        let _writing = lock(&self.writing);
        let has_image = |parent: &Frozen| parent.content().is_some();
        if frozen.parent().is_some_and(|parent| !has_image(parent)) {
            return None;
        }
        match self.write(of, frozen) {
            Ok(bytes) => bytes,
            Err(error) => {
                // On a full disk a half file would stay in its own way.
                self.remove_unfinished();
                tracing::warn!(error = %Line(&error), "a func-image was not written");
                None
            }
        }
    }

    fn write(&self, of: &ImageOf, frozen: &Frozen) -> Result<Option<u64>, ImageError> {
        self.tidy_up()?;
        let (name, most) = (self.name(&of.what), frozen.layer().data_bytes());
        if self.is_gone(of) {
            return Ok(None);
        }
        if !self.make_room_for(&name, most)? {
            tracing::debug!(bytes = most, "there is no room for a func-image");
            return Ok(None);
        }
        // What could not be removed when it was to be.
        self.remove_unfinished();
        let file = self.disk.create(&self.unfinished)?;
        let state = frozen.state().vcpu().as_bytes();
        let purpose = self.purpose(of);
        let content = frozen.write_image_as(arrangement(), state, purpose, &self.key, &*file)?;
        file.sync()?;
        let bytes = file.status()?.bytes;
        // Its header takes some, too.
        if !self.evict_to(self.budget.saturating_sub(bytes), &name) {
            self.remove_unfinished();
            tracing::debug!(bytes, "there is no room for a func-image");
            return Ok(None);
        }
        {
            let gone = self.gone();
            if matches!(&of.what, What::Function(id) if gone.contains(id)) {
                self.remove_unfinished();
                return Ok(None);
            }
            self.disk.replace(&self.unfinished, &self.path(&of.what))?;
            lock(&self.account).note(&name, bytes);
        }
        // It is there: what a power failure might bring back instead is older, and as good.
        frozen.has_content(content);
        if let Err(error) = self.disk.sync_folder(&self.folder) {
            let error = Line(&error);
            tracing::warn!(%error, "a func-image may not outlive a power failure");
        }
        Ok(Some(bytes))
    }

    fn is_gone(&self, of: &ImageOf) -> bool {
        matches!(&of.what, What::Function(id) if self.gone().contains(id))
    }

    pub(super) fn remove_unfinished(&self) {
        // It is tried again before the next one, and at the next start.
        let _ = self.disk.remove(&self.unfinished);
    }

    /// Has others go that so many bytes take the place of, under this name; says whether there is
    /// room for them now. Nothing goes where there would not be.
    pub(super) fn make_room_for(&self, name: &str, bytes: u64) -> Result<bool, ImageError> {
        if bytes > self.budget / SHARE {
            return Ok(false);
        }
        let (room, beside, evictable) = self.taken(name)?;
        let over = beside.saturating_add(bytes).saturating_sub(self.budget);
        self.warn_of_a_short_disk(room, bytes, over);
        Ok(fits(room, bytes, over, evictable) && self.evict_to(self.budget - bytes, name))
    }

    /// Logs a warning when the disk has too little free for an image, and not again until it has
    /// had enough for the largest one: images of different sizes must not repeat the warning.
    fn warn_of_a_short_disk(&self, room: Room, bytes: u64, over: u64) {
        let is_short = !leaves_enough(room, bytes, over);
        if is_short && !self.is_disk_short.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                folder = %self.folder.display(),
                free = room.free,
                left_free = left_free(room),
                "the disk has too little free for func-images: until it has more, the seeds \
                 that no image has are made again after a start"
            );
        } else if leaves_enough(room, self.budget / SHARE, over) {
            self.is_disk_short.store(false, Ordering::Relaxed);
        }
    }

    /// Whether there is room for so many bytes more, were others to go. None does.
    pub(super) fn has_room_for(&self, bytes: u64) -> Result<bool, ImageError> {
        let (room, taken, evictable) = self.taken("")?;
        let over = taken.saturating_add(bytes).saturating_sub(self.budget);
        Ok(fits(room, bytes, over, evictable))
    }

    /// Has others go for what was reserved by now, so many bytes of which are not on the disk yet;
    /// says whether there is room for these.
    pub(super) fn make_room_within(&self, bytes: u64) -> Result<bool, ImageError> {
        let (room, taken, evictable) = self.taken("")?;
        let over = taken.saturating_sub(self.budget);
        Ok(fits(room, bytes, over, evictable) && self.evict_to(self.budget, ""))
    }

    /// What the disk has of room; what all take but the one of this name, and those of them that
    /// may go.
    fn taken(&self, beside: &str) -> Result<(Room, u64, u64), ImageError> {
        let room = self.room()?;
        let account = lock(&self.account);
        let evictable = account.evictable_beside(beside);
        Ok((room, account.bytes_beside(beside), evictable))
    }

    /// What the disk has of room. The folder is made again where somebody has removed it.
    fn room(&self) -> Result<Room, ImageError> {
        match self.disk.room(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.disk.make_folder(&self.folder)?;
                tracing::warn!("the folder of func-images was gone, and is there again");
                lock(&self.account).clear();
                Ok(self.disk.room(&self.folder)?)
            }
            room => Ok(room?),
        }
    }

    /// Has all images but the one of this name take so many bytes at most, if they can.
    pub(super) fn evict_to(&self, budget: u64, beside: &str) -> bool {
        let mut behind = None;
        loop {
            let next = {
                let account = lock(&self.account);
                if account.bytes_beside(beside) <= budget {
                    return true;
                }
                account.next(behind, beside)
            };
            let Some((turn, name)) = next else {
                return false;
            };
            // One that cannot be removed is not to keep the others.
            behind = Some(turn);
            self.remove(&name);
        }
    }

    /// Removes the file of this name; says whether there is none now.
    pub(super) fn remove(&self, name: &str) -> bool {
        let _gone = self.gone();
        self.remove_named(name)
    }

    /// The same, while names do not change.
    pub(super) fn remove_named(&self, name: &str) -> bool {
        match self.disk.remove(&self.folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let error = Line(&error);
                tracing::warn!(%error, "a func-image that is not needed cannot be removed");
                false
            }
            _ => {
                lock(&self.account).forget(name);
                true
            }
        }
    }

    /// Where the image of this is, or would be.
    pub(super) fn path(&self, what: &What) -> PathBuf {
        self.folder.join(self.name(what))
    }
}
