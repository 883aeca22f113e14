//! Requests that a function answers before its seed is frozen.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::HOST,
    uri::{InvalidUri, PathAndQuery},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A warm-up request. A function answers it before its seed is frozen, for the state that this
/// leaves. The request is text in the style of an HTTP/1.1 message (RFC 9112): a path, or a method
/// and a path; then header fields, one in each line; then an empty line and the body. The default
/// method is POST if there is a body, and GET otherwise.
///
/// ```
/// use faasw_client::WarmUpRequest;
///
/// let get = WarmUpRequest::new("/items?page=1")?;
/// assert_eq!(get.to_string(), "GET /items?page=1");
/// let post = WarmUpRequest::new("POST /items\ncontent-type: application/json\n\n{\"n\": 1}")?;
/// assert_eq!(post.body(), "{\"n\": 1}");
/// # Ok::<(), faasw_client::WarmUpError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WarmUpRequest {
    text: String,
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    /// The offset of the body in the text.
    body: usize,
}

/// The reason why a text is not a request.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WarmUpError {
    /// The first line is invalid.
    #[error("a warm-up request begins with /PATH or METHOD /PATH, not with {0:?}")]
    FirstLine(String),
    /// The path is invalid.
    #[error("{path:?} cannot be the path of a request: {why}")]
    Path {
        /// The path.
        path: String,
        /// The reason.
        why: String,
    },
    /// A header field is invalid.
    #[error(
        "{0:?} is no header field of a warm-up request: NAME: VALUE, and an empty line before the \
         body"
    )]
    Field(String),
    /// The request names a second host.
    #[error("a warm-up request is for one host; {0:?} names another")]
    Host(String),
}

impl WarmUpRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// Returns [`WarmUpError`] if the first line, the path or a header field is invalid, or if
    /// there are two hosts.
    pub fn new(text: impl Into<String>) -> Result<Self, WarmUpError> {
        let text = text.into();
        let without_mark = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let (first, mut rest) = line(without_mark);
        let mut headers = HeaderMap::new();
        while !rest.is_empty() {
            let (field, behind) = line(rest);
            rest = behind;
            if field.is_empty() {
                break;
            }
            let (name, value) =
                read_field(field).ok_or_else(|| WarmUpError::Field(field.into()))?;
            if name == HOST && headers.contains_key(HOST) {
                return Err(WarmUpError::Host(field.into()));
            }
            headers.append(name, value);
        }
        // Line breaks that an editor leaves at the end of a file are not a body.
        if rest.bytes().all(|byte| byte == b'\r' || byte == b'\n') {
            rest = "";
        }
        let (method, path) = read_first_line(first, !rest.is_empty())?;
        headers
            .entry(HOST)
            .or_insert_with(|| HeaderValue::from_static("localhost"));
        Ok(Self {
            method,
            path,
            headers,
            body: text.len() - rest.len(),
            text,
        })
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the path and query that the function sees.
    #[must_use]
    pub fn path(&self) -> &PathAndQuery {
        &self.path
    }

    /// Returns the header fields. The default host is `localhost`.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the body.
    #[must_use]
    pub fn body(&self) -> &str {
        self.text.get(self.body..).unwrap_or_default()
    }

    /// Returns the text of the request.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Writes the method and the path.
impl std::fmt::Display for WarmUpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl TryFrom<String> for WarmUpRequest {
    type Error = WarmUpError;

    fn try_from(text: String) -> Result<Self, WarmUpError> {
        Self::new(text)
    }
}

impl From<WarmUpRequest> for String {
    fn from(request: WarmUpRequest) -> Self {
        request.text
    }
}

/// Splits a text after its first line.
fn line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.strip_suffix('\r').unwrap_or(line), rest)
}

fn read_first_line(line: &str, has_body: bool) -> Result<(Method, PathAndQuery), WarmUpError> {
    let wrong = || WarmUpError::FirstLine(line.to_owned());
    let is_for_a_path = |method: &Method| method != Method::CONNECT;
    let request = line.strip_suffix(" HTTP/1.1").unwrap_or(line);
    let (method, path) = match request.split_once(' ') {
        Some((method, path)) => {
            let method = method.parse().ok().filter(is_for_a_path);
            (method.ok_or_else(wrong)?, path)
        }
        None if has_body => (Method::POST, request),
        None => (Method::GET, request),
    };
    if !path.starts_with('/') {
        return Err(wrong());
    }
    let parsed = path
        .parse()
        .map_err(|error: InvalidUri| WarmUpError::Path {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
    Ok((method, parsed))
}

fn read_field(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    Some((name.parse().ok()?, value.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> WarmUpRequest {
        WarmUpRequest::new(text).unwrap()
    }

    #[test]
    fn a_path_is_a_request() {
        let get = request("/a?b=%20");
        assert_eq!(
            (get.method(), get.path().as_str()),
            (&Method::GET, "/a?b=%20")
        );
        assert_eq!(get.headers()["host"], "localhost");
        assert_eq!(get.body(), "");
        assert_eq!(request("DELETE /").method(), Method::DELETE);
        let left = request("\u{feff}/a\n\n\r\n\n");
        assert_eq!((left.to_string().as_str(), left.body()), ("GET /a", ""));
        assert_eq!(request("PURGE / HTTP/1.1\r\n").to_string(), "PURGE /");
    }

    #[test]
    fn a_message_has_fields_and_a_body() {
        let text = "/items\r\nHost: a.test\r\nX-A: 1\r\nx-a:2\r\n\r\n{\r\n}\n";
        let post = request(text);
        assert_eq!(post.to_string(), "POST /items");
        let values: Vec<_> = post.headers().get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(post.headers()["host"], "a.test");
        assert_eq!(post.body(), "{\r\n}\n");
        let json = serde_json::to_string(&post).unwrap();
        assert_eq!(serde_json::from_str::<WarmUpRequest>(&json).unwrap(), post);
    }

    #[test]
    fn invalid_warm_up_requests_are_rejected() {
        for text in [
            "",
            "a",
            "GET a",
            "GET  /",
            "G\u{e9}T /",
            "GET http://a/",
            "CONNECT /",
            "\n",
        ] {
            let refused = WarmUpRequest::new(text);
            assert!(
                matches!(refused, Err(WarmUpError::FirstLine(_))),
                "{text:?}: {refused:?}"
            );
        }
        for text in ["/ /", "GET / a", "/\u{7f}", "/<"] {
            let refused = WarmUpRequest::new(text);
            let is_it = matches!(
                refused,
                Err(WarmUpError::Path { .. } | WarmUpError::FirstLine(_))
            );
            assert!(is_it, "{text:?}: {refused:?}");
        }
        let hosts = "host: a\nHost: a";
        let refused = WarmUpRequest::new(format!("/\n{hosts}"));
        assert_eq!(refused, Err(WarmUpError::Host("Host: a".to_owned())));
        for field in ["a", ":", "a b: c", "a: \u{1}"] {
            let refused = WarmUpRequest::new(format!("/\n{field}"));
            assert_eq!(refused, Err(WarmUpError::Field(field.to_owned())));
        }
    }
}
