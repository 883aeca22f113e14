//! The reasons why a request is rejected before a function sees it.

use std::time::Duration;

use thiserror::Error;

/// The reason why a request is rejected.
#[derive(Debug, Error)]
pub(crate) enum RequestRejection {
    #[error("the request's header fields take {size} {unit}; the limit is {limit}")]
    HeadTooLarge {
        size: usize,
        unit: &'static str,
        limit: usize,
    },
    #[error("the request's body is larger than the limit of {0} bytes")]
    BodyTooLarge(usize),
    /// A command in CGI style reads as many bytes as `CONTENT_LENGTH` says.
    #[error(
        "the function is a command and needs the length of the request's body; a body over {0} \
         bytes needs Content-Length"
    )]
    LengthUnknown(u64),
    #[error("the request's body could not be read: {0}")]
    BodyUnreadable(String),
    #[error("the request's body did not arrive within {} s", .0.as_secs_f64())]
    BodyTimeout(Duration),
}
