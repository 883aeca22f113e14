//! An entry on disk, as tests inspect and damage it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
};

/// The paths of an entry, as `share` prints them.
#[derive(Clone)]
pub struct Entry {
    pub folder: PathBuf,
    pub key: PathBuf,
}

impl Entry {
    /// Returns the entry whose paths a command has printed.
    pub fn parse(text: &str) -> Self {
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        Self {
            folder: lines[0].into(),
            key: lines[1].into(),
        }
    }

    /// Copies the entry to another directory, with modes and owners, so that it can be damaged.
    pub fn copied_to(&self, folder: &Path) -> Self {
        let copied = Command::new("cp")
            .arg("-a")
            .args([&self.folder, &self.key])
            .arg(folder)
            .status();
        assert!(copied.unwrap().success());
        Self {
            folder: folder.join("entry"),
            key: folder.join("key"),
        }
    }

    pub fn note(&self) -> PathBuf {
        self.folder.join("note")
    }

    /// Returns the only file of code.
    pub fn code(&self) -> PathBuf {
        let mut files = files(&self.folder.join("artifacts"));
        assert_eq!(files.len(), 1);
        files.remove(0)
    }

    /// Returns the entry's images, the largest first.
    pub fn images(&self) -> Vec<PathBuf> {
        files(&self.folder.join("images"))
    }
}

/// Returns the files of a directory, the largest first.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).unwrap().len()));
    files
}

/// Changes one bit in the middle of a file.
pub fn flip(path: &Path) {
    let length = fs::metadata(path).unwrap().len() as usize;
    flip_at(path, length / 2);
}

/// Changes one bit near the start of a file: in a nonce or a sealed key.
pub fn flip_first(path: &Path) {
    flip_at(path, 30);
}

/// Changes one bit of a file's last byte, which is sealed data wherever the file has gaps.
pub fn flip_last(path: &Path) {
    let length = fs::metadata(path).unwrap().len() as usize;
    flip_at(path, length - 1);
}

fn flip_at(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

pub fn truncate(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
}

pub fn grow(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes.push(0);
    fs::write(path, bytes).unwrap();
}

/// Replaces a file by a named pipe.
pub fn pipe(path: &Path) {
    fs::remove_file(path).unwrap();
    let made = Command::new("mkfifo")
        .args(["-m", "444"])
        .arg(path)
        .status();
    assert!(made.unwrap().success());
}

/// Replaces a file by a device, which has no end.
pub fn device(path: &Path) {
    fs::remove_file(path).unwrap();
    let made = Command::new("mknod")
        .args(["-m", "444"])
        .arg(path)
        .args(["c", "1", "5"])
        .status();
    assert!(made.unwrap().success());
}

/// Replaces a file or directory by a symbolic link to it.
pub fn link(path: &Path) {
    let elsewhere = path.with_file_name("elsewhere-than-that");
    fs::rename(path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path).unwrap();
}

pub fn give_away(path: &Path) {
    chown(path, Some(1000), None).unwrap();
}

pub fn open_up(path: &Path) {
    let mode = fs::metadata(path).unwrap().permissions().mode();
    fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o002)).unwrap();
}
