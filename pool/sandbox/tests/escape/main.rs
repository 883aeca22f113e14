//! What an attacker can do who has broken out of a VM: nothing.
//!
//! Each attack runs in a jail that is made just as a sandbox's is, with the descriptors
//! of a sandbox that serves a function, and at the point where the sandbox would serve.
//! Most are ended by the filter. A second round has a filter that lets everything
//! through, and shows that what is round it holds by itself.
//!
//! The jail is made by a process of its own, this program started anew, since that
//! leaves the host's namespaces and may have one thread only. Both rounds come at both levels of
//! confinement.
//!
//! Without `/dev/kvm` every test here says so and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod attacks;
#[path = "../../../../jail/tests/escape/mod.rs"]
mod escape;
mod testbed;

use libtest_mimic::Arguments;

use escape::suite::{self, Order};

fn main() {
    if let Some(order) = Order::read() {
        testbed::run(&order);
    }
    let arguments = Arguments::from_args();
    let skip = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err();
    if skip {
        eprintln!("WITHOUT KVM: the tests of this file are ignored");
    }
    libtest_mimic::run(&arguments, suite::trials(attacks::attacks, skip, false)).exit();
}
