//! `--image-key` and `--secret-key`: the operator's files with the keys that seal images and
//! functions' secrets.

use std::{fmt, fs, ops::Deref, path::Path};

use zeroize::Zeroizing;

use super::{exit::Exit, private_file::PrivateFile};

/// The size of a key in bytes.
const BYTES: usize = 32;

/// A key, which is never printed, and which is zeroed when it is dropped.
#[derive(Clone)]
pub struct SealingKey(Zeroizing<[u8; BYTES]>);

impl Deref for SealingKey {
    type Target = [u8; BYTES];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey")
    }
}

/// Reads the key for `what` from a private file. The file must not be among the images of
/// `data_dir`.
///
/// # Errors
/// Returns an error with a hint if the file cannot be read, is not private, is among the images or
/// has the wrong size.
pub fn read(what: &str, path: &Path, data_dir: Option<&Path>) -> Result<SealingKey, Exit> {
    let (what, shown) = (format!("the key of {what}"), path.display());
    let hint = format!("make one with: (umask 077; head -c {BYTES} /dev/urandom > {shown})");
    let file = PrivateFile {
        what: &what,
        path,
        hint: &hint,
    };
    let bytes = file.read(BYTES)?;
    let images = data_dir.and_then(|folder| fs::canonicalize(folder.join("images")).ok());
    let real = fs::canonicalize(path).map_err(|error| file.failed(&error))?;
    if images.is_some_and(|images| real.starts_with(images)) {
        return Err(file
            .wrong("is inside the folder of func-images")
            .hint("keep it where copies of the data directory do not include it"));
    }
    let key = bytes.as_slice().try_into().map(Zeroizing::new);
    key.map(SealingKey).map_err(|_| {
        file.wrong(format_args!("does not have {BYTES} bytes"))
            .hint(&hint)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_must_be_private_and_outside_of_the_data_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |path: &Path| super::read("images", path, Some(folder.path()));
        let refused = |path: &Path| read(path).unwrap_err().to_string();
        assert!(refused(&path).contains("cannot be read"));
        let write = |path: &Path, bytes: &[u8], mode: u32| {
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&path, &[7; 32], 0o600);
        assert_eq!(*read(&path).unwrap(), [7; 32]);
        assert_eq!(format!("{:?}", read(&path).unwrap()), "SealingKey");
        for mode in [0o640, 0o604, 0o620] {
            write(&path, &[7; 32], mode);
            assert!(refused(&path).contains("to other users"));
        }
        for length in [0, 31, 33] {
            write(&path, &vec![7; length], 0o600);
            assert!(refused(&path).contains("does not have 32 bytes"));
        }
        let images = folder.path().join("images");
        fs::create_dir(&images).unwrap();
        let inside = images.join("key");
        write(&inside, &[7; 32], 0o600);
        assert!(refused(&inside).contains("inside the folder of func-images"));
        assert!(super::read("secrets", &inside, None).is_ok());
        assert!(refused(&images).contains("is not a file"));
    }
}
