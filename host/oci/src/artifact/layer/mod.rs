//! Reads and writes layers that are tar archives. Nothing is written to a folder: names are only
//! compared or passed on.
//!
//! However an archive is compressed, unpacking stops at a limit. So an archive that unpacks to a
//! million times its size cannot exhaust memory.

use std::{
    borrow::Cow,
    io::{self, BufReader, Read, Seek, Write as _},
};

use bytes::Bytes;
use flate2::{Compression, GzBuilder, read::MultiGzDecoder};
use ruzstd::decoding::StreamingDecoder;
use tar::{Archive, Builder, Entry, EntryType, Header};

use crate::OciError;

/// Maximum size of the rest of an archive in bytes: headers of entries, and files that are not
/// wanted.
pub(super) const AROUND_MAX: u64 = 64 << 20;

/// Maximum number of entries of an image's layer.
const ENTRIES_MAX: usize = 10_000;

/// Magic numbers of compressed archives.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Prefix of the name of an entry that removes a file of the layers below.
const WHITEOUT: &str = ".wh.";

/// Limits on files.
#[derive(Clone, Copy, Debug)]
pub struct FilesLimits {
    /// The maximum size of all contents together in bytes.
    pub bytes: u64,
    /// The maximum number of files, folders and links.
    pub entries: usize,
}

/// The kind of an entry in a layer of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, whose content is its target.
    Link,
}

/// An entry in a layer of files. Its path is that of the archive and has not been checked.
#[derive(Debug)]
pub struct FilesEntry<'a> {
    /// The kind of entry.
    pub kind: FileKind,
    /// The path, without a leading `./` and a trailing `/`.
    pub path: &'a str,
    /// The content.
    pub content: &'a [u8],
}

/// Returns an archive that unpacks at most `limit` bytes, plus one.
fn unpacked(
    mut file: impl Read + Seek + 'static,
    limit: u64,
) -> Result<Archive<io::Take<Box<dyn Read>>>, OciError> {
    let mut begin = [0; 4];
    let mut count = 0;
    while count < begin.len() {
        let rest = begin.get_mut(count..).unwrap_or_default();
        match file.read(rest)? {
            0 => break,
            more => count += more,
        }
    }
    file.rewind()?;
    let file = BufReader::new(file);
    let reader: Box<dyn Read> = match begin {
        [one, two, ..] if [one, two] == GZIP => Box::new(MultiGzDecoder::new(file)),
        ZSTD => Box::new(
            StreamingDecoder::new(file).map_err(|error| OciError::damaged("the layer", error))?,
        ),
        _ => Box::new(file),
    };
    // If the additional byte is used up, there was too much.
    Ok(Archive::new(reader.take(limit.saturating_add(1))))
}

/// Checks that an archive did not reach the limit. An archive that is cut off between two files
/// looks complete.
///
/// # Errors
/// Returns [`OciError::Artifact`] if more was unpacked than the limit allows.
fn is_within(archive: Archive<io::Take<Box<dyn Read>>>) -> Result<(), OciError> {
    match archive.into_inner().limit() {
        0 => Err(OciError::artifact("its archive is too large unpacked")),
        _ => Ok(()),
    }
}

fn broken(error: &io::Error) -> OciError {
    OciError::artifact(format!("its archive cannot be read: {error}"))
}

/// Returns a path as text, without a leading `./` and a trailing `/`.
fn path_of(bytes: &[u8]) -> Result<&str, OciError> {
    let text = str::from_utf8(bytes)
        .map_err(|_| OciError::artifact("a path in its archive is no text"))?;
    let text = text.strip_prefix("./").unwrap_or(text);
    Ok(text.strip_suffix('/').unwrap_or(text))
}

fn read_entry(
    entry: &mut Entry<'_, impl Read>,
    limit: u64,
    what: &str,
) -> Result<Vec<u8>, OciError> {
    let too_large = || OciError::TooLarge {
        what: what.to_owned(),
        limit,
    };
    let announced = entry.size();
    if announced > limit {
        return Err(too_large());
    }
    let mut content = Vec::new();
    let mut reader = entry.take(limit.saturating_add(1));
    reader
        .read_to_end(&mut content)
        .map_err(|error| broken(&error))?;
    match content.len() as u64 {
        count if count > limit => Err(too_large()),
        count if count < announced => Err(OciError::artifact(
            "its archive ends in the middle of a file, or is too large",
        )),
        _ => Ok(content),
    }
}

/// Returns the only module of an image's layer, which may have at most `limit` bytes.
pub(crate) fn module_of(file: impl Read + Seek + 'static, limit: u64) -> Result<Bytes, OciError> {
    let mut archive = unpacked(file, limit.saturating_add(AROUND_MAX))?;
    let mut found: Option<Vec<u8>> = None;
    let entries = archive.entries().map_err(|error| broken(&error))?;
    for (number, entry) in entries.enumerate() {
        let mut entry = entry.map_err(|error| broken(&error))?;
        if number >= ENTRIES_MAX {
            return Err(OciError::artifact(format!(
                "its archive has more than {ENTRIES_MAX} entries"
            )));
        }
        let bytes = entry.path_bytes().into_owned();
        let name = bytes
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        if !name.ends_with(b".wasm") || name.starts_with(WHITEOUT.as_bytes()) {
            continue;
        }
        let path = String::from_utf8_lossy(&bytes);
        match entry.header().entry_type() {
            EntryType::Directory => continue,
            EntryType::Regular | EntryType::Continuous => {}
            _ => {
                return Err(OciError::artifact(format!(
                    "{path} in its archive is no file"
                )));
            }
        }
        if found.is_some() {
            return Err(OciError::artifact(format!(
                "its archive has several modules, {path} among them"
            )));
        }
        found = Some(read_entry(&mut entry, limit, "the module")?);
    }
    is_within(archive)?;
    let found =
        found.ok_or_else(|| OciError::artifact("its archive has no file that is called ….wasm"))?;
    Ok(found.into())
}

/// Reads an archive of files in its order. The archive is tar, optionally compressed by gzip or
/// zstd.
///
/// # Errors
/// Returns an error if the archive cannot be read, has entries other than files, folders and
/// symbolic links, or exceeds the limits.
pub fn read_files(
    file: impl Read + Seek + 'static,
    limits: FilesLimits,
    mut each: impl FnMut(FilesEntry<'_>),
) -> Result<(), OciError> {
    let mut archive = unpacked(file, limits.bytes.saturating_add(AROUND_MAX))?;
    let mut left = limits.bytes;
    let entries = archive.entries().map_err(|error| broken(&error))?;
    for (number, entry) in entries.enumerate() {
        let mut entry = entry.map_err(|error| broken(&error))?;
        if number >= limits.entries {
            let entries = limits.entries;
            return Err(OciError::artifact(format!(
                "it has more than {entries} files, folders and links"
            )));
        }
        let bytes = entry.path_bytes().into_owned();
        let path = path_of(&bytes)?;
        let (kind, content) = match entry.header().entry_type() {
            // The root folder itself.
            EntryType::Directory if matches!(path, "" | ".") => continue,
            EntryType::Directory => (FileKind::Folder, Cow::default()),
            EntryType::Regular | EntryType::Continuous => {
                let content = read_entry(&mut entry, left, "all files together")?;
                left = left.saturating_sub(content.len() as u64);
                (FileKind::File, Cow::from(content))
            }
            EntryType::Symlink => match entry.link_name_bytes() {
                Some(target) => (FileKind::Link, Cow::from(target.into_owned())),
                None => return Err(OciError::artifact(format!("{path} leads nowhere"))),
            },
            _ => {
                return Err(OciError::artifact(format!(
                    "{path} is neither a file nor a folder nor a symbolic link"
                )));
            }
        };
        each(FilesEntry {
            kind,
            path,
            content: &content,
        });
    }
    is_within(archive)
}

/// Writes a layer of files. Equal files result in equal bytes, whatever their owner and times.
///
/// # Errors
/// Returns an error if a path or a link's target is too long for an archive, or if a target is not
/// UTF-8.
pub fn write_files<'a>(files: impl IntoIterator<Item = FilesEntry<'a>>) -> Result<Bytes, OciError> {
    let packed = GzBuilder::new().write(Vec::new(), Compression::default());
    let mut archive = Builder::new(packed);
    for FilesEntry {
        kind,
        path,
        content,
    } in files
    {
        let mut header = Header::new_gnu();
        header.set_mtime(0);
        header.set_size(0);
        match kind {
            FileKind::File => {
                header.set_entry_type(EntryType::Regular);
                header.set_mode(0o644);
                header.set_size(content.len() as u64);
                archive.append_data(&mut header, path, content)?;
            }
            FileKind::Folder => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                archive.append_data(&mut header, format!("{path}/"), &[][..])?;
            }
            FileKind::Link => {
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                let target = str::from_utf8(content)
                    .map_err(|_| OciError::artifact(format!("{path} leads to what is no text")))?;
                archive.append_link(&mut header, path, target)?;
            }
        }
    }
    let mut packed = archive.into_inner()?;
    packed.flush()?;
    Ok(packed.finish()?.into())
}

#[cfg(test)]
mod tests;
