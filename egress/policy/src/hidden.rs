//! IPv4 addresses within IPv6 ones: whoever sends to the one may reach the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4-mapped address (`::ffff:0:0/96`) as what it is; any other as it stands.
pub fn mapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// IPv4 addresses that an address stands for besides itself.
pub fn hidden(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let all = match address {
        IpAddr::V4(_) => [None; 4],
        IpAddr::V6(address) => within(address),
    };
    all.into_iter().flatten()
}

fn within(address: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let [.., o6, o7, _, o9, o10, o11, o12, _, _, _] = address.octets();
    let [_, s1, s2, s3, s4, s5, s6, s7] = address.segments();
    let last = pair(s6, s7);
    // ISATAP (RFC 5214, 6.1): behind any prefix.
    let isatap = matches!((s4, s5), (0 | 0x200, 0x5efe)).then_some(last);
    match address.segments() {
        // Neither unspecified nor loopback hides anything: they are special themselves.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 4],
        // Compatible (RFC 4291, 2.5.5.1); NAT64 by its well-known prefix (RFC 6052).
        [0, 0, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => [Some(last), None, None, None],
        // NAT64 by a prefix of the network's own (RFC 8215), whose length nobody says: 96, 48,
        // 56 or 64 bits, with an octet between that has none of the address (RFC 6052, 2.2).
        // Most readings of a good address are zeros, which no translator sends to.
        [0x64, 0xff9b, 1, ..] => [
            last,
            Ipv4Addr::new(o6, o7, o9, o10),
            Ipv4Addr::new(o7, o9, o10, o11),
            Ipv4Addr::new(o9, o10, o11, o12),
        ]
        .map(|reading| (reading.octets().first() != Some(&0)).then_some(reading)),
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(pair(s1, s2)), isatap, None, None],
        // Teredo (RFC 4380, 4): its server, and whom it reaches, with all bits turned over.
        [0x2001, 0, ..] => [Some(pair(s2, s3)), Some(pair(!s6, !s7)), isatap, None],
        _ => [isatap, None, None, None],
    }
}

fn pair(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}
