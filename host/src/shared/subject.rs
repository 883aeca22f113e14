//! The subject of an entry.

use std::{fmt, str::FromStr};

use faasw_client::{Digest, FunctionName, FunctionOptions};
use faasw_pool::ImageOrigin;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum length of a namespace in bytes.
const LONGEST: usize = 63;

/// A group of users that trust each other: an entry of one namespace is never used for another. The
/// name follows Kubernetes' rules: 1 to 63 lower-case letters, digits and hyphens, without a hyphen
/// at the start or the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Namespace(String);

/// The text is not a valid namespace.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is not a namespace: use 1 to {LONGEST} lower-case letters, digits and hyphens, without \
     a hyphen at the start or end"
)]
pub struct NamespaceError(String);

impl Namespace {
    /// Checks a name.
    ///
    /// # Errors
    /// Returns [`NamespaceError`] if the name is not valid.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        let is_of_it = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = (1..=LONGEST).contains(&name.len())
            && name.bytes().all(is_of_it)
            && !name.starts_with('-')
            && !name.ends_with('-');
        if is_name {
            Ok(Self(name.to_owned()))
        } else {
            Err(NamespaceError(name.to_owned()))
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Namespace {
    type Err = NamespaceError;

    fn from_str(name: &str) -> Result<Self, NamespaceError> {
        Self::new(name)
    }
}

impl TryFrom<String> for Namespace {
    type Error = NamespaceError;

    fn try_from(name: String) -> Result<Self, NamespaceError> {
        Self::new(&name)
    }
}

impl From<Namespace> for String {
    fn from(name: Namespace) -> Self {
        name.0
    }
}

/// The subject of an entry. With the build of faasw, the processor and the kernel, it is everything
/// that a function's seed and code depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySubject {
    /// The namespace that may use the entry.
    pub namespace: Namespace,
    /// The name of the function, which is part of its memory.
    pub name: FunctionName,
    /// Digest of the whole upload: the module or script, with the files in front of it.
    pub upload: Digest,
    /// The options of the deployment.
    pub options: FunctionOptions,
}

impl EntrySubject {
    /// Returns the id of the entry for this build, processor and kernel.
    pub(super) fn id(&self, origin: &ImageOrigin) -> Result<Digest, serde_json::Error> {
        let Self {
            namespace,
            name,
            upload,
            options,
        } = self;
        // No part contains the character that ends it.
        let options = serde_json::to_string(options)?;
        let ImageOrigin { build, machine } = origin;
        let text = format!(
            "faasw shared entry\n{namespace}\n{name}\n{upload}\n{build}\n{machine}\n{options}"
        );
        Ok(Digest::of(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_valid_folder_names() {
        for name in ["a", "0", "kube-system", &"a".repeat(63)] {
            assert_eq!(Namespace::new(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "A",
            "a.b",
            "-a",
            "a-",
            "é",
            &"a".repeat(64),
        ] {
            assert!(Namespace::new(name).is_err(), "{name}");
        }
        let text: Result<Namespace, _> = serde_json::from_str("\"../a\"");
        assert!(text.is_err());
    }

    #[test]
    fn any_difference_gives_another_entry_id() {
        let here = ImageOrigin {
            build: "b".into(),
            machine: "m".into(),
        };
        let subject = EntrySubject {
            namespace: Namespace::new("n").unwrap(),
            name: FunctionName::new("f").unwrap(),
            upload: Digest::of(b"module"),
            options: FunctionOptions::default().env("A", "b"),
        };
        let id = |subject: &EntrySubject, origin: &ImageOrigin| subject.id(origin).unwrap();
        let own = id(&subject, &here);
        assert_eq!(own, id(&subject.clone(), &here.clone()));
        let mut others = vec![
            id(
                &subject,
                &ImageOrigin {
                    build: "m".into(),
                    machine: "b".into(),
                },
            ),
            id(
                &subject,
                &ImageOrigin {
                    build: "c".into(),
                    ..here.clone()
                },
            ),
            id(
                &subject,
                &ImageOrigin {
                    machine: "c".into(),
                    ..here.clone()
                },
            ),
        ];
        let changed = |change: fn(&mut EntrySubject)| {
            let mut subject = subject.clone();
            change(&mut subject);
            id(&subject, &here)
        };
        others.push(changed(|subject| {
            subject.namespace = Namespace::new("o").unwrap()
        }));
        others.push(changed(|subject| {
            subject.name = FunctionName::new("g").unwrap()
        }));
        others.push(changed(|subject| subject.upload = Digest::of(b"another")));
        others.push(changed(|subject| {
            subject.options = FunctionOptions::default()
        }));
        others.push(changed(|subject| {
            subject.options = FunctionOptions::default().env("A", "b").memory(1 << 20);
        }));
        for (at, other) in others.iter().enumerate() {
            assert_ne!(*other, own, "{at}");
            assert!(!others[..at].contains(other), "{at}");
        }
    }
}
