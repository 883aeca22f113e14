//! Instances: sandboxes that were forked from a snapshot, for one request or many.
//!
//! `reset_wait` waits for an instance to stop after its request and has it reset, `warm` keeps it
//! for the next request, `keeper` limits the number and the time of warm instances, `polling`
//! decides which of them poll for the next request, and `reset_record` counts resets. This module
//! knows no functions: instances that are warm together were forked from the same snapshot.

mod instance;
mod keeper;
mod numbers;
mod polling;
mod reset_record;
mod reset_wait;
mod warm;

pub use self::instance::Instance;
pub use self::keeper::{Keeper, WarmRules};
pub use self::numbers::InstanceNumbers;
pub use self::polling::{ActiveRequest, Polling, PollingSlot, poll_briefly};
pub use self::reset_wait::{CPU_AFTER_END, ResetError, ResetOrder, ResetOutcome, ResetWait};
pub use self::warm::{PendingInstance, WarmInfo, WarmInstances};
