//! Host names: a node's domain, and hosts of single functions.
//!
//! This module checks each name once. A `Host` header of a client is compared with these names and
//! never becomes one of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::checked_name::checked_name;

/// Maximum length of a name and of a label in bytes (RFC 1035, section 2.3.4).
const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// The reason why a host name is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HostNameError {
    /// The name has the wrong form.
    #[error(
        "{0:?} is not the name of a host: labels of 1 to 63 of the characters a-z, 0-9 and -, with \
         dots between them and neither port nor wildcard"
    )]
    Form(String),
    /// The name has characters that DNS does not have.
    #[error("{0:?} is not the name of a host in ASCII: write it as DNS has it, with xn--")]
    NotAscii(String),
    /// The name would be taken for an address.
    #[error("{0:?} would be taken for an address: it needs a name")]
    Address(String),
}

/// A valid host name, in lower case and without a trailing dot.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(Arc<str>);

checked_name!(HostName, HostNameError);

impl HostName {
    /// Checks a name.
    ///
    /// # Errors
    /// Returns [`HostNameError`] if the name is malformed, is not ASCII, or looks like an address.
    pub fn new(name: &str) -> Result<Self, HostNameError> {
        let shown = || name.chars().take(80).collect();
        if !name.is_ascii() {
            return Err(HostNameError::NotAscii(shown()));
        }
        let lower = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if lower.len() > LONGEST || !lower.split('.').all(is_label) {
            return Err(HostNameError::Form(shown()));
        }
        // Clients treat a name whose last label is a number as an address.
        let last = lower.rsplit('.').next().unwrap_or_default();
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_number(last) || last.strip_prefix("0x").is_some_and(is_hex) {
            return Err(HostNameError::Address(shown()));
        }
        Ok(Self(lower.into()))
    }

    /// Returns the part of `host` before this domain, which is empty for the domain itself. Returns
    /// `None` if the host is not in the domain.
    #[must_use]
    pub fn part_below<'a>(&self, host: &'a str) -> Option<&'a str> {
        let below = host.strip_suffix(&*self.0)?;
        if below.is_empty() {
            return Some(below);
        }
        below.strip_suffix('.')
    }
}

fn is_label(label: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=LONGEST_LABEL).contains(&label.len())
        && label.bytes().all(allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_host_names_compare_equal() {
        for name in ["a.test", "A.Test", "a.test."] {
            assert_eq!(HostName::new(name).unwrap().as_str(), "a.test");
        }
        for name in ["localhost", "xn--bcher-kva.example", "1.a", "a-b.0c", "0xg"] {
            assert_eq!(HostName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn invalid_host_names_are_rejected() {
        let long = format!("{}.test", "a".repeat(64));
        let longer = format!("{}test", "a.".repeat(125));
        for name in [
            "",
            ".",
            "a..b",
            ".a",
            "a.test..",
            "a_b.test",
            "-a.test",
            "a-.test",
            "*.test",
            "a.test:80",
            "a/b",
            "u@h",
            "a b",
            "[::1]",
            "%61.test",
            &long,
            &longer,
        ] {
            let refused = HostName::new(name);
            assert!(matches!(refused, Err(HostNameError::Form(_))), "{name:?}");
        }
        for name in ["127.0.0.1", "1", "a.1", "a.0x1f", "0x"] {
            let refused = HostName::new(name);
            assert!(
                matches!(refused, Err(HostNameError::Address(_))),
                "{name:?}"
            );
        }
        let refused = HostName::new("bücher.example").unwrap_err();
        assert!(refused.to_string().contains("xn--"), "{refused}");
    }

    #[test]
    fn a_domain_contains_hosts_by_whole_labels() {
        let domain = HostName::new("example.com").unwrap();
        for (host, below) in [
            ("example.com", Some("")),
            ("a.example.com", Some("a")),
            ("a.b.example.com", Some("a.b")),
            ("aexample.com", None),
            ("example.com.test", None),
            ("com", None),
            ("", None),
        ] {
            assert_eq!(domain.part_below(host), below, "{host}");
        }
    }
}
