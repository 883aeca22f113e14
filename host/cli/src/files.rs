//! The files of a function: a folder or an archive that is sent in front of a module.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use faasw::{
    file_fingerprint::FileFingerprint,
    files::{CONTENTS_MAX, ENTRIES_MAX, Files, Kind, is_mount},
};

use faasw_oci::artifact::{FileKind, FilesLimits, read_files};
use rustix::fs::FileType;

use super::{
    exit::Exit,
    output::say,
    preparation::{self, Reading},
    script,
    source_folder::SourceFolder,
};

/// The limits of an archive.
pub const LIMITS: FilesLimits = FilesLimits {
    bytes: CONTENTS_MAX,
    entries: ENTRIES_MAX,
};

/// A folder or an archive, and the path at which the function sees its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    pub folder: PathBuf,
    /// The path; `None` means `/`.
    pub at: Option<String>,
}

/// Parses `DIR` or `DIR:/path`. An archive can take the place of the folder.
pub fn folder(text: &str) -> Result<Folder, String> {
    let (folder, at) = match text.rfind(":/").and_then(|at| text.split_at_checked(at)) {
        Some((folder, at)) => (folder, at.strip_prefix(':').map(ToOwned::to_owned)),
        None => (text, None),
    };
    if folder.is_empty() {
        return Err("it does not name a folder".into());
    }
    if let Some(at) = at.as_ref().filter(|at| !is_mount(at)) {
        return Err(format!(
            "{at} is not valid: use / or an absolute path without a slash at its end, . and .."
        ));
    }
    Ok(Folder {
        folder: folder.into(),
        at,
    })
}

/// Reads an upload from a file or a folder, and puts the function's files in front of it. Prints
/// what the user should know about it.
///
/// # Errors
/// Returns an error if the upload or the files cannot be read or are too large.
pub fn read_upload(path: &Path, entry: Option<&str>, files: Option<&Path>) -> Result<Bytes, Exit> {
    complete(preparation::read(path, entry), files)
}

/// Reads an upload like [`read_upload`], and returns what decides its content, if that is not the
/// path's own files.
///
/// # Errors
/// Returns an error if the upload or the files cannot be read or are too large.
pub fn read_watched(
    path: &Path,
    entry: Option<&str>,
    files: Option<&Path>,
) -> Result<(Bytes, Option<Vec<PathBuf>>), Exit> {
    let mut reading = preparation::read(path, entry);
    let inputs = reading.inputs.take();
    Ok((complete(reading, files)?, inputs))
}

/// Puts the function's files in front of an upload. Prints the notes on it.
///
/// # Errors
/// Returns the error of the reading, or an error if the files cannot be read or are too large.
pub fn complete(reading: Reading, files: Option<&Path>) -> Result<Bytes, Exit> {
    for note in &reading.notes {
        say(note);
    }
    let module = reading.result?;
    match files {
        Some(folder) => prepend_files(folder, &module),
        None => Ok(module),
    }
}

/// Returns a module with all files of a folder in front of it.
///
/// # Errors
/// Returns an error if the files cannot be read or are too large.
pub fn prepend_files(folder: &Path, module: &[u8]) -> Result<Bytes, Exit> {
    let files = read(folder).map_err(|error| unusable_files(folder, &error))?;
    Ok(files.before(module).into())
}

/// Returns the failure that the files of a folder cannot be used.
pub fn unusable_files(folder: &Path, error: &io::Error) -> Exit {
    Exit::failure(format_args!(
        "the files of {} cannot be used: {error}",
        folder.display()
    ))
}

/// Returns the stamps of an upload and its files, which reveal changes. `inputs` are the files and
/// folders that decide the upload, if they are not the path's own.
///
/// # Errors
/// Returns an error if the upload or the files do not exist.
pub fn stamp(
    path: &Path,
    inputs: Option<&[PathBuf]>,
    files: Option<&Path>,
) -> io::Result<Vec<(PathBuf, Option<FileFingerprint>)>> {
    let mut stamps: Vec<(PathBuf, Option<FileFingerprint>)> = match inputs {
        // An input may appear later.
        Some(inputs) => inputs
            .iter()
            .map(|input| (input.clone(), FileFingerprint::of(input).ok()))
            .collect(),
        None => script::stamp(path)?
            .into_iter()
            .map(|(path, stamp)| (path, Some(stamp)))
            .collect(),
    };
    if let Some(archive) = files.filter(|files| files.is_file()) {
        stamps.push((archive.to_owned(), Some(FileFingerprint::of(archive)?)));
    } else if let Some(folder) = files {
        for found in list_entries(&SourceFolder::open(folder)?)? {
            let path = folder.join(&found.path);
            // Links and folders have no stamps: nothing is read from a link's target.
            if found.kind == Kind::File {
                let stamp = FileFingerprint::of(&path)?;
                stamps.push((path, Some(stamp)));
            }
        }
    }
    Ok(stamps)
}

/// An entry of a folder.
struct FolderEntry {
    path: String,
    kind: Kind,
    bytes: u64,
}

/// Lists everything below a folder in order, including hidden files. Links are not followed.
fn list_entries(source: &SourceFolder<'_>) -> io::Result<Vec<FolderEntry>> {
    let mut all = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in source.entries(&folder)? {
            let path = match folder.as_str() {
                "" => entry.name,
                folder => format!("{folder}/{}", entry.name),
            };
            let kind = match entry.kind {
                FileType::Symlink => Kind::Link,
                FileType::Directory => {
                    folders.push(path.clone());
                    Kind::Folder
                }
                FileType::RegularFile => Kind::File,
                _ => {
                    let what = format!("{path:?} is neither a file nor a folder nor a link");
                    return Err(io::Error::other(what));
                }
            };
            all.push(FolderEntry {
                path,
                kind,
                bytes: entry.bytes,
            });
            if all.len() > ENTRIES_MAX {
                let many = format!("there are more than {ENTRIES_MAX} files, folders and links");
                return Err(io::Error::other(many));
            }
        }
    }
    all.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(all)
}

/// Reads a folder or an archive for an upload. The upload's packer checks paths and links.
fn read(folder: &Path) -> io::Result<Files> {
    let mut files = Files::default();
    for_each_entry(folder, |kind, path, content| files.add(kind, path, content))?;
    Ok(files)
}

/// Passes on all entries of a folder or an archive in order: kind, path within it, and content. The
/// content of a link is its target.
///
/// # Errors
/// Returns an error if an entry cannot be read or the contents exceed the limits.
pub fn for_each_entry(folder: &Path, to: impl FnMut(Kind, &str, &[u8])) -> io::Result<()> {
    if folder.is_file() {
        for_each_in_archive(folder, to)
    } else {
        for_each_in_folder(&SourceFolder::open(folder)?, to)
    }
}

fn for_each_in_folder(
    source: &SourceFolder<'_>,
    mut to: impl FnMut(Kind, &str, &[u8]),
) -> io::Result<()> {
    let too_much = |bytes: u64| {
        io::Error::other(format!(
            "they have {} MiB; the limit is {} MiB",
            bytes.div_ceil(1 << 20),
            CONTENTS_MAX >> 20
        ))
    };
    let all = list_entries(source)?;
    // The size is checked before anything is read, because it may exceed the memory.
    let files = all.iter().filter(|found| found.kind == Kind::File);
    let bytes: u64 = files.map(|found| found.bytes).sum();
    if bytes > CONTENTS_MAX {
        return Err(too_much(bytes));
    }
    // A file may have grown since it was listed.
    let mut left = CONTENTS_MAX;
    for FolderEntry { path, kind, .. } in all {
        let failed = |error: io::Error| io::Error::other(format!("{path}: {error}"));
        match kind {
            Kind::Folder => to(kind, &path, b""),
            Kind::File => {
                let content = source.read(&path, left).map_err(failed)?;
                left = left.saturating_sub(content.len() as u64);
                to(kind, &path, &content);
            }
            Kind::Link => to(kind, &path, &source.read_link(&path).map_err(failed)?),
        }
    }
    Ok(())
}

/// Passes on all entries of an archive, which is never unpacked to a folder.
fn for_each_in_archive(path: &Path, mut to: impl FnMut(Kind, &str, &[u8])) -> io::Result<()> {
    let read = read_files(File::open(path)?, LIMITS, |entry| {
        to(kind_of(entry.kind), entry.path, entry.content);
    });
    read.map_err(io::Error::other)
}

/// Converts the kind of an archive's entry to that of an upload.
pub fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::File => Kind::File,
        FileKind::Folder => Kind::Folder,
        FileKind::Link => Kind::Link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_oci::artifact::{FilesEntry, write_files};
    use std::{
        cell::Cell,
        fs,
        os::unix::{fs::symlink, net::UnixListener},
    };

    #[test]
    fn a_folder_argument_has_a_mount_path() {
        let said = |text: &str| folder(text).map(|said| (said.folder, said.at));
        assert_eq!(said("site"), Ok(("site".into(), None)));
        assert_eq!(said("a:b"), Ok(("a:b".into(), None)));
        let at = Some("/usr/lib".to_owned());
        assert_eq!(said("C:/x:/usr/lib"), Ok(("C:/x".into(), at)));
        assert_eq!(said("./lib:/"), Ok(("./lib".into(), Some("/".into()))));
        for wrong in ["", ":/x", "x:/a/", "x:/a/../b"] {
            assert!(folder(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_folder_is_packed_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("lib/empty")).unwrap();
        fs::write(at("lib/a.py"), "a").unwrap();
        fs::write(at(".hidden"), "h").unwrap();
        symlink("/etc", at("out")).unwrap();
        symlink("lib/a.py", at("a")).unwrap();
        let paths = |all: &[FolderEntry]| -> Vec<String> {
            all.iter().map(|found| found.path.clone()).collect()
        };
        let all = list_entries(&SourceFolder::open(folder.path()).unwrap()).unwrap();
        assert_eq!(
            paths(&all),
            [".hidden", "a", "lib", "lib/a.py", "lib/empty", "out"]
        );
        let module = at("f.wasm");
        fs::write(&module, b"\0asm").unwrap();
        let before = stamp(&module, None, Some(&at("lib"))).unwrap();
        fs::write(at("lib/new"), "").unwrap();
        assert_ne!(stamp(&module, None, Some(&at("lib"))).unwrap(), before);
        let upload = read_upload(&module, None, Some(&at("lib"))).unwrap();
        assert!(upload.ends_with(b"\0asm") && upload.len() > 4);
        assert_eq!(read_upload(&module, None, None).unwrap(), &b"\0asm"[..]);
    }

    #[test]
    fn a_file_that_becomes_a_link_after_the_listing_is_not_packed() {
        let scene = tempfile::tempdir().unwrap();
        let at = |path: &str| scene.path().join(path);
        fs::create_dir(at("packed")).unwrap();
        fs::write(at("packed/a"), "first").unwrap();
        fs::write(at("packed/b"), "harmless").unwrap();
        fs::write(at("secret"), "of root").unwrap();
        let opened = Cell::new(0);
        // The folder has been listed at this point.
        let replace = |path: &str| {
            opened.set(opened.get() + 1);
            if path == "a" {
                fs::remove_file(at("packed/b")).unwrap();
                symlink("../secret", at("packed/b")).unwrap();
            }
        };
        let source = SourceFolder::open(&at("packed"))
            .unwrap()
            .with_open_hook(&replace);
        let mut packed = Vec::new();
        let result = for_each_in_folder(&source, |_, path, content| {
            packed.push((path.to_owned(), content.to_owned()));
        });
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("b: it was replaced by a link"), "{error}");
        assert_eq!(packed, [("a".to_owned(), b"first".to_vec())]);
        assert_eq!(opened.get(), 2);
        // An entry that was a link when it was listed is packed as a link.
        let mut packed = Vec::new();
        for_each_entry(&at("packed"), |kind, path, content| {
            packed.push((kind, path.to_owned(), content.to_owned()));
        })
        .unwrap();
        let link = (Kind::Link, "b".to_owned(), b"../secret".to_vec());
        assert_eq!(packed[1], link);
    }

    #[test]
    fn an_archive_equals_the_folder_it_was_made_of() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("lib/empty")).unwrap();
        fs::write(at("lib/a.py"), "a").unwrap();
        symlink("a.py", at("lib/b.py")).unwrap();
        let module = at("f.wasm");
        fs::write(&module, b"\0asm").unwrap();
        let mut entries = Vec::new();
        for_each_entry(&at("lib"), |kind, path, content| {
            entries.push((kind, path.to_owned(), content.to_owned()));
        })
        .unwrap();
        let packed = write_files(entries.iter().map(|(kind, path, content)| FilesEntry {
            kind: match kind {
                Kind::File => FileKind::File,
                Kind::Folder => FileKind::Folder,
                _ => FileKind::Link,
            },
            path,
            content,
        }));
        let archive = at("lib.tar.gz");
        fs::write(&archive, packed.unwrap()).unwrap();
        let upload = |files: &str| read_upload(&module, None, Some(&at(files)));
        assert_eq!(upload("lib.tar.gz").unwrap(), upload("lib").unwrap());
        let before = stamp(&module, None, Some(&archive)).unwrap();
        fs::write(&archive, "no archive").unwrap();
        assert_ne!(stamp(&module, None, Some(&archive)).unwrap(), before);
        let refused = upload("lib.tar.gz").unwrap_err().to_string();
        assert!(refused.contains("lib.tar.gz"), "{refused}");
    }

    #[test]
    fn entries_that_are_no_files_are_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let _socket = UnixListener::bind(folder.path().join("socket")).unwrap();
        let refused = read_upload(Path::new("Cargo.toml"), None, Some(folder.path()));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("\"socket\" is neither"), "{refused}");
        let nowhere = read_upload(Path::new("Cargo.toml"), None, Some(Path::new("nowhere")));
        assert!(nowhere.unwrap_err().to_string().contains("nowhere"));
    }
}
