//! The request as its function sees it.
//!
//! The path is the function's own: the router of the request (the gateway, or an embedding program)
//! has removed the name. Fields of the connection and fields for the node are removed.
//! `Content-Length` is the actual length of the body, if it is known before the body arrives.

use std::{net::IpAddr, sync::Arc};

use faasw_abi::wire::{Pair, RequestHead};
use faasw_pool::{ConnectionBacklog, PermitShare, RequestBudget};
use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Version, header, request::Parts, uri::Scheme,
};

use super::{
    correlation::{Correlation, X_REQUEST_ID},
    fields::ConnectionFields,
    forwarded::{ForwardedPrefix, X_FORWARDED_PREFIX},
    timing,
};

/// The client's address, as an extension of a request; without it the function sees none. The
/// gateway sets it, and a program that embeds the library may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress(pub IpAddr);

/// An extension of a request from the node's operator. Its response may contain details that other
/// clients receive only if the node is configured for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromOperator;

/// An extension of a request that another function of the node made and waits for.
#[derive(Clone, Debug)]
pub(crate) struct CallerContext {
    /// The function whose share of the node's capacity the request counts in, if it is known.
    pub(crate) share: Option<PermitShare>,
    /// The budget of the client's request that caused this one.
    pub(crate) budget: Arc<RequestBudget>,
}

/// An extension of a request with how it reached the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The scheme of the connection. A scheme in the target is only the client's claim, and is
    /// ignored.
    pub(crate) scheme: Scheme,
    /// Whether the function has the whole host: its paths start at the root.
    pub(crate) has_host: bool,
}

/// An extension of a request with its connection, for which the response counts until the client
/// has read it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(pub(crate) Arc<ConnectionBacklog>);

/// Returns the head of a request to the function `name`, with the body's `length` in bytes if it is
/// known. A request before the freeze has no id: its state becomes part of the seed and is visible
/// to all later requests.
pub(crate) fn request_head(
    name: &str,
    parts: &Parts,
    length: Option<u64>,
    correlation: Option<&Correlation>,
) -> RequestHead {
    let uri = &parts.uri;
    let authority = match (uri.authority(), parts.headers.get(header::HOST)) {
        (Some(authority), _) => authority.as_str().as_bytes(),
        (None, Some(host)) => host.as_bytes(),
        (None, None) => b"",
    };
    let path_and_query = match uri.path_and_query().map(|path| path.as_str()) {
        None | Some("") => "/".into(),
        Some(path) if path.starts_with('/') => path.into(),
        // A query alone, as `Uri` allows it, or the `*` of OPTIONS.
        Some(path) => format!("/{path}"),
    };
    let arrival = parts.extensions.get::<Arrival>();
    let scheme = match arrival {
        Some(arrival) => arrival.scheme.as_str(),
        None => uri.scheme_str().unwrap_or("http"),
    };
    let script_name = path_of(name, &parts.extensions);
    let remote_address = parts
        .extensions
        .get::<RemoteAddress>()
        .map(|RemoteAddress(address)| address.to_string())
        .unwrap_or_default();
    RequestHead {
        method: parts.method.as_str().into(),
        scheme: scheme.into(),
        authority: authority.into(),
        path_and_query: path_and_query.into_bytes(),
        script_name: script_name.into_bytes(),
        remote_address: remote_address.into_bytes(),
        protocol: format!("{:?}", parts.version).into_bytes(),
        headers: visible_fields(parts, length, correlation),
    }
}

/// Returns the path at which the client reached the function, without a slash at its end: the path
/// that a trusted proxy removed, and `/name` unless the function has the whole host.
fn path_of(name: &str, extensions: &Extensions) -> String {
    let own = match extensions.get::<Arrival>() {
        Some(Arrival { has_host: true, .. }) => String::new(),
        _ => format!("/{name}"),
    };
    match extensions.get::<ForwardedPrefix>() {
        Some(ForwardedPrefix(outer)) => format!("{outer}{own}"),
        None => own,
    }
}

fn visible_fields(
    parts: &Parts,
    length: Option<u64>,
    correlation: Option<&Correlation>,
) -> Vec<Pair> {
    let headers = &parts.headers;
    let connection = ConnectionFields::of(headers);
    let authority = parts.uri.authority();
    // RFC 9112, section 3.2.2, and RFC 9113, section 8.3.1: the target's authority is the host,
    // whatever the `Host` field says.
    let hidden = |name: &HeaderName| {
        connection.contain(name)
            || match *name {
                header::CONTENT_LENGTH | header::EXPECT => true,
                header::HOST => authority.is_some(),
                // HTTP/2 may split it into pieces, which functions do not expect.
                header::COOKIE => parts.version == Version::HTTP_2,
                _ => {
                    let is_replaced = |correlation: &Correlation| {
                        *name == X_REQUEST_ID || correlation.trace.hides(name)
                    };
                    // The guest adds the head's prefix to the fields.
                    *name == X_FORWARDED_PREFIX
                        || *name == timing::ASKING
                        || correlation.is_some_and(is_replaced)
                }
            }
    };
    let mut fields: Vec<Pair> = Vec::with_capacity(headers.len() + 1);
    if let Some(authority) = authority {
        fields.push((b"host".to_vec(), authority.as_str().into()));
    }
    let passing = headers.iter().filter(|(name, _)| !hidden(name));
    fields.extend(passing.map(|(name, value)| (name.as_str().into(), value.as_bytes().into())));
    if parts.version == Version::HTTP_2 {
        fields.extend(whole_cookie(headers));
    }
    if let Some(correlation) = correlation {
        let id = correlation.request_id.as_str();
        fields.push((X_REQUEST_ID.as_str().into(), id.into()));
    }
    let announced = headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING);
    if let Some(length) = length.filter(|length| announced || *length > 0) {
        fields.push((b"content-length".to_vec(), length.to_string().into()));
    }
    fields
}

/// Returns the pieces of a cookie as one field (RFC 9113, section 8.2.3).
fn whole_cookie(headers: &HeaderMap) -> Option<Pair> {
    let pieces = headers.get_all(header::COOKIE).iter();
    let pieces: Vec<&[u8]> = pieces.map(HeaderValue::as_bytes).collect();
    (!pieces.is_empty()).then(|| (b"cookie".to_vec(), pieces.join(&b"; "[..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    /// Returns a head without an id.
    fn request_head(name: &str, parts: &Parts, length: Option<u64>) -> RequestHead {
        super::request_head(name, parts, length, None)
    }

    fn field<'a>(head: &'a RequestHead, name: &str) -> Option<&'a [u8]> {
        let found = head
            .headers
            .iter()
            .find(|(other, _)| other == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    #[test]
    fn only_a_trusted_proxys_prefix_precedes_the_functions_path() {
        let arrival = |has_host| Arrival {
            scheme: Scheme::HTTP,
            has_host,
        };
        let asked = || Request::get("/x").header("X-Forwarded-Prefix", "/claimed");
        for (has_host, outer, expected) in [
            (false, None, "/f"),
            (true, None, ""),
            (false, Some("/api"), "/api/f"),
            (true, Some("/api"), "/api"),
        ] {
            let mut parts = parts(asked().extension(arrival(has_host)));
            if let Some(outer) = outer {
                parts.extensions.insert(ForwardedPrefix(outer.to_owned()));
            }
            let head = request_head("f", &parts, None);
            assert_eq!(head.script_name, expected.as_bytes());
            assert_eq!(field(&head, "x-forwarded-prefix"), None);
        }
    }

    #[test]
    fn the_function_sees_the_request_without_its_connection() {
        let parts = parts(
            Request::post("/a/b?c=d")
                .header("Host", "example.org:81")
                .header("X-Multi", "1")
                .header("X-Multi", "2")
                .header("Connection", "x-hop")
                .header("X-Hop", "gone")
                .header("Transfer-Encoding", "chunked")
                .header("Expect", "100-continue")
                .header("X-Faasw-Timing", "1")
                .extension(RemoteAddress("::1".parse().unwrap())),
        );
        let head = request_head("f", &parts, Some(5));
        assert_eq!(head.method, b"POST");
        assert_eq!(head.scheme, b"http");
        assert_eq!(head.authority, b"example.org:81");
        assert_eq!(head.path_and_query, b"/a/b?c=d");
        assert_eq!(head.script_name, b"/f");
        assert_eq!(head.remote_address, b"::1");
        assert_eq!(head.protocol, b"HTTP/1.1");
        let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(
            head.headers,
            [
                pair("host", "example.org:81"),
                pair("x-multi", "1"),
                pair("x-multi", "2"),
                pair("content-length", "5"),
            ]
        );
    }

    #[test]
    fn the_function_receives_request_id_and_valid_trace() {
        const SENT: &str = "00-12345678901234567890123456789012-1234567890123456-01";
        let seen = |pairs: &[(&str, &str)]| {
            let request = pairs
                .iter()
                .fold(Request::get("/"), |request, (name, value)| {
                    request.header(*name, *value)
                });
            let parts = parts(request);
            let id = "mine".parse().unwrap();
            let correlation = Correlation::new(&parts.headers, Some(id));
            let head = super::request_head("f", &parts, None, Some(&correlation));
            let text = |bytes| String::from_utf8(bytes).unwrap();
            let pairs = head.headers.into_iter();
            let pairs: Vec<_> = pairs.map(|(a, b)| (text(a), text(b))).collect();
            pairs
        };
        let id = || ("x-request-id".to_owned(), "mine".to_owned());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        // The request's own id replaces the client's.
        let ids = [("x-request-id", "theirs"), ("x-request-id", "twice")];
        assert_eq!(seen(&ids), [id()]);
        let good = [
            ("traceparent", SENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ];
        let expected = [
            pair("traceparent", SENT),
            pair("tracestate", "a=1"),
            pair("tracestate", "b=2"),
            id(),
        ];
        assert_eq!(seen(&good), expected);
        let bad_state = [("traceparent", SENT), ("tracestate", "A=1")];
        assert_eq!(seen(&bad_state), [pair("traceparent", SENT), id()]);
        assert_eq!(seen(&[("tracestate", "a=1")]), [id()]);
        let bad = [("traceparent", "00-1-2-3"), ("tracestate", "a=1")];
        assert_eq!(seen(&bad), [id()]);
    }

    #[test]
    fn the_content_length_matches_the_body() {
        let lying = parts(Request::post("/").header("content-length", "99"));
        assert_eq!(
            field(&request_head("f", &lying, Some(3)), "content-length"),
            Some(&b"3"[..])
        );
        let unknown = parts(Request::post("/").header("transfer-encoding", "chunked"));
        let unknown = request_head("f", &unknown, None);
        assert_eq!(field(&unknown, "content-length"), None);
        let none = parts(Request::get("/"));
        assert_eq!(
            field(&request_head("f", &none, Some(0)), "content-length"),
            None
        );
    }

    #[test]
    fn the_host_field_is_that_of_the_target() {
        let absolute = parts(Request::get("http://one/").header("host", "other"));
        let head = request_head("f", &absolute, None);
        assert_eq!(head.authority, b"one");
        assert_eq!(head.headers, [(b"host".to_vec(), b"one".to_vec())]);
    }

    #[test]
    fn the_scheme_is_that_of_the_connection_if_known() {
        let scheme = |target: &str, connection: Option<Scheme>| {
            let mut request = Request::get(target);
            if let Some(scheme) = connection {
                let has_host = false;
                request = request.extension(Arrival { scheme, has_host });
            }
            request_head("f", &parts(request), None).scheme
        };
        assert_eq!(scheme("/", None), b"http");
        assert_eq!(scheme("https://h/", None), b"https");
        assert_eq!(scheme("https://h/", Some(Scheme::HTTP)), b"http");
        assert_eq!(scheme("http://h/", Some(Scheme::HTTPS)), b"https");
        assert_eq!(scheme("/", Some(Scheme::HTTPS)), b"https");
    }

    #[test]
    fn at_a_host_of_its_own_a_functions_paths_begin_at_the_root() {
        let arrival = Arrival {
            scheme: Scheme::HTTP,
            has_host: true,
        };
        let own = parts(Request::get("/f/x").extension(arrival));
        let head = request_head("f", &own, None);
        assert_eq!(
            (&*head.script_name, &*head.path_and_query),
            (&b""[..], &b"/f/x"[..])
        );
    }

    #[test]
    fn cookies_in_pieces_are_joined() {
        let pieces = |version| {
            let request = Request::get("/").version(version);
            let request = request.header("cookie", "a=1").header("cookie", "b=2");
            request_head("f", &parts(request), None).headers
        };
        let whole = (b"cookie".to_vec(), b"a=1; b=2".to_vec());
        assert_eq!(pieces(Version::HTTP_2), [whole]);
        assert_eq!(pieces(Version::HTTP_11).len(), 2);
    }

    #[test]
    fn every_path_begins_with_a_slash() {
        for (uri, path) in [
            ("http://host", "/"),
            ("http://host?q", "/?q"),
            ("*", "/*"),
            ("/x", "/x"),
        ] {
            let head = request_head("f", &parts(Request::get(uri)), Some(0));
            assert_eq!(
                String::from_utf8(head.path_and_query).unwrap(),
                path,
                "{uri}"
            );
        }
    }
}
