//! A name server that has taken over the connector can only make connections, which it could also
//! have caused by other answers. It can do nothing else on this host.
//!
//! This suite is like the worker's. Where attacks use the host's network, the filter is the only
//! protection.
//!
//! If the host allows no namespaces, every test of the full level prints a message and counts as
//! ignored; tests of the reduced level need none.

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
use faasw_jail::egress::EgressRole;

fn main() {
    testbed::run(EgressRole::Connector, all);
}

fn all() -> Vec<Attack> {
    let mut all: Vec<Attack> = common::OPENING.into();
    all.extend(common::ATTACKS);
    // Connecting is the connector's purpose.
    all.retain(|attack| attack.name != "connect-by-network");
    for attack in &mut all {
        // Abstract socket names belong to a network namespace, and the connector is in the host's.
        if attack.name == "connect-by-name" {
            attack.kernel = Kernel::LeavesItToTheFilter;
        }
    }
    all.extend(attacks::BOTH);
    all.extend(attacks::CONNECTORS);
    all
}
