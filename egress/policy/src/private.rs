//! The special addresses that an operator opens for functions.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use thiserror::Error;

use crate::embedded_ipv4::embedded;
use crate::host::ipv6;
use crate::{HostError, Special};

/// Special networks that functions may reach nevertheless: `--allow-private CIDR`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowPrivate {
    networks: Vec<IpNet>,
}

/// An address that must not be connected to, and the reason.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{address} is not to be reached: {special}")]
pub struct Prohibited {
    /// The special address: the address itself, or one that it embeds.
    pub address: IpAddr,
    /// The kind of special address.
    pub special: Special,
}

/// Why a text is not a network. The message says what to write instead.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NetworkError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] HostError),
    /// The length of the prefix is invalid.
    #[error("write the length of the prefix: `/0` to `/32`, for IPv6 to `/128`")]
    Prefix,
    /// Bits after the prefix are set; this is the network without them.
    #[error("bits behind the prefix are set: write `{0}`, or the address alone")]
    HostBits(IpNet),
}

impl AllowPrivate {
    /// Opens these networks.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self { networks }
    }

    /// Parses a network such as `10.0.0.0/8` or `fd00::/8`, with or without brackets, or an
    /// address as a network of one.
    ///
    /// # Errors
    /// Returns [`NetworkError`] if the text is anything else.
    pub fn network(text: &str) -> Result<IpNet, NetworkError> {
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
        }?;
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

    /// Checks that connections to `address`, and to all addresses that it embeds, are permitted.
    ///
    /// # Errors
    /// Returns the special address and its kind.
    pub fn permits(&self, address: IpAddr) -> Result<(), Prohibited> {
        // The kernel connects to the IPv4 address of a mapped one, which has no other meaning.
        let address = address.to_canonical();
        self.permits_as_it_is(address)?;
        embedded(address).try_for_each(|embedded| self.permits_as_it_is(embedded.into()))
    }

    /// Returns whether `address` is in one of the networks. Only then may functions reach an
    /// address of this host, because a service that listens on all addresses also listens on the
    /// public ones.
    #[must_use]
    pub fn opens(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
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
            _ => self.opens(address),
        };
        if is_lifted {
            Ok(())
        } else {
            Err(Prohibited { address, special })
        }
    }
}
