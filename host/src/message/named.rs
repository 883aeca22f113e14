//! Targets of functions that share a host: the first segment of the path names one.

use http::{Uri, uri::PathAndQuery};

/// A target taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// What names the function. It need not be the name of any.
    pub(crate) name: String,
    /// The URI that it sees: the name is off the path.
    pub(crate) uri: Uri,
    /// The path was the name alone, without the slash behind it.
    pub(crate) is_bare: bool,
}

impl Named {
    /// Takes a target apart; nothing where it names none. A valid name has nothing that need
    /// be percent-encoded, but may be (RFC 3986, section 2.3).
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

/// The URI with another path: scheme, authority and query stay.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let path_and_query = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path_and_query.ok()?);
    Uri::from_parts(parts).ok()
}
