//! Targets of functions that share a host: the first segment of the path names the function.

use http::{Uri, uri::PathAndQuery};

/// A parsed target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FunctionTarget {
    /// The name in the path. A function of this name need not exist.
    pub(crate) name: String,
    /// The URI that the function sees, without the name.
    pub(crate) uri: Uri,
    /// Whether the path was the name alone, without a slash after it.
    pub(crate) is_bare: bool,
}

impl FunctionTarget {
    /// Parses a target; `None` if it names no function. A valid name has no characters that must be
    /// percent-encoded, but they may be (RFC 3986, section 2.3).
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let path = uri.path().strip_prefix('/')?;
        let slash = path.find('/');
        let (name, rest) = match slash {
            Some(slash) => path.split_at(slash),
            None => (path, "/"),
        };
        if name.is_empty() {
            return None;
        }
        Some(Self {
            name: percent_encoding::percent_decode_str(name)
                .decode_utf8_lossy()
                .into_owned(),
            uri: with_path(uri, rest)?,
            is_bare: slash.is_none(),
        })
    }
}

/// Returns the URI with another path, and with its scheme, authority and query.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let path_and_query = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path_and_query.ok()?);
    Uri::from_parts(parts).ok()
}
