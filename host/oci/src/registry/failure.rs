//! The errors of connections to a registry.

use std::{error::Error as _, fmt::Write as _};

use faasw_common::text::Line;
use reqwest::Url;

use super::Registry;
use crate::OciError;

impl Registry {
    /// Returns the error for a host that has sent nothing for too long.
    pub(super) fn stalled(&self, url: &Url) -> OciError {
        OciError::Stalled {
            host: host_of(url),
            after: self.access.longest_silence(),
        }
    }
}

/// Returns the host and port of an address.
pub(super) fn host_of(url: &Url) -> String {
    let mut host = url.host_str().unwrap_or_default().to_owned();
    if let Some(port) = url.port() {
        // Writing to a string does not fail.
        let _ = write!(host, ":{port}");
    }
    host
}

/// Returns the error for a failed connection. Its text is the innermost cause, which is the most
/// specific one. Addresses are removed, because they may contain access tokens.
pub(super) fn broken(url: &Url, error: reqwest::Error) -> OciError {
    let is_connect = error.is_connect();
    let error = error.without_url();
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        why = inner.to_string();
        source = inner.source();
    }
    let what = if is_connect {
        "cannot be connected to: "
    } else {
        ""
    };
    OciError::Connection {
        host: host_of(url),
        why: format!("{what}{}", Line(why)),
    }
}
