//! What is in a layer that is a tar archive. Nothing of it is ever written to a folder: names are
//! compared, or handed on.
//!
//! However an archive is packed, no more is unpacked of it than it may have: an archive that
//! unpacks to a million times its size ends at a bound, not at the end of memory.

use std::{
    borrow::Cow,
    io::{self, BufReader, Read, Seek, Write as _},
};

use bytes::Bytes;
use flate2::{Compression, GzBuilder, read::MultiGzDecoder};
use ruzstd::decoding::StreamingDecoder;
use tar::{Archive, Builder, Entry, EntryType, Header};

use crate::OciError;

/// Most bytes of an archive beside what is wanted of it: heads of entries, and files that nobody
/// asked for.
pub(super) const AROUND_MAX: u64 = 64 << 20;

/// Most entries of an image's layer.
const ENTRIES_MAX: usize = 10_000;

/// What an archive that is packed begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What stands before the name of a file that a layer removes of those below it.
const WHITEOUT: &str = ".wh.";

/// How much files may be.
#[derive(Clone, Copy, Debug)]
pub struct FilesLimits {
    /// Bytes of all their contents.
    pub bytes: u64,
    /// Files, folders and links.
    pub entries: usize,
}

/// What an entry of a layer of files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link. Its content is where it leads.
    Link,
}

/// An entry of a layer of files. Its path is what the archive says: nothing was made of it yet.
#[derive(Debug)]
pub struct FilesEntry<'a> {
    /// What it is.
    pub kind: FileKind,
    /// Its path, without `./` in front and `/` behind.
    pub path: &'a str,
    /// What it has.
    pub content: &'a [u8],
}

/// Unpacks an archive, of which at most so many bytes come.
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
    // One more than may come: whether that is left says whether there was too much.
    Ok(Archive::new(reader.take(limit.saturating_add(1))))
}

/// # Errors
/// When more was unpacked than may be: an archive that is cut off between two of its files looks
/// whole.
fn is_within(archive: Archive<io::Take<Box<dyn Read>>>) -> Result<(), OciError> {
    match archive.into_inner().limit() {
        0 => Err(OciError::artifact("its archive is too large unpacked")),
        _ => Ok(()),
    }
}

fn broken(error: &io::Error) -> OciError {
    OciError::artifact(format!("its archive cannot be read: {error}"))
}

/// Text of a path, without what stands in front and behind of it for nothing.
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

/// The one module of an image's layer, of `limit` bytes at most.
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

/// Everything of an archive of files, in its order: tar, or that packed by gzip or zstd.
///
/// # Errors
/// When it cannot be read, has something else than files, folders and symbolic links, or more than
/// it may.
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
            // The folder itself.
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

/// Writes a layer of files: the same bytes for the same files, whoever has them and since when.
///
/// # Errors
/// When a path or a target is too long for an archive.
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
