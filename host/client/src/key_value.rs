//! Key-value stores in the admin API.

use serde::{Deserialize, Serialize};

use crate::{FunctionName, StoreName};

/// Maximum number of keys of a page.
pub const STORE_PAGE: usize = 1_000;

/// Maximum size of a value in bytes.
pub const STORE_VALUE_BYTES: usize = faasw_abi::store::VALUE_MAX;

/// A key-value store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "lowercase")]
pub enum Store {
    /// The own store of a function.
    Function(FunctionName),
    /// A shared store, by its name.
    Shared(StoreName),
}

impl Store {
    /// Returns the store that the last two segments of a path name.
    ///
    /// # Errors
    /// Returns a sentence that describes the mistake if the kind is unknown or the name is invalid.
    pub fn of_path(kind: &str, name: &str) -> Result<Self, String> {
        match kind {
            "functions" => FunctionName::new(name)
                .map(Self::Function)
                .map_err(|error| error.to_string()),
            "shared" => StoreName::new(name)
                .map(Self::Shared)
                .map_err(|error| error.to_string()),
            other => Err(format!("stores are functions' or shared, not {other:?}")),
        }
    }

    /// Returns the store's path in the admin API, without the prefix of the version.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Function(name) => format!("kv/functions/{name}"),
            Self::Shared(name) => format!("kv/shared/{name}"),
        }
    }

    /// Returns the name of a shared store, or of the function that owns the store.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Function(name) => name.as_str(),
            Self::Shared(name) => name.as_str(),
        }
    }
}

/// Statistics of a key-value store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// The store.
    #[serde(flatten)]
    pub store: Store,
    /// The number of keys.
    pub keys: u64,
    /// The size of its keys and values together in bytes.
    pub bytes: u64,
}

/// A page of keys, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKeys {
    /// The keys, at most [`STORE_PAGE`].
    pub keys: Vec<String>,
    /// Whether more keys follow.
    pub has_more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_parsed_from_its_path_and_shows_its_kind() {
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
}
