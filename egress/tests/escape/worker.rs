//! An upstream that has taken over a worker can only answer that worker's function.
//!
//! Each attack runs in a jail that is made and closed as a worker's is, with the same sockets and
//! limits, at the point where the worker would read untrusted data. The filter ends most attacks. A
//! second round has a filter that allows everything, and shows that the rest of the jail holds by
//! itself. Attacks that only the filter prevents must succeed there, or they would not be attacks.
//!
//! If the host allows no namespaces, every test of the full level prints a message and counts as
//! ignored; tests of the reduced level need none.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[allow(dead_code, reason = "some are the connector's")]
mod attacks;
#[path = "../../../jail/tests/escape/mod.rs"]
mod escape;
mod testbed;

use escape::attack::Attack;
use escape::common;
use faasw_jail::egress::EgressRole;

fn main() {
    testbed::run(EgressRole::Worker, all);
}

fn all() -> Vec<Attack> {
    let mut all: Vec<Attack> = common::OPENING.into();
    all.extend(common::ATTACKS);
    all.extend(attacks::BOTH);
    all.extend(attacks::WORKERS);
    all
}
