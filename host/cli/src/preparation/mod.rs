//! Reads scripts that need more than their files: TypeScript and packages of npm, a
//! `requirements.txt`, and an application that the command line names.
//!
//! [`read`] decides what a script needs. Foreign code is parsed in a process of its own
//! ([`process`], [`worker`]). A serving node reads changed scripts by another process
//! ([`reader`]).

mod process;
mod reader;
mod requirement_lines;
mod requirements;
mod worker;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use faasw::script as bundle;
use faasw_scripts::{MODULE_EXTENSIONS, PREPARED_EXTENSIONS};

pub use reader::{ScriptReader, run as run_reader};
pub use worker::run as run_worker;

use crate::{exit::Exit, script, script_contents};

/// The file of a bundle that names the application in the first file.
const OBJECT: &str = ".faasw/entry";

/// The result of reading a script from disk.
#[derive(Debug)]
pub struct Reading {
    /// The upload.
    pub result: Result<Bytes, Exit>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
    /// The files and folders whose change can change the upload. `None` if they are the script's.
    pub inputs: Option<Vec<PathBuf>>,
}

impl Reading {
    /// Returns the reading of a script that cannot be read.
    pub fn failed(exit: Exit) -> Self {
        Self::plain(Err(exit))
    }

    /// Returns the reading of a path whose own files decide it.
    pub fn plain(result: Result<Bytes, Exit>) -> Self {
        Self {
            result,
            notes: Vec::new(),
            inputs: None,
        }
    }
}

/// Returns whether `--entry` concerns this path, when it is set for several.
pub fn takes_entry(path: &Path, entry: &str) -> bool {
    let is_python = path.extension().is_some_and(|extension| extension == "py");
    path.is_dir() || (is_python && entry.contains(':'))
}

/// Reads an upload from a file or a folder.
pub fn read(path: &Path, entry: Option<&str>) -> Reading {
    let entry = match Entry::parse(path, entry) {
        Ok(entry) => entry,
        Err(exit) => return Reading::failed(exit),
    };
    let file = entry.file.as_deref();
    let first = match first_file(path, file) {
        Ok(Some(first)) => first,
        // The error of reading it says why.
        Ok(None) => return Reading::plain(script::read_upload(path, file)),
        Err(exit) => return Reading::failed(exit),
    };
    if needs_preparation(path, &first) {
        return read_modules(path, file, &first);
    }
    let extension = first.extension().and_then(|extension| extension.to_str());
    if extension == Some("py") {
        return read_python(path, &entry, &first);
    }
    Reading::plain(script::read_upload(path, file))
}

fn read_modules(path: &Path, entry: Option<&str>, first: &Path) -> Reading {
    let (report, bundle) = match process::prepare(first, path.is_dir().then_some(path)) {
        Ok(prepared) => prepared,
        Err(exit) => return Reading::failed(exit),
    };
    if report.is_plain {
        return Reading::plain(script::read_upload(path, entry));
    }
    let result = match report.error {
        None => Ok(bundle),
        Some(error) => Err(Exit::failure(error)),
    };
    let inputs: Vec<PathBuf> = report.inputs.into_iter().map(PathBuf::from).collect();
    Reading {
        result,
        notes: report.warnings,
        // A process that failed early knows none.
        inputs: (!inputs.is_empty()).then_some(inputs),
    }
}

fn read_python(path: &Path, entry: &Entry, first: &Path) -> Reading {
    let folder = if path.is_dir() {
        path
    } else {
        path.parent().unwrap_or(path)
    };
    let file = folder.join(requirements::FILE);
    let mut packages = Vec::new();
    let mut notes = Vec::new();
    let mut inputs = None;
    if file.is_file() {
        let mut included = Vec::new();
        let found = requirements::packages(&file, &mut included);
        inputs = if !path.is_dir() {
            Some([vec![first.to_owned(), file], included].concat())
        } else if included.iter().all(|file| file.starts_with(path)) {
            // The folder's files include these.
            None
        } else {
            inputs_of_folder(path, included)
        };
        match found {
            Ok(found) => {
                packages = found.files;
                notes.extend(found.note);
            }
            Err(exit) => {
                return Reading {
                    result: Err(exit),
                    notes,
                    inputs,
                };
            }
        }
    }
    Reading {
        result: script::read_upload(path, entry.file.as_deref())
            .and_then(|upload| add(path, &upload, entry.object.as_deref(), packages)),
        notes,
        inputs,
    }
}

/// Returns the files of a folder and their folders, whose change reveals new files, and `more`.
/// Returns `None` if the folder cannot be read.
fn inputs_of_folder(folder: &Path, more: Vec<PathBuf>) -> Option<Vec<PathBuf>> {
    let files = script::stamp(folder).ok()?;
    let mut inputs = vec![folder.to_owned()];
    for (file, _) in files {
        inputs.extend(file.parent().map(Path::to_owned));
        inputs.push(file);
    }
    inputs.extend(more);
    inputs.sort_unstable();
    inputs.dedup();
    Some(inputs)
}

/// Adds the application's name and packages to a bundle. The script's own files take precedence.
fn add(
    path: &Path,
    upload: &Bytes,
    object: Option<&str>,
    packages: Vec<(String, Vec<u8>)>,
) -> Result<Bytes, Exit> {
    if object.is_none() && packages.is_empty() {
        return Ok(upload.clone());
    }
    let mut files = bundle::read(upload).map_err(Exit::failure)?;
    let own: HashSet<&str> = files.iter().map(|(path, _)| *path).collect();
    let object = object.map(|object| (OBJECT, object.as_bytes()));
    let packages = packages
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()));
    let added = object.into_iter().chain(packages);
    let added: Vec<bundle::File<'_>> = added.filter(|(path, _)| !own.contains(path)).collect();
    files.extend(added);
    let sizes = files
        .iter()
        .map(|(path, content)| (*path, content.len() as u64));
    script_contents::check_size(path, sizes)?;
    let written = bundle::write(&files).map_err(Exit::failure)?;
    Ok(written.into())
}

/// Returns whether a script's modules must be resolved before the engine loads them. `path` is the
/// script, `first` its first file.
fn needs_preparation(path: &Path, first: &Path) -> bool {
    let extension = first.extension().and_then(|extension| extension.to_str());
    let extension = extension.map(str::to_ascii_lowercase).unwrap_or_default();
    if PREPARED_EXTENSIONS.contains(&&*extension) {
        return true;
    }
    // JavaScript runs as it is, unless it belongs to a package or has packages beside it.
    let top = if path.is_dir() {
        Some(path)
    } else {
        first.parent()
    };
    let mut folders = first
        .ancestors()
        .skip(1)
        .take_while(|folder| top.is_some_and(|top| folder.starts_with(top)));
    MODULE_EXTENSIONS.contains(&&*extension)
        && folders.any(|folder| {
            folder.join("package.json").is_file() || folder.join("node_modules").is_dir()
        })
}

/// Returns the first file of a script, or `None` if it cannot be found without listing the folder.
fn first_file(path: &Path, entry: Option<&str>) -> Result<Option<PathBuf>, Exit> {
    if !path.is_dir() {
        return Ok(Some(path.to_owned()));
    }
    if let Some(entry) = entry {
        return Ok(Some(path.join(entry)));
    }
    match script::default_entry(path) {
        Ok(first) => Ok(Some(path.join(first))),
        // Packages are too many files to list.
        Err(exit) if path.join("node_modules").is_dir() => Err(exit),
        Err(_) => Ok(None),
    }
}

/// The entry that the command line names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The path of the first file in the folder.
    file: Option<String>,
    /// The name of the application in it.
    object: Option<String>,
}

impl Entry {
    /// Parses `PATH`, `PATH:OBJECT` or `MODULE:OBJECT`.
    fn parse(path: &Path, entry: Option<&str>) -> Result<Self, Exit> {
        let Some(text) = entry else {
            return Ok(Self::default());
        };
        let split = text.split_once(':').filter(|_| !path.join(text).exists());
        let Some((module, object)) = split else {
            if path.is_dir() {
                return Ok(Self {
                    file: Some(text.to_owned()),
                    object: None,
                });
            }
            return Err(Exit::usage("--entry needs a folder")
                .hint("to name an application in a Python file: --entry MODULE:OBJECT"));
        };
        let is_name = |part: &str| {
            let mut characters = part.chars();
            let starts = |c: char| c.is_alphabetic() || c == '_';
            characters.next().is_some_and(starts)
                && characters.all(|c| c.is_alphanumeric() || c == '_')
        };
        if !object.split('.').all(is_name) {
            return Err(Exit::usage(format_args!(
                "--entry {text}: {object:?} is not the name of an application, as in app:app"
            )));
        }
        let object = Some(object.to_owned());
        if !path.is_dir() {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let name = path.file_name().and_then(|name| name.to_str());
            if !module.is_empty() && Some(module) != stem && Some(module) != name {
                return Err(Exit::usage(format_args!(
                    "--entry {text} names another file than {}",
                    path.display()
                )));
            }
            return Ok(Self { file: None, object });
        }
        let file = match module {
            "" => None,
            module => Some(module_file(path, module).ok_or_else(|| {
                Exit::usage(format_args!(
                    "--entry {text}: {} has no module {module}",
                    path.display()
                ))
            })?),
        };
        Ok(Self { file, object })
    }
}

/// Returns the file of a Python module in a folder.
fn module_file(folder: &Path, module: &str) -> Option<String> {
    let path = module.replace('.', "/");
    let candidates = [
        module.to_owned(),
        format!("{path}.py"),
        format!("{path}/__init__.py"),
    ];
    let mut candidates = candidates.into_iter();
    candidates.find(|file| folder.join(file).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_entry_names_a_file_and_an_application() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("shop")).unwrap();
        for file in ["app.py", "shop/__init__.py", "shop/web.py"] {
            fs::write(temp.path().join(file), "").unwrap();
        }
        let parse = |path: &Path, text| {
            let Entry { file, object } = Entry::parse(path, Some(text)).unwrap();
            (file.unwrap_or_default(), object.unwrap_or_default())
        };
        let folder = temp.path();
        let pair = |file: &str, object: &str| (file.to_owned(), object.to_owned());
        assert_eq!(parse(folder, "app.py"), pair("app.py", ""));
        assert_eq!(parse(folder, "app:web.app"), pair("app.py", "web.app"));
        assert_eq!(parse(folder, "shop.web:x"), pair("shop/web.py", "x"));
        assert_eq!(parse(folder, "shop:x"), pair("shop/__init__.py", "x"));
        assert_eq!(parse(folder, ":x"), pair("", "x"));
        let file = folder.join("app.py");
        assert_eq!(parse(&file, "app:make"), pair("", "make"));
        for (path, text) in [
            (folder, "none:app"),
            (folder, "app:1"),
            (folder, "app:a b"),
            (&*file, "other:app"),
            (&*file, "app.py"),
        ] {
            assert!(Entry::parse(path, Some(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn javascript_is_prepared_beside_packages_only() {
        let temp = tempfile::tempdir().unwrap();
        let at = |path: &str| temp.path().join(path);
        fs::create_dir_all(at("plain")).unwrap();
        fs::create_dir_all(at("packed/src")).unwrap();
        fs::write(at("packed/package.json"), "{}").unwrap();
        for (path, first, expected) in [
            ("plain/a.js", "plain/a.js", false),
            ("plain/a.ts", "plain/a.ts", true),
            ("plain/a.py", "plain/a.py", false),
            ("packed", "packed/a.js", true),
            ("packed", "packed/src/a.mjs", true),
            ("packed/src/a.js", "packed/src/a.js", false),
            ("packed", "packed/a.py", false),
        ] {
            assert_eq!(needs_preparation(&at(path), &at(first)), expected, "{path}");
        }
    }
}
