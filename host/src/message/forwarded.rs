//! Requests that a trusted proxy forwards.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the address that a trusted proxy forwards for: the last one of `X-Forwarded-For` that is
/// not a trusted proxy's. If only proxies' addresses can be read, returns the first of these.
/// Everything before it is the client's claim and is ignored. Returns `None` if the proxy names no
/// address; the request then counts for the proxy.
pub(crate) fn forwarded_for(
    headers: &HeaderMap,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut first = None;
    let values: Vec<_> = headers.get_all(X_FORWARDED_FOR).iter().collect();
    let pieces = values
        .iter()
        .rev()
        .flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    for piece in pieces {
        let Some(address) = address(piece) else {
            return first;
        };
        if !is_proxy(address) {
            return Some(address);
        }
        first = Some(address);
    }
    first
}

/// Parses an address as proxies write it: alone, with a port, or in brackets.
fn address(piece: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(piece).ok()?.trim();
    let address = text
        .parse()
        .or_else(|_| text.parse().map(|address: SocketAddr| address.ip()))
        .or_else(|_| text.trim_matches(['[', ']']).parse::<IpAddr>());
    Some(address.ok()?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn found(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(X_FORWARDED_FOR, value);
        }
        let proxy = |address: IpAddr| address.to_string().starts_with("10.");
        forwarded_for(&headers, proxy).map(|address| address.to_string())
    }

    #[test]
    fn the_last_forwarded_address_that_is_not_a_proxy_counts() {
        for (values, expected) in [
            (&[][..], None),
            (&["192.0.2.1"], Some("192.0.2.1")),
            (&["198.51.100.9, 192.0.2.1"], Some("192.0.2.1")),
            (&["192.0.2.1, 10.0.0.2"], Some("192.0.2.1")),
            (&["198.51.100.9", "192.0.2.1,10.0.0.2"], Some("192.0.2.1")),
            (&["10.0.0.3, 10.0.0.2"], Some("10.0.0.3")),
            (&["192.0.2.1:1234"], Some("192.0.2.1")),
            (&["[2001:db8::1]:1234"], Some("2001:db8::1")),
            (&["[2001:db8::1]"], Some("2001:db8::1")),
            (&["::ffff:192.0.2.1"], Some("192.0.2.1")),
            // The part that the client wrote is ignored.
            (&["192.0.2.1, unknown"], None),
            (&["192.0.2.1, x, 10.0.0.2"], Some("10.0.0.2")),
            (&["192.0.2.1, \u{e9}, 10.0.0.2"], Some("10.0.0.2")),
            (&["\u{e9}, 192.0.2.1"], Some("192.0.2.1")),
            (&["\u{e9}", "192.0.2.1, 10.0.0.2"], Some("192.0.2.1")),
        ] {
            assert_eq!(found(values).as_deref(), expected, "{values:?}");
        }
    }
}
