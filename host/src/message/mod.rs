//! Requests on their way to a function, and responses on their way back.
//!
//! This module is the node's side of HTTP semantics: the parts of a request that a function may
//! see, and the parts of its response that may reach a client. The module does not use sockets; the
//! gateway and the library's `invoke` both use it.

mod access;
mod body;
mod collect;
mod correlation;
mod export;
mod fields;
mod forwarded;
mod gather;
mod incoming;
mod named;
mod request;
mod response;
mod size;
mod timing;
mod trace;
mod unfit;

pub use access::AccessRecord;
pub use body::{Body, BodyError};
pub use request::RemoteAddress;

pub(crate) use access::{Follow, TellRequest};
pub(crate) use collect::{asks_first, collect, discard, refuse};
pub(crate) use correlation::{Correlation, sent_id};
pub(crate) use fields::{take_content_length, trailers};
pub(crate) use forwarded::forwarded_for;
pub(crate) use gather::{GatherError, Gathered, Wanted, gather};
pub(crate) use incoming::{BodyLimits, limited};
pub(crate) use named::Named;
pub(crate) use request::{Arrival, Connection, FromOperator, Within, request_head};
pub(crate) use response::{Asked, response};
pub(crate) use size::{TARGET_BYTES, check_size, head_cost, head_size};
pub(crate) use timing::add_server_timing;
pub(crate) use unfit::Unfit;
