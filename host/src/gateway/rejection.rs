//! Requests that reach no function, whatever their path: those that HTTP forbids although hyper
//! accepts them, and those that the gateway cannot serve.
//!
//! A client that sends the first kind may want this node and another one on the way to disagree
//! about a request, so its connection ends with the response.

use faasw_client::Problem;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Version, header, uri::Authority};

use crate::message::TARGET_BYTES;

/// Returns the reason why a request is rejected by its head alone.
pub(super) fn rejection<B>(request: &Request<B>) -> Option<Problem> {
    let headers = request.headers();
    let target = request.uri().path_and_query();
    if target.is_some_and(|target| target.as_str().len() > TARGET_BYTES) {
        return Some(Problem::new(
            StatusCode::URI_TOO_LONG,
            "target-too-long",
            "The request's target is too long",
            format!("path and query are longer than {TARGET_BYTES} bytes"),
        ));
    }
    if request.method() == Method::CONNECT {
        return Some(not_implemented("tunnels are not supported"));
    }
    if let Err(detail) = check_target(request).and_then(|()| check_host(request)) {
        return Some(Problem::new(
            StatusCode::BAD_REQUEST,
            "bad-request",
            "Not a valid request",
            detail,
        ));
    }
    if has_other_coding(headers) {
        return Some(not_implemented(
            "the only transfer coding of a request that is supported is chunked",
        ));
    }
    // HTTP/1.0 has neither of the two (RFC 9110, sections 7.8 and 10.1.1).
    if request.version() >= Version::HTTP_11 && expects_other(headers) {
        return Some(Problem::new(
            StatusCode::EXPECTATION_FAILED,
            "expectation-failed",
            "An expectation cannot be met",
            "the only expectation that can be met is 100-continue",
        ));
    }
    if request.version() == Version::HTTP_11 && wants_upgrade(headers) {
        return Some(not_implemented(
            "changing the protocol of a connection is not supported",
        ));
    }
    None
}

fn not_implemented(detail: &'static str) -> Problem {
    Problem::new(
        StatusCode::NOT_IMPLEMENTED,
        "not-implemented",
        "Not implemented",
        detail,
    )
}

/// Checks the target by RFC 9112, section 3.2: a path, or a whole URI. `*` is for OPTIONS, and an
/// authority alone is for CONNECT.
fn check_target<B>(request: &Request<B>) -> Result<(), &'static str> {
    let uri = request.uri();
    if uri.path() == "*" && request.method() != Method::OPTIONS {
        return Err("the target * is for OPTIONS only");
    }
    match (uri.scheme_str(), uri.authority()) {
        (None, Some(_)) => Err("the target must be a path or begin with http://"),
        (Some(scheme), _) if scheme != "http" && scheme != "https" => {
            Err("the target's scheme must be http or https")
        }
        // RFC 9110, section 4.2.4.
        (_, Some(authority)) if authority.as_str().contains('@') => {
            Err("the target must not have user information")
        }
        _ => Ok(()),
    }
}

/// Checks the host by RFC 9112, section 3.2; for HTTP/2 by RFC 9113, section 8.3.1.
fn check_host<B>(request: &Request<B>) -> Result<(), &'static str> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("there is more than one Host field");
    }
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return Err("the Host field is not the host and port of a URL");
    }
    let target = request.uri().authority();
    if target.is_some_and(|authority| !is_host(authority.as_str().as_bytes())) {
        return Err("the target's authority is not the host and port of a URL");
    }
    match (request.version(), host, request.uri().authority()) {
        (Version::HTTP_11, None, _) => Err("there is no Host field"),
        (Version::HTTP_2, None, None) => Err("there is neither :authority nor a Host field"),
        (Version::HTTP_2, Some(host), Some(authority))
            if !authority
                .as_str()
                .as_bytes()
                .eq_ignore_ascii_case(host.as_bytes()) =>
        {
            Err(":authority and the Host field differ")
        }
        _ => Ok(()),
    }
}

/// Whether a value is `uri-host [ ":" port ]`, or empty, as without an authority in the target.
/// Functions make URLs of it, which WHATWG's URL standard must permit, or they would fail.
fn is_host(value: &[u8]) -> bool {
    if value.is_empty() {
        return true;
    }
    let Ok(authority) = Authority::try_from(value) else {
        return false;
    };
    let host = authority.host();
    // User information comes before the host, so that the prefix does not match then.
    let Some(port) = authority.as_str().strip_prefix(host) else {
        return false;
    };
    let is_port = |port: &str| {
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        is_number && (port.is_empty() || port.parse::<u16>().is_ok())
    };
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        && (is_plain_name(host) || url::Host::parse(host).is_ok())
}

/// Whether a host is a name that every standard permits: most are, and this is faster than parsing.
/// A last label of digits makes an IPv4 address, and `xn--` an encoded label, which can be invalid.
fn is_plain_name(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let last = host.rsplit('.').next().unwrap_or_default();
    host.bytes().all(is_plain)
        && last.starts_with(|first: char| first.is_ascii_alphabetic())
        && !host.contains("--")
}

/// Whether there is a transfer coding other than `chunked`. hyper only requires that `chunked` is
/// the last one, and decodes no other.
fn has_other_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    codings
        .next()
        .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        || codings.next().is_some()
}

fn expects_other(headers: &HeaderMap) -> bool {
    let mut expectations = headers.get_all(header::EXPECT).iter();
    expectations.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn wants_upgrade(headers: &HeaderMap) -> bool {
    named(headers, &header::CONNECTION, "upgrade")
        && headers.contains_key(header::UPGRADE)
        // An offer that may be ignored, and is (RFC 9113, section 3.1).
        && !named(headers, &header::UPGRADE, "h2c")
}

/// Whether a field that is a list contains a word.
fn named(headers: &HeaderMap, field: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(field).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::request::Builder;

    fn status(request: Builder) -> Option<u16> {
        rejection(&request.body(()).unwrap()).map(|problem| problem.status.as_u16())
    }

    #[test]
    fn valid_hosts_are_distinguished_from_invalid_ones() {
        for host in [
            "",
            "h",
            "h:",
            "h:80",
            "h:65535",
            "[::1]",
            "[::1]:80",
            "1.2.3.4",
            "127.1",
            "a-b.c",
            "A.B",
            "a_b",
            "a.b.",
            "xn--bcher-kva.test",
        ] {
            assert!(is_host(host.as_bytes()), "{host:?}");
        }
        for host in [
            "a b",
            "h/",
            "h:x",
            "u@h",
            "u:1@h:1",
            "h:1:2",
            "[::1",
            "h?",
            "h#",
            "\u{e9}",
            "http://h",
            "h:65536",
            ":80",
            "%zz",
            "1.2.3.256",
            "1.2.3.4.5",
            "[1]",
            "[::1%25lo]",
            "a|b",
            "xn--\u{7f}",
            "xn--a",
        ] {
            assert!(!is_host(host.as_bytes()), "{host:?}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        let get = || Request::get("/f/");
        assert_eq!(status(get()), Some(400));
        assert_eq!(status(get().header("host", "h")), None);
        assert_eq!(
            status(get().header("host", "h").header("host", "h")),
            Some(400)
        );
        assert_eq!(status(get().version(Version::HTTP_10)), None);
        let two = || Request::get("http://h/f/").version(Version::HTTP_2);
        assert_eq!(status(two()), None);
        assert_eq!(status(two().header("host", "H")), None);
        assert_eq!(status(two().header("host", "other")), Some(400));
        assert_eq!(status(get().version(Version::HTTP_2)), Some(400));
    }

    #[test]
    fn targets_are_paths_or_absolute_uris() {
        for (method, uri, expected) in [
            ("OPTIONS", "*", None),
            ("GET", "*", Some(400)),
            ("GET", "h:1", Some(400)),
            ("GET", "http://h/f", None),
            ("GET", "ftp://h/f", Some(400)),
            ("GET", "http://u@h/f", Some(400)),
            ("GET", "http://1.2.3.256/f", Some(400)),
            ("CONNECT", "h:1", Some(501)),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(uri)
                .header("host", "h");
            assert_eq!(status(request), expected, "{method} {uri}");
        }
    }

    #[test]
    fn unsupported_requests_are_rejected_with_the_reason() {
        for (fields, expected) in [
            (&[("transfer-encoding", "chunked")][..], None),
            (&[("transfer-encoding", "Chunked")], None),
            (&[("transfer-encoding", "gzip, chunked")], Some(501)),
            (
                &[
                    ("transfer-encoding", "gzip"),
                    ("transfer-encoding", "chunked"),
                ],
                Some(501),
            ),
            (&[("expect", "100-Continue")], None),
            (&[("expect", "200-ok")], Some(417)),
            (
                &[("connection", "upgrade"), ("upgrade", "websocket")],
                Some(501),
            ),
            (&[("upgrade", "websocket")], None),
            (&[("connection", "upgrade"), ("upgrade", "h2c")], None),
        ] {
            let mut request = Request::get("/f/").header("host", "h");
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            assert_eq!(status(request), expected, "{fields:?}");
        }
    }
}
