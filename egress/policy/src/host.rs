//! Hosts: a name or an address, each in one canonical spelling.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// Most bytes of a name, without a trailing dot (RFC 1035, 2.3.4).
pub const NAME_MAX: usize = 253;

/// Most bytes of a label of a name.
const LABEL_MAX: usize = 63;

/// A host name: lower case, without a trailing dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// The host of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name, which must be resolved.
    Name(Name),
    /// An address.
    Address(IpAddr),
}

/// Why a text is not a host.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HostError {
    /// The host is empty.
    #[error("the host is empty: write a name or an address")]
    Empty,
    /// The name is not ASCII.
    #[error("the name is not ASCII: write it as `xn--…`")]
    NotAscii,
    /// A byte is not allowed in names, or not at its place.
    #[error("not a name: write letters, digits, `-` and `_`, in parts with dots between")]
    NotAName,
    /// The name or one of its labels is too long.
    #[error("the name is too long: parts have 63 bytes at most, names 253")]
    TooLong,
    /// An address in another spelling: hexadecimal, octal, fewer parts, or a single number.
    #[error("an address is written as four decimal numbers, such as `127.0.0.1`")]
    OtherSpelling,
    /// The text within brackets is not an IPv6 address.
    #[error("within brackets an IPv6 address is written, such as `[2001:db8::1]`")]
    NotIpv6,
    /// An IPv6 address without brackets.
    #[error("an IPv6 address is written within brackets, such as `[::1]`")]
    NoBrackets,
    /// The address has a zone.
    #[error("an address has no zone here: leave out `%` and what follows")]
    Zone,
}

impl Name {
    /// Parses a name. Case and one trailing dot are ignored.
    ///
    /// # Errors
    /// Returns [`HostError`] if the text is not a name, or if other programs might parse it as an
    /// address.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if !text.is_ascii() {
            return Err(HostError::NotAscii);
        }
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if text.contains(':') {
            return Err(HostError::NoBrackets);
        }
        if text.len() > NAME_MAX || text.split('.').any(|label| label.len() > LABEL_MAX) {
            return Err(HostError::TooLong);
        }
        if !text.split('.').all(is_label) {
            return Err(HostError::NotAName);
        }
        match text.rsplit('.').next() {
            // The URL standard's rule: a host that ends in a number is an address.
            Some(last) if is_number(last) => Err(HostError::OtherSpelling),
            _ => Ok(Self(text.to_ascii_lowercase())),
        }
    }

    /// Creates a name of the node itself.
    pub(crate) fn of_node(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !label.is_empty()
        && label.bytes().all(is_inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Returns whether some programs parse this label as a number.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or(label.strip_prefix("0X"));
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Host {
    /// Parses a host; an IPv6 address must be in brackets.
    ///
    /// # Errors
    /// Returns [`HostError`] if the text is neither a name nor an address.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(HostError::NotIpv6)?;
            return ipv6(inner).map(|address| Self::Address(address.into()));
        }
        match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self::Address(address.into())),
            Err(_) => Name::parse(text).map(Self::Name),
        }
    }
}

/// Parses the IPv6 address within brackets.
pub(crate) fn ipv6(inner: &str) -> Result<Ipv6Addr, HostError> {
    match inner.parse() {
        Ok(address) => Ok(address),
        Err(_) if inner.contains('%') => Err(HostError::Zone),
        Err(_) => Err(HostError::NotIpv6),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}
