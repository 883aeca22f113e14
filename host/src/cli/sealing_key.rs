//! `--image-key` and `--secret-key`: what images and functions' secrets are sealed with, in files of the operator's.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use super::exit::Exit;

/// Bytes of a key.
const BYTES: usize = 32;

/// What a file has to be for its user alone.
const OTHERS: u32 = 0o077;

/// A key that was read; nothing prints it.
#[derive(Clone, Copy)]
pub struct SealingKey([u8; BYTES]);

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey")
    }
}

impl SealingKey {
    /// Reads the key of `what`, which others may not read, and which is not kept among the images of
    /// `data_dir`.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub fn read(what: &str, path: &Path, data_dir: Option<&Path>) -> Result<Self, Exit> {
        let shown = path.display();
        let failed = |error: io::Error| {
            Exit::failure(format_args!(
                "the key of {what}, {shown}, cannot be read: {error}"
            ))
            .hint(format_args!(
                "make one with: (umask 077; head -c {BYTES} /dev/urandom > {shown})"
            ))
        };
        // Whoever waits for a pipe waits for ever.
        let mut file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(failed)?;
        let known = file.metadata().map_err(failed)?;
        let wrong = |why: fmt::Arguments<'_>| {
            Exit::failure(format_args!("the key of {what}, {shown}, {why}"))
        };
        if !known.is_file() {
            return Err(wrong(format_args!("is no file")));
        }
        if known.mode() & OTHERS != 0 {
            return Err(wrong(format_args!("can be read or written by others"))
                .hint(format_args!("chmod 600 {shown}")));
        }
        let images = data_dir.and_then(|folder| fs::canonicalize(folder.join("images")).ok());
        let real = fs::canonicalize(path).map_err(failed)?;
        if images.is_some_and(|images| real.starts_with(images)) {
            return Err(wrong(format_args!("is among the images"))
                .hint("keep it where copies of the data directory do not take it along"));
        }
        let mut bytes = Vec::new();
        let most = BYTES as u64 + 1;
        (&mut file)
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let bytes = bytes.try_into().map_err(|_| {
            wrong(format_args!("has not {BYTES} bytes")).hint(format_args!(
                "make one with: (umask 077; head -c {BYTES} /dev/urandom > {shown})"
            ))
        })?;
        Ok(Self(bytes))
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; BYTES] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_for_its_user_alone_and_not_among_what_it_seals() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |path: &Path| SealingKey::read("images", path, Some(folder.path()));
        let refused = |path: &Path| read(path).unwrap_err().to_string();
        assert!(refused(&path).contains("cannot be read"));
        let write = |path: &Path, bytes: &[u8], mode: u32| {
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&path, &[7; 32], 0o600);
        let key = read(&path).unwrap();
        assert_eq!(key.bytes(), [7; 32]);
        assert_eq!(format!("{key:?}"), "SealingKey");
        for mode in [0o640, 0o604, 0o620] {
            write(&path, &[7; 32], mode);
            assert!(refused(&path).contains("by others"));
        }
        for length in [0, 31, 33] {
            write(&path, &vec![7; length], 0o600);
            assert!(refused(&path).contains("has not 32 bytes"));
        }
        let images = folder.path().join("images");
        fs::create_dir(&images).unwrap();
        let inside = images.join("key");
        write(&inside, &[7; 32], 0o600);
        assert!(refused(&inside).contains("among the images"));
        assert!(SealingKey::read("secrets", &inside, None).is_ok());
        assert!(refused(&images).contains("is no file"));
    }
}
