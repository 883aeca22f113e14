//! `wasi:http` for components: one incoming request, one response.
//!
//! The resources are plain data in the store's table; what they share (bodies,
//! and the answer once it is given) is the [`Exchange`](crate::exchange::Exchange).

mod client;
mod error;
mod fields;
mod request;
mod response;

// Public, within this private module, because the generated bindings want it.
pub use client::{OutgoingRequest, RequestOptions};
pub use error::HttpFailure;
pub use fields::{Fields, HeaderFailure};
pub use request::{FutureTrailers, IncomingBody, IncomingRequest};
pub use response::{OutgoingBody, OutgoingResponse, ResponseOutparam};

#[cfg(test)]
mod tests;
