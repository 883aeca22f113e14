//! Every special range by its edges, and embedded IPv4 addresses.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use faasw_egress_policy::{AllowPrivate, METADATA_SERVICES, SPECIAL_V4, SPECIAL_V6, Special};
use proptest::prelude::*;

fn permits(address: impl Into<IpAddr>) -> bool {
    AllowPrivate::default().permits(address.into()).is_ok()
}

fn opened(networks: &[&str]) -> AllowPrivate {
    let read = |text: &&str| AllowPrivate::network(text).unwrap();
    AllowPrivate::new(networks.iter().map(read).collect())
}

fn at(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The registries again, by their edges: first, last, the addresses before and after, and whether
/// those two can belong to servers.
const EDGES: &[(&str, &str, &str, bool, &str, bool)] = &[
    (
        "0.0.0.0",
        "0.255.255.255",
        "0.0.0.0",
        false,
        "1.0.0.0",
        true,
    ),
    (
        "10.0.0.0",
        "10.255.255.255",
        "9.255.255.255",
        true,
        "11.0.0.0",
        true,
    ),
    (
        "100.64.0.0",
        "100.127.255.255",
        "100.63.255.255",
        true,
        "100.128.0.0",
        true,
    ),
    (
        "127.0.0.0",
        "127.255.255.255",
        "126.255.255.255",
        true,
        "128.0.0.0",
        true,
    ),
    (
        "169.254.0.0",
        "169.254.255.255",
        "169.253.255.255",
        true,
        "169.255.0.0",
        true,
    ),
    (
        "172.16.0.0",
        "172.31.255.255",
        "172.15.255.255",
        true,
        "172.32.0.0",
        true,
    ),
    (
        "192.0.0.0",
        "192.0.0.255",
        "191.255.255.255",
        true,
        "192.0.1.0",
        true,
    ),
    (
        "192.0.2.0",
        "192.0.2.255",
        "192.0.1.255",
        true,
        "192.0.3.0",
        true,
    ),
    (
        "192.31.196.0",
        "192.31.196.255",
        "192.31.195.255",
        true,
        "192.31.197.0",
        true,
    ),
    (
        "192.52.193.0",
        "192.52.193.255",
        "192.52.192.255",
        true,
        "192.52.194.0",
        true,
    ),
    (
        "192.88.99.0",
        "192.88.99.255",
        "192.88.98.255",
        true,
        "192.88.100.0",
        true,
    ),
    (
        "192.168.0.0",
        "192.168.255.255",
        "192.167.255.255",
        true,
        "192.169.0.0",
        true,
    ),
    (
        "192.175.48.0",
        "192.175.48.255",
        "192.175.47.255",
        true,
        "192.175.49.0",
        true,
    ),
    (
        "198.18.0.0",
        "198.19.255.255",
        "198.17.255.255",
        true,
        "198.20.0.0",
        true,
    ),
    (
        "198.51.100.0",
        "198.51.100.255",
        "198.51.99.255",
        true,
        "198.51.101.0",
        true,
    ),
    (
        "203.0.113.0",
        "203.0.113.255",
        "203.0.112.255",
        true,
        "203.0.114.0",
        true,
    ),
    (
        "224.0.0.0",
        "239.255.255.255",
        "223.255.255.255",
        true,
        "240.0.0.0",
        false,
    ),
    (
        "240.0.0.0",
        "255.255.255.255",
        "239.255.255.255",
        false,
        "255.255.255.255",
        false,
    ),
    ("::", "::", "::", false, "::1", false),
    ("::1", "::1", "::", false, "::2", false),
    // IPv4-compatible addresses, then unassigned ones.
    ("::2", "::ffff:ffff", "::1", false, "::1:0:0", false),
    // Unassigned, up to the well-known prefix of NAT64, and after it.
    (
        "::1:0:0:0",
        "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff",
        "::1",
        false,
        "64:ff9b::808:808",
        true,
    ),
    (
        "64:ff9b::1:0:0",
        "64:ff9b:0:ffff:ffff:ffff:ffff:ffff",
        "64:ff9b::808:808",
        true,
        "64:ff9b:1::",
        false,
    ),
    (
        "64:ff9b:1::",
        "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
        "64:ff9b:0:ffff::",
        false,
        "64:ff9b:2::",
        false,
    ),
    (
        "100::",
        "100::ffff:ffff:ffff:ffff",
        "ff:ffff::",
        false,
        "100:0:0:1::",
        false,
    ),
    (
        "100:0:0:1::",
        "100::1:ffff:ffff:ffff:ffff",
        "100::ffff",
        false,
        "100:0:0:2::",
        false,
    ),
    (
        "2001::",
        "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        true,
        "2001:200::",
        true,
    ),
    (
        "2001:db8::",
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
        true,
        "2001:db9::",
        true,
    ),
    (
        "2002::",
        "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        true,
        "2003::",
        true,
    ),
    (
        "2620:4f:8000::",
        "2620:4f:8000:ffff:ffff:ffff:ffff:ffff",
        "2620:4f:7fff:ffff:ffff:ffff:ffff:ffff",
        true,
        "2620:4f:8001::",
        true,
    ),
    (
        "3fff::",
        "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        true,
        "3fff:1000::",
        true,
    ),
    (
        "4000::",
        "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        true,
        "5f00::",
        false,
    ),
    (
        "5f00::",
        "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "5eff::",
        false,
        "5f01::",
        false,
    ),
    (
        "fc00::",
        "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "fbff::",
        false,
        "fe00::",
        false,
    ),
    (
        "fe80::",
        "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "fe7f::",
        false,
        "fec0::",
        false,
    ),
    (
        "fec0::",
        "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "febf::",
        false,
        "ff00::",
        false,
    ),
    (
        "ff00::",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "feff::",
        false,
        "ff02::1",
        false,
    ),
];

#[test]
fn every_special_range_is_refused_to_its_edges_and_no_further() {
    for (first, last, before, before_is_free, behind, behind_is_free) in EDGES {
        assert!(!permits(at(first)), "{first}");
        assert!(!permits(at(last)), "{last}");
        assert_eq!(permits(at(before)), *before_is_free, "{before}");
        assert_eq!(permits(at(behind)), *behind_is_free, "{behind}");
    }
}

#[test]
fn no_range_of_the_tables_has_an_edge_that_is_permitted() {
    for (first, last, _) in SPECIAL_V4 {
        assert!(
            first <= last && !permits(*first) && !permits(*last),
            "{first} {last}"
        );
    }
    for (first, last, _) in SPECIAL_V6 {
        assert!(
            first <= last && !permits(*first) && !permits(*last),
            "{first} {last}"
        );
    }
}

#[test]
fn a_metadata_service_is_opened_by_its_own_address_alone() {
    let wide = opened(&[
        "0.0.0.0/0",
        "100.64.0.0/10",
        "168.63.129.0/24",
        "169.254.0.0/16",
        "192.0.0.0/24",
        "::/0",
        "fc00::/7",
        "fd00::/8",
        "fe80::/10",
    ]);
    for service in METADATA_SERVICES {
        let address = service.address;
        let refused = AllowPrivate::default().permits(address).unwrap_err();
        assert_eq!(refused.special, Special::Metadata, "{service:?}");
        let refused = wide.permits(address).unwrap_err();
        assert_eq!(refused.special, Special::Metadata, "{service:?}");
        let alone = opened(&[&address.to_string()]);
        assert_eq!(alone.permits(address), Ok(()), "{service:?}");
        // The neighbours are of the kind of their network.
        let neighbour = match address {
            IpAddr::V4(four) => Ipv4Addr::from_bits(four.to_bits() ^ 0x80).into(),
            IpAddr::V6(six) => IpAddr::from(Ipv6Addr::from_bits(six.to_bits() ^ 0x8000)),
        };
        assert_eq!(wide.permits(neighbour), Ok(()), "beside {service:?}");
        if let IpAddr::V4(four) = address {
            for place in hiding_places(four) {
                assert!(wide.permits(place).is_err(), "{place} hides {service:?}");
            }
        }
    }
}

#[test]
fn each_metadata_service_is_listed_once_with_its_source() {
    for (at, service) in METADATA_SERVICES.iter().enumerate() {
        assert!(!service.provider.is_empty(), "{service:?}");
        assert!(service.source.starts_with("https://"), "{service:?}");
        let others = METADATA_SERVICES.iter().skip(at + 1);
        assert!(
            others.clone().all(|other| other.address != service.address),
            "{service:?} is listed twice"
        );
    }
    // The addresses that providers document, repeated.
    for address in [
        "169.254.169.254",
        "fd00:ec2::254",
        "169.254.170.2",
        "169.254.170.23",
        "fd00:ec2::23",
        "168.63.129.16",
        "fd20:ce::254",
        "169.254.169.252",
        "fd00:c1::a9fe:a9fe",
        "192.0.0.192",
        "100.100.100.200",
        "fd00:100::100:200",
        "169.254.42.42",
        "fd00:42::42",
        "169.254.0.23",
        "fd00:a9fe:a9fe::1",
        "fe80::a9fe:a9fe",
        "100.96.0.96",
    ] {
        assert_eq!(
            Special::of(at(address)),
            Some(Special::Metadata),
            "{address}"
        );
    }
}

#[test]
fn an_operator_may_open_networks_of_single_hosts_only() {
    let all = opened(&[
        "0.0.0.0/0",
        "::/0",
        "0.0.0.0",
        "::",
        "255.255.255.255",
        "224.0.0.0/4",
    ]);
    for never in [
        "0.0.0.0",
        "::",
        "255.255.255.255",
        "224.0.0.1",
        "239.1.2.3",
        "ff02::1",
    ] {
        assert!(all.permits(at(never)).is_err(), "{never}");
    }
    for opened in [
        "127.0.0.1",
        "10.1.2.3",
        "0.0.0.1",
        "240.0.0.1",
        "fe80::1",
        "::1",
        "fd12::1",
    ] {
        assert!(all.permits(at(opened)).is_ok(), "{opened}");
    }
    let one = opened(&["10.1.0.0/16", "[fd00:1::]/32"]);
    assert!(one.permits(at("10.1.255.255")).is_ok());
    assert!(one.permits(at("10.2.0.0")).is_err());
    assert!(one.permits(at("fd00:1:ffff::")).is_ok());
    assert!(one.permits(at("fd00:2::")).is_err());
}

/// All forms in which an IPv4 address can be embedded.
fn hiding_places(four: Ipv4Addr) -> Vec<IpAddr> {
    let [a, b, c, d] = four.octets();
    let pair = |x: u8, y: u8| u16::from_be_bytes([x, y]);
    let (high, low) = (pair(a, b), pair(c, d));
    let six = |s: [u16; 8]| {
        let [s0, s1, s2, s3, s4, s5, s6, s7] = s;
        IpAddr::V6(Ipv6Addr::new(s0, s1, s2, s3, s4, s5, s6, s7))
    };
    vec![
        six([0, 0, 0, 0, 0, 0xffff, high, low]),
        six([0, 0, 0, 0, 0, 0, high, low]),
        six([0x64, 0xff9b, 0, 0, 0, 0, high, low]),
        six([0x64, 0xff9b, 1, 0, 0, 0, high, low]),
        six([0x64, 0xff9b, 1, high, pair(0, c), pair(d, 0), 0, 0]),
        six([0x64, 0xff9b, 1, pair(7, a), pair(0, b), pair(c, d), 0, 0]),
        six([0x64, 0xff9b, 1, 7, pair(0, a), pair(b, c), pair(d, 0), 0]),
        six([0x2002, high, low, 0, 0, 0, 0, 1]),
        six([0x2001, 0, 0x4136, 0xe378, 0x8000, 63_000, !high, !low]),
        six([0x2001, 0, high, low, 0x8000, 63_000, !0x0808, !0x0808]),
        six([0x2a00, 1, 2, 3, 0, 0x5efe, high, low]),
        six([0x2a00, 1, 2, 3, 0x200, 0x5efe, high, low]),
    ]
}

#[test]
fn an_address_that_hides_a_special_one_is_refused_even_where_its_own_network_is_opened() {
    let open = opened(&[
        "::/96",
        "64:ff9b:1::/48",
        "2002::/16",
        "2001::/32",
        "64:ff9b::/96",
    ]);
    for special in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "224.0.0.1",
    ] {
        let special: Ipv4Addr = special.parse().unwrap();
        for place in hiding_places(special) {
            assert!(!permits(place), "{place}");
            assert!(open.permits(place).is_err(), "{place}");
        }
    }
    // An address that translates to a server's address counts as that server.
    for public in [
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2a00:1:2:3:0:5efe:8.8.8.8",
    ] {
        assert!(permits(at(public)), "{public}");
    }
    // A network's own translator, with its prefix of 96 bits and with that of 48.
    for public in ["64:ff9b:1::8.8.8.8", "64:ff9b:1:808:8:800::"] {
        assert!(
            !permits(at(public)) && open.permits(at(public)).is_ok(),
            "{public}"
        );
    }
    // The network itself is open, and so is the address that it embeds.
    let both = opened(&["2002::/16", "10.0.0.0/8"]);
    assert!(both.permits(at("2002:a00:1::1")).is_ok());
    assert!(both.permits(at("::ffff:10.0.0.1")).is_ok());
}

proptest! {
    #[test]
    fn embedded_special_addresses_stay_special(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        if !permits(address) {
            for place in hiding_places(address) {
                prop_assert!(!permits(place), "{} in {}", address, place);
            }
        }
    }

    #[test]
    fn permitted_addresses_are_outside_all_tables(bits in any::<u128>()) {
        let address = Ipv6Addr::from_bits(bits);
        if permits(address) && address.to_ipv4_mapped().is_none() {
            let first = address.segments()[0];
            prop_assert!((0x2000..0x4000).contains(&first) || first == 0x64);
            for (from, to, _) in SPECIAL_V6 {
                prop_assert!(address < *from || *to < address);
            }
        }
    }
}
