//! The path of a request through the node.
//!
//! The [`Dispatcher`] looks the function up, checks the request, runs it in an instance of the
//! function's seed and checks the response. A failure before the response has begun becomes a
//! problem response; after that, the response is cut off. Both write a line to the function's log.
//! So a caller always receives an answer, and never takes a partial response for a complete one.
//!
//! - `incoming` is a request that was checked, with what is reserved for it.
//! - `observer` follows the instance that serves a request.
//! - `outbound` makes the outbound calls of an invocation, `self_calls` those to the same node.

mod dispatcher;
mod incoming;
mod observer;
mod outbound;
mod self_calls;

pub(super) use self::dispatcher::Dispatcher;
pub(crate) use self::dispatcher::ReportOptions;
