//! Instances: sandboxes that were forked from a snapshot, for one request or many.
//!
//! `settle` waits for an instance to stop after its request and has it reset, `warm` keeps it
//! for the next request, `keeper` limits the number and the time of warm instances, `polling`
//! decides which of them poll for the next request, `look` is how the node polls, and
//! `reset_record` counts resets. Except for the fork in `instance`, this module knows no functions:
//! instances that are warm together were forked from the same snapshot.

mod instance;
mod keeper;
mod look;
mod numbers;
mod polling;
mod reset_record;
mod settle;
mod warm;

pub use self::instance::Instance;
pub use self::keeper::{Keeper, WarmRules};
pub use self::look::look_for;
pub use self::numbers::InstanceNumbers;
pub use self::polling::{Looking, Polling, UnderWay};
pub use self::settle::{AFTER_END, Back, Order, Settling, Unsettled};
pub use self::warm::{PendingInstance, Rest, WarmInstances};
