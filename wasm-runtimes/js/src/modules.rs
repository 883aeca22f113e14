//! The modules of a script: its files, by their paths, and what their specifiers resolve to.
//!
//! A script that a tool prepared has a table, [`TABLE`]: for each module its kind, and for each of
//! its specifiers the module that it means. Without the table, specifiers are paths, and the
//! extension decides the kind. The engine's own modules (`node:`) are found both ways.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use rquickjs::{
    Ctx, Error, Exception, Module, Result, TypedArray, Value,
    loader::{ImportAttributes, Loader as Load, Resolver as Resolve},
    module::Declared,
};

use crate::{
    builtins, commonjs,
    export_names::{self, Exports},
    faasw_module,
    json::Json,
    script_error, source_maps,
};

/// The file with the table. Scripts see neither this file nor others in its folder.
const TABLE: &str = ".faasw/modules.json";

/// The folder of files that are for the engine only.
const HIDDEN: &str = ".faasw/";

/// Precedes a path that is resolved already.
pub(crate) const RESOLVED: &str = "faasw-path:";

thread_local! {
    static FILES: RefCell<BTreeMap<String, File>> = const { RefCell::new(BTreeMap::new()) };
    static ENTRIES: RefCell<Option<BTreeMap<String, Entry>>> = const { RefCell::new(None) };
    static KEEPS_FILES: Cell<bool> = const { Cell::new(false) };
    static MAIN: RefCell<String> = const { RefCell::new(String::new()) };
}

struct File {
    content: Vec<u8>,
    /// The kind that the content shows, once it was examined.
    kind: Option<Kind>,
    /// The exports that the content shows, once it was examined.
    exports: Option<Rc<Exports>>,
    was_loaded: bool,
    was_forgotten: bool,
}

/// A module in the table.
struct Entry {
    kind: Kind,
    imports: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Code,
    CommonJs,
    Json,
    Text,
    Bytes,
}

impl Kind {
    fn of_table(name: &str) -> Option<Self> {
        Some(match name {
            "esm" => Self::Code,
            "cjs" => Self::CommonJs,
            "json" => Self::Json,
            "text" => Self::Text,
            "bytes" => Self::Bytes,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Code => "esm",
            Self::CommonJs => "cjs",
            Self::Json => "json",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }
}

/// Sets the files of the script.
///
/// # Errors
///
/// The table of modules is malformed.
pub(crate) fn have(
    files: Vec<(String, Vec<u8>)>,
) -> std::result::Result<(), crate::bindings::exports::faasw::engine::script::Error> {
    MAIN.set(
        files
            .first()
            .map(|(path, _)| path.clone())
            .unwrap_or_default(),
    );
    let mut table = None;
    let mut visible = BTreeMap::new();
    for (path, content) in files {
        if path == TABLE {
            table = Some(content);
        } else if !path.starts_with(HIDDEN) {
            let file = File {
                content,
                kind: None,
                exports: None,
                was_loaded: false,
                was_forgotten: false,
            };
            visible.insert(path, file);
        }
    }
    FILES.set(visible);
    if let Some(content) = table {
        let entries = read_table(&content).map_err(|why| script_error::at(TABLE, &why))?;
        ENTRIES.set(Some(entries));
    }
    Ok(())
}

fn read_table(content: &[u8]) -> std::result::Result<BTreeMap<String, Entry>, String> {
    let text = str::from_utf8(content).map_err(|_| "the table of modules is not UTF-8")?;
    let table = Json::parse(text, |_| false).ok_or("the table of modules is not JSON")?;
    let Some(Json::Object(modules)) = table.get("modules") else {
        return Err("the table has no object \"modules\"".into());
    };
    let mut entries = BTreeMap::new();
    for (path, module) in modules {
        let kind = module.get("kind").and_then(Json::text).unwrap_or("esm");
        let kind =
            Kind::of_table(kind).ok_or_else(|| format!("{path} has the unknown kind {kind:?}"))?;
        let mut imports = BTreeMap::new();
        if let Some(Json::Object(members)) = module.get("imports") {
            for (specifier, target) in members {
                let target = target
                    .text()
                    .ok_or_else(|| format!("{path}: {specifier:?} resolves to no path"))?;
                imports.insert(specifier.to_string(), target.to_owned());
            }
        }
        entries.insert(path.to_string(), Entry { kind, imports });
    }
    Ok(entries)
}

/// Keeps the content of loaded modules, too, because the script can read its files.
pub(crate) fn keep_files() {
    KEEPS_FILES.set(true);
}

/// Forgets the content of modules that were loaded. A module is loaded once; after that only its
/// path is needed. The files that remain are for `import()`.
pub(crate) fn forget_what_was_loaded() {
    if KEEPS_FILES.get() {
        return;
    }
    FILES.with_borrow_mut(|files| {
        for file in files.values_mut().filter(|file| file.was_loaded) {
            file.exports = None;
            let mut content = std::mem::take(&mut file.content);
            // Pages that are all zeroes are not frozen.
            content.fill(0);
            std::hint::black_box(&content);
            file.was_forgotten = true;
        }
    });
}

/// Returns the path of the script's first file.
pub(crate) fn main() -> String {
    MAIN.with_borrow(Clone::clone)
}

/// Returns whether the script has that file.
pub(crate) fn has_file(path: &str) -> bool {
    FILES.with_borrow(|files| files.contains_key(path))
}

/// Returns the content of a file, unless it was forgotten.
pub(crate) fn read_file(path: &str) -> Option<Vec<u8>> {
    FILES.with_borrow(|files| {
        let file = files.get(path).filter(|file| !file.was_forgotten)?;
        Some(file.content.clone())
    })
}

/// Returns the names in a folder, each with whether it is a folder itself. Returns `None` if there
/// is no such folder.
pub(crate) fn list_folder(path: &str) -> Option<Vec<(String, bool)>> {
    let start = if path.is_empty() {
        String::new()
    } else {
        format!("{path}/")
    };
    FILES.with_borrow(|files| {
        let mut names: Vec<(String, bool)> = Vec::new();
        for path in files.keys() {
            let Some(rest) = path.strip_prefix(&start) else {
                continue;
            };
            let (name, is_folder) = match rest.split_once('/') {
                Some((name, _)) => (name, true),
                None => (rest, false),
            };
            if names.last().is_none_or(|(last, _)| last != name) {
                names.push((name.to_owned(), is_folder));
            }
        }
        (!names.is_empty() || path.is_empty()).then_some(names)
    })
}

/// Returns the content of a file that is loaded as a module now.
///
/// # Errors
///
/// Throws if there is no such file, or if its content was forgotten.
fn take_content(ctx: &Ctx<'_>, path: &str) -> Result<Vec<u8>> {
    let content = FILES.with_borrow_mut(|files| {
        let file = files.get_mut(path).filter(|file| !file.was_forgotten)?;
        file.was_loaded = true;
        Some(file.content.clone())
    });
    content.ok_or_else(|| {
        if has_file(path) {
            let what = format!("{path} was loaded at the top level; it cannot be loaded again");
            Exception::throw_reference(ctx, &what)
        } else {
            Error::new_loading(path)
        }
    })
}

/// Returns the text of a file that is loaded as a module now.
///
/// # Errors
///
/// Throws if [`take_content`] does, or if the file is not UTF-8.
pub(crate) fn take_text(ctx: &Ctx<'_>, path: &str) -> Result<String> {
    String::from_utf8(take_content(ctx, path)?)
        .map_err(|_| Exception::throw_syntax(ctx, &format!("{path} is no text in UTF-8")))
}

/// Returns the content of a source map, which is forgotten after the initialisation.
pub(crate) fn take_map(path: &str) -> Option<Vec<u8>> {
    FILES.with_borrow_mut(|files| {
        let file = files.get_mut(path).filter(|file| !file.was_forgotten)?;
        file.was_loaded = true;
        Some(file.content.clone())
    })
}

/// Runs a function on the text of a file. Returns `None` if there is no such text.
fn with_text<T>(path: &str, run: impl FnOnce(&str) -> T) -> Option<T> {
    FILES.with_borrow(|files| {
        let file = files.get(path).filter(|file| !file.was_forgotten)?;
        str::from_utf8(&file.content).ok().map(run)
    })
}

/// Returns what a CommonJS module exports by its text, with the exports of modules that it exports
/// again.
pub(crate) fn export_names(path: &str) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut known = BTreeSet::from([path.to_owned()]);
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let Some(exports) = exports_of(&path) else {
            continue;
        };
        names.extend(exports.names.iter().cloned());
        for specifier in &exports.reexports {
            if let Ok(next) = resolve(&path, specifier)
                && has_file(&next)
                && kind_of(&next) == Kind::CommonJs
                && known.insert(next.clone())
            {
                paths.push(next);
            }
        }
    }
    names.into_iter().collect()
}

/// Returns what a file's text exports. The text is examined once.
fn exports_of(path: &str) -> Option<Rc<Exports>> {
    let examined = FILES.with_borrow(|files| files.get(path)?.exports.clone());
    if examined.is_some() {
        return examined;
    }
    let exports = Rc::new(with_text(path, export_names::find)?);
    FILES.with_borrow_mut(|files| {
        if let Some(file) = files.get_mut(path) {
            file.exports = Some(exports.clone());
        }
    });
    Some(exports)
}

/// The endings that a path may lack.
const ENDINGS: [&str; 15] = [
    "",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".tsx",
    ".jsx",
    ".json",
    "/index.js",
    "/index.mjs",
    "/index.cjs",
    "/index.ts",
    "/index.tsx",
    "/index.jsx",
    "/index.json",
];

/// Returns the path of the file to which the path `name` refers in the file `base`.
fn resolve_path(base: &str, name: &str) -> Option<String> {
    let mut path: Vec<&str> = match name.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => base.split('/').collect(),
    };
    path.pop();
    for part in name.trim_start_matches('/').split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()?),
            _ => path.push(part),
        }
    }
    let path = path.join("/");
    FILES.with_borrow(|files| {
        let mut paths = ENDINGS.iter().map(|ending| format!("{path}{ending}"));
        paths.find(|path| files.contains_key(path))
    })
}

/// Returns the name of the module that a specifier in the module `base` means.
///
/// # Errors
///
/// Returns the reason if it means none.
pub(crate) fn resolve(base: &str, name: &str) -> std::result::Result<String, String> {
    if let Some(path) = name.strip_prefix(RESOLVED) {
        return Ok(path.to_owned());
    }
    if name == faasw_module::NAME {
        return Ok(name.to_owned());
    }
    let target = ENTRIES.with_borrow(|entries| {
        let entry = entries.as_ref()?.get(base)?;
        Some(entry.imports.get(name).cloned())
    });
    let is_in_table = target.is_some();
    let target = target.flatten();
    if let Some(target) = &target
        && has_file(target)
    {
        return Ok(target.clone());
    }
    if let Some(target) = &target
        && builtins::find(target).is_none()
        && !target.starts_with("node:")
    {
        return Err(format!(
            "{base} imports {name:?}, which is {target} by {TABLE}, but the script has no such \
             file: prepare the script again"
        ));
    }
    let name = target.as_deref().unwrap_or(name);
    if let Some(found) = builtins::find(name) {
        return Ok(found.to_owned());
    }
    let name = name.strip_prefix("file://").unwrap_or(name);
    let is_path = ["./", "../", "/"]
        .iter()
        .any(|start| name.starts_with(start))
        || matches!(name, "." | "..");
    if is_path && let Some(path) = resolve_path(base, name) {
        return Ok(path);
    }
    if name.starts_with("node:") {
        return Err(format!(
            "{base} imports {name:?}, a module of Node.js that this engine does not have"
        ));
    }
    Err(if is_in_table {
        format!(
            "{base} imports {name:?}, which was not found when the script was prepared: install \
             the package, or correct the specifier, and deploy again"
        )
    } else if is_path {
        format!("{base} imports {name:?}, but the script has no such file")
    } else {
        format!(
            "{base} imports {name:?}, which is no file of the script: packages are to be bundled \
             with it"
        )
    })
}

pub(crate) struct Resolver;

impl Resolve for Resolver {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        resolve(base, name).map_err(|why| Exception::throw_reference(ctx, &why))
    }
}

pub(crate) struct Loader;

impl Load for Loader {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        if name == faasw_module::NAME {
            return faasw_module::declare(ctx);
        }
        let kind = attributes
            .map(|attributes| attributes.get_type())
            .transpose()?
            .flatten();
        load(ctx, name, kind.as_deref())
    }
}

/// Returns a file's kind: by the table, by its extension, or by its content.
pub(crate) fn kind_of(path: &str) -> Kind {
    let known = ENTRIES.with_borrow(|entries| {
        let entry = entries.as_ref()?.get(path)?;
        Some(entry.kind)
    });
    if let Some(kind) = known {
        return kind;
    }
    let examined = FILES.with_borrow(|files| files.get(path)?.kind);
    if let Some(kind) = examined {
        return kind;
    }
    let kind = examine(path);
    FILES.with_borrow_mut(|files| {
        if let Some(file) = files.get_mut(path) {
            file.kind = Some(kind);
        }
    });
    kind
}

fn examine(path: &str) -> Kind {
    let ending = path
        .rsplit('/')
        .next()
        .and_then(|last| last.rsplit_once('.'))
        .map(|(_, ending)| ending);
    match ending {
        Some("js" | "jsx" | "ts" | "tsx") => {
            if with_text(path, export_names::is_commonjs) == Some(true) {
                Kind::CommonJs
            } else {
                Kind::Code
            }
        }
        Some("mjs" | "mts") => Kind::Code,
        Some("cjs" | "cts") => Kind::CommonJs,
        Some("json") => Kind::Json,
        _ if with_text(path, |_| ()).is_some() => Kind::Text,
        _ => Kind::Bytes,
    }
}

/// Loads a file as a module. Its kind is the one that the import states; without one, see
/// [`kind_of`].
pub(crate) fn load<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    asked: Option<&str>,
) -> Result<Module<'js, Declared>> {
    if builtins::has(name) {
        return builtins::declare(ctx, name);
    }
    let kind = match asked {
        Some("json") => Kind::Json,
        Some("text") => Kind::Text,
        Some("bytes") => Kind::Bytes,
        Some(other) => {
            let what = format!("{name} is imported as {other:?}: json, text and bytes can be");
            return Err(Exception::throw_type(ctx, &what));
        }
        None => kind_of(name),
    };
    match kind {
        Kind::Code => {
            let source = take_text(ctx, name)?;
            source_maps::note(ctx, name, &source, 0)?;
            faasw_module::note_use_of_caches(name, &source);
            let module = Module::declare(ctx.clone(), name, source)?;
            let meta = module.meta()?;
            meta.set("url", format!("file:///{name}"))?;
            return Ok(module);
        }
        Kind::CommonJs => return commonjs::declare(ctx, name),
        Kind::Json | Kind::Text | Kind::Bytes => {}
    }
    let value = value_of(ctx, name, kind)?;
    let module = Module::declare(ctx.clone(), name, "export default import.meta.content;")?;
    module.meta()?.set("content", value)?;
    Ok(module)
}

/// Returns the value of a file that is no code.
pub(crate) fn value_of<'js>(ctx: &Ctx<'js>, name: &str, kind: Kind) -> Result<Value<'js>> {
    match kind {
        Kind::Json => ctx.json_parse(take_text(ctx, name)?),
        Kind::Bytes => Ok(TypedArray::new(ctx.clone(), take_content(ctx, name)?)?.into_value()),
        Kind::Text | Kind::Code | Kind::CommonJs => {
            let text = take_text(ctx, name)?;
            Ok(rquickjs::String::from_str(ctx.clone(), &text)?.into_value())
        }
    }
}
