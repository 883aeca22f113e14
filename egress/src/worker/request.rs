//! The head of a request, as it is sent to the upstream.

use faasw_abi::outgoing::{Failure, FailureCode, OutgoingHead};
use faasw_egress_policy::Destination;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri, Version};
use http_body::Body;

/// Most bytes of the path and query.
const PATH_MAX: usize = 32 << 10;

/// A validated head, which can be sent more than once.
#[derive(Debug)]
pub struct RequestHead {
    /// The destination of the request.
    pub destination: Destination,
    /// The `content-length` that the function declared.
    pub declared: Option<u64>,
    method: Method,
    path_and_query: PathAndQuery,
    headers: HeaderMap,
}

/// Returns whether a field belongs to the connection only, so that the function may neither send
/// nor see it (RFC 9110, 7.6.1).
pub fn is_of_connection(name: &HeaderName) -> bool {
    const OTHERS: [&str; 3] = ["keep-alive", "proxy-connection", "http2-settings"];
    [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ]
    .contains(name)
        || OTHERS.contains(&name.as_str())
}

/// Returns the names of fields that `Connection` declares to belong to the connection.
pub fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    listed(headers, header::CONNECTION)
}

/// Returns the names of trailers that a request with these headers can have. Only a chunked body
/// has a place for trailers.
pub fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        listed(headers, header::TRAILER)
    } else {
        Vec::new()
    }
}

/// Returns the names that are listed in a field.
fn listed(headers: &HeaderMap, field: HeaderName) -> Vec<HeaderName> {
    let values = headers.get_all(field).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let names = texts.flat_map(|text| text.split(','));
    names.filter_map(|name| name.trim().parse().ok()).collect()
}

impl RequestHead {
    /// Validates a request of a function.
    ///
    /// # Errors
    /// Returns a failure with the matching code if the authority, method, path or a field is
    /// invalid, or if the path is too long.
    pub fn new(head: &OutgoingHead) -> Result<Self, Failure> {
        let fail = |code| move || Failure::new(code);
        let destination = Destination::of_request(&head.scheme, &head.authority)
            .map_err(|_| Failure::new(FailureCode::HttpRequestUriInvalid))?;
        let method = Method::from_bytes(&head.method).ok();
        // After CONNECT, the bytes on the connection are no longer HTTP.
        let method = method.filter(|method| *method != Method::CONNECT);
        let method = method.ok_or_else(fail(FailureCode::HttpRequestMethodInvalid))?;
        if head.path_and_query.len() > PATH_MAX {
            return Err(Failure::new(FailureCode::HttpRequestUriTooLong));
        }
        let path = match head.path_and_query.as_slice() {
            [] => Some(PathAndQuery::from_static("/")),
            // Anything else is another form of the request target.
            path @ [b'/', ..] => PathAndQuery::try_from(path).ok(),
            _ => None,
        };
        let path_and_query = path.ok_or_else(fail(FailureCode::HttpRequestUriInvalid))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &head.headers {
            let name = HeaderName::from_bytes(name).ok();
            let value = HeaderValue::from_bytes(value).ok();
            let field = name.zip(value);
            let (name, value) = field.ok_or_else(fail(FailureCode::HttpProtocolError))?;
            headers.append(name, value);
        }
        for name in nominated(&headers) {
            headers.remove(name);
        }
        let declared = declared_length(&headers)?;
        // Both are set here: one from the authority, the other from the body.
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        let of_connection: Vec<_> = headers
            .keys()
            .filter(|name| is_of_connection(name))
            .cloned()
            .collect();
        for name in of_connection {
            headers.remove(name);
        }
        let host = HeaderValue::from_str(&destination.authority())
            .map_err(|_| Failure::new(FailureCode::HttpRequestUriInvalid))?;
        headers.insert(header::HOST, host);
        Ok(Self {
            destination,
            declared,
            method,
            path_and_query,
            headers,
        })
    }

    /// Returns whether sending the request twice has the same effect as once (RFC 9110, 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }

    /// Builds the HTTP/1.1 request with a body. `trailers` are the names of the trailers that are
    /// known to follow.
    pub fn request<B: Body>(&self, body: B, trailers: &[Vec<u8>]) -> Request<B> {
        let size = body.size_hint().exact();
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::from(self.path_and_query.clone());
        *request.headers_mut() = self.headers.clone();
        if size == Some(0) && self.expects_body() {
            // hyper sets no length in this case.
            let none = HeaderValue::from_static("0");
            request.headers_mut().insert(header::CONTENT_LENGTH, none);
        }
        if size.is_none() {
            // Set here because hyper would send no body for methods that seldom have one.
            let chunked = HeaderValue::from_static("chunked");
            request
                .headers_mut()
                .insert(header::TRANSFER_ENCODING, chunked);
        }
        if !trailers.is_empty() && !self.headers.contains_key(header::TRAILER) {
            // Without this field, hyper sends no trailers.
            if let Ok(names) = HeaderValue::from_bytes(&trailers.join(&b", "[..])) {
                request.headers_mut().insert(header::TRAILER, names);
            }
        }
        request
    }

    /// Returns whether the method usually has a body. If there is none, the length 0 is sent (RFC
    /// 9110, 8.6).
    fn expects_body(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH].contains(&self.method)
    }

    /// Builds the HTTP/2 request. `size` is the length of the body, if known.
    ///
    /// # Errors
    /// Fails with `HttpRequestUriInvalid` if the destination cannot be expressed as a URI.
    pub fn http2_request(&self, size: Option<u64>) -> Result<Request<()>, Failure> {
        let uri = Uri::builder()
            .scheme(self.destination.scheme.as_str())
            .authority(self.destination.authority())
            .path_and_query(self.path_and_query.clone())
            .build()
            .map_err(|_| Failure::new(FailureCode::HttpRequestUriInvalid))?;
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        // The authority is a pseudo-header here, not a field.
        headers.remove(header::HOST);
        let length = self.declared.or(size);
        if let Some(length) = length.filter(|length| *length > 0 || self.expects_body()) {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        // The only value that HTTP/2 allows (RFC 9113, 8.2.2). It is true, because functions
        // receive trailers, and some gRPC servers require it.
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        Ok(request)
    }
}

/// Returns the length in `Content-Length`, which may be repeated with the same value.
fn declared_length(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let invalid = || Failure::new(FailureCode::HttpRequestBodySize);
    let mut declared = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let text = value.to_str().map_err(|_| invalid())?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let length = text.parse().ok().filter(|_| is_plain).ok_or_else(invalid)?;
        if *declared.get_or_insert(length) != length {
            return Err(invalid());
        }
    }
    Ok(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(headers: &[(&str, &str)]) -> OutgoingHead {
        let pair =
            |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        OutgoingHead {
            method: b"GET".to_vec(),
            scheme: b"http".to_vec(),
            authority: b"Example.com:80".to_vec(),
            path_and_query: b"/a?b".to_vec(),
            headers: headers.iter().map(pair).collect(),
            ..OutgoingHead::default()
        }
    }

    #[test]
    fn host_and_connection_headers_are_not_set_by_the_function() {
        let head = head(&[
            ("host", "evil.example"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "trailers"),
            ("proxy-authorization", "secret"),
            ("keep-alive", "1"),
            ("content-length", "3"),
            ("accept", "a"),
            ("accept", "b"),
        ]);
        let head = RequestHead::new(&head).unwrap();
        assert_eq!(head.declared, Some(3));
        let request = head.request(String::new(), &[]);
        let fields: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(
            fields,
            [("accept", "a"), ("accept", "b"), ("host", "example.com")]
        );
        assert_eq!(request.uri(), "/a?b");
    }

    #[test]
    fn over_http2_the_authority_is_no_field_and_only_trailers_are_offered() {
        let sent = [
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("te", "gzip"),
            ("accept", "a"),
        ];
        let request = RequestHead::new(&head(&sent)).unwrap();
        let request = request.http2_request(Some(0)).unwrap();
        let fields: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(fields, [("accept", "a"), ("te", "trailers")]);
        assert_eq!(request.uri(), "http://example.com/a?b");
        // A known length is sent, and so is 0 if the method usually has a body.
        for (method, declared, size, expected) in [
            ("GET", None, Some(0), None),
            ("POST", None, Some(0), Some("0")),
            ("GET", None, Some(3), Some("3")),
            ("POST", None, None, None),
            ("POST", Some("7"), None, Some("7")),
        ] {
            let fields: Vec<_> = declared
                .iter()
                .map(|value| ("content-length", *value))
                .collect();
            let head = OutgoingHead {
                method: method.as_bytes().to_vec(),
                ..head(&fields)
            };
            let request = RequestHead::new(&head)
                .unwrap()
                .http2_request(size)
                .unwrap();
            let length = request.headers().get("content-length");
            assert_eq!(
                length.map(|value| value.to_str().unwrap()),
                expected,
                "{method}"
            );
        }
    }

    #[test]
    fn an_invalid_request_is_rejected_with_its_error_code() {
        use FailureCode as C;
        let with = |change: fn(&mut OutgoingHead)| {
            let mut head = head(&[]);
            change(&mut head);
            RequestHead::new(&head).map(|_| ()).unwrap_err().code
        };
        assert_eq!(
            with(|head| head.method = b"G T".to_vec()),
            C::HttpRequestMethodInvalid
        );
        assert_eq!(
            with(|head| head.method = b"CONNECT".to_vec()),
            C::HttpRequestMethodInvalid
        );
        assert_eq!(
            with(|head| head.authority.clear()),
            C::HttpRequestUriInvalid
        );
        assert_eq!(
            with(|head| head.path_and_query = b"x".to_vec()),
            C::HttpRequestUriInvalid
        );
        assert_eq!(
            with(|head| head.path_and_query = b"/a b".to_vec()),
            C::HttpRequestUriInvalid
        );
        assert_eq!(
            with(|head| head.path_and_query = b"/ HTTP/1.1\r\nx: y".to_vec()),
            C::HttpRequestUriInvalid
        );
        let long = |head: &mut OutgoingHead| head.path_and_query = vec![b'/'; PATH_MAX + 1];
        assert_eq!(with(long), C::HttpRequestUriTooLong);
        for (name, value) in [("a b", "c"), ("a", "b\r\nc: d"), ("", "x")] {
            let error = RequestHead::new(&head(&[(name, value)])).unwrap_err();
            assert_eq!(error.code, C::HttpProtocolError, "{name} {value}");
        }
        for lengths in [&["x"][..], &["-1"], &["+1"], &["1", "2"], &["1, 1"], &[""]] {
            let fields: Vec<_> = lengths
                .iter()
                .map(|value| ("content-length", *value))
                .collect();
            let error = RequestHead::new(&head(&fields)).unwrap_err();
            assert_eq!(error.code, C::HttpRequestBodySize, "{lengths:?}");
        }
        let same = RequestHead::new(&head(&[("content-length", "1"), ("content-length", "1")]));
        assert_eq!(same.unwrap().declared, Some(1));
    }
}
