//! An access log on disk: the current file, and the one before it.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::lines::Lines;

/// File size in bytes at which the file is rotated. The log uses at most twice this on disk, plus
/// one write.
const ROTATE_AT: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct AccessFile {
    path: PathBuf,
    file: File,
    rotate_at: u64,
    lines: Lines,
    /// The file cannot be renamed, so it grows beyond the limit.
    grows: bool,
}

impl AccessFile {
    /// Opens a file for appending, or creates it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or is not a regular file, because only a
    /// regular file can be rotated.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = append(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            rotate_at: ROTATE_AT,
            lines: Lines::after(is_torn(path)),
            grows: false,
        })
    }

    /// Appends complete lines.
    ///
    /// # Errors
    /// Returns an error if the lines were not written, or only in part.
    pub(super) fn add(&mut self, lines: &[u8]) -> io::Result<()> {
        self.rotate_if_needed()?;
        self.lines.write(&mut self.file, lines)
    }

    /// Starts a new file if this one is full, or if its path leads to another file or to none,
    /// because a log rotation tool may have moved it.
    fn rotate_if_needed(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_own = |named: fs::Metadata| (named.dev(), named.ino()) == (own.dev(), own.ino());
        let has_name = fs::metadata(&self.path).is_ok_and(is_own);
        let is_full = own.len() >= self.rotate_at;
        if has_name && !is_full {
            return Ok(());
        }
        if has_name && let Err(error) = fs::rename(&self.path, rotated_path(&self.path)) {
            // The file may be writable although its folder is not. No line is lost.
            if !std::mem::replace(&mut self.grows, true) {
                tracing::warn!(%error, "the access log is full, and cannot be renamed: it grows");
            }
            return Ok(());
        }
        self.file = append(&self.path)?;
        (self.lines, self.grows) = (Lines::after(false), false);
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        // Without this flag, opening a pipe would wait for its reader.
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// Returns whether the last line of a file lacks its end, for example after a power failure or on a
/// full disk. Returns `false` if the file cannot be read.
fn is_torn(path: &Path) -> bool {
    let last = || {
        let file = File::open(path)?;
        let mut last = [b'\n'];
        if let Some(at) = file.metadata()?.len().checked_sub(1) {
            file.read_exact_at(&mut last, at)?;
        }
        io::Result::Ok(last)
    };
    last().is_ok_and(|last| last != *b"\n")
}

/// Returns the name of the previous file.
fn rotated_path(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write as _, os::unix::fs::PermissionsExt as _};

    fn file(path: &Path) -> AccessFile {
        AccessFile {
            rotate_at: 100,
            ..AccessFile::open(path).unwrap()
        }
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_full_file_is_rotated_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut log = file(&path);
        for number in 0..40 {
            log.add(format!("{number:09}\n").as_bytes()).unwrap();
        }
        let all = read(&rotated_path(&path)) + &read(&path);
        let numbers: Vec<usize> = all.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (20..40).collect::<Vec<_>>());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // The next node continues the file.
        drop(log);
        file(&path).add(b"next\n").unwrap();
        let begins = if read(&path) == "next\n" {
            rotated_path(&path)
        } else {
            path
        };
        assert!(read(&begins).starts_with("00000003"), "{begins:?}");
    }

    #[test]
    fn a_removed_file_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("a.log"), folder.path().join("b.log"));
        let mut log = file(&path);
        log.add(b"one\n").unwrap();
        fs::rename(&path, &away).unwrap();
        log.add(b"two\n").unwrap();
        fs::remove_file(&path).unwrap();
        log.add(b"three\n").unwrap();
        assert_eq!(
            (read(&away), read(&path)),
            ("one\n".into(), "three\n".into())
        );
    }

    #[test]
    fn a_line_after_a_torn_line_starts_on_its_own_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut log = file(&path);
        log.add(b"one\n").unwrap();
        log.file.write_all(b"tw").unwrap();
        // This also holds for a line of an earlier node.
        let mut log = file(&path);
        log.add(b"three\n").unwrap();
        assert_eq!(read(&path), "one\ntw\nthree\n");
        // A new file has no torn line.
        log.lines = Lines::after(true);
        fs::remove_file(&path).unwrap();
        log.add(b"four\n").unwrap();
        assert_eq!(read(&path), "four\n");
    }

    #[test]
    fn a_full_disk_is_an_error_and_the_next_line_starts_on_its_own_line() {
        let full = File::options().append(true).open("/dev/full").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut log = file(&path);
        let real = std::mem::replace(&mut log.file, full);
        // The path temporarily names the device, so that no new file is started.
        let path = std::mem::replace(&mut log.path, "/dev/full".into());
        for _ in 0..2 {
            let error = log.add(b"one\n").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        (log.file, log.path) = (real, path.clone());
        log.add(b"two\n").unwrap();
        assert_eq!(read(&path), "\ntwo\n");
    }

    #[test]
    fn a_file_that_cannot_be_renamed_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        // This imitates a writable file in a folder that is not writable.
        fs::create_dir(rotated_path(&path)).unwrap();
        let mut log = file(&path);
        for _ in 0..40 {
            log.add(b"123456789\n").unwrap();
        }
        assert_eq!(read(&path).len(), 400);
        fs::remove_dir(rotated_path(&path)).unwrap();
        log.add(b"next\n").unwrap();
        assert_eq!(read(&path), "next\n");
    }

    #[test]
    fn a_path_that_is_no_regular_file_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for path in [Path::new("/dev/null"), folder.path(), &pipe] {
            assert!(AccessFile::open(path).is_err(), "{path:?}");
        }
    }
}
