//! Secrets of functions, as the admin API names and tells them: never what they are.

use std::{fmt, sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{FunctionName, options::is_key};

/// Most bytes of a secret.
pub const SECRET_BYTES: usize = faasw_abi::secrets::VALUE_MAX;

/// Why a text cannot name a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} cannot name a secret: a name has 1 to 256 bytes, without = and control characters")]
pub struct SecretNameError(String);

/// The name of a secret: what a function asks for, as for a key of its configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// Checks a name.
    ///
    /// # Errors
    /// When it has the wrong form.
    pub fn new(name: impl AsRef<str>) -> Result<Self, SecretNameError> {
        match name.as_ref() {
            name if is_key(name) => Ok(Self(name.into())),
            name => Err(SecretNameError(name.chars().take(80).collect())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl TryFrom<String> for SecretName {
    type Error = SecretNameError;

    fn try_from(name: String) -> Result<Self, SecretNameError> {
        Self::new(name)
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.as_str().to_owned()
    }
}

/// A secret that has a value. Nothing tells which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretInfo {
    /// Whose it is. There need not be such a function yet.
    pub function: FunctionName,
    /// What it is called.
    pub name: SecretName,
    /// When it was set.
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
