//! What an upstream can do that has taken over a worker: nothing but answer that function.
//!
//! Each attack runs in a jail that is made and closed just as a worker's is, with its sockets and
//! limits, at the point where it would read what somebody sends. Most are ended by the filter. A
//! second round has a filter that lets everything through, and shows that what is round it holds by
//! itself; what only the filter has something against must succeed there, or the attack would be
//! none.
//!
//! Where the host allows no namespaces, every test of the full level says so and counts as
//! ignored; those of the reduced level need none.

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
use faasw_jail::egress::Kind;

fn main() {
    testbed::run(Kind::Worker, all);
}

fn all() -> Vec<Attack> {
    let mut all: Vec<Attack> = common::OPENING.into();
    all.extend(common::ATTACKS);
    all.extend(attacks::BOTH);
    all.extend(attacks::WORKERS);
    all
}
