//! Reading what is to be deployed: a module, or a script of a file or of a folder's files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use faasw::{
    Extension, FunctionName, NameError,
    script::{self, FILES_MAX, SCRIPT_MAX},
    stamp::Stamp,
};

use super::{exit::Exit, output::read_module};

/// How files are called that a script begins with, unless another is named.
const ENTRIES: [&str; 4] = ["handler", "index", "main", "app"];

/// Folders that hold nothing of a script.
const LEFT_OUT: [&str; 1] = ["__pycache__"];

/// How deep folders are looked into.
const DEPTH_MAX: usize = 64;

/// What is to be deployed of a file or a folder.
///
/// # Errors
/// When it cannot be read, or is no script, or a module cannot begin with an `entry`.
pub fn read_upload(path: &Path, entry: Option<&str>) -> Result<Bytes, Exit> {
    if path.is_dir() {
        return read_folder(path, entry);
    }
    if entry.is_some() {
        return Err(Exit::usage("--entry is for a folder"));
    }
    let content = read_module(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_module(&name, &content) {
        return Ok(content);
    }
    bundle(&[(&*name, &content[..])])
}

/// Whether a file is WebAssembly, as it looks; what is neither that nor a script is for the
/// compile helper to refuse.
fn is_module(name: &str, content: &[u8]) -> bool {
    content.starts_with(b"\0asm")
        || script::is_script(content)
        || is_module_text(content)
        || Extension::of_path(name).is_none()
}

/// Whether this is the text form of WebAssembly, as it begins: behind comments.
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

/// The name that a file or a folder suggests for its function.
///
/// # Errors
/// When it suggests none.
pub fn name_of(path: &Path) -> Result<FunctionName, NameError> {
    match fs::canonicalize(path) {
        // Such as `.`: the folder's own name counts.
        Ok(real) if real.is_dir() => FunctionName::from_file(&real),
        _ => FunctionName::from_file(path),
    }
}

fn bundle(files: &[script::File<'_>]) -> Result<Bytes, Exit> {
    let script = script::write(files).map_err(Exit::failure)?;
    Ok(script.into())
}

fn read_folder(folder: &Path, entry: Option<&str>) -> Result<Bytes, Exit> {
    let failed = |error: io::Error| {
        Exit::failure(format_args!("{} cannot be read: {error}", folder.display()))
    };
    let mut files = Vec::new();
    let mut size = 0;
    for path in files_of(folder).map_err(failed)? {
        let file = folder.join(&path);
        let failed = |error: io::Error| {
            Exit::failure(format_args!("{} cannot be read: {error}", file.display()))
        };
        // Before it is read: it may be larger than memory.
        size += fs::metadata(&file).map_err(failed)?.len();
        if size > SCRIPT_MAX as u64 {
            return Err(Exit::failure(format_args!(
                "the files of {} have more than {SCRIPT_MAX} bytes together",
                folder.display()
            )));
        }
        let content = fs::read(&file).map_err(failed)?;
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

/// Which of a folder's files its script begins with.
fn entry_of(names: &[&str], wanted: Option<&str>) -> Result<usize, String> {
    if let Some(wanted) = wanted {
        let found = names.iter().position(|name| *name == wanted);
        return found.ok_or_else(|| format!("it has no file {wanted:?}"));
    }
    for entry in ENTRIES {
        let is_it = |name: &&str| {
            let (stem, _) = name.split_once('.').unwrap_or((name, ""));
            stem == entry && Extension::of_path(name).is_some() && !is_data(name)
        };
        let found: Vec<usize> = (0..names.len())
            .filter(|index| names.get(*index).is_some_and(is_it))
            .collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(*one),
            _ => {
                return Err(format!(
                    "several files could begin: --entry says which {entry}"
                ));
            }
        }
    }
    Err(format!(
        "no file of it is called {}: --entry names the one to begin with",
        ENTRIES.join(", ")
    ))
}

/// Files beside scripts that are often called like them.
fn is_data(name: &str) -> bool {
    let data = [
        "json", "txt", "md", "toml", "yaml", "yml", "html", "css", "map",
    ];
    Extension::of_path(name).is_some_and(|extension| data.contains(&extension.as_str()))
}

/// Paths of all files below a folder, with `/` between their parts, in order; without those
/// whose names begin with a dot.
fn files_of(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let root = fs::canonicalize(folder)?;
    let mut folders = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((folder, within, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                let path = entry.path();
                return Err(io::Error::other(format!("{path:?} is not UTF-8")));
            };
            if name.starts_with('.') || LEFT_OUT.contains(&name) {
                continue;
            }
            let path = format!("{within}{name}");
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                // Whoever made the folder is not to be given what is elsewhere.
                let target = fs::canonicalize(entry.path())
                    .map_err(|error| io::Error::other(format!("the link {path}: {error}")))?;
                if !target.starts_with(&root) {
                    let leads = format!("the link {path} leads out of it");
                    return Err(io::Error::other(leads));
                }
                // One to a folder may lead back to where it is.
                if target.is_file() {
                    found.push(path);
                }
            } else if kind.is_dir() {
                if depth == DEPTH_MAX {
                    let deep = format!("{path} is below more than {DEPTH_MAX} folders");
                    return Err(io::Error::other(deep));
                }
                folders.push((entry.path(), format!("{path}/"), depth + 1));
            } else if kind.is_file() {
                found.push(path);
            }
            if found.len() > FILES_MAX {
                let many = format!("it has more than {FILES_MAX} files");
                return Err(io::Error::other(many));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// What tells that something of a file or a folder has changed.
///
/// # Errors
/// When it is not there.
pub fn stamp(path: &Path) -> io::Result<Vec<(PathBuf, Stamp)>> {
    let files = match path.is_dir() {
        true => files_of(path)?.iter().map(|file| path.join(file)).collect(),
        false => vec![path.to_owned()],
    };
    let stamp = |file: PathBuf| Ok((file.clone(), Stamp::of(&file)?));
    files.into_iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_module_or_a_script_by_what_it_looks_like() {
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
    fn a_folder_begins_with_what_is_named_or_what_is_called_so() {
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
        let files = files_of(folder.path()).unwrap();
        assert_eq!(files, ["again.lua", "handler.lua", "lib/ü.lua"]);
        let bundle = read_upload(folder.path(), None).unwrap();
        let files = script::read(&bundle).unwrap();
        assert_eq!(files[0], ("handler.lua", &b"handler.lua"[..]));
        std::os::unix::fs::symlink("/etc/hostname", at("lib/secret")).unwrap();
        let refused = read_upload(folder.path(), None).unwrap_err().to_string();
        assert!(
            refused.contains("the link lib/secret leads out"),
            "{refused}"
        );
        fs::remove_file(at("lib/secret")).unwrap();
        let before = stamp(folder.path()).unwrap();
        fs::write(at("lib/new.lua"), "").unwrap();
        assert_ne!(stamp(folder.path()).unwrap(), before);
    }
}
