//! Instances: sandboxes that were forked from a snapshot, over one request or many.
//!
//! `settle` has one stand still and be reset behind its request, `parking` keeps it for the next,
//! `keeper` says how many and for how long, `polling` says which looks for that by itself, `look`
//! is how the node looks, and `reset_record` counts resets. Knows no function: what is parked
//! together was forked from one.

mod instance;
mod keeper;
mod look;
mod numbers;
mod parking;
mod polling;
mod reset_record;
mod settle;

pub use self::instance::Instance;
pub use self::keeper::{Keeper, ParkingRules};
pub use self::look::look_for;
pub use self::numbers::InstanceNumbers;
pub use self::parking::{Coming, Parking, Rest};
pub use self::polling::{Looking, Polling, UnderWay};
pub use self::settle::{AFTER_END, Back, Order, Settling, Unsettled};
