//! References to artifacts: a registry, a repository, and a tag or a digest.
//!
//! The terms are those of the distribution specification. In contrast to Docker, the registry is
//! mandatory, so that a typing error does not lead to a stranger's image on Docker Hub.

use std::{fmt, str::FromStr};

use faasw_client::Digest;
use thiserror::Error;

/// Maximum length of a repository in bytes, as registries accept it.
const REPOSITORY_MAX: usize = 255;

/// Maximum length of a registry's host with its port, in bytes.
const REGISTRY_MAX: usize = 260;

/// Maximum length of a tag in bytes.
const TAG_MAX: usize = 128;

/// The name of Docker Hub, and the host that serves it.
const HUB: &str = "docker.io";
const HUB_HOST: &str = "registry-1.docker.io";

/// The selector of an artifact in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagOrDigest {
    /// The artifact to which this tag leads now.
    Tag(String),
    /// The artifact with this manifest, which never changes.
    Digest(Digest),
}

/// A reference to an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    which: TagOrDigest,
}

/// The reason why a text is not a valid reference.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReferenceError {
    /// The text does not start with a registry.
    #[error(
        "it names no registry: a reference is REGISTRY/REPOSITORY[:TAG], as \
         registry.example.com/team/hello:v1"
    )]
    NoRegistry,
    /// The registry is not a valid host.
    #[error("{0:?} is no registry: that is a host, and a port where it is not 443")]
    Registry(String),
    /// The repository has an invalid name.
    #[error(
        "{0:?} is no repository: that is lower-case letters and digits, with ., _, - and / between \
         them"
    )]
    Repository(String),
    /// The tag is invalid.
    #[error(
        "{0:?} is no tag: that is 1 to {TAG_MAX} letters, digits, _, . and -, and begins with \
         neither . nor -"
    )]
    Tag(String),
    /// The digest is invalid, or is not SHA-256.
    #[error("{0:?} is no digest: that is sha256: and 64 lower-case hexadecimal digits")]
    Digest(String),
}

impl Reference {
    /// Returns the registry's host and port as named, in lower case.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the host and port that serve the registry.
    #[must_use]
    pub fn host(&self) -> &str {
        match self.registry.as_str() {
            HUB => HUB_HOST,
            other => other,
        }
    }

    /// Returns the repository.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag or digest.
    #[must_use]
    pub fn tag_or_digest(&self) -> &TagOrDigest {
        &self.which
    }

    /// Returns a reference to the artifact with this digest in the same repository.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self {
            which: TagOrDigest::Digest(digest),
            ..self.clone()
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let (registry, rest) = text.split_once('/').ok_or(ReferenceError::NoRegistry)?;
        // Docker distinguishes a host from the first part of a repository in the same way.
        let is_host = registry.contains(['.', ':']) || registry.eq_ignore_ascii_case("localhost");
        if !is_host {
            return Err(ReferenceError::NoRegistry);
        }
        let registry = registry.to_ascii_lowercase();
        if !is_registry(&registry) {
            return Err(ReferenceError::Registry(registry));
        }
        let registry = match registry.as_str() {
            "index.docker.io" | HUB_HOST => HUB.to_owned(),
            _ => registry,
        };
        let (named, digest) = match rest.split_once('@') {
            Some((named, digest)) => (named, Some(parse_digest(digest)?)),
            None => (rest, None),
        };
        let (repository, tag) = match named.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (named, None),
        };
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(ReferenceError::Tag(tag.to_owned()));
        }
        if !is_repository(repository) {
            return Err(ReferenceError::Repository(repository.to_owned()));
        }
        let repository = if repository.contains('/') || registry != HUB {
            repository.to_owned()
        } else {
            format!("library/{repository}")
        };
        let which = match digest {
            Some(digest) => TagOrDigest::Digest(digest),
            None => TagOrDigest::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self {
            registry,
            repository,
            which,
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.which {
            TagOrDigest::Tag(tag) => write!(f, ":{tag}"),
            TagOrDigest::Digest(digest) => write!(f, "@{}", digest_text(*digest)),
        }
    }
}

/// Returns a digest as registries spell it.
pub(crate) fn digest_text(digest: Digest) -> String {
    format!("sha256:{digest}")
}

/// Parses a digest as registries spell it. Only SHA-256 is accepted.
pub(crate) fn parse_digest(text: &str) -> Result<Digest, ReferenceError> {
    let digits = text.strip_prefix("sha256:");
    let digest = digits.and_then(|digits| digits.parse().ok());
    digest.ok_or_else(|| ReferenceError::Digest(text.to_owned()))
}

fn is_registry(text: &str) -> bool {
    if text.len() > REGISTRY_MAX {
        return false;
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => {
                return address.parse::<std::net::Ipv6Addr>().is_ok()
                    && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
            }
            None => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().next_back()];
        let are_fine = ends
            .iter()
            .all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
        are_fine
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_repository(text: &str) -> bool {
    text.len() <= REPOSITORY_MAX && text.split('/').all(is_part)
}

/// Returns whether a part has only letters and digits, separated by `.`, `_`, `__` or any number
/// of `-`.
fn is_part(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    if !ends
        .iter()
        .all(|end| end.is_some_and(|byte| is_word(*byte)))
    {
        return false;
    }
    bytes.split(|byte| is_word(*byte)).all(|between| {
        matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|byte| *byte == b'-')
    })
}

fn is_tag(text: &str) -> bool {
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    begins && text.len() <= TAG_MAX && text.bytes().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn references_round_trip() {
        for text in [
            "registry.example.com/team/hello:v1",
            "localhost/a:latest",
            "localhost:5000/a__b/c-d.e--f:1_.-",
            "[::1]:5000/x:y",
            "[2001:db8::1]/x:y",
        ] {
            let read: Reference = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(read.host(), text.split_once('/').unwrap().0);
        }
        let digest = format!("reg.test:5000/a/b@{DIGEST}");
        assert_eq!(digest.parse::<Reference>().unwrap().to_string(), digest);
    }

    #[test]
    fn missing_parts_of_references_get_defaults() {
        let read = |text: &str| text.parse::<Reference>().unwrap();
        assert_eq!(read("Reg.Test/a").to_string(), "reg.test/a:latest");
        // With both, the digest takes precedence.
        let both = read(&format!("reg.test/a:v1@{DIGEST}"));
        assert_eq!(both.to_string(), format!("reg.test/a@{DIGEST}"));
        let hub = read("index.docker.io/hello");
        assert_eq!(hub.to_string(), "docker.io/library/hello:latest");
        assert_eq!(hub.host(), "registry-1.docker.io");
    }

    #[test]
    fn invalid_references_are_rejected() {
        for text in [
            "",
            "hello",
            "team/hello:v1",
            "reg.test",
            "reg.test/",
            "reg.test//a",
            "reg.test/A",
            "reg.test/a/../b",
            "reg.test/a..b",
            "reg.test/a___b",
            "reg.test/-a",
            "reg.test/a:",
            "reg.test/a:.b",
            "reg.test/a:b c",
            "reg.test/a?x=y",
            "reg.test/a#b",
            "reg.test/a@sha256:12",
            "reg.test/a@sha512:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "user@reg.test/a",
            "user:pass@reg.test/a",
            "reg.test:0/a",
            "reg.test:99999/a",
            "reg.test:80:90/a",
            "reg..test/a",
            "reg_.test/a",
            ".reg.test/a",
            "[::1/a",
            "[nothing]:1/a",
            "https://reg.test/a",
            "reg.test\\@evil.test/a",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
        let long = format!("reg.test/{}", "a".repeat(REPOSITORY_MAX + 1));
        assert!(long.parse::<Reference>().is_err());
        let long = format!("reg.test/a:{}", "a".repeat(TAG_MAX + 1));
        assert!(long.parse::<Reference>().is_err());
    }
}
