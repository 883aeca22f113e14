//! Removing image files that are no longer needed.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use faasw_common::text::Line;

use super::Images;
use super::identity::{
    ENGINE, ImageId, ImageKind, SHARED, UNFINISHED, WantedImages, is_image_file,
};

/// How long an engine's image stays without being used.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Returns whether a file was used recently. A time in the future counts as recent, because a clock
/// may have jumped.
fn is_recent(used: SystemTime, now: SystemTime) -> bool {
    now.duration_since(used).map_or(true, |age| age < UNUSED)
}

impl Images {
    /// From now on only these images are wanted: those of the seeds that all functions share, of
    /// these function versions, and of language engines that were used recently. The next writer
    /// removes all others before it writes; no other caller waits for that.
    pub fn retain<'a>(&self, versions: impl IntoIterator<Item = &'a ImageId>) {
        let versions = versions.into_iter().map(|id| ImageKind::Function(*id));
        let shared = SHARED.map(|name| ImageKind::Shared(name.to_owned()));
        let wanted = shared.into_iter().chain(versions);
        let wanted = wanted.map(|kind| kind.file_name(&self.key)).collect();
        *self.wanted.lock() = WantedImages::These(wanted);
    }

    /// Removes the images that [`Images::retain`] made unwanted, and learns which images there are.
    pub(crate) fn tidy(&self) {
        let _writing = self.writing.lock();
        if let Err(error) = self.tidy_up() {
            let error = Line(&error);
            tracing::warn!(%error, "the folder of func-images cannot be read");
        }
    }

    /// As [`Images::tidy`], for a caller that holds `writing`. The folder is read once, and again
    /// only if that failed.
    pub(super) fn tidy_up(&self) -> io::Result<()> {
        if self.account.lock().is_complete() {
            return Ok(());
        }
        let wanted = self.wanted.lock().clone();
        let mut found = Vec::new();
        let (mut removed, mut left) = (0_u64, None);
        let names = match self.disk.names(&self.folder) {
            // The folder is made again when an image is written.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            names => names?,
        };
        let now = SystemTime::now();
        for name in names {
            let name = name?;
            let Some(ours) = name.to_str().filter(|name| is_image_file(name)) else {
                continue;
            };
            // Until `retain` is called, other processes may be writing.
            let may_be_written =
                matches!(wanted, WantedImages::All) || self.is_being_received(ours);
            if ours.starts_with(UNFINISHED) && may_be_written {
                continue;
            }
            match self.inspect(ours, &wanted, now) {
                Ok(Some(file)) => found.push(file),
                Ok(None) => match self.remove_stray(&name) {
                    Ok(()) => removed += 1,
                    Err(error) => left = Some(error),
                },
                // The image may be valid; it counts once it has been read.
                Err(error) => left = Some(error),
            }
        }
        if removed > 0 {
            tracing::debug!(files = removed, "unused func-images were removed");
        }
        if let Some(error) = left {
            let error = Line(&error);
            tracing::warn!(%error, "func-images cannot be checked or removed");
        }
        // A use time in the future must not keep an image forever.
        found.sort_by_key(|file| file.used.min(now));
        let found = found.into_iter().map(|file| (file.name, file.bytes));
        self.account.lock().complete(found);
        self.evict_to(self.budget, "");
        *self.wanted.lock() = WantedImages::All;
        Ok(())
    }

    /// Returns a file that stays, or `None` for one that is to be removed.
    fn inspect(
        &self,
        name: &str,
        wanted: &WantedImages,
        now: SystemTime,
    ) -> io::Result<Option<FoundFile>> {
        let is_wanted = wanted.contains(name);
        if !is_wanted && !name.starts_with(ENGINE) {
            return Ok(None);
        }
        let status = self.disk.status(&self.folder.join(name))?;
        let stays = status.is_file && (is_wanted || is_recent(status.used, now));
        Ok(stays.then(|| FoundFile {
            name: name.to_owned(),
            bytes: status.bytes,
            used: status.used,
        }))
    }

    fn remove_stray(&self, name: &OsStr) -> io::Result<()> {
        match self.disk.remove(&self.folder.join(name)) {
            // A folder of this name is left alone; it is no image.
            Err(error) if error.kind() == ErrorKind::IsADirectory => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes all images of function versions to free space. Returns whether there were any.
    pub fn clear(&self) -> bool {
        let shared = SHARED.map(|name| ImageKind::Shared(name.to_owned()).file_name(&self.key));
        self.remove_those(|name| !name.starts_with(ENGINE) && !shared.iter().any(|one| one == name))
    }

    /// Removes all images.
    pub fn remove_all(&self) {
        self.remove_those(|_| true);
    }

    /// Removes the images that `is_meant` selects. Returns whether there were any.
    fn remove_those(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let names = self.disk.names(&self.folder).into_iter().flatten();
        let mut any = false;
        for name in names.map_while(Result::ok) {
            if let Some(name) = name.to_str()
                && is_image_file(name)
                && is_meant(name)
            {
                any |= self.remove(name);
            }
        }
        any
    }
}

/// A file in the folder.
struct FoundFile {
    name: String,
    bytes: u64,
    used: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_in_the_future_counts_as_recent() {
        let now = SystemTime::now();
        assert!(is_recent(now, now) && is_recent(now + 2 * UNUSED, now));
        assert!(is_recent(now - UNUSED / 2, now) && !is_recent(now - UNUSED, now));
    }
}
