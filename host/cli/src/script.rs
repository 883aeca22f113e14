//! Reads an upload: a module, or a script from a file or the files of a folder.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;
use faasw::{
    Extension, FunctionName,
    file_fingerprint::FileFingerprint,
    script::{self, FILES_MAX, SCRIPT_MAX},
};

use rustix::fs::FileType;

use super::{
    exit::Exit,
    output::{read_module, say},
    script_contents::{self, LeftOut},
    source_folder::SourceFolder,
};

/// Names of files with which a script starts by default.
const ENTRIES: [&str; 4] = ["handler", "index", "main", "app"];

/// Maximum depth of folders.
const DEPTH_MAX: usize = 64;

/// Reads an upload from a file or a folder.
///
/// # Errors
/// Returns an error if the path cannot be read or is not a script, or if `entry` is `Some` and the
/// path is a file.
pub fn read_upload(path: &Path, entry: Option<&str>) -> Result<Bytes, Exit> {
    if path.is_dir() {
        return read_folder(path, entry);
    }
    if entry.is_some() {
        return Err(Exit::usage("--entry needs a folder"));
    }
    let content = read_module(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_module(&name, &content) {
        return Ok(content);
    }
    bundle(&[(&*name, &content[..])])
}

/// Returns whether a file looks like WebAssembly. A file that is neither WebAssembly nor a script
/// counts as well, because the compile helper rejects it.
fn is_module(name: &str, content: &[u8]) -> bool {
    content.starts_with(b"\0asm")
        || script::is_script(content)
        || is_module_text(content)
        || Extension::of_path(name).is_none()
}

/// Returns whether a text starts like the text form of WebAssembly, after comments.
fn is_module_text(mut text: &[u8]) -> bool {
    loop {
        text = text.trim_ascii_start();
        let end: &[u8] = match text {
            [b';', b';', ..] => b"\n",
            [b'(', b';', ..] => b";)",
            _ => return text.starts_with(b"(module") || text.starts_with(b"(component"),
        };
        let Some(at) = text.windows(end.len()).position(|part| part == end) else {
            return false;
        };
        text = text.get(at + end.len()..).unwrap_or_default();
    }
}

/// Returns the given name of a function, or the one that its file or folder suggests.
///
/// # Errors
/// Returns a usage error if there is no name and the path suggests no valid one.
pub fn name_of(given: Option<FunctionName>, path: &Path) -> Result<FunctionName, Exit> {
    if let Some(name) = given {
        return Ok(name);
    }
    let suggested = match fs::canonicalize(path) {
        // A path such as `.` stands for the folder's real name.
        Ok(real) if real.is_dir() => FunctionName::from_file(&real),
        _ => FunctionName::from_file(path),
    };
    suggested.map_err(|error| Exit::usage(error).hint("set one with --name"))
}

/// Returns the path of the file with which a folder's script starts by default. Only the files at
/// the top of the folder are listed; `package.json` can name another one.
///
/// # Errors
/// Returns an error if the folder cannot be read or has no such file.
pub fn default_entry(folder: &Path) -> Result<String, Exit> {
    let unreadable = |error: io::Error| Exit::unreadable(folder, error);
    let source = SourceFolder::open(folder).map_err(unreadable)?;
    let files_at = |at: &str| -> io::Result<Vec<String>> {
        let entries = source.entries(at)?.into_iter();
        let files = entries.filter(|entry| entry.kind != FileType::Directory);
        Ok(files.map(|entry| entry.name).collect())
    };
    let top = files_at("").map_err(unreadable)?;
    let names: Vec<&str> = top.iter().map(String::as_str).collect();
    let why = match entry_of(&names, None) {
        Ok(first) => {
            return Ok(names
                .get(first)
                .map_or_else(String::new, ToString::to_string));
        }
        Err(why) => why,
    };
    if let Some(main) = main_of_package(&source) {
        return Ok(main);
    }
    let below = files_at("src").unwrap_or_default();
    let names: Vec<&str> = below.iter().map(String::as_str).collect();
    match entry_of(&names, None)
        .ok()
        .and_then(|first| names.get(first))
    {
        Some(first) if names_package(&source) => Ok(format!("src/{first}")),
        _ => Err(Exit::usage(format_args!("{}: {why}", folder.display()))),
    }
}

/// The file that describes a package of npm.
const PACKAGE: &str = "package.json";

/// Maximum bytes of that file.
const PACKAGE_MAX: u64 = 1 << 20;

fn names_package(source: &SourceFolder<'_>) -> bool {
    source.path().join(PACKAGE).is_file()
}

/// Returns the file that a folder's `package.json` names as its main module, if there is one.
fn main_of_package(source: &SourceFolder<'_>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Package {
        module: Option<String>,
        main: Option<String>,
    }
    let content = source.read(PACKAGE, PACKAGE_MAX).ok()?;
    let package: Package = serde_json::from_slice(&content).ok()?;
    let root = fs::canonicalize(source.path()).ok()?;
    // The author of the folder may have no right to read files outside of it.
    let is_within = |path: &str| {
        let mut parts = Path::new(path).components();
        let is_plain = parts.all(|part| matches!(part, Component::Normal(_)));
        let real = fs::canonicalize(root.join(path));
        is_plain && real.is_ok_and(|real| real.starts_with(&root) && real.is_file())
    };
    let candidates = [package.module, package.main].into_iter().flatten();
    candidates
        .map(|path| path.trim_start_matches("./").to_owned())
        .find(|path| is_within(path))
}

fn bundle(files: &[script::File<'_>]) -> Result<Bytes, Exit> {
    let script = script::write(files).map_err(Exit::failure)?;
    Ok(script.into())
}

fn read_folder(folder: &Path, entry: Option<&str>) -> Result<Bytes, Exit> {
    let source = SourceFolder::open(folder).map_err(|error| Exit::unreadable(folder, error))?;
    read_source(&source, entry)
}

fn read_source(source: &SourceFolder<'_>, entry: Option<&str>) -> Result<Bytes, Exit> {
    let folder = source.path();
    let mut files = Vec::new();
    let mut left = SCRIPT_MAX as u64;
    let mut left_out = LeftOut::default();
    let found = files_of(source, &mut left_out);
    let found = found.map_err(|error| Exit::unreadable(folder, error))?;
    if let Some(line) = left_out.describe(folder) {
        say(line);
    }
    // The sizes are checked before the files are read, because they may exceed the memory.
    let sizes = found.iter().map(|file| (file.path.as_str(), file.bytes));
    script_contents::check_size(folder, sizes)?;
    for ScriptFile { path, real, .. } in found {
        let content = source
            .read(&real, left)
            .map_err(|error| Exit::unreadable(&folder.join(&path), error))?;
        left = left.saturating_sub(content.len() as u64);
        files.push((path, content));
    }
    let names: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let first = entry_of(&names, entry)
        .map_err(|why| Exit::usage(format_args!("{}: {why}", folder.display())))?;
    let first = files.remove(first);
    files.insert(0, first);
    let files: Vec<script::File<'_>> = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()))
        .collect();
    bundle(&files)
}

/// Returns the index of the file with which a folder's script starts.
fn entry_of(names: &[&str], wanted: Option<&str>) -> Result<usize, String> {
    if let Some(wanted) = wanted {
        let found = names.iter().position(|name| *name == wanted);
        return found.ok_or_else(|| format!("it has no file {wanted:?}"));
    }
    for entry in ENTRIES {
        let is_it = |name: &&str| {
            let (stem, rest) = name.split_once('.').unwrap_or((name, ""));
            stem == entry
                && Extension::of_path(name).is_some()
                && !is_data(name)
                && !is_beside_source(rest)
        };
        let found: Vec<usize> = (0..names.len())
            .filter(|index| names.get(*index).is_some_and(is_it))
            .collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(*one),
            _ => {
                return Err(format!(
                    "several files could be the entry: choose one with --entry {entry}"
                ));
            }
        }
    }
    Err(format!(
        "it has no file named {}: choose the entry file with --entry",
        ENTRIES.join(", ")
    ))
}

/// Returns whether a file is data that often has the same name as a script.
fn is_data(name: &str) -> bool {
    let data = [
        "json", "txt", "md", "toml", "yaml", "yml", "html", "css", "map",
    ];
    Extension::of_path(name).is_some_and(|extension| data.contains(&extension.as_str()))
}

/// Returns whether the rest of a file's name, after its stem, is that of a test or of types.
fn is_beside_source(rest: &str) -> bool {
    ["d.", "spec.", "test."]
        .iter()
        .any(|kind| rest.starts_with(kind))
}

/// A file of a script's folder.
struct ScriptFile {
    /// The path within the folder, with `/` between the parts.
    path: String,
    /// The path without links: another one if the file is a link.
    real: String,
    /// The size in bytes when the folder was listed.
    bytes: u64,
}

/// Lists all files below a folder in order, except those whose names start with a dot, and those
/// that it adds to `left_out`.
fn files_of(source: &SourceFolder<'_>, left_out: &mut LeftOut) -> io::Result<Vec<ScriptFile>> {
    let mut found = Vec::new();
    let root = fs::canonicalize(source.path())?;
    let mut folders = vec![(String::new(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in source.entries(&folder)? {
            let name = &entry.name;
            if name.starts_with('.') {
                continue;
            }
            let path = match folder.as_str() {
                "" => name.clone(),
                folder => format!("{folder}/{name}"),
            };
            if left_out.takes(&path, entry.kind) {
                continue;
            }
            match entry.kind {
                FileType::Symlink => found.extend(resolve_link(source, &root, path)?),
                FileType::Directory if depth == DEPTH_MAX => {
                    let deep = format!("{path} is nested more than {DEPTH_MAX} folders deep");
                    return Err(io::Error::other(deep));
                }
                FileType::Directory => folders.push((path, depth + 1)),
                FileType::RegularFile => found.push(ScriptFile {
                    real: path.clone(),
                    path,
                    bytes: entry.bytes,
                }),
                _ => {}
            }
            if found.len() > FILES_MAX {
                let many = format!("it has more than {FILES_MAX} files");
                return Err(io::Error::other(many));
            }
        }
    }
    found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Returns the file to which a link leads. It is read later by its own path beneath the folder,
/// without following any link. Returns `None` for a link to a folder, because such a link may lead
/// in a circle.
///
/// # Errors
/// Returns an error if the link leads nowhere or out of the folder, because the folder's author may
/// have no right to read its target.
fn resolve_link(
    source: &SourceFolder<'_>,
    root: &Path,
    path: String,
) -> io::Result<Option<ScriptFile>> {
    let target = fs::canonicalize(source.path().join(&path))
        .map_err(|error| io::Error::other(format!("the link {path}: {error}")))?;
    let Ok(real) = target.strip_prefix(root) else {
        let leads = format!("the link {path} points outside of it");
        return Err(io::Error::other(leads));
    };
    let status = fs::symlink_metadata(&target)?;
    if !status.is_file() {
        return Ok(None);
    }
    let Some(real) = real.to_str() else {
        return Err(io::Error::other(format!("{target:?} is not UTF-8")));
    };
    Ok(Some(ScriptFile {
        real: real.to_owned(),
        path,
        bytes: status.len(),
    }))
}

/// Returns the stamps of a file or of a folder's files, which reveal changes.
///
/// # Errors
/// Returns an error if the path does not exist.
pub fn stamp(path: &Path) -> io::Result<Vec<(PathBuf, FileFingerprint)>> {
    let files = if path.is_dir() {
        let files = files_of(&SourceFolder::open(path)?, &mut LeftOut::default())?;
        files.iter().map(|file| path.join(&file.path)).collect()
    } else {
        vec![path.to_owned()]
    };
    let stamp = |file: PathBuf| Ok((file.clone(), FileFingerprint::of(&file)?));
    files.into_iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_and_extension_tell_modules_from_scripts() {
        for (name, content) in [
            ("a.wasm", &b"\0asm"[..]),
            ("a.lua", b"\0asm"),
            ("a.wat", b"(module)"),
            ("a.txt", b"\n (component)"),
            ("a", b"return 1"),
            ("a.wat", b"not yet"),
            ("a.wast", b"not yet"),
            ("a.txt", b";; one\n (; two ;)\n(module)"),
        ] {
            assert!(is_module(name, content), "{name}");
        }
        assert!(!is_module("a.lua", b"return 1"));
        assert!(!is_module("A.LUA", b";; (module"));
    }

    #[test]
    fn the_entry_of_a_folder_is_the_named_or_a_default_file() {
        let names = [
            "a.lua",
            "handler.json",
            "index.lua",
            "lib/handler.lua",
            "main.lua",
        ];
        assert_eq!(entry_of(&names, None), Ok(2));
        assert_eq!(entry_of(&names, Some("main.lua")), Ok(4));
        assert!(entry_of(&names, Some("main")).is_err());
        assert!(entry_of(&["a.lua"], None).unwrap_err().contains("--entry"));
        let names = ["app.test.ts", "app.d.ts", "app.ts"];
        assert_eq!(entry_of(&names, None), Ok(2));
        let two = entry_of(&["app.lua", "app.js"], None);
        assert!(two.unwrap_err().contains("several"));
    }

    #[test]
    fn hidden_files_and_links_to_folders_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("lib/.git")).unwrap();
        fs::create_dir(at("__pycache__")).unwrap();
        for file in [
            "handler.lua",
            ".env",
            "lib/ü.lua",
            "lib/.git/x",
            "__pycache__/y",
        ] {
            fs::write(at(file), file).unwrap();
        }
        std::os::unix::fs::symlink("..", at("lib/up")).unwrap();
        std::os::unix::fs::symlink("handler.lua", at("again.lua")).unwrap();
        let files = files_of(
            &SourceFolder::open(folder.path()).unwrap(),
            &mut LeftOut::default(),
        )
        .unwrap();
        let paths = files.iter().map(|file| (&*file.path, &*file.real));
        let expected = [
            ("again.lua", "handler.lua"),
            ("handler.lua", "handler.lua"),
            ("lib/ü.lua", "lib/ü.lua"),
        ];
        assert_eq!(paths.collect::<Vec<_>>(), expected);
        let bundle = read_upload(folder.path(), None).unwrap();
        let files = script::read(&bundle).unwrap();
        assert_eq!(files[0], ("handler.lua", &b"handler.lua"[..]));
        std::os::unix::fs::symlink("/etc/hostname", at("lib/secret")).unwrap();
        let refused = read_upload(folder.path(), None).unwrap_err().to_string();
        assert!(
            refused.contains("the link lib/secret points outside"),
            "{refused}"
        );
        fs::remove_file(at("lib/secret")).unwrap();
        let before = stamp(folder.path()).unwrap();
        fs::write(at("lib/new.lua"), "").unwrap();
        assert_ne!(stamp(folder.path()).unwrap(), before);
    }

    #[test]
    fn the_main_module_of_a_package_lies_in_its_folder() {
        let scene = tempfile::tempdir().unwrap();
        let at = |path: &str| scene.path().join(path);
        fs::create_dir_all(at("script/lib")).unwrap();
        for file in ["secret.js", "script/lib/x.js"] {
            fs::write(at(file), "").unwrap();
        }
        std::os::unix::fs::symlink("../secret.js", at("script/link.js")).unwrap();
        let absolute = at("script/lib/x.js").display().to_string();
        for (main, is_found) in [
            ("./lib/x.js", true),
            ("lib/x.js", true),
            ("../secret.js", false),
            ("lib/../../secret.js", false),
            ("link.js", false),
            ("lib", false),
            (absolute.as_str(), false),
        ] {
            let package = format!("{{ \"main\": {main:?} }}");
            fs::write(at("script/package.json"), package).unwrap();
            assert_eq!(default_entry(&at("script")).is_ok(), is_found, "{main}");
        }
    }

    #[test]
    fn a_file_that_becomes_a_link_after_the_listing_is_rejected() {
        let scene = tempfile::tempdir().unwrap();
        let at = |path: &str| scene.path().join(path);
        fs::create_dir_all(at("script/lib")).unwrap();
        fs::write(at("script/handler.lua"), "handler").unwrap();
        fs::write(at("script/lib/x.lua"), "harmless").unwrap();
        fs::write(at("secret"), "of root").unwrap();
        // A link within the folder is followed to its target at the time of the listing.
        std::os::unix::fs::symlink("lib/x.lua", at("script/again.lua")).unwrap();
        let read = |replaced: &'static str| {
            let replace = |path: &str| {
                // The listing is complete when the first file is opened, which is the link's
                // target.
                if path == "lib/x.lua" {
                    let _ = fs::remove_file(at(replaced));
                    std::os::unix::fs::symlink(at("secret"), at(replaced)).unwrap();
                }
            };
            let source = SourceFolder::open(&at("script")).unwrap();
            read_source(&source.with_open_hook(&replace), None)
        };
        // A file that appears after the listing is not part of the script.
        let bundle = read("script/later.lua").unwrap();
        assert_eq!(script::read(&bundle).unwrap().len(), 3);
        fs::remove_file(at("script/later.lua")).unwrap();
        let refused = read("script/lib/x.lua").unwrap_err().to_string();
        assert!(refused.contains("again.lua cannot be read"), "{refused}");
        assert!(refused.contains("was replaced by a link"), "{refused}");
    }
}
