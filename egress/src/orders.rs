//! The protocol between node and connector, and the packet that carries a connection to a worker.
//!
//! Each message is one packet of a `SOCK_SEQPACKET` Unix socket: a header, and a body whose size
//! its kind fixes. Host names and addresses are spelled as `faasw-egress-policy` prints them, and
//! parsed by it again.
//!
//! ```text
//!   node ── Configure ────────────────────────▶ connector   once, first
//!   node ── Names (hosts attached) ───────────▶ connector   again when they change
//!   node ── AddWorker (socket attached) ──────▶ connector
//!   node ── RemoveWorker, Connect, Cancel ────▶ connector
//!   node ── Probe ────────────────────────────▶ connector   when it has been silent
//!   node ◀── Connected, Unconnected, Alive ──── connector
//!   connector ── Passed (connection attached) ─▶ worker
//! ```

use std::net::{IpAddr, SocketAddr};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_egress_policy::{Host, NAME_MAX};
use ipnet::IpNet;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::ProtocolViolation;

/// First word of each packet. Its last byte is the protocol version.
pub const MAGIC: u32 = u32::from_le_bytes(*b"EGR\x03");

/// Most networks that an operator may open.
pub const NETWORKS_MAX: usize = 64;

/// Most name servers.
pub const SERVERS_MAX: usize = 8;

/// Most bytes of `/etc/hosts`.
pub const HOSTS_MAX: u64 = 4 << 20;

/// A message of this protocol.
pub trait Order: IntoBytes + TryFromBytes + Immutable + KnownLayout {
    /// The kind of the message.
    const KIND: OrderKind;
}

/// The header of each packet.
#[derive(Clone, Copy, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OrderHeader {
    /// [`MAGIC`].
    pub magic: u32,
    /// The kind of the body that follows.
    pub kind: OrderKind,
}

macro_rules! orders {
    ($(
        $(#[$doc:meta])*
        $name:ident = $number:literal { $($(#[$field_doc:meta])* $field:ident : $type:ty),* $(,)? }
    )*) => {
        /// The kind of a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(TryFromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(u32)]
        pub enum OrderKind {
            $(#[doc = concat!("[`", stringify!($name), "`].")] $name = $number,)*
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[derive(TryFromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $($(#[$field_doc])* pub $field: $type),* }

            impl Order for $name {
                const KIND: OrderKind = OrderKind::$name;
            }
        )*
    };
}

orders! {
    /// Node to connector: private networks, and limits for all orders.
    Configure = 1 {
        /// How long a name's addresses are cached at most, in seconds, whatever TTL the server
        /// sends; 0 disables the cache.
        cache_seconds: u64,
        /// How many orders of each function may be under way, whatever other functions have.
        orders_floor: u64,
        /// How many more orders functions may share beyond those.
        orders_shared: u64,
        /// Special networks that functions may reach nevertheless.
        private: [WireNetwork; NETWORKS_MAX],
    }

    /// Node to connector: how names are resolved from now on. Attached: the content of `/etc/hosts`
    /// as a file, unless it is empty.
    Names = 6 {
        /// Size of the content, from the file's beginning, in bytes; at most [`HOSTS_MAX`].
        hosts_bytes: u64,
        /// Name servers, in order of preference.
        servers: [WireServer; SERVERS_MAX],
    }

    /// Node to connector: a liveness probe. The connector answers with [`Alive`] at once.
    Probe = 7 {}

    /// Connector to node: the answer to [`Probe`].
    Alive = 18 {}

    /// Node to connector: adds a worker. Attached: the socket on which connections are passed to
    /// it.
    AddWorker = 2 {
        /// The number of the worker, which is never reused.
        worker: u64,
        /// The number of its function, which the function's workers share: limits count by it.
        function: u64,
    }

    /// Node to connector: a worker is gone.
    RemoveWorker = 3 {
        /// The number of the worker.
        worker: u64,
    }

    /// Node to connector: connect for a call, and pass the connection to a worker. The connector
    /// answers once, with [`Connected`] or [`Unconnected`], unless the order is cancelled.
    Connect = 4 {
        /// The call.
        call: u64,
        /// The worker that the connection is passed to.
        worker: u64,
        /// How long this may take for all addresses of a name, in nanoseconds.
        timeout: u64,
        /// The host to connect to.
        host: WireHost,
    }

    /// Node to connector: the connection of this call is no longer wanted.
    Cancel = 5 {
        /// The call.
        call: u64,
    }

    /// Connector to node: the connection was passed to the worker.
    Connected = 16 {
        /// The call.
        call: u64,
    }

    /// Connector to node: there is no connection, and why.
    Unconnected = 17 {
        /// The call.
        call: u64,
        /// A [`FailureCode`].
        code: u64,
        /// With [`FailureCode::DnsError`], the name server's response code (RFC 1035, 4.1.1) plus
        /// 1; 0 if there is none.
        rcode: u64,
        /// With [`FailureCode::DestinationIpProhibited`], the address that the policy refuses.
        refused: WireAddress,
        /// Zeros.
        reserved: [u16; 3],
    }

    /// Connector to worker: a connection, attached.
    Passed = 32 {
        /// The call.
        call: u64,
    }
}

/// A host and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WireHost {
    /// The host as it prints, followed by zeros.
    pub text: [u8; NAME_MAX + 1],
    /// The port.
    pub port: u16,
}

impl WireHost {
    /// Encodes a host and a port. Returns `None` if the host is too long.
    #[must_use]
    pub fn new(host: &Host, port: u16) -> Option<Self> {
        let host = host.to_string();
        let mut text = [0; NAME_MAX + 1];
        text.get_mut(..host.len())?.copy_from_slice(host.as_bytes());
        Some(Self { text, port })
    }

    /// Decodes the host. Returns `None` if it is spelled in any other way than by
    /// [`new`](Self::new), or if the port is 0.
    #[must_use]
    pub fn read(&self) -> Option<(Host, u16)> {
        let end = self.text.iter().position(|byte| *byte == 0)?;
        let (text, rest) = self.text.split_at_checked(end)?;
        let host = Host::parse(std::str::from_utf8(text).ok()?).ok()?;
        let is_plain = rest.iter().all(|byte| *byte == 0) && host.to_string().as_bytes() == text;
        (is_plain && self.port != 0).then_some((host, self.port))
    }
}

/// An address of a network or of a server; none if `family` is 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WireAddress {
    /// Big-endian; an IPv4 address uses the first four.
    octets: [u8; 16],
    /// 0, 4 or 6.
    family: u16,
}

impl WireAddress {
    fn new(address: IpAddr) -> Self {
        let mut octets = [0; 16];
        let family = match address {
            IpAddr::V4(address) => {
                let [a, b, c, d, ..] = &mut octets;
                [*a, *b, *c, *d] = address.octets();
                4
            }
            IpAddr::V6(address) => {
                octets = address.octets();
                6
            }
        };
        Self { octets, family }
    }

    fn read(self) -> Option<IpAddr> {
        let [a, b, c, d, ..] = self.octets;
        match self.family {
            4 => Some(IpAddr::from([a, b, c, d])),
            6 => Some(IpAddr::from(self.octets)),
            _ => None,
        }
    }
}

/// A name server, or none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WireServer {
    address: WireAddress,
    port: u16,
}

impl From<SocketAddr> for WireServer {
    fn from(server: SocketAddr) -> Self {
        Self {
            address: WireAddress::new(server.ip()),
            port: server.port(),
        }
    }
}

impl WireServer {
    /// Returns the server; `None` if there is none.
    #[must_use]
    pub fn read(self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address.read()?, self.port))
    }
}

/// A network, or none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WireNetwork {
    address: WireAddress,
    prefix: u16,
}

impl From<IpNet> for WireNetwork {
    fn from(network: IpNet) -> Self {
        Self {
            address: WireAddress::new(network.addr()),
            prefix: network.prefix_len().into(),
        }
    }
}

impl WireNetwork {
    /// Returns the network; `None` if there is none.
    #[must_use]
    pub fn read(self) -> Option<IpNet> {
        IpNet::new(self.address.read()?, u8::try_from(self.prefix).ok()?).ok()
    }
}

impl Unconnected {
    /// Creates an answer with this code.
    #[must_use]
    pub fn new(call: u64, code: FailureCode) -> Self {
        Self {
            call,
            code: code as u64,
            rcode: 0,
            refused: WireAddress::default(),
            reserved: [0; 3],
        }
    }

    /// Adds the response code of a name server.
    #[must_use]
    pub fn with_rcode(mut self, rcode: Option<u16>) -> Self {
        self.rcode = rcode.map_or(0, |rcode| u64::from(rcode) + 1);
        self
    }

    /// Adds the address that the policy refuses.
    #[must_use]
    pub fn with_refused(mut self, address: Option<IpAddr>) -> Self {
        self.refused = address.map(WireAddress::new).unwrap_or_default();
        self
    }

    /// Returns the address that the policy refuses, if that is the reason.
    #[must_use]
    pub fn refused(&self) -> Option<IpAddr> {
        let is_refused = self.code == FailureCode::DestinationIpProhibited as u64;
        self.refused.read().filter(|_| is_refused)
    }

    /// Returns the failure that the function receives. An unknown code becomes an internal error.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let code = u8::try_from(self.code).ok();
        let code = code.and_then(|code| FailureCode::try_read_from_bytes(&[code]).ok());
        match code {
            Some(FailureCode::DnsError) => {
                let text = match self.rcode.checked_sub(1) {
                    Some(1) => "FORMERR",
                    Some(2) => "SERVFAIL",
                    Some(3) => "NXDOMAIN",
                    Some(4) => "NOTIMP",
                    Some(5) => "REFUSED",
                    _ => "no answer",
                };
                Failure::with_text(FailureCode::DnsError, text)
            }
            Some(code) => Failure::new(code),
            None => Failure::new(FailureCode::InternalError),
        }
    }
}

/// Returns the kind of a packet, if it is a packet of this protocol.
#[must_use]
pub fn kind(packet: &[u8]) -> Option<OrderKind> {
    let (header, _) = OrderHeader::try_read_from_prefix(packet).ok()?;
    (header.magic == MAGIC).then_some(header.kind)
}

/// Decodes the order in a packet.
///
/// # Errors
/// Returns [`ProtocolViolation`] if the packet is not of this type and exactly its size.
pub fn read<O: Order>(packet: &[u8]) -> Result<O, ProtocolViolation> {
    let is_it = kind(packet) == Some(O::KIND);
    let body = packet.get(size_of::<OrderHeader>()..).filter(|_| is_it);
    let order = body.and_then(|body| O::try_read_from_bytes(body).ok());
    order.ok_or(ProtocolViolation)
}

/// Encodes an order as a packet.
#[must_use]
pub fn encode<O: Order>(order: &O) -> Vec<u8> {
    let header = OrderHeader {
        magic: MAGIC,
        kind: O::KIND,
    };
    [header.as_bytes(), order.as_bytes()].concat()
}

/// Size of the largest packet, in bytes.
pub const PACKET_MAX: usize = size_of::<OrderHeader>() + size_of::<Configure>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_out_as_they_went_in_and_in_no_other_spelling() {
        for text in ["a.example", "127.0.0.1", "[2001:db8::1]", &"a.".repeat(126)] {
            let host = Host::parse(text).unwrap();
            let wire = WireHost::new(&host, 443).unwrap();
            assert_eq!(wire.read(), Some((host, 443)));
            let other = |change: fn(&mut WireHost)| {
                let mut other = wire;
                change(&mut other);
                other.read()
            };
            assert_eq!(other(|host| host.port = 0), None);
            assert_eq!(other(|host| host.text[253] = b'a'), None);
            assert_eq!(other(|host| host.text.fill(b'a')), None);
            assert_eq!(other(|host| host.text[0] = b'A'), None);
            assert_eq!(other(|host| host.text[0] = 0), None);
        }
    }

    #[test]
    fn networks_and_servers_come_out_as_they_went_in() {
        for network in ["10.0.0.0/8", "fd00::/8", "0.0.0.0/0"] {
            let network: IpNet = network.parse().unwrap();
            assert_eq!(WireNetwork::from(network).read(), Some(network));
        }
        for server in ["127.0.0.53:53", "[::1]:5353"] {
            let server: SocketAddr = server.parse().unwrap();
            assert_eq!(WireServer::from(server).read(), Some(server));
        }
        assert_eq!(WireNetwork::default().read(), None);
        assert_eq!(WireServer::default().read(), None);
        let mut wrong = WireNetwork::from("10.0.0.0/8".parse::<IpNet>().unwrap());
        wrong.prefix = 33;
        assert_eq!(wrong.read(), None);
    }

    #[test]
    fn packets_of_a_wrong_size_magic_or_kind_are_refused() {
        let good = encode(&Cancel { call: 7 });
        assert_eq!(read(&good), Ok(Cancel { call: 7 }));
        assert_eq!(read::<Connected>(&good), Err(ProtocolViolation));
        assert_eq!(
            read::<Cancel>(&good[..good.len() - 1]),
            Err(ProtocolViolation)
        );
        assert_eq!(
            read::<Cancel>(&[&good[..], b"x"].concat()),
            Err(ProtocolViolation)
        );
        for (at, bit) in [(0, 1), (3, 1), (4, 0x40)] {
            let mut other = good.clone();
            other[at] ^= bit;
            assert_eq!(read::<Cancel>(&other), Err(ProtocolViolation));
        }
    }

    #[test]
    fn every_connector_report_maps_to_a_valid_failure() {
        let nxdomain = Unconnected::new(1, FailureCode::DnsError).with_rcode(Some(3));
        let nxdomain = nxdomain.failure();
        assert_eq!(nxdomain.text.as_deref(), Some(&b"NXDOMAIN"[..]));
        let refused = Unconnected::new(1, FailureCode::ConnectionRefused).failure();
        assert_eq!(refused, Failure::new(FailureCode::ConnectionRefused));
        for code in [39, 256, u64::MAX] {
            let mut unconnected = Unconnected::new(1, FailureCode::DnsError);
            (unconnected.code, unconnected.rcode) = (code, u64::MAX);
            assert_eq!(unconnected.failure().code, FailureCode::InternalError);
        }
        for address in ["10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap()) {
            let refused = Unconnected::new(1, FailureCode::DestinationIpProhibited);
            let refused = refused.with_refused(Some(address));
            assert_eq!(refused.refused(), Some(address));
            let other = Unconnected::new(1, FailureCode::DnsError).with_refused(Some(address));
            assert_eq!(other.refused(), None);
        }
    }
}
