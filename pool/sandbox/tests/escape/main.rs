//! The attacks of an attacker who has broken out of a VM: none of them succeeds.
//!
//! Each attack runs in a jail that is made exactly like a sandbox's, with the descriptors of a
//! sandbox that serves a function, at the point where the sandbox would begin to serve. The filter
//! ends most of them. A second round has a filter that allows everything, and shows that the other
//! parts of the jail hold by themselves.
//!
//! The jail is made by a separate process, which is this program started anew: making a jail leaves
//! the host's namespaces, and takes a process with one thread. Both rounds run at both levels of
//! confinement.
//!
//! Without `/dev/kvm` every test here prints a message and counts as ignored.

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
