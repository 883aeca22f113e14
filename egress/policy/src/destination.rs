//! Where a request goes, by its scheme and authority.

use std::fmt;

use crate::{Host, HostError};

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// HTTP.
    Http,
    /// HTTP within TLS.
    Https,
}

impl Scheme {
    /// The scheme of that name, in any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("http") {
            Some(Self::Http)
        } else if name.eq_ignore_ascii_case("https") {
            Some(Self::Https)
        } else {
            None
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port where none is said.
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

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// How the server is spoken to.
    pub scheme: Scheme,
    /// Whom it is for.
    pub host: Host,
    /// The port; never 0.
    pub port: u16,
}

/// Why a request has no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A scheme that nobody speaks here.
    Scheme,
    /// No authority; it is never filled in from what a client has said.
    NoAuthority,
    /// The authority has user information.
    UserInformation,
    /// Behind the host is no port.
    Port,
    /// The host is none.
    Host(HostError),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("the scheme is neither http nor https"),
            Self::NoAuthority => f.write_str("the request has no authority"),
            Self::UserInformation => f.write_str("the authority has user information"),
            Self::Port => f.write_str("the port is no number from 1 to 65535"),
            Self::Host(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RequestError {}

impl Destination {
    /// Where a request goes whose scheme and authority (`host` or `host:port`) these are.
    ///
    /// # Errors
    /// When that cannot be said without a guess.
    pub fn of_request(scheme: &[u8], authority: &[u8]) -> Result<Self, RequestError> {
        let scheme = std::str::from_utf8(scheme).ok().and_then(Scheme::parse);
        let scheme = scheme.ok_or(RequestError::Scheme)?;
        if authority.is_empty() {
            return Err(RequestError::NoAuthority);
        }
        if authority.contains(&b'@') {
            return Err(RequestError::UserInformation);
        }
        let authority =
            std::str::from_utf8(authority).map_err(|_| RequestError::Host(HostError::NotAscii))?;
        let (host, port) = split_port(authority);
        let port = match port {
            None => scheme.default_port(),
            Some(port) => parse_port(port).ok_or(RequestError::Port)?,
        };
        let host = Host::parse(host).map_err(RequestError::Host)?;
        Ok(Self { scheme, host, port })
    }

    /// Host and port as a request has them in `Host`: the port only where it is not the
    /// scheme's own.
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

/// What is before and behind the colon of a port. Colons within brackets are none; without
/// brackets there is one at most, or it is no host.
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
        // Several colons without brackets: an IPv6 address, which the host's reader tells of.
        Some(port) if !text.starts_with('[') && port.contains(':') => (text, None),
        port => (host, port),
    }
}

/// A port as it is written: digits, no sign, no leading zero, not 0.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}
