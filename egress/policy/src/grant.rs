//! Grants: the values of `--allow-outbound`, in Spin's spelling.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;

use crate::destination::{parse_port, split_port};
use crate::{AllowPrivate, Destination, Host, HostError, Name, NetworkError, Scheme};

/// Destinations that a function may reach: `SCHEME://HOST[:PORT]`.
///
/// | part | values |
/// | --- | --- |
/// | scheme | `http`, `https`, or `*` for both |
/// | host | a name, `*.` and a name for all names below it, `*` for all; an address, or a network such as `10.0.0.0/8` or `[fd00::]/8`; for the node itself, `self` for all its functions or `NAME.spin.internal` for one |
/// | port | a number, `FROM..TO` without `TO`, `*` for all; the scheme's default if omitted |
///
/// A network matches requests that name an address. It does not match a name that has an address in
/// it. The node's own functions are granted only by their own names, never by a `*` for all hosts.
/// A grant prints in its canonical spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// `None` for all schemes.
    scheme: Option<Scheme>,
    host: Hosts,
    ports: Ports,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Hosts {
    All,
    /// All functions of the node.
    Own,
    Below(Name),
    Name(Name),
    Network(IpNet),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Ports {
    All,
    One(u16),
    /// From the first port, up to but not including the last.
    From(u16, u16),
}

/// Why a text is not a grant. The message says what to write instead.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GrantError {
    /// There is no `://`.
    #[error(
        "write a scheme and a host, such as `https://api.example.com`; `*://*:*` is everything"
    )]
    NoScheme,
    /// The scheme is unknown.
    #[error("write `http`, `https` or `*` before `://`: nothing else is spoken here")]
    Scheme,
    /// There is user information.
    #[error("leave out the user and `@`: a grant has scheme, host and port")]
    UserInformation,
    /// There is a path, a query or a fragment.
    #[error("leave out path and query: a grant has scheme, host and port")]
    Path,
    /// A name of the node itself with another scheme or port, after `*.`, or with a function name
    /// that is empty or has dots.
    #[error(
        "the node's own functions are asked by `http` and without a port: write `http://self`, or \
         `http://NAME.spin.internal`"
    )]
    OwnByOther,
    /// There is a list or a template in braces.
    #[error("lists and templates in braces are not read: write one grant for each")]
    Braces,
    /// There is a `*` within a name.
    #[error("`*` stands alone or as the first part of a name, such as `*.example.com`")]
    Wildcard,
    /// The scheme is `*`, and there is no port.
    #[error("with `*` as scheme, write a port: `:443`, or `:*` for all")]
    NoPort,
    /// The port is invalid.
    #[error("write the port as a number from 1 to 65535, as `FROM..TO`, or as `*`")]
    Port,
    /// A range of ports is empty.
    #[error("no port is in that range: `FROM..TO` is without the last")]
    EmptyPorts,
    /// The host is invalid.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The network is invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl Grant {
    /// Returns whether requests to `destination` are granted.
    #[must_use]
    pub fn allows(&self, destination: &Destination) -> bool {
        self.scheme
            .is_none_or(|scheme| scheme == destination.scheme)
            && self.host.have(&destination.host)
            && self.ports.have(destination.port)
    }

    /// Returns whether it grants only requests over TLS, and not to every host.
    #[must_use]
    pub fn is_of_hosts_by_tls(&self) -> bool {
        let is_all = match &self.host {
            Hosts::All => true,
            Hosts::Network(network) => network.prefix_len() == 0,
            Hosts::Own | Hosts::Below(_) | Hosts::Name(_) => false,
        };
        self.scheme == Some(Scheme::Https) && !is_all
    }
}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        if text.contains(['{', '}']) {
            return Err(GrantError::Braces);
        }
        let (scheme, rest) = text.split_once("://").ok_or(GrantError::NoScheme)?;
        let scheme = match scheme {
            "*" => None,
            name => Some(Scheme::parse(name).ok_or(GrantError::Scheme)?),
        };
        if rest.contains('@') {
            return Err(GrantError::UserInformation);
        }
        if rest.contains(['?', '#', '\\']) {
            return Err(GrantError::Path);
        }
        // A lone slash at the end has no meaning, and Spin accepts it.
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split_port(rest);
        if port.is_some_and(|port| port.contains('/')) {
            return Err(GrantError::Path);
        }
        let host = Hosts::parse(host)?;
        let ports = match (port, scheme) {
            (Some(port), _) => Ports::parse(port)?,
            (None, Some(scheme)) => Ports::One(scheme.default_port()),
            (None, None) if host.is_own() => return Err(GrantError::OwnByOther),
            (None, None) => return Err(GrantError::NoPort),
        };
        let by_http = (Some(Scheme::Http), Ports::One(Scheme::Http.default_port()));
        if host.is_own() && (scheme, &ports) != (by_http.0, &by_http.1) {
            return Err(GrantError::OwnByOther);
        }
        Ok(Self {
            scheme,
            host,
            ports,
        })
    }
}

impl Hosts {
    fn parse(text: &str) -> Result<Self, GrantError> {
        if let Some((address, prefix)) = text.split_once('/') {
            // A network begins with an address; otherwise the text is a host and a path.
            let is_address = address.starts_with('[') || address.parse::<IpAddr>().is_ok();
            if !is_address || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(GrantError::Path);
            }
            return Ok(Self::Network(AllowPrivate::network(text)?));
        }
        if text == "*" {
            return Ok(Self::All);
        }
        if let Some(below) = text.strip_prefix("*.") {
            if below.contains('*') {
                return Err(GrantError::Wildcard);
            }
            return match Name::parse(below)? {
                name if name.is_all() => Err(GrantError::OwnByOther),
                name => Ok(Self::Below(name)),
            };
        }
        if text.contains('*') {
            return Err(GrantError::Wildcard);
        }
        match Host::parse(text)? {
            Host::Address(address) => Ok(Self::Network(address.into())),
            Host::Name(name) if name.is_all() => Ok(Self::Own),
            Host::Name(name) if name.function().is_some_and(|label| !is_label(label)) => {
                Err(GrantError::OwnByOther)
            }
            Host::Name(name) => Ok(Self::Name(name)),
        }
    }

    /// Returns whether it grants only the node's own functions.
    fn is_own(&self) -> bool {
        match self {
            Self::Own => true,
            Self::Below(name) | Self::Name(name) => name.is_own(),
            Self::All | Self::Network(_) => false,
        }
    }

    fn have(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::All, Host::Name(name)) => !name.is_own(),
            (Self::All, Host::Address(_)) => true,
            (Self::Own, Host::Name(name)) => name.is_all(),
            (Self::Name(granted), Host::Name(name)) => granted == name,
            (Self::Below(granted), Host::Name(name)) => {
                let before = name.as_str().strip_suffix(granted.as_str());
                before.is_some_and(|before| before.ends_with('.'))
                    && name.is_own() == granted.is_own()
            }
            (Self::Network(network), Host::Address(address)) => network.contains(address),
            _ => false,
        }
    }
}

/// Returns whether the text is a single label of a name.
fn is_label(text: &str) -> bool {
    !text.is_empty() && !text.contains('.')
}

impl Ports {
    fn parse(text: &str) -> Result<Self, GrantError> {
        if text == "*" {
            return Ok(Self::All);
        }
        let Some((from, to)) = text.split_once("..") else {
            return parse_port(text).map(Self::One).ok_or(GrantError::Port);
        };
        let from = parse_port(from).ok_or(GrantError::Port)?;
        let to = parse_port(to).ok_or(GrantError::Port)?;
        if from < to {
            Ok(Self::From(from, to))
        } else {
            Err(GrantError::EmptyPorts)
        }
    }

    fn have(&self, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::One(granted) => *granted == port,
            Self::From(from, to) => (*from..*to).contains(&port),
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.map_or("*", Scheme::as_str))?;
        match &self.host {
            Hosts::All => f.write_str("*")?,
            Hosts::Own => f.write_str("self")?,
            Hosts::Below(name) => write!(f, "*.{name}")?,
            Hosts::Name(name) => name.fmt(f)?,
            Hosts::Network(network) => {
                Host::Address(network.addr()).fmt(f)?;
                if network.prefix_len() < network.max_prefix_len() {
                    write!(f, "/{}", network.prefix_len())?;
                }
            }
        }
        match &self.ports {
            Ports::All => f.write_str(":*"),
            Ports::One(port) if self.scheme.map(Scheme::default_port) == Some(*port) => Ok(()),
            Ports::One(port) => write!(f, ":{port}"),
            Ports::From(from, to) => write!(f, ":{from}..{to}"),
        }
    }
}
