//! Every spelling of a grant and of a request: its meaning, or its error.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use faasw_egress_policy::{
    AllowPrivate, Destination, Grant, GrantError, HostError, NodeTarget, RequestError,
};
use proptest::prelude::*;

fn destination(scheme: &str, authority: &str) -> Result<Destination, RequestError> {
    Destination::of_request(scheme.as_bytes(), authority.as_bytes())
}

fn grants(grant: &str, scheme: &str, authority: &str) -> bool {
    let grant: Grant = grant.parse().unwrap();
    grant.allows(&destination(scheme, authority).unwrap())
}

#[test]
fn a_grant_prints_as_one_spelling_that_means_the_same() {
    for (written, canonical) in [
        ("https://api.example.com", "https://api.example.com"),
        ("HTTPS://API.Example.COM.:443/", "https://api.example.com"),
        ("http://api.example.com:80", "http://api.example.com"),
        ("http://api.example.com:443", "http://api.example.com:443"),
        ("http://*.internal:8080", "http://*.internal:8080"),
        ("https://10.0.0.0/8:443", "https://10.0.0.0/8"),
        ("https://10.0.0.0/8", "https://10.0.0.0/8"),
        ("http://10.1.2.3/32:8080", "http://10.1.2.3:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://[FD00:0::0]/8:8080", "http://[fd00::]/8:8080"),
        ("*://localhost:*", "*://localhost:*"),
        ("*://*:*", "*://*:*"),
        ("*://*:443", "*://*:443"),
        ("https://*", "https://*"),
        ("http://host:1..1024", "http://host:1..1024"),
        ("http://my_service:80", "http://my_service"),
        (
            "https://xn--bcher-kva.example",
            "https://xn--bcher-kva.example",
        ),
    ] {
        let grant: Grant = written.parse().unwrap();
        assert_eq!(grant.to_string(), canonical);
        assert_eq!(canonical.parse::<Grant>().unwrap(), grant);
    }
}

#[test]
fn an_invalid_grant_is_rejected_with_advice() {
    use GrantError as E;
    for (written, error) in [
        ("", E::NoScheme),
        ("*", E::NoScheme),
        ("example.com", E::NoScheme),
        ("example.com:443", E::NoScheme),
        ("://example.com", E::Scheme),
        ("ftp://example.com", E::Scheme),
        ("redis://example.com", E::Scheme),
        ("ht tp://example.com", E::Scheme),
        ("https://user@example.com", E::UserInformation),
        ("https://user:word@example.com:443", E::UserInformation),
        ("https://good.com@evil.com", E::UserInformation),
        ("https://example.com/path", E::Path),
        ("https://example.com:443/path", E::Path),
        ("https://example.com//", E::Path),
        ("https://example.com?query", E::Path),
        ("https://example.com#part", E::Path),
        ("https://example.com\\@evil.com", E::UserInformation),
        ("https://example.com\\x", E::Path),
        ("https://self", E::OwnByOther),
        ("http://self:8080", E::OwnByOther),
        ("http://self:*", E::OwnByOther),
        ("*://self", E::OwnByOther),
        ("*://self:80", E::OwnByOther),
        ("https://self.alt", E::OwnByOther),
        ("https://shop.spin.internal", E::OwnByOther),
        ("http://*.spin.internal:*", E::OwnByOther),
        ("http://self/shop", E::Path),
        ("http://*.self", E::OwnByOther),
        ("http://*.self.alt", E::OwnByOther),
        ("http://spin.internal", E::OwnByOther),
        ("http://a.b.spin.internal", E::OwnByOther),
        ("https://{a,b}.example.com", E::Braces),
        ("https://{{ host }}", E::Braces),
        ("https://api.*.com", E::Wildcard),
        ("https://*.*.com", E::Wildcard),
        ("https://a*.com", E::Wildcard),
        ("*://example.com", E::NoPort),
        ("https://example.com:", E::Port),
        ("https://example.com:0", E::Port),
        ("https://example.com:65536", E::Port),
        ("https://example.com:+80", E::Port),
        ("https://example.com:080", E::Port),
        ("https://example.com:80-90", E::Port),
        ("https://example.com:80..", E::Port),
        ("https://example.com:90..80", E::EmptyPorts),
        ("https://example.com:80..80", E::EmptyPorts),
        ("https://", E::Host(HostError::Empty)),
        ("https://:443", E::Host(HostError::Empty)),
        ("https://.", E::Host(HostError::Empty)),
        ("https://*.", E::Host(HostError::Empty)),
        ("https://bücher.example", E::Host(HostError::NotAscii)),
        ("https://ａ.example", E::Host(HostError::NotAscii)),
        ("https://a..b", E::Host(HostError::NotAName)),
        ("https://.a", E::Host(HostError::NotAName)),
        ("https://a..", E::Host(HostError::NotAName)),
        ("https://-a.b", E::Host(HostError::NotAName)),
        ("https://a-.b", E::Host(HostError::NotAName)),
        ("https://a b", E::Host(HostError::NotAName)),
        ("https:// a", E::Host(HostError::NotAName)),
        ("https://a%2eb", E::Host(HostError::NotAName)),
        ("https://0x7f.1", E::Host(HostError::OtherSpelling)),
        ("https://0x7f000001", E::Host(HostError::OtherSpelling)),
        ("https://2130706433", E::Host(HostError::OtherSpelling)),
        ("https://127.1", E::Host(HostError::OtherSpelling)),
        ("https://0177.0.0.1", E::Host(HostError::OtherSpelling)),
        ("https://127.0.0.01", E::Host(HostError::OtherSpelling)),
        ("https://127.0.0.1.", E::Host(HostError::OtherSpelling)),
        ("https://256.0.0.1", E::Host(HostError::OtherSpelling)),
        ("https://1.2.3.4.5", E::Host(HostError::OtherSpelling)),
        ("https://example.0x", E::Host(HostError::OtherSpelling)),
        ("https://::1", E::Host(HostError::NoBrackets)),
        ("https://fe80::1:443", E::Host(HostError::NoBrackets)),
        ("https://[fe80::1%eth0]", E::Host(HostError::Zone)),
        ("https://[fe80::1%25eth0]:443", E::Host(HostError::Zone)),
        ("https://[::1", E::Host(HostError::NotIpv6)),
        ("https://[127.0.0.1]", E::Host(HostError::NotIpv6)),
        ("https://[]", E::Host(HostError::NotIpv6)),
        ("https://[::1]x", E::Host(HostError::NotIpv6)),
    ] {
        assert_eq!(written.parse::<Grant>(), Err(error), "{written}");
        assert!(!error.to_string().is_empty());
    }
    for (network, says) in [
        ("https://10.0.0.1/8", "10.0.0.0/8"),
        ("https://[fd00::1]/8", "fd00::/8"),
        ("https://10.0.0.0/33", "prefix"),
        ("https://10.0.0.0/08", "prefix"),
        ("https://10.0.0.0/", ""),
    ] {
        match network.parse::<Grant>() {
            Err(error) => assert!(error.to_string().contains(says), "{network}: {error}"),
            // The trailing slash is Spin's, and has no meaning.
            Ok(grant) => assert_eq!((grant.to_string().as_str(), says), ("https://10.0.0.0", "")),
        }
    }
    let long = format!("https://{}.com", "a".repeat(64));
    assert_eq!(long.parse::<Grant>(), Err(E::Host(HostError::TooLong)));
    let long = format!("https://{}com", "a.".repeat(126));
    assert_eq!(long.parse::<Grant>(), Err(E::Host(HostError::TooLong)));
}

#[test]
fn a_grant_is_of_its_scheme_host_and_port_alone() {
    for (grant, scheme, authority, granted) in [
        ("https://api.example.com", "https", "api.example.com", true),
        ("https://api.example.com", "HTTPS", "API.example.com.", true),
        (
            "https://api.example.com",
            "https",
            "api.example.com:443",
            true,
        ),
        (
            "https://api.example.com",
            "https",
            "api.example.com:444",
            false,
        ),
        (
            "https://api.example.com",
            "http",
            "api.example.com:443",
            false,
        ),
        ("https://api.example.com", "https", "example.com", false),
        (
            "https://api.example.com",
            "https",
            "x.api.example.com",
            false,
        ),
        (
            "https://api.example.com",
            "https",
            "api.example.com.evil.com",
            false,
        ),
        ("https://*.example.com", "https", "a.example.com", true),
        ("https://*.example.com", "https", "a.b.example.com", true),
        ("https://*.example.com", "https", "example.com", false),
        ("https://*.example.com", "https", "evilexample.com", false),
        (
            "https://*.example.com",
            "https",
            "a.example.com.evil.com",
            false,
        ),
        ("http://*:80", "http", "anything", true),
        ("http://*:80", "http", "10.0.0.1", true),
        ("http://10.0.0.0/8:80", "http", "10.255.255.255", true),
        ("http://10.0.0.0/8:80", "http", "11.0.0.0", false),
        ("http://10.0.0.0/8:80", "http", "[::ffff:10.0.0.1]", false),
        ("http://10.0.0.0/8:80", "http", "ten.example", false),
        ("http://10.0.0.1", "http", "10.0.0.1", true),
        ("http://[fd00::]/8:8080", "http", "[fd12::1]:8080", true),
        ("http://[::1]", "http", "[0:0:0:0:0:0:0:1]", true),
        ("http://host:8000..8002", "http", "host:7999", false),
        ("http://host:8000..8002", "http", "host:8000", true),
        ("http://host:8000..8002", "http", "host:8001", true),
        ("http://host:8000..8002", "http", "host:8002", false),
        ("*://host:443", "http", "host:443", true),
        ("*://host:443", "https", "host", true),
        ("*://host:443", "http", "host", false),
        ("*://*:*", "http", "[2001:db8::1]:1", true),
    ] {
        assert_eq!(
            grants(grant, scheme, authority),
            granted,
            "{grant} {scheme} {authority}"
        );
    }
}

#[test]
fn a_request_without_one_meaning_has_no_destination() {
    use RequestError as E;
    for (scheme, authority, error) in [
        ("ftp", "example.com", E::Scheme),
        ("", "example.com", E::Scheme),
        ("https", "", E::NoAuthority),
        ("https", "user@example.com", E::UserInformation),
        ("https", "@example.com", E::UserInformation),
        ("https", "example.com:", E::Port),
        ("https", "example.com:0", E::Port),
        ("https", "example.com:99999", E::Port),
        ("https", "example.com:80x", E::Port),
        ("https", "example.com:-1", E::Port),
        ("https", ":443", E::Host(HostError::Empty)),
        ("https", "example.com/x", E::Host(HostError::NotAName)),
        ("https", "example.com?x", E::Host(HostError::NotAName)),
        ("https", "example.com\r\nx: y", E::Port),
        ("https", "*", E::Host(HostError::NotAName)),
        ("https", "*.example.com", E::Host(HostError::NotAName)),
        ("https", "0x7f.1", E::Host(HostError::OtherSpelling)),
        ("https", "2130706433:80", E::Host(HostError::OtherSpelling)),
        ("https", "017700000001", E::Host(HostError::OtherSpelling)),
        ("https", "127.0.1", E::Host(HostError::OtherSpelling)),
        ("https", "::1", E::Host(HostError::NoBrackets)),
        ("https", "[::1%1]:443", E::Host(HostError::Zone)),
        ("https", "exämple.com", E::Host(HostError::NotAscii)),
        ("https", "１２７.0.0.1", E::Host(HostError::NotAscii)),
    ] {
        assert_eq!(
            destination(scheme, authority),
            Err(error),
            "{scheme} {authority}"
        );
    }
    let invalid = Destination::of_request(b"https", b"\xff");
    assert_eq!(invalid, Err(E::Host(HostError::NotAscii)));
}

#[test]
fn a_requests_authority_has_one_spelling() {
    for (scheme, authority, canonical) in [
        ("https", "Example.COM.:443", "example.com"),
        ("http", "example.com:443", "example.com:443"),
        ("http", "[::1]:80", "[::1]"),
        ("http", "[0::1]:81", "[::1]:81"),
        ("http", "127.0.0.1:8080", "127.0.0.1:8080"),
    ] {
        assert_eq!(
            destination(scheme, authority).unwrap().authority(),
            canonical
        );
    }
}

#[test]
fn networks_of_an_operator_are_read_strictly() {
    for (text, printed) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("127.0.0.1", "127.0.0.1/32"),
        ("fd00::/8", "fd00::/8"),
        ("[fd00::]/8", "fd00::/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ] {
        assert_eq!(AllowPrivate::network(text).unwrap().to_string(), printed);
    }
    for text in [
        "",
        "/8",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10/8",
        "10.0.0.1/8",
        "fd00::/129",
        "a/8",
        "010.0.0.0/8",
        "10.0.0.0/+8",
        "[10.0.0.0]/8",
    ] {
        assert!(AllowPrivate::network(text).is_err(), "{text}");
    }
}

#[test]
fn the_nodes_own_functions_are_granted_by_its_own_names_alone() {
    let own = |authority: &str| -> Destination {
        Destination::of_request(b"http", authority.as_bytes()).unwrap()
    };
    for (grant, allowed) in [
        ("http://self", &["self", "SELF.", "self:80", "self.alt"][..]),
        ("http://self.alt", &["self", "SELF.", "self:80", "self.alt"]),
        ("http://shop.spin.internal", &["shop.spin.internal"]),
        (
            "http://*.spin.internal",
            &["shop.spin.internal", "a.b.spin.internal"],
        ),
        // Grants of everything else.
        ("*://*:*", &[]),
        ("http://*:*", &[]),
        ("http://*.internal", &[]),
        ("http://*.alt", &[]),
        ("http://0.0.0.0/0", &[]),
    ] {
        let grant: Grant = grant.parse().unwrap();
        for authority in [
            "self",
            "SELF.",
            "self:80",
            "self.alt",
            "shop.spin.internal",
            "a.b.spin.internal",
            "spin.internal",
        ] {
            let destination = own(authority);
            assert!(destination.own().is_some(), "{authority}");
            let is_allowed = allowed.contains(&authority);
            assert_eq!(
                grant.allows(&destination),
                is_allowed,
                "{grant} {authority}"
            );
        }
        // The grant covers no other port and no other scheme.
        assert!(!grant.allows(&own("self:8080")), "{grant}");
        let by_tls = Destination::of_request(b"https", b"self:80").unwrap();
        assert!(!grant.allows(&by_tls), "{grant}");
    }
    assert_eq!(own("self").own(), Some(NodeTarget::ByPath));
    assert_eq!(
        own("shop.spin.internal").own(),
        Some(NodeTarget::Function("shop"))
    );
    assert_eq!(
        own("a.b.spin.internal").own(),
        Some(NodeTarget::Function("a.b"))
    );
    assert_eq!(own("spin.internal").own(), Some(NodeTarget::Function("")));
    for other in [
        "self.example",
        "aself",
        "xspin.internal",
        "internal",
        "127.0.0.1",
    ] {
        assert_eq!(own(other).own(), None, "{other}");
        let everything: Grant = "*://*:*".parse().unwrap();
        assert!(everything.allows(&own(other)), "{other}");
    }
    assert_eq!(Destination::of_node(), own("self"));
}

proptest! {
    #[test]
    fn every_grant_prints_as_an_equal_grant(
        text in "(http|https|\\*)://[a-z0-9.*:/\\[\\]x_-]{0,24}",
    ) {
        if let Ok(grant) = text.parse::<Grant>() {
            prop_assert_eq!(grant.to_string().parse::<Grant>(), Ok(grant));
        }
    }

    #[test]
    fn a_request_means_the_same_by_its_canonical_authority(
        authority in "[a-zA-Z0-9.:\\[\\]@x_-]{0,24}",
    ) {
        if let Ok(destination) = Destination::of_request(b"http", authority.as_bytes()) {
            let again = Destination::of_request(b"http", destination.authority().as_bytes());
            prop_assert_eq!(again.as_ref(), Ok(&destination));
            // A grant of this destination's own spelling grants it, and no other destination of its
            // host.
            let grant: Grant = destination
                .to_string()
                .parse()
                .unwrap_or_else(|_| "http://none".parse().unwrap());
            prop_assert!(grant.allows(&destination) || destination.own().is_some());
        }
    }
}
