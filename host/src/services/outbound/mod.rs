//! Outbound calls of functions: who may make which, and what makes them.
//!
//! [`GrantedCalls`] receives the calls of a function's guests. It checks each call against the
//! version's grants and the limits. Then [`Egress`] makes the call, with processes that connect and
//! speak HTTP, or an implementation of the program that embeds the node makes it. Self calls never
//! leave the node. The node parses the head of the function's request, and nothing that an upstream
//! sends. See `docs/decisions/0026-reaching-out.md`.

mod call;
mod egress;
mod granted_calls;
mod hops;
mod limits;
mod options;
mod processes;
mod refusals;
mod system;
mod worker_cell;
mod worker_slot;

pub(crate) use self::{
    granted_calls::{CallMaker, GrantedCalls, RefusedCall},
    hops::Hops,
    limits::OutboundLimits,
    options::OutboundMaker,
    refusals::OutboundObserver,
};
pub use self::{
    options::OutboundOptions,
    processes::{EgressProcesses, NewConnector, NewWorker},
    system::NameFiles,
};
