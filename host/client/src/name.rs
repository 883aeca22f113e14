//! Function names.
//!
//! A name is the first segment of a function's path, a file name in the data directory and a key of
//! the registry. This module checks it once, so a [`FunctionName`] can be used in all these places
//! without escaping.

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::checked_name::checked_name;

/// Maximum length in bytes: that of a DNS label, so that names can become host names.
const LONGEST: usize = 63;

/// First path segments that the node itself uses.
const RESERVED: [&str; 5] = ["healthz", "livez", "metrics", "readyz", "faasw"];

/// The reason why a name is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    /// The name has the wrong form.
    #[error("{0:?} cannot name a function: a name is 1 to 63 of the characters a-z, 0-9 and -")]
    Form(String),
    /// The node itself uses this path.
    #[error("{0:?} cannot name a function: the node uses that path itself")]
    Reserved(String),
    /// No part of a file name can be used.
    #[error("no function name can be made of the file name {0:?}: give one")]
    File(String),
}

/// A valid name: 1 to 63 of `a-z`, `0-9` and `-`, and not reserved.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FunctionName(Arc<str>);

checked_name!(FunctionName, NameError);

impl FunctionName {
    /// Checks a name.
    ///
    /// # Errors
    /// Returns [`NameError`] if the name has the wrong form or is reserved.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let fits = (1..=LONGEST).contains(&name.len());
        if !fits || !name.bytes().all(is_name_byte) {
            return Err(NameError::Form(name.chars().take(80).collect()));
        }
        if RESERVED.contains(&name) {
            return Err(NameError::Reserved(name.into()));
        }
        Ok(Self(name.into()))
    }

    /// Derives a name from a file's name: its stem in lower case, with `-` for every run of other
    /// characters. `my_func.wasm` becomes `my-func`.
    ///
    /// # Errors
    /// Returns [`NameError`] if no character remains or the result is reserved.
    pub fn from_file(file: &Path) -> Result<Self, NameError> {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let mut name = String::with_capacity(stem.len());
        for character in stem.chars().map(|character| character.to_ascii_lowercase()) {
            if u8::try_from(character).is_ok_and(|byte| is_name_byte(byte) && byte != b'-') {
                name.push(character);
            } else if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
        }
        name.truncate(LONGEST);
        let name = name.trim_end_matches('-');
        if name.is_empty() {
            return Err(NameError::File(stem.into_owned()));
        }
        Self::new(name)
    }
}

fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_function_names_are_accepted() {
        for name in ["a", "0", "hello", "my-func-2", "-", &"x".repeat(63)] {
            assert_eq!(FunctionName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn other_function_names_are_rejected() {
        for name in [
            "",
            "Hello",
            "my_func",
            "a/b",
            "..",
            "ä",
            "a b",
            &"x".repeat(64),
        ] {
            assert!(
                matches!(FunctionName::new(name), Err(NameError::Form(_))),
                "{name}"
            );
        }
    }

    #[test]
    fn names_of_the_nodes_own_paths_are_rejected() {
        let refused = FunctionName::new("healthz").unwrap_err();
        assert_eq!(refused, NameError::Reserved("healthz".into()));
    }

    #[test]
    fn a_file_name_suggests_its_stem_as_function_name() {
        for (file, name) in [
            ("hello.wasm", "hello"),
            ("dir/my_func.wasm", "my-func"),
            ("A  B.c.wat", "a-b-c"),
            ("--x--.wasm", "x"),
            ("ünder_score.wasm", "nder-score"),
        ] {
            assert_eq!(
                FunctionName::from_file(Path::new(file)).unwrap().as_str(),
                name
            );
        }
        let long = format!("{}.wasm", "x".repeat(200));
        assert_eq!(
            FunctionName::from_file(Path::new(&long))
                .unwrap()
                .as_str()
                .len(),
            63
        );
    }

    #[test]
    fn a_file_name_without_usable_characters_is_rejected() {
        let refused = FunctionName::from_file(Path::new("__.wasm")).unwrap_err();
        assert_eq!(refused, NameError::File("__".into()));
    }
}
