//! What goes wrong between here and a registry.

use std::{io, time::Duration};

use faasw_common::text::Line;
use http::StatusCode;
use thiserror::Error;

use crate::{credentials::CredentialError, reference::ReferenceError};

/// Most characters of what others wrote in a message.
const TOLD_MAX: usize = 400;

/// Why something was neither pushed nor pulled. Text of a registry's or an artifact's is escaped
/// already.
#[derive(Debug, Error)]
pub enum OciError {
    /// A text names no artifact.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// What is kept of log-ins cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// Authorities cannot be read, or the system gives no client.
    #[error("there is no client for registries: {0}")]
    Client(String),
    /// It cannot be connected to, is not who it should be, or breaks off.
    #[error("{host}: {why}")]
    Connection {
        /// Who.
        host: String,
        /// What happened.
        why: String,
    },
    /// It takes too long.
    #[error("{host} neither sends nor takes anything for {} s", .after.as_secs_f64())]
    Stalled {
        /// Who.
        host: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// It goes on, but for ever.
    #[error("{host} is too slow: less than {rate} bytes a second")]
    Slow {
        /// Who.
        host: String,
        /// Bytes a second that it is to have at least.
        rate: u64,
    },
    /// It refuses.
    #[error("{host} refuses: {status}{}{detail}", if .detail.is_empty() { "" } else { ": " })]
    Refused {
        /// Who.
        host: String,
        /// How.
        status: StatusCode,
        /// Its own words.
        detail: String,
    },
    /// There is no such artifact.
    #[error("there is no {what}")]
    Missing {
        /// Which.
        what: String,
    },
    /// It wants a log-in that there is none of, or that it does not take.
    #[error("{registry} wants a log-in{}", if *.had_one { " other than the one that is kept for it" } else { "" })]
    Unauthorized {
        /// The registry.
        registry: String,
        /// Whether there was one.
        had_one: bool,
    },
    /// It wants its credentials to be shown to somebody else.
    #[error(
        "{registry} sends its clients to {realm} with their credentials, which vouches for \
         nothing: they were not sent"
    )]
    Realm {
        /// The registry.
        registry: String,
        /// Who would see them.
        realm: String,
    },
    /// It leads from TLS to a connection without.
    #[error("{host} leads to {to}, which is not by TLS")]
    Downgrade {
        /// Who.
        host: String,
        /// Where to.
        to: String,
    },
    /// What it says makes no sense.
    #[error("{host} does not keep to the protocol: {why}")]
    Protocol {
        /// Who.
        host: String,
        /// In what.
        why: String,
    },
    /// More comes than may.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// What.
        what: String,
        /// How many may come.
        limit: u64,
    },
    /// Other bytes come than were announced.
    #[error("{what} is damaged: {why}; nothing of it is used")]
    Damaged {
        /// What.
        what: String,
        /// In which way.
        why: String,
    },
    /// It is something else than a module.
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
            why: told(why),
        }
    }

    pub(crate) fn artifact(why: impl std::fmt::Display) -> Self {
        Self::Artifact(told(why))
    }

    pub(crate) fn damaged(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Damaged {
            what: told(what),
            why: told(why),
        }
    }
}

/// Text of others, plain and no longer than it takes to understand it.
fn told(text: impl std::fmt::Display) -> String {
    let text = text.to_string();
    let short: String = text.chars().take(TOLD_MAX).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", Line(short))
}
