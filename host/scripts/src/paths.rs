//! The paths of modules in the bundle.
//!
//! A file of the project keeps its path relative to the project's folder. A package that lies
//! outside, as in a monorepo, gets a path beneath `node_modules` or `_external`.

use std::{
    collections::{HashMap, HashSet},
    path::{Component, Path, PathBuf},
};

/// The folder of packages that are linked from outside of the project.
const EXTERNAL: &str = "_external";

const NODE_MODULES: &str = "node_modules";

/// The paths in the bundle of all files so far.
#[derive(Debug)]
pub struct BundlePaths {
    root: PathBuf,
    by_real: HashMap<PathBuf, String>,
    used: HashSet<String>,
    /// The names of external packages by their folder.
    packages: HashMap<PathBuf, String>,
}

impl BundlePaths {
    /// Creates the paths of a project's folder.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            by_real: HashMap::new(),
            used: HashSet::new(),
            packages: HashMap::new(),
        }
    }

    /// Returns the path in the bundle of a file, and whether it is new.
    ///
    /// # Errors
    /// Returns a reason if a part of the path cannot be in a bundle.
    pub fn of(&mut self, real: &Path) -> Result<(String, bool), String> {
        if let Some(path) = self.by_real.get(real) {
            return Ok((path.clone(), false));
        }
        let mut path = match real.strip_prefix(&self.root) {
            Ok(relative) => text(relative)?,
            Err(_) => self.of_outside(real)?,
        };
        if self.used.contains(&path) {
            // A second installation has the same package.
            let number = self.used.len();
            path = format!("{EXTERNAL}/{number}/{path}");
        }
        self.used.insert(path.clone());
        self.by_real.insert(real.to_owned(), path.clone());
        Ok((path, true))
    }

    fn of_outside(&mut self, real: &Path) -> Result<String, String> {
        let mut parts = real.components();
        while let Some(part) = parts.next() {
            if part.as_os_str() == NODE_MODULES {
                return Ok(format!("{NODE_MODULES}/{}", text(parts.as_path())?));
            }
        }
        let package = package_folder(real).ok_or("it belongs to no package")?;
        let name = match self.packages.get(&package) {
            Some(name) => name.clone(),
            None => {
                let base = package.file_name().and_then(|name| name.to_str());
                let base = base.unwrap_or("package");
                let mut name = base.to_owned();
                while self.packages.values().any(|other| *other == name) {
                    name = format!("{base}-{}", self.packages.len());
                }
                self.packages.insert(package.clone(), name.clone());
                name
            }
        };
        let within = real
            .strip_prefix(&package)
            .map_err(|error| error.to_string())?;
        Ok(format!("{EXTERNAL}/{name}/{}", text(within)?))
    }
}

/// Returns the nearest folder above a file that has a `package.json`.
pub fn package_folder(file: &Path) -> Option<PathBuf> {
    let folders = file.ancestors().skip(1);
    folders
        .filter(|folder| folder.parent().is_some())
        .find(|folder| folder.join("package.json").is_file())
        .map(Path::to_owned)
}

/// Returns whether a path leads through a `node_modules`.
pub fn is_in_packages(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str() == NODE_MODULES)
}

/// Returns a relative path as text with `/` between its parts.
fn text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    for part in path.components() {
        let Component::Normal(part) = part else {
            return Err(format!("{} is not a plain path", path.display()));
        };
        let part = part
            .to_str()
            .ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
        if part.contains('\\') || part.chars().any(char::is_control) {
            return Err(format!(
                "{part:?} has characters that a script's path cannot have"
            ));
        }
        if !text.is_empty() {
            text.push('/');
        }
        text.push_str(part);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_keep_their_path_and_outsiders_get_one() {
        let temp = tempfile::tempdir().unwrap();
        let temp = fs::canonicalize(temp.path()).unwrap();
        for package in ["libs/one", "others/one"] {
            fs::create_dir_all(temp.join(package)).unwrap();
            fs::write(temp.join(package).join("package.json"), "{}").unwrap();
        }
        let mut paths = BundlePaths::new(&temp.join("app"));
        let mut of = |path: &str| paths.of(&temp.join(path)).unwrap();
        assert_eq!(of("app/src/a.ts"), ("src/a.ts".into(), true));
        assert_eq!(of("app/src/a.ts"), ("src/a.ts".into(), false));
        assert_eq!(of("app/node_modules/x/i.js").0, "node_modules/x/i.js");
        let hoisted = of("node_modules/x/i.js").0;
        assert!(hoisted.starts_with("_external/") && hoisted.ends_with("node_modules/x/i.js"));
        let store = "node_modules/.pnpm/y@1/node_modules/y/i.js";
        assert_eq!(of(store).0, store);
        assert_eq!(of("libs/one/src/a.ts").0, "_external/one/src/a.ts");
        assert_eq!(of("others/one/src/a.ts").0, "_external/one-1/src/a.ts");
        assert!(paths.of(&temp.join("stray.js")).is_err());
        assert!(paths.of(&temp.join("app/a\\b.js")).is_err());
        assert!(paths.of(&temp.join("app/a\nb.js")).is_err());
    }
}
