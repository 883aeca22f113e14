//! Why a request is not taken as it is.

use std::time::Duration;

use thiserror::Error;

/// What is wrong with it.
#[derive(Debug, Error)]
pub(crate) enum Unfit {
    #[error("the request's header fields take {size} {unit}; at most {limit} are taken")]
    HeadTooLarge {
        size: usize,
        unit: &'static str,
        limit: usize,
    },
    #[error("the request's body is larger than the {0} bytes that are taken")]
    BodyTooLarge(usize),
    #[error("the request's body could not be read: {0}")]
    BodyUnreadable(String),
    #[error("the request's body did not arrive within {} s", .0.as_secs_f64())]
    BodyTimeout(Duration),
}
