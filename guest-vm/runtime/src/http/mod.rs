//! `wasi:http` for components: one incoming request and its response, and outbound calls.
//!
//! The resources are plain data in the store's table. They share bodies, calls under way and the
//! answer through the [`Invocation`](crate::invocation::Invocation).

mod answer;
mod client;
mod error;
mod fields;
mod request;
mod response;

// Public within this private module, because the generated bindings require it.
pub use answer::{FutureIncomingResponse, IncomingResponse};
pub use client::{OutgoingRequest, RequestOptions};
pub use error::HttpFailure;
pub use fields::{Fields, HeaderFailure};
pub use request::{FutureTrailers, IncomingBody, IncomingRequest};
pub use response::{OutgoingBody, OutgoingResponse, ResponseOutparam};

pub(crate) use error::{call_failure, spell};

#[cfg(test)]
mod tests;
