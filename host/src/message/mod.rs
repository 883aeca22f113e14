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
mod function_target;
mod gather;
mod incoming;
mod rejection;
mod request;
mod response;
mod size;
mod timing;
mod trace;

pub use access::AccessRecord;
pub use body::{Body, BodyError};
pub use request::RemoteAddress;

pub(crate) use access::{RequestCallback, RequestRecorder};
pub(crate) use collect::{collect, discard, expects_continue, refuse};
pub(crate) use correlation::{Correlation, sent_id};
pub(crate) use fields::{take_content_length, trailers};
pub(crate) use forwarded::{ForwardedPrefix, forwarded_for};
pub(crate) use function_target::FunctionTarget;
pub(crate) use gather::{GatherError, GatherGoal, GatheredBody, gather};
pub(crate) use incoming::{BodyLimits, limited};
pub(crate) use rejection::RequestRejection;
pub(crate) use request::{Arrival, CallerContext, Connection, FromOperator, request_head};
pub(crate) use response::{ResponseContext, response};
pub(crate) use size::{TARGET_BYTES, check_size, head_cost, head_size};
pub(crate) use timing::add_server_timing;
