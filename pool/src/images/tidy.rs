//! Files that nobody will ask for.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use faasw_common::text::Line;

use super::{ENGINE, ImageId, Images, SHARED, UNFINISHED, What, lock};

/// How long an engine's image stays that nobody uses.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Digits of a name.
const DIGITS: usize = 64;

/// Whether a file is one of ours, by its name. Others may have something there, too: that is
/// theirs.
fn is_ours(name: &str) -> bool {
    let digits = name.strip_prefix(ENGINE).unwrap_or(name);
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.starts_with(UNFINISHED) || (digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// Whether a file was used of late. What was used in the future was: a clock has jumped.
fn is_recent(used: SystemTime, now: SystemTime) -> bool {
    now.duration_since(used).map_or(true, |age| age < UNUSED)
}

/// Which names are wanted.
#[derive(Clone, Debug, Default)]
pub(super) enum Wanted {
    #[default]
    All,
    These(HashSet<String>),
}

impl Wanted {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.contains(name),
        }
    }
}

impl Images {
    /// Of all images only those of what all functions share are wanted from now on, of these
    /// function versions, and of language engines that were used of late. All others are removed
    /// before one is written, by whoever writes; nobody else waits for that.
    pub fn retain<'a>(&self, versions: impl IntoIterator<Item = &'a ImageId>) {
        let versions = versions.into_iter().map(|id| What::Function(*id));
        let shared = SHARED.map(|name| What::Shared(name.to_owned()));
        let wanted = shared.into_iter().chain(versions);
        let wanted = wanted.map(|what| self.name(&what)).collect();
        *lock(&self.wanted) = Wanted::These(wanted);
    }

    /// Does what [`Images::retain`] has asked for, and gets to know what there is.
    pub(crate) fn tidy(&self) {
        let _writing = lock(&self.writing);
        if let Err(error) = self.tidy_up() {
            let error = Line(&error);
            tracing::warn!(%error, "the folder of func-images cannot be read");
        }
    }

    /// The same, for who writes. The folder is read once, and once more only where that failed.
    pub(super) fn tidy_up(&self) -> io::Result<()> {
        if lock(&self.account).is_complete() {
            return Ok(());
        }
        let wanted = lock(&self.wanted).clone();
        let mut found = Vec::new();
        let (mut removed, mut left) = (0_u64, None);
        let names = match self.disk.names(&self.folder) {
            // It is made again when something is written.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            names => names?,
        };
        let now = SystemTime::now();
        for name in names {
            let name = name?;
            let Some(ours) = name.to_str().filter(|name| is_ours(name)) else {
                continue;
            };
            // Where nobody has said what is wanted, others may be writing.
            let may_be_written = matches!(wanted, Wanted::All) || self.is_arriving(ours);
            if ours.starts_with(UNFINISHED) && may_be_written {
                continue;
            }
            match self.looked_at(ours, &wanted, now) {
                Ok(Some(file)) => found.push(file),
                Ok(None) => match self.remove_stray(&name) {
                    Ok(()) => removed += 1,
                    Err(error) => left = Some(error),
                },
                // It may be good, and counts once somebody has read it.
                Err(error) => left = Some(error),
            }
        }
        if removed > 0 {
            tracing::debug!(
                files = removed,
                "func-images were removed that nobody needs"
            );
        }
        if let Some(error) = left {
            let error = Line(&error);
            tracing::warn!(%error, "func-images cannot be looked at, or not removed");
        }
        // A clock that was ahead of this one makes nothing last for ever.
        found.sort_by_key(|file| file.used.min(now));
        let found = found.into_iter().map(|file| (file.name, file.bytes));
        lock(&self.account).complete(found);
        self.evict_to(self.budget, "");
        *lock(&self.wanted) = Wanted::All;
        Ok(())
    }

    /// A file that stays; nothing where it is to go.
    fn looked_at(&self, name: &str, wanted: &Wanted, now: SystemTime) -> io::Result<Option<Found>> {
        let is_wanted = wanted.contains(name);
        if !is_wanted && !name.starts_with(ENGINE) {
            return Ok(None);
        }
        let status = self.disk.status(&self.folder.join(name))?;
        let stays = status.is_file && (is_wanted || is_recent(status.used, now));
        Ok(stays.then(|| Found {
            name: name.to_owned(),
            bytes: status.bytes,
            used: status.used,
        }))
    }

    fn remove_stray(&self, name: &OsStr) -> io::Result<()> {
        match self.disk.remove(&self.folder.join(name)) {
            // Whatever it is, no image will be there.
            Err(error) if error.kind() == ErrorKind::IsADirectory => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes all images of function versions, for room; says whether there was any.
    pub fn clear(&self) -> bool {
        let shared = SHARED.map(|name| self.name(&What::Shared(name.to_owned())));
        self.remove_those(|name| !name.starts_with(ENGINE) && !shared.iter().any(|one| one == name))
    }

    /// Removes all images, of everything.
    pub fn remove_all(&self) {
        self.remove_those(|_| true);
    }

    /// Says whether there was any.
    fn remove_those(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let names = self.disk.names(&self.folder).into_iter().flatten();
        let mut any = false;
        for name in names.map_while(Result::ok) {
            if let Some(name) = name.to_str()
                && is_ours(name)
                && is_meant(name)
            {
                any |= self.remove(name);
            }
        }
        any
    }
}

/// A file in the folder.
struct Found {
    name: String,
    bytes: u64,
    used: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_files_are_not_ours() {
        let digits = "0123456789abcdef".repeat(4);
        for name in [&digits, &format!("engine-{digits}"), ".unfinished-1-0"] {
            assert!(is_ours(name), "{name}");
        }
        for name in [
            "README",
            "",
            &digits[1..],
            &digits.to_uppercase(),
            &format!("{digits}0"),
            &format!("engine-{}", &digits[1..]),
            &format!("{digits}.bak"),
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn what_was_used_in_the_future_was_used_of_late() {
        let now = SystemTime::now();
        assert!(is_recent(now, now) && is_recent(now + 2 * UNUSED, now));
        assert!(is_recent(now - UNUSED / 2, now) && !is_recent(now - UNUSED, now));
    }
}
