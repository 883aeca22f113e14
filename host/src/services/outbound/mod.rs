//! Requests that functions make: who may, and by whom they are made.
//!
//! [`Granted`] is what a function's guests have: it holds each request against the version's grants
//! and the limits, and has it made by [`Egress`], which starts the processes that connect and
//! speak, or by whatever a program that embeds the node has for it; what is for the node's own
//! functions never leaves it. The node reads the head of the function's request, and nothing that
//! an upstream says. See `docs/decisions/0026-reaching-out.md`.

mod call;
mod egress;
mod granted;
mod hops;
mod options;
mod refusals;
mod slot;
mod system;

pub use self::{
    egress::{NewConnector, NewWorker, Processes},
    options::OutboundOptions,
    system::NameFiles,
};
pub(crate) use self::{
    granted::{Granted, Hears, Limits, Maker, Refused},
    hops::Hops,
    options::Outgoing,
};
