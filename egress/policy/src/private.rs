//! The special addresses that an operator opens for functions.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::embedded_ipv4::{embedded, unmapped};
use crate::host::ipv6;
use crate::{HostError, Special};

/// Special networks that functions may reach nevertheless: `--allow-private CIDR`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowPrivate {
    networks: Vec<IpNet>,
}

/// An address that must not be connected to, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prohibited {
    /// The special address: the address itself, or one that it embeds.
    pub address: IpAddr,
    /// The kind of special address.
    pub special: Special,
}

impl fmt::Display for Prohibited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not to be reached: {}", self.address, self.special)
    }
}

impl std::error::Error for Prohibited {}

/// Why a text is not a network. The message says what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// The address is invalid.
    Address(HostError),
    /// The length of the prefix is invalid.
    Prefix,
    /// Bits after the prefix are set; this is the network without them.
    HostBits(IpNet),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::Prefix => {
                f.write_str("write the length of the prefix: `/0` to `/32`, for IPv6 to `/128`")
            }
            Self::HostBits(network) => {
                write!(
                    f,
                    "bits behind the prefix are set: write `{network}`, or the address alone"
                )
            }
        }
    }
}

impl std::error::Error for NetworkError {}

impl AllowPrivate {
    /// Opens these networks.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self { networks }
    }

    /// Returns the networks.
    #[must_use]
    pub fn networks(&self) -> &[IpNet] {
        &self.networks
    }

    /// Parses a network such as `10.0.0.0/8` or `fd00::/8`, with or without brackets, or an
    /// address.
    ///
    /// # Errors
    /// Returns [`NetworkError`] if the text is anything else.
    pub fn network(text: &str) -> Result<IpNet, NetworkError> {
        parse_network(text)
    }

    /// Checks that connections to `address`, and to all addresses that it embeds, are permitted.
    ///
    /// # Errors
    /// Returns the special address and its kind.
    pub fn permits(&self, address: IpAddr) -> Result<(), Prohibited> {
        // The kernel connects to the IPv4 address of a mapped one, which has no other meaning.
        let address = unmapped(address);
        self.permits_as_it_is(address)?;
        embedded(address).try_for_each(|embedded| self.permits_as_it_is(embedded.into()))
    }

    /// Returns whether `address` is in one of the networks. Only then may functions reach an
    /// address of this host, because a service that listens on all addresses also listens on the
    /// public ones.
    #[must_use]
    pub fn opens(&self, address: IpAddr) -> bool {
        let address = unmapped(address);
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }

    fn permits_as_it_is(&self, address: IpAddr) -> Result<(), Prohibited> {
        let Some(special) = Special::of(address) else {
            return Ok(());
        };
        let is_lifted = match special {
            special if !special.can_be_opened() => false,
            // A metadata service hands out an instance's credentials, so a wide network that
            // happens to contain it does not open it.
            Special::Metadata => self.networks.contains(&address.into()),
            _ => self
                .networks
                .iter()
                .any(|network| network.contains(&address)),
        };
        if is_lifted {
            Ok(())
        } else {
            Err(Prohibited { address, special })
        }
    }
}

/// Parses a network, or an address as a network of one.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, NetworkError> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let inner = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = match inner {
        Some(inner) => ipv6(inner).map(IpAddr::V6),
        None if address.contains(':') => ipv6(address).map(IpAddr::V6),
        None if address.is_empty() => Err(HostError::Empty),
        None => match address.parse::<Ipv4Addr>() {
            Ok(address) => Ok(IpAddr::V4(address)),
            Err(_) => Err(HostError::OtherSpelling),
        },
    }
    .map_err(NetworkError::Address)?;
    let Some(prefix) = prefix else {
        return Ok(address.into());
    };
    let is_plain = prefix.bytes().all(|byte| byte.is_ascii_digit())
        && (prefix == "0" || !prefix.starts_with('0'));
    let length = prefix.parse().ok().filter(|_| is_plain);
    let network = length.and_then(|length| IpNet::new(address, length).ok());
    let network = network.ok_or(NetworkError::Prefix)?;
    if network.trunc() == network {
        Ok(network)
    } else {
        Err(NetworkError::HostBits(network.trunc()))
    }
}
