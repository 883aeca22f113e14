//! What an upload can do that has taken over the compile helper: nothing.
//!
//! Each attack runs in a jail that is made and closed just as the helper's is, with its
//! files, limits and environment, at the point where the helper would read the upload.
//! Most are ended by the filter. A second round has a filter that lets everything
//! through, and shows that what is round it holds by itself; what only the filter has
//! something against must succeed there, or the attack would be none.
//!
//! The jail is made by a process of its own, this program started anew, since that
//! leaves the host's namespaces and may have one thread only. It starts this program
//! a third time, as the helper.
//!
//! Where the host allows no namespaces, every test of the full level says so and counts as
//! ignored; those of the reduced level need none.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod attacks;
#[path = "../../../jail/tests/escape/mod.rs"]
mod escape;
#[path = "../support/testbed.rs"]
mod testbed;

use faasw_compiler::jail;
use faasw_compiler::protocol::contract::REPORT_FD;
use faasw_jail::filter::{Filter, rule};
use libtest_mimic::Arguments;

use escape::{
    attack::{Attack, Scene},
    outcome::Outcome,
    suite::{self, Order},
};
use testbed::Testbed;

/// The part of the one that attacks nobody.
const SIBLING: &str = "sibling";
/// What an inmate says when its jail is closed.
const CLOSED: &[u8] = b"closed";
/// The upload of all.
const UPLOAD: &[u8] = b"an upload";
/// Processor time of each, which one tries to outlive.
const CPU_SECONDS: u64 = 1;
/// Every system call that there is, and some more.
const CALLS: std::ops::Range<libc::c_long> = 0..600;
/// What an inmate exits with that was not ready. No error number is so large.
const NOT_READY: i32 = 255;

fn main() {
    if let Some((part, jail)) = testbed::part() {
        let code = play(&part, &jail).unwrap_or(NOT_READY);
        // SAFETY: ends this process.
        unsafe { libc::_exit(code) }
    }
    if let Some(order) = Order::read() {
        println!("{}", run(&order));
        return;
    }
    let arguments = Arguments::from_args();
    let skip_full = !testbed::is_possible();
    let trials = suite::trials(attacks::attacks, false, skip_full);
    libtest_mimic::run(&arguments, trials).exit();
}

/// Makes two jails, has the attack run in one of them, and tells how it ended.
fn run(order: &Order) -> Outcome {
    let mut testbed = Testbed::prepare_at(order.level);
    let sibling = testbed.start(SIBLING, UPLOAD, CPU_SECONDS);
    let Order {
        attack,
        is_filtered,
        outside,
        ..
    } = order;
    let part = format!("{attack} {is_filtered} {} {outside}", sibling.pid());
    let attacker = testbed.start(&part, UPLOAD, CPU_SECONDS);
    let status = attacker.wait();
    // Whatever ended it, it was the attack.
    assert!(
        attacker.report().starts_with(CLOSED),
        "it did not come to the attack: {status:?}"
    );
    sibling.end();
    testbed.remove();
    Outcome::of(status)
}

/// Closes the jail and does as told; the exit code is the answer.
fn play(part: &str, jail: &str) -> Option<i32> {
    if part == SIBLING {
        close(jail, &jail::filter().ok()?)?;
        loop {
            std::thread::park();
        }
    }
    let words: Vec<&str> = part.split(' ').collect();
    let [name, is_filtered, sibling, outside] = *words else {
        return None;
    };
    let mut attacks = attacks::attacks().into_iter();
    let Attack { run, .. } = attacks.find(|attack| attack.name == name)?;
    let scene = Scene {
        sibling: sibling.parse().ok()?,
        outside: outside.to_owned(),
    };
    let filter = if is_filtered == "true" {
        jail::filter().ok()?
    } else {
        let all: Vec<_> = CALLS.map(|call| rule("anything", call, &[])).collect();
        Filter::compile(&all, &[]).ok()?
    };
    close(jail, &filter)?;
    if is_filtered != "true" {
        // Room for a descriptor: that there is none left would be the answer to much.
        // SAFETY: nothing uses it.
        unsafe { libc::close(1) };
    }
    Some(match run(&scene) {
        0.. => 0,
        refused => i32::try_from(-refused).ok()?,
    })
}

fn close(jail: &str, filter: &Filter) -> Option<()> {
    jail::close(jail, filter).ok()?;
    // SAFETY: writes what lives.
    let written = unsafe { libc::write(REPORT_FD, CLOSED.as_ptr().cast(), CLOSED.len()) };
    (written == CLOSED.len().cast_signed()).then_some(())
}
