//! A script in an upload: its files, in one piece.
//!
//! ```text
//! script:  MAGIC, count (u32), { path, content }
//! path, content: length (u32), that many bytes
//! ```
//!
//! The first file is the script's entry. Paths are relative, with `/` between their parts, in
//! UTF-8; none leads out of the script or occurs twice. The node decodes a script to check that,
//! and passes it on unchanged; the guest decodes it again.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::wire::{Reader, WireError, Writer};

/// First bytes of a script; neither Wasm nor text begins so.
pub const MAGIC: [u8; 8] = *b"\0script\x01";

/// Maximum bytes of a script.
pub const SCRIPT_MAX: usize = 64 << 20;

/// Maximum number of files of a script.
pub const FILES_MAX: usize = 10_000;

/// Maximum bytes of a path.
pub const PATH_MAX: usize = 1 << 10;

/// The interface that a language engine exports, without its version.
pub const SCRIPT_EXPORT: &str = "faasw:engine/script";

/// The function of [`SCRIPT_EXPORT`] that takes a script.
pub const SCRIPT_INIT: &str = "init";

/// The supported version of [`SCRIPT_EXPORT`].
pub const ENGINE_VERSION: &str = "0.1.0";

/// A file of a script: its path, and its content.
pub type File<'a> = (&'a str, &'a [u8]);

/// The reason why bytes are no script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// The bytes do not begin like a script, or their length is wrong.
    Malformed(WireError),
    /// The script has no files.
    Empty,
    /// The script has more than [`FILES_MAX`] files.
    TooManyFiles,
    /// The script has more than [`SCRIPT_MAX`] bytes.
    TooLarge(usize),
    /// A path is absolute, leads out of the script, is too long or is not UTF-8.
    BadPath(String),
    /// Two files have this path.
    Twice(String),
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "the script is malformed: {error}"),
            Self::Empty => f.write_str("the script has no files"),
            Self::TooManyFiles => write!(f, "the script has more than {FILES_MAX} files"),
            Self::TooLarge(bytes) => {
                let most = SCRIPT_MAX >> 20;
                write!(f, "the script has {bytes} bytes; the limit is {most} MiB")
            }
            Self::BadPath(path) => write!(
                f,
                "{path:?} is not a valid path of a script's file: a path is relative UTF-8 with / \
                 between its parts, has at most {PATH_MAX} bytes, and no part is empty, . or .."
            ),
            Self::Twice(path) => write!(f, "the script has {path:?} twice"),
        }
    }
}

impl core::error::Error for ScriptError {}

impl From<WireError> for ScriptError {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

/// Returns whether bytes begin like a script.
#[must_use]
pub fn is_script(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Encodes a script of these files, the first of which is its entry.
///
/// # Errors
/// Returns the [`ScriptError`] of the violated rule.
pub fn write(files: &[File<'_>]) -> Result<Vec<u8>, ScriptError> {
    check(files)?;
    let mut writer = Writer::default();
    writer.bytes(&MAGIC);
    writer.bytes(&(files.len() as u32).to_le_bytes());
    for (path, content) in files {
        writer.string(path.as_bytes());
        writer.string(content);
    }
    let bytes = writer.into_bytes();
    match bytes.len() {
        size if size > SCRIPT_MAX => Err(ScriptError::TooLarge(size)),
        _ => Ok(bytes),
    }
}

/// Decodes the files of a script, in their order.
///
/// # Errors
/// Returns the [`ScriptError`] of the violated rule.
pub fn read(bytes: &[u8]) -> Result<Vec<File<'_>>, ScriptError> {
    if bytes.len() > SCRIPT_MAX {
        return Err(ScriptError::TooLarge(bytes.len()));
    }
    let mut reader = Reader::new(bytes);
    if reader.array()? != MAGIC {
        return Err(WireError::BadValue.into());
    }
    let count = u32::from_le_bytes(reader.array()?);
    if count as usize > FILES_MAX {
        return Err(ScriptError::TooManyFiles);
    }
    let mut files = Vec::new();
    for _ in 0..count {
        let path = reader.slice()?;
        let content = reader.slice()?;
        let path = core::str::from_utf8(path)
            .map_err(|_| ScriptError::BadPath(String::from_utf8_lossy(path).into_owned()))?;
        files.push((path, content));
    }
    if reader.left() > 0 {
        return Err(WireError::TrailingBytes.into());
    }
    check(&files)?;
    Ok(files)
}

fn check(files: &[File<'_>]) -> Result<(), ScriptError> {
    if files.is_empty() {
        return Err(ScriptError::Empty);
    }
    if files.len() > FILES_MAX {
        return Err(ScriptError::TooManyFiles);
    }
    let mut seen = BTreeSet::new();
    for (path, _) in files {
        if !is_path(path) {
            let shown = path.get(..path.floor_char_boundary(PATH_MAX));
            return Err(ScriptError::BadPath(shown.unwrap_or_default().into()));
        }
        if !seen.insert(path) {
            return Err(ScriptError::Twice((*path).into()));
        }
    }
    Ok(())
}

fn is_path(path: &str) -> bool {
    path.len() <= PATH_MAX
        && !path.contains('\0')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_script_is_read_as_it_was_written() {
        let files: [File<'_>; 3] = [
            ("handler.lua", b"return 1"),
            ("lib/größe.lua", b""),
            ("data.bin", &[0, 255, 10]),
        ];
        let script = write(&files).unwrap();
        assert!(is_script(&script));
        assert_eq!(read(&script).unwrap(), files);
    }

    #[test]
    fn truncated_or_extended_scripts_are_refused() {
        let script = write(&[("a", b"xyz"), ("b", b"")]).unwrap();
        for end in 0..script.len() {
            assert!(read(&script[..end]).is_err(), "{end}");
        }
        let longer = [&script[..], b"!"].concat();
        let trailing = ScriptError::Malformed(WireError::TrailingBytes);
        assert_eq!(read(&longer), Err(trailing));
        assert!(!is_script(b"\0asm\x01\0\0\0"));
        assert_eq!(
            read(b"\0asm\x01\0\0\0\0\0\0\0"),
            Err(ScriptError::Malformed(WireError::BadValue))
        );
    }

    #[test]
    fn paths_stay_within_the_script() {
        for path in [
            "", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/..", "a\0b",
        ] {
            let refused = Err(ScriptError::BadPath(path.into()));
            assert_eq!(write(&[(path, b"")]), refused, "{path:?}");
            // The encoding that a foreign encoder could produce.
            let mut writer = Writer::default();
            writer.bytes(&MAGIC);
            writer.bytes(&1_u32.to_le_bytes());
            writer.string(path.as_bytes());
            writer.string(b"");
            assert_eq!(
                read(&writer.into_bytes()).map(drop),
                Err(ScriptError::BadPath(path.into()))
            );
        }
        for path in ["a", ".env", "..a", "a b/ü.lua", "a\\b"] {
            assert!(write(&[(path, b"")]).is_ok(), "{path:?}");
        }
        let long = "a".repeat(PATH_MAX + 1);
        assert!(matches!(
            write(&[(&long, b"")]),
            Err(ScriptError::BadPath(_))
        ));
    }

    #[test]
    fn files_are_there_few_and_once() {
        assert_eq!(write(&[]), Err(ScriptError::Empty));
        let twice = write(&[("a", b"1"), ("a", b"2")]);
        assert_eq!(twice, Err(ScriptError::Twice("a".into())));
        let names: Vec<String> = (0..=FILES_MAX).map(|n| alloc::format!("{n}")).collect();
        let files: Vec<File<'_>> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
        assert_eq!(write(&files), Err(ScriptError::TooManyFiles));
        assert!(write(&files[1..]).is_ok());
        let large = vec![0; SCRIPT_MAX];
        assert!(matches!(
            write(&[("a", &large)]),
            Err(ScriptError::TooLarge(_))
        ));
        // A count does not size anything by itself.
        let lie = [&MAGIC[..], &[0xff; 4]].concat();
        assert_eq!(read(&lie), Err(ScriptError::TooManyFiles));
    }
}
