//! Header fields that concern one connection only and never pass through.
//!
//! RFC 9110, section 7.6.1: those that `Connection` names, and a list of old
//! acquaintances that also count when it does not. A function neither sees
//! them nor sets them, so it cannot forge a message's framing.

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

/// Tells the fields of one connection from those that pass through.
pub(super) struct ConnectionFields {
    /// A set: a function can name thousands, and have as many fields looked up.
    named: HashSet<HeaderName>,
}

impl ConnectionFields {
    /// Reads what `Connection` names. Tokens that are no field names are ignored.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let named = headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
            .collect();
        Self { named }
    }

    /// Whether a field ends with its connection.
    pub(super) fn contain(&self, name: &HeaderName) -> bool {
        HOP_BY_HOP.contains(&name.as_str()) || self.named.contains(name)
    }
}

/// Takes the announced length away. Where it holds, whoever called this puts it
/// back: two lengths, or none, are never passed on.
///
/// # Errors
/// What is wrong with it.
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

/// Fields that decide what a message is or how it is read, and so may not come
/// behind it (RFC 9110, section 6.5.1).
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
    // The node's own word.
    "x-request-id",
];

/// Those of a function's trailers that HTTP lets pass.
pub(crate) fn trailers(made: &[Pair]) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for (name, value) in made {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(value),
        ) && !HOP_BY_HOP.contains(&name.as_str())
            && !NOT_BEHIND.contains(&name.as_str())
            // A map that is full takes no more.
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
    fn what_connection_names_goes_with_it() {
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
