//! The modules that an entry file reaches.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use oxc_resolver::TsConfig;
use serde::Deserialize;

use crate::{
    MODULE_EXTENSIONS,
    analysis::{Analysis, ModuleType, Source, analyse, extension, position},
    error::PrepareError,
    helpers,
    paths::{BundlePaths, is_in_packages, package_folder},
    resolution::{Resolver, Target, is_bare, is_in_engine},
    source::Reader,
    table::{Entry, Kind, TABLE, Table},
    visitor::{Form, Import},
};

/// Maximum bytes of a `package.json` that are read for its `type`.
const PACKAGE_MAX: usize = 1 << 20;

/// The limits of a script.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum bytes of all files together.
    pub bytes: usize,
    /// Maximum number of files.
    pub files: usize,
}

/// A script that the engine can load.
#[derive(Debug)]
pub struct Prepared {
    /// Paths and contents, the entry first.
    pub files: Vec<(String, Vec<u8>)>,
    /// Things that may not work, one sentence each.
    pub warnings: Vec<String>,
    /// Whether the script needs no preparation: its entry is JavaScript of no package, and imports
    /// nothing by a package's name.
    pub is_plain: bool,
}

/// The result of a preparation.
#[derive(Debug)]
pub struct Preparation {
    /// The script, or the reason why there is none.
    pub result: Result<Prepared, PrepareError>,
    /// The files and folders whose change can change the result.
    pub inputs: Vec<PathBuf>,
}

/// Prepares the script that begins with a file. Its files lie in `folder`, or in the file's own
/// folder if there is none, and in packages. `progress` is called with each path before the file is
/// parsed.
pub fn prepare(
    entry: &Path,
    folder: Option<&Path>,
    limits: Limits,
    progress: &mut dyn FnMut(&str),
) -> Preparation {
    let mut inputs = Inputs::default();
    let result = prepare_from(entry, folder, limits, &mut inputs, progress);
    Preparation {
        result,
        inputs: inputs.all,
    }
}

fn prepare_from(
    entry: &Path,
    folder: Option<&Path>,
    limits: Limits,
    inputs: &mut Inputs,
    progress: &mut dyn FnMut(&str),
) -> Result<Prepared, PrepareError> {
    let unreadable = |error: io::Error| PrepareError::Unreadable {
        path: entry.to_owned(),
        error,
    };
    let real = fs::canonicalize(entry).map_err(unreadable)?;
    let own = real.parent().unwrap_or(&real).to_owned();
    let top = match folder {
        Some(folder) => fs::canonicalize(folder).map_err(unreadable)?,
        None => own.clone(),
    };
    if !real.starts_with(&top) {
        let outside = format!("it is outside of {}", top.display());
        return Err(unreadable(io::Error::other(outside)));
    }
    let package = package_folder(&real);
    let has_package = package.is_some();
    let nearest = package.as_ref().unwrap_or(&own);
    inputs.add(nearest.join("package.json"));
    // A package.json above the user's folder is not the user's choice.
    let root = match package {
        Some(folder) if folder.starts_with(&top) => folder,
        Some(_) => top,
        None => own,
    };
    let mut graph = Graph {
        reader: Reader::new(&root).map_err(unreadable)?,
        resolver: Resolver::new(&root),
        paths: BundlePaths::new(&root),
        root,
        limits,
        left: limits.bytes,
        inputs,
        types: HashMap::new(),
        queue: VecDeque::new(),
        files: Vec::new(),
        table: Table::default(),
        entry: String::new(),
        warnings: Vec::new(),
        missing: HashSet::new(),
        imports_packages: false,
    };
    graph.walk(&real, progress)?;
    graph.finish(has_package)
}

/// The files and folders that decide the result.
#[derive(Debug, Default)]
struct Inputs {
    all: Vec<PathBuf>,
    known: HashSet<PathBuf>,
}

impl Inputs {
    fn add(&mut self, path: PathBuf) {
        if self.known.insert(path.clone()) {
            self.all.push(path);
        }
    }
}

/// A file that waits for its analysis.
#[derive(Debug)]
struct Queued {
    real: PathBuf,
    /// The path in the bundle.
    path: String,
    /// Whether an import wants its content and not its code.
    is_data: bool,
}

/// A package's file, of which the preparation reads the type.
#[derive(Deserialize)]
struct PackageType {
    #[serde(default, rename = "type")]
    module_type: Option<serde_json::Value>,
}

struct Graph<'i> {
    root: PathBuf,
    reader: Reader,
    resolver: Resolver,
    paths: BundlePaths,
    limits: Limits,
    /// The bytes that are left of the limit.
    left: usize,
    inputs: &'i mut Inputs,
    /// The type of modules by folder.
    types: HashMap<PathBuf, ModuleType>,
    queue: VecDeque<Queued>,
    files: Vec<(String, Vec<u8>)>,
    table: Table,
    /// The path of the script's first file.
    entry: String,
    warnings: Vec<String>,
    /// The modules of Node.js that a warning has named.
    missing: HashSet<String>,
    imports_packages: bool,
}

impl Graph<'_> {
    fn walk(&mut self, entry: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), PrepareError> {
        let (path, _) = self.paths.of(entry).map_err(PrepareError::Configuration)?;
        self.entry.clone_from(&path);
        self.queue.push_back(Queued {
            real: entry.to_owned(),
            path,
            is_data: false,
        });
        while let Some(next) = self.queue.pop_front() {
            self.add(next, progress)?;
        }
        Ok(())
    }

    /// Reads a file, adds it to the script, and queues what it imports.
    fn add(&mut self, file: Queued, progress: &mut dyn FnMut(&str)) -> Result<(), PrepareError> {
        let Queued {
            real,
            path,
            is_data,
        } = file;
        let is_of_package = is_in_packages(Path::new(&path)) || !real.starts_with(&self.root);
        self.inputs.add(real.clone());
        // A file that appears there can change what an import means.
        if let Some(folder) = real.parent().filter(|_| !is_in_packages(&real)) {
            self.inputs.add(folder.to_owned());
        }
        let content = self
            .reader
            .read(&real, self.left)
            .map_err(|error| PrepareError::Unreadable {
                path: real.clone(),
                error,
            })?
            .ok_or_else(|| self.too_large())?;
        if is_data || !MODULE_EXTENSIONS.contains(&extension(&path)) {
            let kind = Kind::of_data(&path, &content);
            return self.store(path, content, kind, BTreeMap::new());
        }
        let text = String::from_utf8(content).map_err(|_| PrepareError::Unreadable {
            path: real.clone(),
            error: io::Error::other("it is not UTF-8"),
        })?;
        progress(&path);
        let configuration = self.resolver.configuration(&real)?;
        if let Some(configuration) = &configuration {
            self.inputs.add(configuration.path().to_owned());
        }
        let module_type = self.module_type(&real);
        let lines = text.clone();
        let Analysis {
            code,
            map,
            kind,
            imports,
            computed_line,
        } = analyse(Source {
            path: &path,
            text,
            module_type,
            is_of_package,
            configuration: configuration.as_deref(),
        })?;
        if let Some(line) = computed_line.filter(|_| !is_of_package) {
            self.warnings.push(format!(
                "{path}:{line}: an import() of a computed path finds only files that other \
                 imports name"
            ));
        }
        let importer = Importer {
            real: &real,
            path: &path,
            text: &lines,
            is_of_package,
            configuration: configuration.as_deref(),
        };
        let mut targets = BTreeMap::new();
        for import in imports {
            if let Some(target) = self.follow(&importer, &import)? {
                targets.insert(import.specifier, target);
            }
        }
        if let Some(map) = map {
            let map_path = format!("{path}.map");
            self.take(map.len())?;
            self.files.push((map_path, map.into_bytes()));
        }
        self.store(path, code.into_bytes(), kind, targets)
    }

    /// Returns the path of what an import means, and queues it. Returns `None` if the import has no
    /// target and that is no error before it runs.
    fn follow(
        &mut self,
        importer: &Importer<'_>,
        import: &Import,
    ) -> Result<Option<String>, PrepareError> {
        let specifier = import.specifier.as_str();
        self.imports_packages |= is_bare(specifier);
        if let Some(name) = specifier.strip_prefix(helpers::PACKAGE)
            && let Some(source) = helpers::source(name)
        {
            let path = format!("{}{name}.js", helpers::FOLDER);
            self.add_own(&path, source, Kind::Esm)?;
            return Ok(Some(path));
        }
        let found = self.resolver.resolve(
            importer.real,
            specifier,
            import.form,
            importer.configuration,
        );
        let found = found.and_then(|target| match target {
            Target::File(real) if real.extension().is_some_and(|part| part == "node") => {
                Err("it is native code, which the engine cannot run".into())
            }
            Target::File(real) => {
                self.check_boundary(importer, specifier, &real)?;
                let (path, is_new) = self.paths.of(&real)?;
                Ok((Target::File(real), Some((path, is_new))))
            }
            target => Ok((target, None)),
        });
        match found {
            Ok((Target::File(real), Some((path, is_new)))) => {
                if is_new {
                    self.queue.push_back(Queued {
                        real,
                        path: path.clone(),
                        is_data: import.attribute.is_some(),
                    });
                }
                Ok(Some(path))
            }
            Ok((Target::Engine(name), _)) => {
                self.note_missing(importer, import, &name);
                Ok(Some(name))
            }
            Ok(_) => {
                self.add_own(helpers::EMPTY, "", Kind::Cjs)?;
                Ok(Some(helpers::EMPTY.to_owned()))
            }
            Err(reason) => self.unresolved(importer, import, reason).map(|()| None),
        }
    }

    /// Rejects files outside of the project that no package reaches.
    fn check_boundary(
        &self,
        importer: &Importer<'_>,
        specifier: &str,
        real: &Path,
    ) -> Result<(), String> {
        if real.starts_with(&self.root) {
            return Ok(());
        }
        let is_of_same = !importer.real.starts_with(&self.root)
            && package_base(importer.real) == package_base(real);
        let package = if is_of_same {
            package_base(real)
        } else {
            installed_package(importer.real, specifier, real)
        };
        if package.is_some_and(|package| is_module_of(&package, real)) {
            return Ok(());
        }
        Err(format!(
            "{} is outside of {}: move it there, or make it a package",
            real.display(),
            self.root.display()
        ))
    }

    /// Decides whether an import without a target is an error now or when it runs.
    fn unresolved(
        &mut self,
        importer: &Importer<'_>,
        import: &Import,
        reason: String,
    ) -> Result<(), PrepareError> {
        let line = importer.line(import);
        let is_late = import.form != Form::Static;
        if is_late && (import.is_guarded || importer.is_of_package) {
            if !import.is_guarded {
                self.warnings.push(format!(
                    "{}:{line}: {:?} is missing, which matters only if it is used: {reason}",
                    importer.path, import.specifier
                ));
            }
            return Ok(());
        }
        Err(PrepareError::Unresolved {
            file: importer.path.to_owned(),
            line,
            specifier: import.specifier.clone(),
            reason,
        })
    }

    /// Warns of a module of Node.js that the engine does not have.
    fn note_missing(&mut self, importer: &Importer<'_>, import: &Import, name: &str) {
        let Some(module) = name.strip_prefix("node:") else {
            return;
        };
        if !is_in_engine(module) && !import.is_guarded && self.missing.insert(name.to_owned()) {
            self.warnings.push(format!(
                "{}:{}: the engine has no {name}: it fails when it is used",
                importer.path,
                importer.line(import)
            ));
        }
    }

    /// Adds a file that no author wrote.
    fn add_own(&mut self, path: &str, source: &str, kind: Kind) -> Result<(), PrepareError> {
        if self.table.modules.contains_key(path) {
            return Ok(());
        }
        self.store(path.to_owned(), source.into(), kind, BTreeMap::new())
    }

    fn store(
        &mut self,
        path: String,
        content: Vec<u8>,
        kind: Kind,
        imports: BTreeMap<String, String>,
    ) -> Result<(), PrepareError> {
        self.take(content.len())?;
        self.table
            .modules
            .insert(path.clone(), Entry { kind, imports });
        // The entry's map and helpers precede it.
        if path == self.entry {
            self.files.insert(0, (path, content));
        } else {
            self.files.push((path, content));
        }
        Ok(())
    }

    /// Counts a file against the limits.
    fn take(&mut self, bytes: usize) -> Result<(), PrepareError> {
        self.take_bytes(bytes)?;
        // The table is a file, too.
        if self.files.len() + 2 > self.limits.files {
            return Err(PrepareError::TooManyFiles {
                limit: self.limits.files,
            });
        }
        Ok(())
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), PrepareError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| self.too_large())?;
        Ok(())
    }

    fn too_large(&self) -> PrepareError {
        PrepareError::TooLarge {
            limit: self.limits.bytes >> 20,
        }
    }

    /// Returns the type of modules that the nearest package of a file sets.
    fn module_type(&mut self, file: &Path) -> ModuleType {
        let mut seen = Vec::new();
        let mut found = ModuleType::Unknown;
        for folder in file.ancestors().skip(1) {
            if let Some(known) = self.types.get(folder) {
                found = *known;
                break;
            }
            seen.push(folder.to_owned());
            let package = folder.join("package.json");
            if let Ok(Some(content)) = self.reader.read(&package, PACKAGE_MAX) {
                let package = serde_json::from_slice::<PackageType>(&content).ok();
                let value = package.and_then(|package| package.module_type);
                found = match value.as_ref().and_then(|value| value.as_str()) {
                    Some("module") => ModuleType::Esm,
                    Some("commonjs") => ModuleType::Cjs,
                    _ => ModuleType::Unknown,
                };
                break;
            }
        }
        self.types
            .extend(seen.into_iter().map(|folder| (folder, found)));
        found
    }

    /// Adds the table and checks the paths of the source maps.
    fn finish(mut self, has_package: bool) -> Result<Prepared, PrepareError> {
        let table = serde_json::to_vec(&self.table)
            .map_err(|error| PrepareError::Configuration(error.to_string()))?;
        self.take_bytes(table.len())?;
        let entry = self.files.first().map(|(path, _)| path.as_str());
        let is_plain = !has_package
            && !self.imports_packages
            && entry.is_some_and(|path| matches!(extension(path), "js" | "mjs"))
            && self
                .table
                .modules
                .values()
                .all(|entry| entry.kind != Kind::Cjs);
        self.files.push((TABLE.to_owned(), table));
        let mut paths = HashSet::new();
        for (path, _) in &self.files {
            if !paths.insert(path.as_str()) {
                return Err(PrepareError::Configuration(format!(
                    "{path} is needed for a source map: import a file of another name"
                )));
            }
        }
        Ok(Prepared {
            files: self.files,
            warnings: self.warnings,
            is_plain,
        })
    }
}

/// Returns the folder of a file's package: below the last `node_modules`, else the nearest folder
/// with a `package.json`.
fn package_base(file: &Path) -> Option<PathBuf> {
    let is_packages = |folder: &&Path| {
        folder
            .file_name()
            .is_some_and(|name| name == "node_modules")
    };
    let Some(packages) = file.ancestors().skip(1).find(is_packages) else {
        return package_folder(file);
    };
    let mut parts = file.strip_prefix(packages).ok()?.components();
    let first = parts.next()?;
    let mut folder = packages.join(first);
    if first.as_os_str().to_string_lossy().starts_with('@') {
        folder.push(parts.next()?);
    }
    Some(folder)
}

/// Returns the folder of the package of a file, if a search for the import in the `node_modules` of
/// the importer's folder and those above it leads there.
fn installed_package(importer: &Path, specifier: &str, real: &Path) -> Option<PathBuf> {
    if !is_bare(specifier) {
        return None;
    }
    let depth = if specifier.starts_with('@') { 2 } else { 1 };
    let name: PathBuf = specifier.split('/').take(depth).collect();
    for folder in importer.ancestors().skip(1) {
        let Ok(packages) = fs::canonicalize(folder.join("node_modules")) else {
            continue;
        };
        if real.starts_with(&packages) {
            return package_base(real);
        }
        // A link of a workspace or of a package manager's store.
        let linked = fs::canonicalize(packages.join(&name)).ok();
        let is_reached = |linked: &PathBuf| {
            real.starts_with(linked)
                && (is_in_packages(linked) || linked.join("package.json").is_file())
        };
        if let Some(linked) = linked.filter(is_reached) {
            return Some(linked);
        }
    }
    None
}

/// Returns whether a file of a package is one that an import can mean, and is not hidden.
fn is_module_of(package: &Path, real: &Path) -> bool {
    let extension = real.extension().and_then(|extension| extension.to_str());
    let is_module =
        extension.is_some_and(|part| part == "json" || MODULE_EXTENSIONS.contains(&part));
    let is_hidden = |part: &OsStr| part.as_encoded_bytes().starts_with(b".");
    let within = real.strip_prefix(package);
    is_module && within.is_ok_and(|within| !within.iter().any(is_hidden))
}

/// A module whose imports are followed.
#[derive(Debug)]
struct Importer<'a> {
    real: &'a Path,
    path: &'a str,
    text: &'a str,
    is_of_package: bool,
    configuration: Option<&'a TsConfig>,
}

impl Importer<'_> {
    fn line(&self, import: &Import) -> usize {
        position(self.text, import.offset as usize).0
    }
}
