//! IPv4 addresses that are embedded in IPv6 addresses: a packet to the latter may reach the former.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the IPv4 addresses that an address may lead to.
pub fn embedded(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
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
    // ISATAP (RFC 5214, 6.1), after any prefix.
    let isatap = matches!((s4, s5), (0 | 0x200, 0x5efe)).then_some(last);
    match address.segments() {
        // The unspecified and the loopback address embed none: they are special themselves.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 4],
        // IPv4-compatible (RFC 4291, 2.5.5.1); NAT64 with its well-known prefix (RFC 6052).
        [0, 0, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => [Some(last), None, None, None],
        // NAT64 with a network-specific prefix (RFC 8215) of unknown length: 96, 48, 56 or 64 bits.
        // After a prefix of 48 to 64 bits, octet 8 is not part of the address (RFC 6052, 2.2).
        // Readings of a valid address with a wrong length mostly begin with a zero octet; no
        // translator sends to those.
        [0x64, 0xff9b, 1, ..] => [
            last,
            Ipv4Addr::new(o6, o7, o9, o10),
            Ipv4Addr::new(o7, o9, o10, o11),
            Ipv4Addr::new(o9, o10, o11, o12),
        ]
        .map(|reading| (reading.octets().first() != Some(&0)).then_some(reading)),
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(pair(s1, s2)), isatap, None, None],
        // Teredo (RFC 4380, 4): its server, and the client with all bits inverted.
        [0x2001, 0, ..] => [Some(pair(s2, s3)), Some(pair(!s6, !s7)), isatap, None],
        _ => [isatap, None, None, None],
    }
}

fn pair(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}
