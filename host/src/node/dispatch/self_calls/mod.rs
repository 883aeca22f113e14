//! Self calls: requests of functions to functions of the same node. They never leave the node.
//!
//! A self call is a request like any other, to an instance in a microVM of its own. But another
//! invocation waits for it and keeps its permit meanwhile. So the self call counts in the share of
//! the function that answers the client, and it is rejected at once if there is no permit. The
//! header `CDN-Loop`, which the node writes, bounds how deep calls nest
//! ([`Hops`](crate::services::outbound::Hops)). The budget of the client's request bounds their
//! number, their CPU time and their wall time ([`RequestBudget`](faasw_pool::RequestBudget)). Bytes
//! that wait are accounted as described at [`call`](faasw_pool::Backlog::call).

mod body;
mod budget;
mod call;
mod request;

pub(super) use self::{
    budget::{account, call_limits},
    call::SelfCall,
    request::{SelfCallRequest, parse_request},
};
