//! Language engines of a node: components that run scripts.

use std::{fmt, time::SystemTime};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Digest, FunctionName};

/// Maximum length of an extension in bytes.
const LONGEST: usize = 16;

/// Maximum number of extensions of one engine.
pub const EXTENSIONS_MAX: usize = 16;

/// The error that an extension is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is no extension of a script: such are 1 to 16 of the characters a-z and 0-9, and not \
     one of WebAssembly's"
)]
pub struct ExtensionError(String);

/// The extension of a script's first file, without the dot. It selects the script's engine.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Extension(String);

impl Extension {
    /// Checks an extension, with or without a leading dot.
    ///
    /// # Errors
    /// Returns [`ExtensionError`] if the extension has the wrong form or belongs to WebAssembly.
    pub fn new(text: &str) -> Result<Self, ExtensionError> {
        let plain = text.strip_prefix('.').unwrap_or(text);
        let fits = (1..=LONGEST).contains(&plain.len());
        let is_ours = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !fits || !plain.bytes().all(is_ours) || matches!(plain, "wasm" | "wat" | "wast") {
            return Err(ExtensionError(text.chars().take(80).collect()));
        }
        Ok(Self(plain.to_owned()))
    }

    /// Returns the extension of a file's path, if it has a valid one.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let (stem, extension) = name.rsplit_once('.')?;
        if stem.is_empty() {
            return None;
        }
        Self::new(&extension.to_ascii_lowercase()).ok()
    }

    /// Returns the extension as text, without a dot.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.0)
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Extension {
    type Error = ExtensionError;

    fn try_from(text: String) -> Result<Self, ExtensionError> {
        Self::new(&text)
    }
}

impl From<Extension> for String {
    fn from(extension: Extension) -> Self {
        extension.0
    }
}

/// The engine that a script was deployed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineUse {
    /// The engine's name.
    pub name: FunctionName,
    /// The digest of the engine's component. Replacing an engine does not change it for deployed
    /// scripts.
    pub digest: Digest,
}

/// A language engine of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// The engine's name.
    pub name: FunctionName,
    /// The extensions of its scripts.
    pub extensions: Vec<Extension>,
    /// The digest of its component.
    pub digest: Digest,
    /// The time at which it was added. `None` if the engine is built into faasw and no script has
    /// used it yet.
    pub added: Option<SystemTime>,
    /// Whether the engine is built into faasw.
    pub is_carried: bool,
    /// The size of its component in bytes.
    pub module_bytes: u64,
    /// The number of functions whose current versions are scripts for it.
    pub functions: usize,
    /// Whether its code and its seed are in memory, so that the next script waits for neither.
    pub is_warm: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_short_and_not_those_of_webassembly() {
        assert_eq!(
            Extension::new(".lua").unwrap(),
            Extension::new("lua").unwrap()
        );
        assert_eq!(Extension::new("lua").unwrap().to_string(), ".lua");
        for text in ["", ".", "..", "Lua", "l ua", "wasm", ".wat", "tar.gz", "é"] {
            assert!(Extension::new(text).is_err(), "{text:?}");
        }
        assert!(Extension::new(&"a".repeat(17)).is_err());
    }

    #[test]
    fn a_paths_extension_is_that_of_its_last_part() {
        let of = |path| Extension::of_path(path).map(|extension| extension.as_str().to_owned());
        assert_eq!(of("a/b.c/handler.lua").as_deref(), Some("lua"));
        assert_eq!(of("handler.test.js").as_deref(), Some("js"));
        assert_eq!(of("HANDLER.LUA").as_deref(), Some("lua"));
        for path in ["handler", ".lua", "a.lua/b", "a.", "x.wasm"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
