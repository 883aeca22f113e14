//! Errors of transfers from and to a registry.

use std::{io, time::Duration};

use faasw_common::text::Line;
use http::StatusCode;
use thiserror::Error;

use crate::{credentials::CredentialError, reference::ReferenceError};

/// Maximum number of characters of foreign text in a message.
const EXCERPT_MAX: usize = 400;

/// The reason why a push or a pull failed. Texts of registries and artifacts are already escaped.
#[derive(Debug, Error)]
pub enum OciError {
    /// A text is not a valid reference.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The stored logins cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// The HTTP client cannot be created, for example because certificate authorities are
    /// unreadable.
    #[error("there is no client for registries: {0}")]
    Client(String),
    /// A connection cannot be made, fails verification, or breaks.
    #[error("{host}: {why}")]
    Connection {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// A host neither sends nor accepts data.
    #[error("{host} neither sends nor takes anything for {} s", .after.as_secs_f64())]
    Stalled {
        /// The host.
        host: String,
        /// The timeout that expired.
        after: Duration,
    },
    /// A host sends data too slowly.
    #[error("{host} is too slow: less than {rate} bytes a second")]
    Slow {
        /// The host.
        host: String,
        /// The required rate in bytes per second.
        rate: u64,
    },
    /// A host rejects a request.
    #[error("{host} refuses: {status}{}{detail}", if .detail.is_empty() { "" } else { ": " })]
    Refused {
        /// The host.
        host: String,
        /// The status of the response.
        status: StatusCode,
        /// The host's explanation, which may be empty.
        detail: String,
    },
    /// The artifact or blob does not exist.
    #[error("there is no {what}")]
    Missing {
        /// The name of the artifact or blob.
        what: String,
    },
    /// The registry requires a login, but none is stored or the stored one is rejected.
    #[error(
        "{registry} wants a log-in{}",
        if *.had_one { " other than the one that is kept for it" } else { "" }
    )]
    Unauthorized {
        /// The registry.
        registry: String,
        /// Whether a login is stored.
        had_one: bool,
    },
    /// The registry names a token server that must not receive its credentials.
    #[error(
        "{registry} sends its clients to {realm} with their credentials, which vouches for \
         nothing: they were not sent"
    )]
    Realm {
        /// The registry.
        registry: String,
        /// The token server's host.
        realm: String,
    },
    /// A host redirects from TLS to a connection without TLS.
    #[error("{host} leads to {to}, which is not by TLS")]
    Downgrade {
        /// The host.
        host: String,
        /// The target's host.
        to: String,
    },
    /// A host violates the protocol.
    #[error("{host} does not keep to the protocol: {why}")]
    Protocol {
        /// The host.
        host: String,
        /// The violation.
        why: String,
    },
    /// A transfer exceeds its limit.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// The name of the transferred object.
        what: String,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// The transferred bytes differ from those that were announced.
    #[error("{what} is damaged: {why}; nothing of it is used")]
    Damaged {
        /// The name of the transferred object.
        what: String,
        /// The difference.
        why: String,
    },
    /// The artifact is not a module.
    #[error("the artifact is no module: {0}")]
    Artifact(String),
    /// A file cannot be written or read.
    #[error("what comes cannot be kept: {0}")]
    File(#[from] io::Error),
}

impl OciError {
    pub(crate) fn protocol(host: &str, why: impl std::fmt::Display) -> Self {
        Self::Protocol {
            host: host.to_owned(),
            why: excerpt(why),
        }
    }

    pub(crate) fn artifact(why: impl std::fmt::Display) -> Self {
        Self::Artifact(excerpt(why))
    }

    pub(crate) fn damaged(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Damaged {
            what: excerpt(what),
            why: excerpt(why),
        }
    }
}

/// Escapes and shortens foreign text.
fn excerpt(text: impl std::fmt::Display) -> String {
    let text = text.to_string();
    let short: String = text.chars().take(EXCERPT_MAX).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", Line(short))
}
