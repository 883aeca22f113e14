//! The function's files: those of `--files`, and those that the script writes.
//!
//! Paths are absolute; those without a slash at the beginning count from `/`, too. Nothing stays
//! open between two calls.

use std::{
    cell::RefCell,
    hash::{DefaultHasher, Hasher},
};

use rquickjs::{Array, Ctx, Result, TypedArray};

use crate::{
    bindings::wasi::filesystem::{
        preopens::get_directories,
        types::{Descriptor, DescriptorFlags, DescriptorType, ErrorCode, OpenFlags, PathFlags},
    },
    settings::throw,
};

/// Bytes of one read or write: the node's maximum.
const PIECE: u64 = 64 << 10;

type Outcome<T> = std::result::Result<T, ErrorCode>;

thread_local! {
    static FOLDERS: RefCell<Option<Vec<(Descriptor, String)>>> = const { RefCell::new(None) };
}

/// Closes the folders at the end of initialisation, and at the end of a request.
pub(crate) fn close() {
    FOLDERS.take();
}

/// Runs `run` with the open folder that contains `path`, and the path within that folder.
fn within<T>(path: &str, run: impl FnOnce(&Descriptor, &str) -> Outcome<T>) -> Outcome<T> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    if parts.contains(&"..") || path.contains('\0') {
        return Err(ErrorCode::NotPermitted);
    }
    FOLDERS.with_borrow_mut(|folders| -> Outcome<T> {
        let folders = folders.get_or_insert_with(get_directories);
        // The folder with the longest path that contains it.
        let contains = |folder: &str| {
            let folder: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
            parts.starts_with(&folder).then_some(folder.len())
        };
        let found = folders
            .iter()
            .filter_map(|(folder, path)| Some((contains(path)?, folder)))
            .max_by_key(|(length, _)| *length);
        let (length, folder) = found.ok_or(ErrorCode::NoEntry)?;
        let rest = parts.get(length..).unwrap_or_default().join("/");
        run(folder, if rest.is_empty() { "." } else { &rest })
    })
}

fn open(path: &str, how: OpenFlags, rights: DescriptorFlags) -> Outcome<Descriptor> {
    within(path, |folder, path| {
        folder.open_at(PathFlags::SYMLINK_FOLLOW, path, how, rights)
    })
}

fn open_to_read(path: &str) -> Outcome<Descriptor> {
    let file = open(path, OpenFlags::empty(), DescriptorFlags::READ)?;
    match file.get_type()? {
        DescriptorType::RegularFile => Ok(file),
        _ => Err(ErrorCode::IsDirectory),
    }
}

fn describe(error: ErrorCode) -> &'static str {
    match error {
        ErrorCode::NoEntry => "there is no such file or folder",
        ErrorCode::NotPermitted | ErrorCode::Access => "the path leads out of the function's files",
        ErrorCode::IsDirectory => "this is a folder",
        ErrorCode::NotDirectory => "a part of the path is not a folder",
        ErrorCode::NotEmpty => "the folder is not empty",
        ErrorCode::InsufficientSpace | ErrorCode::Quota => {
            "there is no space: files count within --memory"
        }
        ErrorCode::FileTooLarge => "the file would be too large",
        ErrorCode::NameTooLong => "the name is too long",
        ErrorCode::ReadOnly => "the file is read-only",
        ErrorCode::Exist => "there is such a file already",
        ErrorCode::Loop => "too many links",
        ErrorCode::BadDescriptor => "the function has no files",
        _ => "the operation failed",
    }
}

fn thrown<T>(ctx: &Ctx<'_>, path: &str, outcome: Outcome<T>) -> Result<T> {
    outcome.map_err(|error| throw(ctx, &format!("{path}: {}", describe(error))))
}

fn kind(of: DescriptorType) -> &'static str {
    match of {
        DescriptorType::RegularFile => "file",
        DescriptorType::Directory => "folder",
        DescriptorType::SymbolicLink => "link",
        _ => "other",
    }
}

/// Calls `take` with the pieces of a file from `offset` on, until it returns false.
fn read(file: &Descriptor, mut offset: u64, mut take: impl FnMut(&[u8]) -> bool) -> Outcome<()> {
    loop {
        let (piece, is_last) = file.read(PIECE, offset)?;
        offset += piece.len() as u64;
        if !take(&piece) || is_last || piece.is_empty() {
            return Ok(());
        }
    }
}

/// Returns a file's content.
pub(crate) fn content(ctx: Ctx<'_>, path: String) -> Result<TypedArray<'_, u8>> {
    let read = open_to_read(&path).and_then(|file| {
        let mut content = Vec::with_capacity(usize::try_from(file.stat()?.size).unwrap_or(0));
        read(&file, 0, |piece| {
            content.extend_from_slice(piece);
            true
        })?;
        Ok(content)
    });
    let content = thrown(&ctx, &path, read)?;
    TypedArray::new(ctx, content)
}

/// Returns a piece of a file's content from `offset` on, which is empty at the end.
pub(crate) fn piece(ctx: Ctx<'_>, path: String, offset: f64) -> Result<TypedArray<'_, u8>> {
    let read = open_to_read(&path).and_then(|file| file.read(PIECE, offset as u64));
    let (piece, _) = thrown(&ctx, &path, read)?;
    TypedArray::new(ctx, piece)
}

/// Returns the kind of a file or folder, and its size in bytes; `None` if it does not exist.
pub(crate) fn stat(ctx: Ctx<'_>, path: String) -> Result<Option<(&'static str, f64)>> {
    let stat = within(&path, |folder, path| {
        folder.stat_at(PathFlags::SYMLINK_FOLLOW, path)
    });
    match stat {
        Ok(stat) => Ok(Some((kind(stat.type_), stat.size as f64))),
        Err(
            ErrorCode::NoEntry
            | ErrorCode::NotDirectory
            | ErrorCode::NotPermitted
            | ErrorCode::NameTooLong
            | ErrorCode::Invalid,
        ) => Ok(None),
        Err(error) => thrown(&ctx, &path, Err(error)),
    }
}

/// Returns a tag that changes with a file's content.
pub(crate) fn tag(ctx: Ctx<'_>, path: String) -> Result<String> {
    let tag = open_to_read(&path).and_then(|file| {
        // Without keys, so that all instances give the same tag.
        let mut hasher = DefaultHasher::new();
        let mut size = 0;
        read(&file, 0, |piece| {
            hasher.write(piece);
            size += piece.len();
            true
        })?;
        Ok(format!("\"{size:x}-{:016x}\"", hasher.finish()))
    });
    thrown(&ctx, &path, tag)
}

/// Returns the names and kinds of what a folder contains.
pub(crate) fn list<'js>(ctx: Ctx<'js>, path: String) -> Result<Vec<Array<'js>>> {
    let entries = open(&path, OpenFlags::DIRECTORY, DescriptorFlags::READ).and_then(|folder| {
        let listing = folder.read_directory()?;
        let mut entries = Vec::new();
        while let Some(entry) = listing.read_directory_entry()? {
            entries.push((entry.name, kind(entry.type_)));
        }
        Ok(entries)
    });
    let mut entries = thrown(&ctx, &path, entries)?;
    entries.sort();
    let entries = entries.into_iter().map(|(name, kind)| {
        let entry = Array::new(ctx.clone())?;
        entry.set(0, name)?;
        entry.set(1, kind)?;
        Ok(entry)
    });
    entries.collect()
}

/// Writes a file, and makes the folders in which it lies.
pub(crate) fn write<'js>(ctx: Ctx<'js>, path: String, content: TypedArray<'js, u8>) -> Result<()> {
    // SAFETY: no JavaScript runs before the bytes are written.
    let content = unsafe { content.as_bytes() }.unwrap_or_default();
    let written = write_all(&path, content);
    thrown(&ctx, &path, written)
}

fn write_all(path: &str, content: &[u8]) -> Outcome<()> {
    let how = OpenFlags::CREATE | OpenFlags::TRUNCATE;
    let file = match open(path, how, DescriptorFlags::WRITE) {
        Err(ErrorCode::NoEntry) => {
            make_folders(path)?;
            open(path, how, DescriptorFlags::WRITE)?
        }
        opened => opened?,
    };
    let mut offset = 0;
    while offset < content.len() {
        let rest = &content[offset..];
        let piece = &rest[..rest.len().min(PIECE as usize)];
        let written = file.write(piece, offset as u64)?;
        if written == 0 {
            return Err(ErrorCode::InsufficientSpace);
        }
        offset += usize::try_from(written).unwrap_or(piece.len());
    }
    Ok(())
}

fn make_folders(path: &str) -> Outcome<()> {
    for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
        let made = within(&path[..at], |folder, path| {
            if path == "." {
                return Ok(());
            }
            folder.create_directory_at(path)
        });
        match made {
            // Above the first open folder nothing can be made, and nothing has to be.
            Ok(()) | Err(ErrorCode::Exist | ErrorCode::NoEntry) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes a file or an empty folder.
pub(crate) fn delete(ctx: Ctx<'_>, path: String) -> Result<()> {
    let deleted = within(&path, |folder, path| match folder.unlink_file_at(path) {
        Err(ErrorCode::IsDirectory) => folder.remove_directory_at(path),
        deleted => deleted,
    });
    thrown(&ctx, &path, deleted)
}
