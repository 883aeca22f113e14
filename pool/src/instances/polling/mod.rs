//! Polling for the next request instead of sleeping until it comes.
//!
//! An instance is hot if it is warm with its vCPU in the guest, which polls for its next request
//! itself. That saves two wakes and an entry into the VM, and costs a processor while no request
//! comes. So polling follows KVM, which polls before it lets a halted vCPU sleep (`halt_poll_ns`).
//! `docs/decisions/0025-hot-instances.md` has the reasons.
//!
//! - `arrivals`, one per function: the polling time grows while requests come within it, and
//!   shrinks when they do not. It is bounded by a share of one processor. Polling pauses after an
//!   instance had no processor, and after a guest strayed.
//! - `slots`, one per pool: there are never more polling instances than processors that have
//!   nothing to do. Each has the lowest priority: by the weight of its control group, everything
//!   else that wants a processor comes first.
//! - `brief_poll`: the node polls for a reset and for an answer if these come sooner than a sleep
//!   and a wake would take.
//!
//! `WarmInstances` asks `Polling` for a time and a slot when an instance is reset. The order to
//! poll, the offer of the instance and its claim then need no system call: `Mailbox` has these
//! methods (`pool/src/mailbox/file/hot.rs`), over the page of `faasw_fri::control`, and
//! `pool/sandbox/src/sandbox/hot.rs` is the other side.

mod arrivals;
mod brief_poll;
mod slots;

pub use self::arrivals::Arrivals;
pub use self::brief_poll::poll_briefly;
pub use self::slots::{ActiveRequest, Polling, PollingSlot};
