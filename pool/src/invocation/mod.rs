//! The life of one request: from its admission to the reset or end of its instance.
//!
//! A `call` waits for a permit (`admission`). `run` is the invocation itself: `start` starts the
//! guest. `feed` gives it what the client sends (by the `pump` of its channel), the answers of its
//! store (`store`), and the answers to its outbound calls (`calls`, made by an `outbound`).
//! `deadlines` holds both guest and client to `limits`, `expiry` handles a limit that expires, and
//! a `budget` bounds the nested invocations together. `delivery` hands out the response, within the
//! `backlog` of clients, and `finished` its rest. `recycler` has the instance reset and kept warm,
//! or ended. See `docs/decisions/0009-streaming.md`.

mod admission;
mod backlog;
mod body;
mod budget;
mod call;
mod calls;
mod deadlines;
mod delivery;
mod expiry;
mod feed;
mod finished;
mod limits;
mod outbound;
mod pump;
mod recycler;
mod relay;
mod run;
mod secrets;
mod start;
mod store;

pub use self::admission::{
    Admission, AdmissionPermit, INSTANCE_MEMORY, RunPermit, ServedFunctions, permit_request,
};
pub use self::backlog::{
    Account, Backlog, BacklogLimits, ConnectionBacklog, FunctionBacklog, Lease,
};
pub use self::body::{IncomingBody, ReplyBody, RequestBody, ResponsePart, ResponseStream};
pub use self::budget::{BudgetAccount, BudgetError, RequestBudget};
pub use self::call::{CallerPermit, InvocationRequest, PermitShare, Reply, RequestClient};
pub use self::delivery::ReplyForm;
pub use self::limits::InvocationLimits;
pub use self::outbound::{AnswerPart, Outbound, OutgoingCall, OutgoingRequest};
pub use self::recycler::InvocationPermits;
pub use self::relay::{RelaySlots, relay_slots};
pub use self::run::{Invocation, InvocationParts, StartOutcome};
pub use self::secrets::Secrets;
pub use self::store::{StoreAnswerFuture, StoreService};
