//! Secrets of functions in the admin API, which never reports their values.

use std::{sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{FunctionName, checked_name::checked_name, options::is_key};

/// Maximum size of a secret in bytes.
pub const SECRET_BYTES: usize = faasw_abi::secrets::VALUE_MAX;

/// The error that a text cannot name a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} cannot name a secret: a name has 1 to 256 bytes, without = and control characters")]
pub struct SecretNameError(String);

/// The name of a secret, by which a function looks it up like a key of its configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(Arc<str>);

checked_name!(SecretName, SecretNameError);

impl SecretName {
    /// Checks a name.
    ///
    /// # Errors
    /// Returns [`SecretNameError`] if the name has the wrong form.
    pub fn new(name: impl AsRef<str>) -> Result<Self, SecretNameError> {
        match name.as_ref() {
            name if is_key(name) => Ok(Self(name.into())),
            name => Err(SecretNameError(name.chars().take(80).collect())),
        }
    }
}

/// A secret that has a value, without the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretInfo {
    /// The function that owns the secret. It need not exist yet.
    pub function: FunctionName,
    /// The secret's name.
    pub name: SecretName,
    /// The time at which the secret was set.
    pub set: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_named_like_a_key() {
        for name in ["api_key", "A-b.c", "gr\u{fc}n", &"k".repeat(256)] {
            let secret = SecretName::new(name).unwrap();
            let json = serde_json::to_string(&secret).unwrap();
            assert_eq!(serde_json::from_str::<SecretName>(&json).unwrap(), secret);
        }
        for name in ["", "a=b", "a\n", &"k".repeat(257)] {
            assert!(SecretName::new(name).is_err(), "{name}");
        }
    }
}
