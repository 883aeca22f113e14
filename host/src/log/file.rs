//! A function's log on disk: a file, and the one before it.

use faasw_client::{FunctionName, LogLine};
use faasw_pool::open_files;
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Size in bytes at which a file becomes the old one and a new one begins. A function's log takes
/// at most about twice this on disk.
const ROTATE_AT: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// Opened with the first line: a function that logs nothing has no file.
    open: Option<OpenLogFile>,
}

#[derive(Debug)]
struct OpenLogFile {
    file: File,
    bytes: u64,
}

impl LogFile {
    /// Returns the function's file in `folder`.
    pub(super) fn new(folder: &Path, name: &FunctionName) -> Self {
        Self {
            path: folder.join(format!("{name}.log")),
            open: None,
        }
    }

    /// Adds a line, by one write call, so that a crash leaves whole lines.
    pub(super) fn add(&mut self, line: &LogLine) -> io::Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => OpenLogFile::append(&self.path)?,
        };
        if open.bytes >= ROTATE_AT {
            fs::rename(&self.path, old(&self.path))?;
            open = OpenLogFile::append(&self.path)?;
        }
        let text = format!("{line}\n");
        open.file.write_all(text.as_bytes())?;
        open.bytes += text.len() as u64;
        // If the process has many files open, the file is not kept open between lines.
        let number = u64::try_from(open.file.as_raw_fd()).unwrap_or(u64::MAX);
        self.open = (number < open_files::limit() / 2).then_some(open);
        Ok(())
    }

    /// Returns the last lines of the file and the one before it, oldest first, from at most `bytes`
    /// of each. Incomplete lines are omitted.
    pub(super) fn tail(&self, bytes: u64) -> io::Result<Vec<LogLine>> {
        let mut lines = Vec::new();
        for path in [&old(&self.path), &self.path] {
            let mut file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let skipped = file.metadata()?.len().saturating_sub(bytes);
            file.seek(SeekFrom::Start(skipped))?;
            let mut end = Vec::new();
            file.take(bytes).read_to_end(&mut end)?;
            let text = String::from_utf8_lossy(&end);
            lines.extend(text.lines().filter_map(LogLine::read));
        }
        Ok(lines)
    }

    /// Removes the file and the one before it.
    pub(super) fn delete(self) {
        for path in [&old(&self.path), &self.path] {
            if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(?path, %error, "a log file of a removed function could not be \
                     removed");
            }
        }
    }
}

impl OpenLogFile {
    fn append(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

fn old(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_pool::LogStream;
    use std::{os::unix::fs::PermissionsExt as _, time::SystemTime};

    #[test]
    fn a_grown_log_file_is_rotated_once() {
        let folder = tempfile::tempdir().unwrap();
        let name = FunctionName::new("f").unwrap();
        let mut file = LogFile::new(folder.path(), &name);
        let text = [b'x'; 16 << 10];
        // In milliseconds, as the file stores it.
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123);
        let line = LogLine::new(time, 1, LogStream::Out, &text);
        for _ in 0..3 * ROTATE_AT / text.len() as u64 {
            file.add(&line).unwrap();
        }
        let path = folder.path().join("f.log");
        let (new, old) = (
            fs::metadata(&path).unwrap(),
            fs::metadata(old(&path)).unwrap(),
        );
        for size in [new.len(), old.len()] {
            assert!(size > 0 && size < ROTATE_AT + (17 << 10), "{size}");
        }
        assert_eq!(new.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let tail = file.tail(40 << 10).unwrap();
        assert_eq!(tail, [line.clone(), line.clone(), line.clone(), line]);
    }
}
