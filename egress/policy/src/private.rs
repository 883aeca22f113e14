//! What an operator opens of the addresses that nobody may have.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::hidden::{hidden, mapped};
use crate::host::ipv6;
use crate::{HostError, Special};

/// Special networks that functions may reach all the same: `--allow-private CIDR`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowPrivate {
    networks: Vec<IpNet>,
}

/// An address that may not be connected to, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prohibited {
    /// What is special: the address, or one that it hides.
    pub address: IpAddr,
    /// Why.
    pub special: Special,
}

impl fmt::Display for Prohibited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not to be reached: {}", self.address, self.special)
    }
}

impl std::error::Error for Prohibited {}

/// Why something is no network; says what to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkError {
    /// The address is none.
    Address(HostError),
    /// The length of its prefix is none.
    Prefix,
    /// Bits behind the prefix are set; this is the network.
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

    /// The networks.
    #[must_use]
    pub fn networks(&self) -> &[IpNet] {
        &self.networks
    }

    /// The network that `text` spells: `10.0.0.0/8`, `fd00::/8`, brackets or not, or an address.
    ///
    /// # Errors
    /// For anything else.
    pub fn network(text: &str) -> Result<IpNet, NetworkError> {
        parse_network(text)
    }

    /// Whether somebody may be connected to `address`, and to all that it hides.
    ///
    /// # Errors
    /// With what is special, and why.
    pub fn permits(&self, address: IpAddr) -> Result<(), Prohibited> {
        // The kernel connects to the IPv4 address of a mapped one: there is no other.
        let address = mapped(address);
        self.permits_as_it_is(address)?;
        hidden(address).try_for_each(|hidden| self.permits_as_it_is(hidden.into()))
    }

    /// Whether `address` is in one of the networks. This host's own addresses are reached so
    /// alone, for a service that listens at all of them listens at public ones too.
    #[must_use]
    pub fn opens(&self, address: IpAddr) -> bool {
        let address = mapped(address);
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
            // What gives out an instance's credentials is not opened by a wide network that it
            // happens to be in.
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

/// A network, or an address as one.
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
