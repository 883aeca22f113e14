//! The destination of a request, from its scheme and authority.

use std::fmt;

use thiserror::Error;

use crate::{Host, HostError};

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// Parses a scheme, ignoring case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut all = [Self::Http, Self::Https].into_iter();
        all.find(|scheme| scheme.as_str().eq_ignore_ascii_case(name))
    }

    /// Returns the scheme's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the port that is used by default.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The destination of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The protocol of the server.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port; never 0.
    pub port: u16,
}

/// Why a request has no destination.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// The scheme is neither `http` nor `https`.
    #[error("the scheme is neither http nor https")]
    Scheme,
    /// There is no authority; it is never taken from a client's request.
    #[error("the request has no authority")]
    NoAuthority,
    /// The authority has user information.
    #[error("the authority has user information")]
    UserInformation,
    /// The text after the host is not a port.
    #[error("the port is no number from 1 to 65535")]
    Port,
    /// The host is invalid.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Destination {
    /// Parses the scheme and authority (`host` or `host:port`) of a request.
    ///
    /// # Errors
    /// Returns [`RequestError`] if the destination is missing or ambiguous.
    pub fn of_request(scheme: &[u8], authority: &[u8]) -> Result<Self, RequestError> {
        let scheme = std::str::from_utf8(scheme).ok().and_then(Scheme::parse);
        let scheme = scheme.ok_or(RequestError::Scheme)?;
        if authority.is_empty() {
            return Err(RequestError::NoAuthority);
        }
        if authority.contains(&b'@') {
            return Err(RequestError::UserInformation);
        }
        let authority = std::str::from_utf8(authority).map_err(|_| HostError::NotAscii)?;
        let (host, port) = split_port(authority);
        let port = match port {
            None => scheme.default_port(),
            Some(port) => parse_port(port).ok_or(RequestError::Port)?,
        };
        let host = Host::parse(host)?;
        Ok(Self { scheme, host, port })
    }

    /// Returns host and port as in the `Host` field: the port only if it is not the scheme's
    /// default.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

/// Splits text at the colon before the port. Colons within brackets do not count. Without brackets
/// there may be at most one colon, or the text is not a host.
pub(crate) fn split_port(text: &str) -> (&str, Option<&str>) {
    let behind_host = if text.starts_with('[') {
        text.find(']').map_or(text.len(), |end| end + 1)
    } else {
        0
    };
    let colon = text.get(behind_host..).and_then(|rest| rest.find(':'));
    let Some(colon) = colon.map(|at| behind_host + at) else {
        return (text, None);
    };
    let (host, port) = text.split_at(colon);
    match port.get(1..) {
        // Several colons without brackets are an IPv6 address, which the host's parser reports.
        Some(port) if !text.starts_with('[') && port.contains(':') => (text, None),
        port => (host, port),
    }
}

/// Parses a port: digits, no sign, no leading zero, not 0.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}
