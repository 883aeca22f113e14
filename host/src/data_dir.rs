//! The data directory: the files of one node, which no other node uses at the same time.
//!
//! ```text
//! DATA_DIR/            0700
//!   lock               held while a node runs; its text is the node's process id
//!   kv.redb            key-value stores of functions (services/key_value)
//!   registry.redb      functions, versions and artifacts (registry)
//!   reserve            reserved space, released to remove things on a full disk (registry)
//!   modules/           deployed modules and scripts, by digest
//!   artifacts/         compiled code, by digest and generation
//!   compiled/          data for the next compilation of a function, by name and generation
//!   images/            func-images of seeds, sealed (faasw_pool::Images)
//!   image.key          0600, the secret that images are sealed with
//!   secrets.key        0600, the key that functions' secrets in the registry are sealed with
//!   logs/              a log per function (log)
//!   faasw.sock         0600, the admin API (admin)
//! ```

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use faasw_pool::Images;
use rustix::fs::OFlags;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::services::secrets::KEY;

/// Time for which the lock is tried. A node that was killed while it started a process leaves its
/// lock to that process until the process executes its program. That takes a moment, but a service
/// manager may be faster.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause between attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub(crate) enum DataDirError {
    /// A file or folder of the directory failed.
    #[error("{path:?}: {error}")]
    Fails { path: PathBuf, error: io::Error },
    /// The directory is locked by another node with this process id.
    #[error("{path:?} belongs to process {pid}")]
    Locked { path: PathBuf, pid: String },
}

/// A data directory that belongs to this node until dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// The kernel releases the lock with the descriptor, even if the process is killed.
    _lock: File,
}

impl DataDir {
    /// Creates the directory if necessary, and locks it for this node.
    pub(crate) fn open(path: &Path) -> Result<Self, DataDirError> {
        private_folder(path).map_err(|error| cannot_use(path, error))?;
        // Absolute, so that a later change of the working directory is harmless.
        let path = fs::canonicalize(path).map_err(|error| cannot_use(path, error))?;
        let lock = lock(&path)?;
        let directory = Self { path, _lock: lock };
        for folder in [
            directory.modules(),
            directory.artifacts(),
            directory.compiled(),
            directory.images(),
            directory.logs(),
        ] {
            private_folder(&folder).map_err(|error| cannot_use(&folder, error))?;
        }
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("registry.redb")
    }

    pub(crate) fn key_value(&self) -> PathBuf {
        self.path.join("kv.redb")
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }

    pub(crate) fn modules(&self) -> PathBuf {
        self.path.join("modules")
    }

    pub(crate) fn artifacts(&self) -> PathBuf {
        self.path.join("artifacts")
    }

    pub(crate) fn compiled(&self) -> PathBuf {
        self.path.join("compiled")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.path.join("images")
    }

    /// Returns the secret that images are sealed with. If the file is missing or has the wrong
    /// size, a new secret is made: images are made again.
    pub(crate) fn image_secret(&self) -> Result<[u8; Images::SECRET], DataDirError> {
        let path = self.path.join("image.key");
        let secret = match read_secret(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_secret(&path),
            Ok(bytes) => bytes.try_into().or_else(|_| {
                tracing::warn!(?path, "a key file has the wrong size and is created again");
                make_secret(&path)
            }),
            Err(error) => Err(error),
        };
        secret.map_err(|error| cannot_use(&path, error))
    }

    /// Returns the key that functions' secrets are sealed with. If the file is missing and nothing
    /// was sealed (`is_used` is false), a new key is made. A file of the wrong size is left as it
    /// is: a new key would lose everything that was sealed.
    ///
    /// # Errors
    /// Returns a sentence with the reason if the file is missing although secrets exist, if it has
    /// the wrong size, or if it cannot be read or written.
    pub(crate) fn secret_key(&self, is_used: bool) -> Result<Zeroizing<[u8; KEY]>, String> {
        let path = self.path.join("secrets.key");
        let key = match read_secret(&path).map(Zeroizing::new) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_used => make_secret(&path),
            Ok(bytes) => bytes
                .as_slice()
                .try_into()
                .map_err(|_| io::Error::other("it does not have the size of a key")),
            Err(error) => Err(error),
        };
        key.map(Zeroizing::new).map_err(|error| {
            format!(
                "the key of secrets, {}, cannot be used: {error}; restore the right one, or \
                 remove it and all secrets, restart and set them again",
                path.display()
            )
        })
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    pub(crate) fn admin_socket(&self) -> PathBuf {
        faasw_client::admin_socket(&self.path)
    }
}

fn cannot_use(path: &Path, error: io::Error) -> DataDirError {
    DataDirError::Fails {
        path: path.into(),
        error,
    }
}

/// Reads a file that may hold a secret, and makes it accessible to its owner only. The path may be
/// a link. The open does not block on anything that is not a regular file.
fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let private = file.set_permissions(fs::Permissions::from_mode(0o600));
        tracing::warn!(?path, ?private, "a key file was readable by other users");
    }
    let mut bytes = Vec::new();
    // Reading one byte more than a secret has reveals a file that is too long.
    file.take(Images::SECRET as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a secret, completely or not at all.
fn make_secret(path: &Path) -> io::Result<[u8; Images::SECRET]> {
    let secret = Images::secret()?;
    let unfinished = path.with_extension("unfinished");
    // A crash or another process may have left a file there.
    let _ = fs::remove_file(&unfinished);
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    // The secret must be durable before any image that is sealed with it.
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(secret)
}

fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // The directory may have existed before, open to others, but modules, environment and logs are
    // the user's own. A correct mode is not set again, because the disk may be read-only.
    match fs::metadata(path)?.permissions().mode() & 0o7777 {
        0o700 => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
    }
}

fn lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join("lock");
    let failed = |error| cannot_use(&path, error);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let begun = Instant::now();
    let locked = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => sleep(LOCK_PAUSE),
            locked => break locked,
        }
    };
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // The other node may not have written its process id yet.
            let _ = file.read_to_string(&mut pid);
            let pid = pid.trim();
            return Err(DataDirError::Locked {
                path: directory.into(),
                pid: if pid.is_empty() { "?" } else { pid }.into(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let pid = std::process::id();
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{pid}"))
        .map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StartError;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_directory_is_the_users_own() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let directory = DataDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&directory.modules()), 0o700);
        assert_eq!(mode(&path.join("lock")), 0o600);
    }

    #[test]
    fn a_second_node_learns_which_process_locks_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let first = DataDir::open(parent.path()).unwrap();
        let refused = StartError::from(DataDir::open(parent.path()).unwrap_err()).to_string();
        let pid = std::process::id().to_string();
        assert!(
            refused.contains(&pid) && refused.contains("another node"),
            "{refused}"
        );
        drop(first);
        DataDir::open(parent.path()).unwrap();
    }

    #[test]
    fn a_lock_released_shortly_after_is_acquired() {
        let parent = tempfile::tempdir().unwrap();
        let first = DataDir::open(parent.path()).unwrap();
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| DataDir::open(parent.path()));
            drop(first);
            second.join().unwrap()
        });
        second.unwrap();
    }

    #[test]
    fn secret_files_are_private_and_must_be_regular_files_of_the_right_size() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDir::open(parent.path()).unwrap();
        let path = directory.path().join("image.key");
        let elsewhere = directory.path().join("elsewhere");
        // The file that a leftover link leads to must not be written to.
        fs::write(&elsewhere, "mine").unwrap();
        std::os::unix::fs::symlink(&elsewhere, directory.path().join("image.unfinished")).unwrap();
        let secret = directory.image_secret().unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
        assert_eq!(
            (mode(&path), fs::read(&path).unwrap()),
            (0o600, secret.to_vec())
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(directory.image_secret().unwrap(), secret);
        assert_eq!(mode(&path), 0o600);
        // The secret may be a link to another place.
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(directory.image_secret().unwrap(), secret);
        let file = File::options().write(true).open(&elsewhere).unwrap();
        file.set_len(1 << 40).unwrap();
        let another = directory.image_secret().unwrap();
        assert!(another != secret && directory.image_secret().unwrap() == another);
        for other in ["fifo", "/dev/zero"] {
            fs::remove_file(&path).unwrap();
            match other {
                "fifo" => {
                    let made = std::process::Command::new("mkfifo").arg(&path).status();
                    assert!(made.unwrap().success());
                }
                device => std::os::unix::fs::symlink(device, &path).unwrap(),
            }
            let refused = directory.image_secret().unwrap_err().to_string();
            assert!(
                refused.contains("image.key") && refused.contains("not a file"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = DataDir::open(&file.join("sub")).unwrap_err().to_string();
        assert!(refused.contains("file/sub"), "{refused}");
    }
}
