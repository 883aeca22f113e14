//! Rules for the content of a script's folder: which files are left out, and how large the others
//! may be.

use std::{collections::BTreeMap, path::Path};

use faasw::script::SCRIPT_MAX;
use rustix::fs::FileType;

use super::{exit::Exit, output::size};

/// Folder of code that Python compiled for another interpreter.
const CACHE: &str = "__pycache__";

/// Extensions of native code, which no engine can load.
const NATIVE: [&str; 3] = [".so", ".pyd", ".node"];

/// Maximum number of paths that a message names.
const NAMED_MAX: usize = 3;

/// Files and folders that are not part of a script.
#[derive(Debug, Default)]
pub struct LeftOut {
    native: Vec<String>,
    caches: usize,
}

impl LeftOut {
    /// Returns whether an object of a script's folder is left out, and records it.
    pub fn takes(&mut self, path: &str, kind: FileType) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        if kind == FileType::Directory {
            let is_cache = name == CACHE;
            self.caches += usize::from(is_cache);
            return is_cache;
        }
        // A library may have its version behind the extension.
        let is_version = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
        let is_native = NATIVE.iter().any(|extension| name.ends_with(extension))
            || name
                .split_once(".so.")
                .is_some_and(|(_, rest)| is_version(rest));
        if is_native {
            self.native.push(path.to_owned());
        }
        is_native
    }

    /// Returns a line about what is left out of a folder, if anything is.
    pub fn describe(&self, folder: &Path) -> Option<String> {
        let native = match self.native.len() {
            0 => None,
            1 => Some("a native extension".to_owned()),
            count => Some(format!("{count} native extensions")),
        };
        let native = native.map(|what| {
            let named = self.native.iter().take(NAMED_MAX);
            let mut named: Vec<&str> = named.map(String::as_str).collect();
            if self.native.len() > NAMED_MAX {
                named.push("…");
            }
            format!(
                "{what}, which WebAssembly cannot load ({})",
                named.join(", ")
            )
        });
        let caches = (self.caches > 0).then(|| CACHE.to_owned());
        let all: Vec<String> = native.into_iter().chain(caches).collect();
        (!all.is_empty()).then(|| format!("{}: left out {}", folder.display(), all.join(" and ")))
    }
}

/// Checks the sizes of a script's files, by their paths.
///
/// # Errors
/// Returns a failure that names the largest parts if the files are too large together.
pub fn check_size<'a>(
    folder: &Path,
    files: impl Iterator<Item = (&'a str, u64)>,
) -> Result<(), Exit> {
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
    for (path, bytes) in files {
        // The package of a path in `node_modules` or `site-packages` says more than that folder.
        let end = match path.match_indices('/').nth(1) {
            Some((at, _)) => at,
            None => path.find('/').unwrap_or(path.len()),
        };
        let part = parts.entry(path.get(..end).unwrap_or(path)).or_default();
        *part = part.saturating_add(bytes);
    }
    let all = parts
        .values()
        .fold(0_u64, |all, bytes| all.saturating_add(*bytes));
    if all <= SCRIPT_MAX as u64 {
        return Ok(());
    }
    let mut largest: Vec<(&str, u64)> = parts.into_iter().collect();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let largest: Vec<String> = largest
        .iter()
        .take(NAMED_MAX)
        .map(|(part, bytes)| format!("{part} {}", size(*bytes)))
        .collect();
    let why = format!(
        "the files of {} have {} together; a script has at most {}. Most is in {}",
        folder.display(),
        size(all),
        size(SCRIPT_MAX as u64),
        largest.join(", ")
    );
    Err(Exit::failure(why).hint(
        "remove what the script does not use, such as development packages and tests, or move \
         data to another folder and add that with --files FOLDER:/PATH",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_code_and_caches_are_left_out_with_a_line() {
        let folder = Path::new("app");
        let mut none = LeftOut::default();
        for (path, kind) in [
            ("a.py", FileType::RegularFile),
            ("so", FileType::RegularFile),
            ("lib.so", FileType::Directory),
            ("a/__pycache__.py", FileType::RegularFile),
        ] {
            assert!(!none.takes(path, kind), "{path}");
        }
        assert_eq!(none.describe(folder), None);
        let mut some = LeftOut::default();
        assert!(some.takes("a/__pycache__", FileType::Directory));
        assert_eq!(some.describe(folder).unwrap(), "app: left out __pycache__");
        for path in ["n/a.cpython-314.so", "b.pyd", "c.node", "d.so.1"] {
            assert!(some.takes(path, FileType::RegularFile), "{path}");
        }
        assert_eq!(
            some.describe(folder).unwrap(),
            "app: left out 4 native extensions, which WebAssembly cannot load \
             (n/a.cpython-314.so, b.pyd, c.node, …) and __pycache__"
        );
    }

    #[test]
    fn too_large_scripts_are_refused_with_what_is_large() {
        let check = |files: &[(&str, u64)]| {
            let checked = check_size(Path::new("app"), files.iter().copied());
            checked.map_err(|exit| exit.to_string())
        };
        let most = SCRIPT_MAX as u64;
        assert_eq!(check(&[("a.js", 1), ("b/c", most - 1)]), Ok(()));
        let why = check(&[
            ("a.js", 1 << 20),
            ("node_modules/x/1", 20 << 20),
            ("node_modules/x/y/2", 20 << 20),
            ("node_modules/z/3", 30 << 20),
        ]);
        assert_eq!(
            why.unwrap_err(),
            "the files of app have 71.0 MiB together; a script has at most 64.0 MiB. Most is in \
             node_modules/x 40.0 MiB, node_modules/z 30.0 MiB, a.js 1.0 MiB"
        );
        assert!(check(&[("a", u64::MAX), ("b", u64::MAX)]).is_err());
    }
}
