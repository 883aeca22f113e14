//! Requests that a trusted proxy forwards.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The path that a proxy removes from the client's URL. Functions receive it with their own path
/// behind it, or that path alone; a client's value is dropped.
pub(crate) const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Maximum bytes of a proxy's prefix. The paths of sites that proxies serve are much shorter.
const PREFIX_MAX: usize = 256;

/// An extension of a request with the path that a trusted proxy removed from the client's URL,
/// without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardedPrefix(pub(crate) String);

impl ForwardedPrefix {
    /// Returns the prefix in a trusted proxy's request. Returns `None` if there is none, if there
    /// is more than one, or if it is not a plain path: functions use it in links and redirects.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(X_FORWARDED_PREFIX).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let path = value.to_str().ok()?.trim();
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte);
        let is_segment = |segment: &str| !matches!(segment, "" | "." | "..");
        let is_path = path.len() <= PREFIX_MAX
            && path.bytes().all(is_plain)
            && path.strip_prefix('/')?.split('/').all(is_segment);
        is_path.then(|| Self(path.to_owned()))
    }
}

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

    #[test]
    fn a_proxys_prefix_is_a_plain_path() {
        let prefix = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = HeaderValue::from_str(value).unwrap();
                headers.append(X_FORWARDED_PREFIX, value);
            }
            ForwardedPrefix::of(&headers).map(|ForwardedPrefix(path)| path)
        };
        for (value, expected) in [("/api", "/api"), (" /a/b-c/ ", "/a/b-c"), ("/%20", "/%20")] {
            assert_eq!(prefix(&[value]).as_deref(), Some(expected));
        }
        let long = format!("/{}", "a".repeat(PREFIX_MAX));
        for value in [
            "",
            "/",
            "api",
            "//evil.test",
            "/a//b",
            "/../a",
            "/a?b",
            "/a;b",
            "/a\"b",
            "/a, /b",
            &long,
        ] {
            assert_eq!(prefix(&[value]), None, "{value}");
        }
        assert_eq!(prefix(&[]), None);
        assert_eq!(prefix(&["/a", "/b"]), None);
    }

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
