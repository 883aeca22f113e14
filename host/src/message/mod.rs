//! Requests on their way to a function, responses on their way back.
//!
//! This is the node's side of HTTP semantics: what a function may see of a
//! request, and what of its response may reach a client. It knows no sockets;
//! the gateway and the library's `invoke` both go through it.

mod body;
mod collect;
mod fields;
mod incoming;
mod request;
mod response;
mod timing;

pub use body::{Body, BodyError};
pub use request::RemoteAddress;

pub(crate) use collect::{asks_first, collect, refuse};
pub(crate) use incoming::limited;
pub(crate) use request::{check_size, request_head};
pub(crate) use response::{Asked, response};
pub(crate) use timing::add_server_timing;
