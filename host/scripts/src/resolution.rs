//! Resolves imports to files, as bundlers for workers do.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use oxc_resolver::{ResolveError, ResolveOptions, TsConfig, TsconfigDiscovery};

use crate::{error::PrepareError, visitor::Form};

/// Conditions of a package's `exports`, in addition to `import` or `require`. The order is that of
/// the package's file.
const CONDITIONS: [&str; 4] = ["faasw", "workerd", "worker", "browser"];

/// Extensions that an import may leave out, in order.
const EXTENSIONS: [&str; 8] = [
    ".ts", ".tsx", ".mts", ".js", ".mjs", ".cjs", ".jsx", ".json",
];

/// Sources that an import of built JavaScript can mean, as TypeScript writes imports.
const ALIASES: [(&str, &[&str]); 4] = [
    (".js", &[".ts", ".tsx", ".js", ".jsx"]),
    (".jsx", &[".tsx", ".jsx"]),
    (".mjs", &[".mts", ".mjs"]),
    (".cjs", &[".cts", ".cjs"]),
];

/// The module that the engine itself has.
const ENGINE_MODULE: &str = "faasw";

/// Modules of Node.js that the engine has, without `node:`.
const NODE_MODULES: [&str; 31] = [
    "assert",
    "assert/strict",
    "async_hooks",
    "buffer",
    "console",
    "constants",
    "crypto",
    "diagnostics_channel",
    "events",
    "fs",
    "fs/promises",
    "module",
    "os",
    "path",
    "path/posix",
    "perf_hooks",
    "process",
    "punycode",
    "querystring",
    "stream",
    "stream/consumers",
    "stream/promises",
    "stream/web",
    "string_decoder",
    "sys",
    "timers",
    "timers/promises",
    "tty",
    "url",
    "util",
    "util/types",
];

/// Modules of Node.js that the engine does not have. A package that imports one of them may work
/// without it.
const MISSING_NODE_MODULES: [&str; 26] = [
    "child_process",
    "cluster",
    "dgram",
    "dns",
    "dns/promises",
    "domain",
    "http",
    "http2",
    "https",
    "inspector",
    "inspector/promises",
    "net",
    "path/win32",
    "readline",
    "readline/promises",
    "repl",
    "sea",
    "sqlite",
    "test",
    "tls",
    "trace_events",
    "v8",
    "vm",
    "wasi",
    "worker_threads",
    "zlib",
];

/// Returns whether the engine has this module of Node.js.
pub fn is_in_engine(node_module: &str) -> bool {
    NODE_MODULES.contains(&node_module)
}

/// The target of an import.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, by its path without links.
    File(PathBuf),
    /// A module of the engine.
    Engine(String),
    /// Nothing: the package excludes the module from browsers.
    Empty,
}

/// The resolver of a project.
pub struct Resolver {
    import: oxc_resolver::Resolver,
    require: oxc_resolver::Resolver,
}

impl Resolver {
    /// Creates a resolver. Imports that begin with `/` start at `root`.
    pub fn new(root: &Path) -> Self {
        let options = |condition: &str| {
            let conditions = CONDITIONS.into_iter().chain([condition]);
            ResolveOptions {
                tsconfig: Some(TsconfigDiscovery::Auto),
                alias_fields: vec![vec!["browser".into()]],
                condition_names: conditions.map(String::from).collect(),
                extension_alias: ALIASES
                    .iter()
                    .map(|(from, to)| {
                        let to = to.iter().map(|extension| (*extension).to_owned());
                        ((*from).to_owned(), to.collect())
                    })
                    .collect(),
                extensions: EXTENSIONS.map(String::from).to_vec(),
                main_fields: ["browser", "module", "main"].map(String::from).to_vec(),
                roots: vec![root.to_owned()],
                node_path: false,
                ..ResolveOptions::default()
            }
        };
        let import = oxc_resolver::Resolver::new(options("import"));
        let require = import.clone_with_options(options("require"));
        Self { import, require }
    }

    /// Returns the settings of TypeScript for a file.
    ///
    /// # Errors
    /// Returns an error if they are invalid.
    pub fn configuration(&self, file: &Path) -> Result<Option<Arc<TsConfig>>, PrepareError> {
        let found = self.import.find_tsconfig(file);
        found.map_err(|error| PrepareError::Configuration(message(&error)))
    }

    /// Returns what an import in a file means.
    ///
    /// # Errors
    /// Returns the reason and the remedy if it means nothing.
    pub fn resolve(
        &self,
        importer: &Path,
        specifier: &str,
        form: Form,
        configuration: Option<&TsConfig>,
    ) -> Result<Target, String> {
        if specifier.contains('\0') {
            return Err("it has a NUL character".into());
        }
        if specifier == ENGINE_MODULE {
            return Ok(Target::Engine(specifier.to_owned()));
        }
        if let Some(module) = specifier.strip_prefix("node:") {
            return if is_in_engine(module) || MISSING_NODE_MODULES.contains(&module) {
                Ok(Target::Engine(specifier.to_owned()))
            } else {
                Err("Node.js has no such module".into())
            };
        }
        if let Some((scheme, _)) = specifier
            .split_once(':')
            .filter(|(scheme, _)| is_scheme(scheme))
        {
            return Err(format!(
                "modules of {scheme}: are not supported; import a file or a package"
            ));
        }
        let resolver = match form {
            Form::Require => &self.require,
            Form::Static | Form::Dynamic => &self.import,
        };
        let folder = importer.parent().unwrap_or(importer);
        let mut context = oxc_resolver::ResolveContext::default();
        let found = resolver.resolve_with_context(folder, specifier, configuration, &mut context);
        let is_builtin = is_in_engine(specifier) || MISSING_NODE_MODULES.contains(&specifier);
        match found {
            Ok(found) => {
                let path = found.into_path_buf();
                if is_in_engine(specifier) && is_package(&path, specifier) {
                    return Ok(Target::Engine(format!("node:{specifier}")));
                }
                Ok(Target::File(path))
            }
            Err(ResolveError::Ignored(_)) => Ok(Target::Empty),
            Err(_) if is_builtin => Ok(Target::Engine(format!("node:{specifier}"))),
            Err(error) => Err(advice(specifier, &error)),
        }
    }
}

/// Returns whether an import names a package or an alias, and not a file by its place.
pub fn is_bare(specifier: &str) -> bool {
    !specifier.starts_with('.') && !specifier.starts_with('/')
}

/// Returns whether a text before a colon is a URL's scheme.
fn is_scheme(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_part)
}

/// Returns whether a file belongs to the package of this name.
fn is_package(path: &Path, name: &str) -> bool {
    let name = name.split('/').next().unwrap_or(name);
    let parts: Vec<_> = path.components().map(|part| part.as_os_str()).collect();
    let last = parts.iter().rposition(|part| *part == "node_modules");
    last.is_some_and(|at| parts.get(at + 1).is_some_and(|part| *part == name))
}

/// Returns the reason of a failure and what to do.
fn advice(specifier: &str, error: &ResolveError) -> String {
    match error {
        ResolveError::NotFound(_) if is_bare(specifier) => {
            let mut parts = specifier.split('/');
            let mut package = parts.next().unwrap_or_default().to_owned();
            if package.starts_with('@') {
                package = format!("{package}/{}", parts.next().unwrap_or_default());
            }
            format!(
                "no node_modules has {package}: run npm install, or npm install {package} if \
                 package.json does not name it"
            )
        }
        ResolveError::NotFound(_) | ResolveError::ExtensionAlias(..) => {
            "there is no such file".into()
        }
        error => message(error),
    }
}

/// Returns a message as part of a sentence.
fn message(error: &ResolveError) -> String {
    match error {
        ResolveError::Json(error) => format!(
            "{}:{}:{}: {}",
            error.path.display(),
            error.line,
            error.column,
            error.message
        ),
        ResolveError::TsconfigLoadFailed { path, source } => {
            format!("{} cannot be used: {}", path.display(), message(source))
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_recognised_by_their_folder() {
        let path = Path::new("/a/node_modules/buffer/index.js");
        assert!(is_package(path, "buffer") && is_package(path, "buffer/x"));
        assert!(!is_package(
            Path::new("/a/node_modules/x/buffer.js"),
            "buffer"
        ));
        assert!(is_scheme("data") && !is_scheme("@a/b") && !is_scheme("1"));
    }
}
