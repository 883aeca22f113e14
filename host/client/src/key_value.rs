//! Key-value stores, as the admin API names and tells them.

use std::fmt;

use form_urlencoded::Serializer;
use serde::{Deserialize, Serialize};

use crate::{FunctionName, StoreName};

/// Most keys of a page.
pub const STORE_PAGE: usize = 1_000;

/// Most bytes of a value.
pub const STORE_VALUE_BYTES: usize = faasw_abi::store::VALUE_MAX;

/// A key-value store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "lowercase")]
pub enum Store {
    /// The one that a function has to itself.
    Function(FunctionName),
    /// One that functions share, by its name.
    Shared(StoreName),
}

impl Store {
    /// The store of a path's last two segments.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub fn of_path(kind: &str, name: &str) -> Result<Self, String> {
        let bad = |error: &dyn fmt::Display| error.to_string();
        match kind {
            "functions" => FunctionName::new(name)
                .map(Self::Function)
                .map_err(|error| bad(&error)),
            "shared" => StoreName::new(name)
                .map(Self::Shared)
                .map_err(|error| bad(&error)),
            other => Err(format!("stores are functions' or shared, not {other:?}")),
        }
    }

    /// Where the admin API has it.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Function(name) => format!("kv/functions/{name}"),
            Self::Shared(name) => format!("kv/shared/{name}"),
        }
    }

    /// Its name, or its function's.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Function(name) => name.as_str(),
            Self::Shared(name) => name.as_str(),
        }
    }
}

/// What a key-value store has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Which it is.
    #[serde(flatten)]
    pub store: Store,
    /// How many keys.
    pub keys: u64,
    /// Bytes of its keys and values together.
    pub bytes: u64,
}

/// Keys of a store in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKeys {
    /// At most [`STORE_PAGE`].
    pub keys: Vec<String>,
    /// Whether more follow the last of them.
    pub has_more: bool,
}

/// Reads the one parameter of a request about a store: `key`, or `after` of a list.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn read_parameter(query: Option<&str>, wanted: &str) -> Result<Option<String>, String> {
    let mut found = None;
    for (parameter, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if parameter != wanted {
            return Err(format!("there is no parameter {parameter:?} here"));
        }
        found = Some(value.into_owned());
    }
    Ok(found)
}

/// Writes what [`read_parameter`] reads.
pub(crate) fn write_parameter(parameter: &str, value: &str) -> String {
    Serializer::new(String::new())
        .append_pair(parameter, value)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_found_by_its_path_and_told_by_its_kind() {
        for (kind, name) in [("functions", "greeter"), ("shared", "users.v2")] {
            let store = Store::of_path(kind, name).unwrap();
            assert_eq!(store.path(), format!("kv/{kind}/{name}"));
        }
        for (kind, name) in [("functions", "A"), ("shared", "default"), ("own", "a")] {
            assert!(Store::of_path(kind, name).is_err(), "{kind}/{name}");
        }
        let info = StoreInfo {
            store: Store::Shared(StoreName::new("users").unwrap()),
            keys: 1,
            bytes: 2,
        };
        let json = serde_json::to_string(&info).unwrap();
        assert_eq!(
            json,
            r#"{"kind":"shared","name":"users","keys":1,"bytes":2}"#
        );
        assert_eq!(serde_json::from_str::<StoreInfo>(&json).unwrap(), info);
    }

    #[test]
    fn a_key_is_any_text() {
        for key in ["a", "a b&c=d/\u{e9}\n", ""] {
            let query = write_parameter("key", key);
            let read = read_parameter(Some(&query), "key");
            assert_eq!(read, Ok(Some(key.to_owned())), "{query}");
        }
        assert_eq!(read_parameter(None, "key"), Ok(None));
        assert!(read_parameter(Some("keys=a"), "key").is_err());
    }
}
