//! What a server of names can do that has taken over the connector: connect, which it could have
//! had by other answers, and nothing else of this host.
//!
//! As the worker's suite beside this; but where the host's network is what attacks use, the filter
//! alone holds.
//!
//! Where the host allows no namespaces, every test of the full level says so and counts as
//! ignored; those of the reduced level need none.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[allow(dead_code, reason = "some are the worker's")]
mod attacks;
#[path = "../../../jail/tests/escape/mod.rs"]
mod escape;
mod testbed;

use escape::attack::{Attack, Kernel};
use escape::common;
use faasw_jail::egress::Kind;

fn main() {
    testbed::run(Kind::Connector, all);
}

fn all() -> Vec<Attack> {
    let mut all: Vec<Attack> = common::OPENING.into();
    all.extend(common::ATTACKS);
    // That is what it is there for.
    all.retain(|attack| attack.name != "connect-by-network");
    for attack in &mut all {
        // Names that are no files are of a network, and it is in the host's.
        if attack.name == "connect-by-name" {
            attack.kernel = Kernel::LeavesItToTheFilter;
        }
    }
    all.extend(attacks::BOTH);
    all.extend(attacks::CONNECTORS);
    all
}
