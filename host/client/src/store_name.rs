//! Names of shared stores.

use std::sync::Arc;

use faasw_abi::store::{OWN_STORE, STORE_MAX, is_store_name};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::checked_name::checked_name;

/// The reason why a name of a store is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreNameError {
    /// The name has the wrong form.
    #[error(
        "{0:?} cannot name a store: 1 to {STORE_MAX} letters, digits, - _ and . can, of which a \
         letter or a digit is the first"
    )]
    Form(String),
    /// The name denotes each function's own store.
    #[error(
        "{OWN_STORE:?} is the store that each function has to itself: nothing has to grant that"
    )]
    Own,
}

/// The name of a shared store, which denotes the same store for all functions with a grant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoreName(Arc<str>);

checked_name!(StoreName, StoreNameError);

impl StoreName {
    /// Checks a name.
    ///
    /// # Errors
    /// Returns [`StoreNameError`] if the name has the wrong form, or denotes functions' own stores.
    pub fn new(name: impl AsRef<str>) -> Result<Self, StoreNameError> {
        match name.as_ref() {
            OWN_STORE => Err(StoreNameError::Own),
            name if is_store_name(name) => Ok(Self(name.into())),
            name => Err(StoreNameError::Form(name.chars().take(80).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_names_are_valid_and_not_reserved() {
        assert_eq!(StoreName::new("users.v2").unwrap().as_str(), "users.v2");
        assert_eq!(StoreName::new("default"), Err(StoreNameError::Own));
        for name in ["", "a/b", ".a"] {
            let refused = StoreName::new(name).unwrap_err();
            assert!(matches!(refused, StoreNameError::Form(_)), "{name}");
        }
        let json = serde_json::to_string(&StoreName::new("a").unwrap()).unwrap();
        assert_eq!(json, "\"a\"");
        assert!(serde_json::from_str::<StoreName>("\"default\"").is_err());
    }
}
