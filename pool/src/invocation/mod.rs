//! The life of one request: from its admission to the reset or end of its instance.
//!
//! A `call` waits for a permit (`admission`). `following` is the invocation itself: `start` starts
//! the guest. `feed` gives it what the client sends (by the `pump` of its channel), the answers of
//! its store (`store`), and the answers to its outbound calls (`calls`, made by an `outbound`). One
//! `timeline` holds both guest and client to `limits` (`deadlines`), and a `budget` bounds the
//! nested invocations together. `drain` and `end` hand out what is left, within the `backlog` of
//! clients. `retire` has the instance reset and warm, or ended. See
//! `docs/decisions/0009-streaming.md`.

mod admission;
mod backlog;
mod body;
mod budget;
mod call;
mod calls;
mod deadlines;
mod drain;
mod end;
mod feed;
mod following;
mod limits;
mod outbound;
mod pump;
mod relay;
mod retire;
mod secrets;
mod start;
mod store;
mod timeline;

pub use self::admission::{Admission, INSTANCE_MEMORY, ServedFunctions, permit_request};
pub use self::backlog::{
    Account, Backlog, BacklogLimits, ConnectionBacklog, FunctionBacklog, Lease,
};
pub use self::body::{Incoming, Part, ReplyBody, RequestBody, ResponseStream};
pub use self::budget::{BudgetAccount, BudgetError, RequestBudget};
pub use self::call::{Admitted, Call, Client, Reply, Share};
pub use self::end::{Ended, Rest};
pub use self::following::{Begun, Invocation, Terms};
pub use self::limits::CallLimits;
pub use self::outbound::{AnswerPart, Outbound, OutgoingCall, OutgoingRequest};
pub use self::relay::{RelaySlots, relay_slots};
pub use self::secrets::Secrets;
pub use self::store::{Answering, StoreService};
