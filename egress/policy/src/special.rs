//! Addresses that do not belong to servers on the internet.
//!
//! The tables contain IANA's special-purpose registries for IPv4 and IPv6 of 2025 completely,
//! including entries that the registries call globally reachable (AS112, relays, anycast of
//! protocols), because functions do not call such servers. They also contain multicast addresses,
//! metadata services of clouds ([`METADATA_SERVICES`]), and all IPv6 addresses that are not global
//! unicast.
//!
//! [`METADATA_SERVICES`]: crate::METADATA_SERVICES

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::metadata::is_metadata;

/// The kind of an address that does not belong to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `0.0.0.0` and `::`: this host, on most systems.
    Unspecified,
    /// An address of many hosts.
    Multicast,
    /// An address of all hosts of a network.
    Broadcast,
    /// A cloud's metadata service, which hands out an instance's credentials.
    Metadata,
    /// This host.
    Loopback,
    /// A private network.
    Private,
    /// A link-local network, without routers.
    LinkLocal,
    /// A network between a provider and its customers.
    Shared,
    /// For protocols, translators and relays.
    Protocol,
    /// For examples in documents, and for measurements.
    Documentation,
    /// Not assigned.
    Reserved,
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "an unspecified address",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Metadata => "a metadata service's address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Shared => "an address between a provider and its customers",
            Self::Protocol => "an address of a protocol, translator or relay",
            Self::Documentation => "an address for documentation or measurement",
            Self::Reserved => "a reserved address",
        })
    }
}

/// Ranges of IPv4: the first and the last address. The first match counts.
pub const SPECIAL_V4: &[(Ipv4Addr, Ipv4Addr, Special)] = &[
    four([0, 0, 0, 0], 32, Special::Unspecified),
    four([255, 255, 255, 255], 32, Special::Broadcast),
    four([0, 0, 0, 0], 8, Special::Reserved),
    four([10, 0, 0, 0], 8, Special::Private),
    four([100, 64, 0, 0], 10, Special::Shared),
    four([127, 0, 0, 0], 8, Special::Loopback),
    four([169, 254, 0, 0], 16, Special::LinkLocal),
    four([172, 16, 0, 0], 12, Special::Private),
    four([192, 0, 0, 0], 24, Special::Protocol),
    four([192, 0, 2, 0], 24, Special::Documentation),
    four([192, 31, 196, 0], 24, Special::Protocol),
    four([192, 52, 193, 0], 24, Special::Protocol),
    four([192, 88, 99, 0], 24, Special::Protocol),
    four([192, 168, 0, 0], 16, Special::Private),
    four([192, 175, 48, 0], 24, Special::Protocol),
    four([198, 18, 0, 0], 15, Special::Documentation),
    four([198, 51, 100, 0], 24, Special::Documentation),
    four([203, 0, 113, 0], 24, Special::Documentation),
    four([224, 0, 0, 0], 4, Special::Multicast),
    four([240, 0, 0, 0], 4, Special::Reserved),
];

/// Ranges of IPv6, likewise. NAT64 with its well-known prefix is not listed: it is judged by the
/// embedded IPv4 address, as are IPv4-mapped addresses.
pub const SPECIAL_V6: &[(Ipv6Addr, Ipv6Addr, Special)] = &[
    six([0, 0, 0, 0, 0, 0, 0, 0], 128, Special::Unspecified),
    six([0, 0, 0, 0, 0, 0, 0, 1], 128, Special::Loopback),
    six([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Special::Protocol),
    six([0x100, 0, 0, 0, 0, 0, 0, 0], 64, Special::Reserved),
    six([0x100, 0, 0, 1, 0, 0, 0, 0], 64, Special::Reserved),
    // Includes Teredo, benchmarking, ORCHID and anycast of protocols.
    six([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Special::Protocol),
    six(
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0],
        32,
        Special::Documentation,
    ),
    six([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Special::Protocol),
    six([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, Special::Protocol),
    six([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Special::Documentation),
    six([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Special::Protocol),
    six([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Special::Private),
    six([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Special::LinkLocal),
    six([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Special::Private),
    six([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Special::Multicast),
];

/// Ranges of IPv6 in which servers can be: global unicast, and NAT64 with its well-known prefix.
const GLOBAL_V6: [(Ipv6Addr, Ipv6Addr, ()); 2] = [
    six([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, ()),
    six([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, ()),
];

const fn four<T>(octets: [u8; 4], prefix: u32, what: T) -> (Ipv4Addr, Ipv4Addr, T) {
    let first = u32::from_be_bytes(octets);
    let last = match u32::MAX.checked_shr(prefix) {
        Some(host) => first | host,
        None => first,
    };
    (Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last), what)
}

const fn six<T>(segments: [u16; 8], prefix: u32, what: T) -> (Ipv6Addr, Ipv6Addr, T) {
    let [a, b, c, d, e, f, g, h] = segments;
    let first = Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits();
    let last = match u128::MAX.checked_shr(prefix) {
        Some(host) => first | host,
        None => first,
    };
    (Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last), what)
}

fn find<A: PartialOrd, T: Copy>(table: &[(A, A, T)], address: &A) -> Option<T> {
    let fits = |(first, last, _): &&(A, A, T)| first <= address && address <= last;
    table.iter().find(fits).map(|(.., what)| *what)
}

impl Special {
    /// Returns whether an operator can open an address of this kind. An address that stands for
    /// many hosts, or for none, cannot be opened.
    #[must_use]
    pub fn can_be_opened(self) -> bool {
        !matches!(self, Self::Unspecified | Self::Multicast | Self::Broadcast)
    }

    /// Returns the kind of `address`; `None` if it can belong to a server. Embedded addresses are
    /// not checked.
    #[must_use]
    pub fn of(address: IpAddr) -> Option<Self> {
        if is_metadata(address) {
            return Some(Self::Metadata);
        }
        match address {
            IpAddr::V4(address) => find(SPECIAL_V4, &address),
            IpAddr::V6(address) => match find(SPECIAL_V6, &address) {
                Some(special) => Some(special),
                None if find(&GLOBAL_V6, &address).is_some() => None,
                None => Some(Self::Reserved),
            },
        }
    }
}
