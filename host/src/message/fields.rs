//! Header fields that concern one connection only and are never forwarded.
//!
//! RFC 9110, section 7.6.1: the fields that `Connection` names, and a fixed list of older ones that
//! it may omit. A function neither sees nor sets them, so it cannot forge a message's framing.

use std::collections::HashSet;

use faasw_abi::wire::Pair;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Fields of one connection, in lower case, whether `Connection` names them or not.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Distinguishes the fields of one connection from those that are forwarded.
pub(super) struct ConnectionFields {
    /// A set, because a function can name thousands and have as many fields looked up.
    named: HashSet<HeaderName>,
}

impl ConnectionFields {
    /// Reads the names in `Connection`. Tokens that are not field names are ignored.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let named = headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
            .collect();
        Self { named }
    }

    /// Whether a field belongs to the connection only.
    pub(super) fn contain(&self, name: &HeaderName) -> bool {
        HOP_BY_HOP.contains(&name.as_str()) || self.named.contains(name)
    }
}

/// Removes the announced length. If it is right, the caller sets it again: a message never passes
/// with two lengths, or with a wrong one.
///
/// # Errors
/// Returns a message if the length is not a number, or if there are two different lengths.
pub(crate) fn take_content_length(headers: &mut HeaderMap) -> Result<Option<u64>, String> {
    let mut announced: Option<u64> = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let length = value
            .to_str()
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("its content-length {value:?} is not a number"))?;
        if announced.is_some_and(|other| other != length) {
            return Err("it has two different content-lengths".into());
        }
        announced = Some(length);
    }
    headers.remove(header::CONTENT_LENGTH);
    Ok(announced)
}

/// Fields that decide what a message is or how it is parsed, and so are not allowed as trailers
/// (RFC 9110, section 6.5.1).
const NOT_BEHIND: [&str; 15] = [
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "expect",
    "host",
    "if-match",
    "max-forwards",
    "range",
    "retry-after",
    "set-cookie",
    "www-authenticate",
    // Only the node sets it.
    "x-request-id",
];

/// Returns those of a function's trailers that HTTP allows.
pub(crate) fn trailers(made: &[Pair]) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for (name, value) in made {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(value),
        ) && !HOP_BY_HOP.contains(&name.as_str())
            && !NOT_BEHIND.contains(&name.as_str())
            // A full map accepts no more fields.
            && passed.try_append(name, value).is_err()
        {
            break;
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_cannot_change_what_came_before_them() {
        let made: Vec<Pair> = [
            "x-sum",
            "content-length",
            "Transfer-Encoding",
            "a b",
            "X-Request-Id",
            "x-sum",
        ]
        .map(|name| (name.into(), b"1".to_vec()))
        .into();
        let passed = trailers(&made);
        assert_eq!(passed.keys().collect::<Vec<_>>(), ["x-sum"]);
        assert_eq!(passed.len(), 2);
    }

    #[test]
    fn fields_named_by_connection_are_removed() {
        let mut headers = HeaderMap::new();
        headers.append("connection", HeaderValue::from_static("close, X-Private"));
        headers.append("connection", HeaderValue::from_static(" x-other ,, (bad)"));
        let fields = ConnectionFields::of(&headers);
        for (name, stays) in [
            ("x-private", false),
            ("x-other", false),
            ("connection", false),
            ("transfer-encoding", false),
            ("x-public", true),
            ("content-type", true),
        ] {
            assert_eq!(
                !fields.contain(&HeaderName::from_static(name)),
                stays,
                "{name}"
            );
        }
    }
}
