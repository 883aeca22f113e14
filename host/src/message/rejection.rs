//! The reasons why a request is rejected before a function sees it.

use std::time::Duration;

use thiserror::Error;

/// The reason why a request is rejected.
#[derive(Debug, Error)]
pub(crate) enum RequestRejection {
    #[error("the request's header fields take {size} {unit}; at most {limit} are taken")]
    HeadTooLarge {
        size: usize,
        unit: &'static str,
        limit: usize,
    },
    #[error("the request's body is larger than the {0} bytes that are taken")]
    BodyTooLarge(usize),
    /// A command in CGI style reads as many bytes as `CONTENT_LENGTH` says.
    #[error(
        "the function is a command, which needs the length of the request's body, and a body \
         without Content-Length may have {0} bytes at most: send Content-Length"
    )]
    LengthUnknown(u64),
    #[error("the request's body could not be read: {0}")]
    BodyUnreadable(String),
    #[error("the request's body did not arrive within {} s", .0.as_secs_f64())]
    BodyTimeout(Duration),
}
