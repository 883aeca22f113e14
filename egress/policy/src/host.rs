//! Hosts: a name or an address, in the one spelling that each has here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most bytes of a name, without a dot at its end (RFC 1035, 2.3.4).
pub const NAME_MAX: usize = 253;

/// Most bytes of a part of a name.
const LABEL_MAX: usize = 63;

/// A name of a host: lower case, without a dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Whom a request is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name, to be resolved.
    Name(Name),
    /// An address.
    Address(IpAddr),
}

/// Why something is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// There is nothing.
    Empty,
    /// It is not ASCII.
    NotAscii,
    /// A byte, or its place, that no name has.
    NotAName,
    /// It is longer than names are.
    TooLong,
    /// An address in another spelling: hexadecimal, octal, fewer parts, one number.
    OtherSpelling,
    /// Within brackets is no IPv6 address.
    NotIpv6,
    /// An IPv6 address without brackets.
    NoBrackets,
    /// An address has a zone.
    Zone,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the host is empty: write a name or an address",
            Self::NotAscii => "the name is not ASCII: write it as `xn--…`",
            Self::NotAName => {
                "not a name: write letters, digits, `-` and `_`, in parts with dots between"
            }
            Self::TooLong => "the name is too long: parts have 63 bytes at most, names 253",
            Self::OtherSpelling => {
                "an address is written as four decimal numbers, such as `127.0.0.1`"
            }
            Self::NotIpv6 => "within brackets an IPv6 address is written, such as `[2001:db8::1]`",
            Self::NoBrackets => "an IPv6 address is written within brackets, such as `[::1]`",
            Self::Zone => "an address has no zone here: leave out `%` and what follows",
        })
    }
}

impl std::error::Error for HostError {}

impl Name {
    /// The name that `text` spells: case and one dot at its end mean nothing.
    ///
    /// # Errors
    /// For what is no name, and for what others might read as an address.
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
            // As the URL standard decides it: what ends in a number is an address.
            Some(last) if is_number(last) => Err(HostError::OtherSpelling),
            _ => Ok(Self(text.to_ascii_lowercase())),
        }
    }

    /// One that is of the node itself.
    pub(crate) fn of_node(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The name.
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

/// Whether a part of a name is what some take for a number.
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
    /// The host that `text` spells; IPv6 within brackets.
    ///
    /// # Errors
    /// See [`HostError`].
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

/// The IPv6 address that the inside of brackets spells.
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
