//! The table of modules that the engine reads.

use std::collections::BTreeMap;

use serde::Serialize;

/// The path of the table in the bundle.
pub const TABLE: &str = ".faasw/modules.json";

/// How the engine loads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An ECMAScript module.
    Esm,
    /// A CommonJS module.
    Cjs,
    /// A value in JSON.
    Json,
    /// A text.
    Text,
    /// Other content.
    Bytes,
}

impl Kind {
    /// Returns the kind of a file that is no module.
    pub fn of_data(path: &str, content: &[u8]) -> Self {
        if path.ends_with(".json") {
            Self::Json
        } else if std::str::from_utf8(content).is_ok() {
            Self::Text
        } else {
            Self::Bytes
        }
    }
}

/// The engine's view of one file.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub kind: Kind,
    /// The paths of what the file imports, by the text of the import.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub imports: BTreeMap<String, String>,
}

/// The table.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    pub modules: BTreeMap<String, Entry>,
}
