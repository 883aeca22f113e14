//! An upload that has taken over the compile helper can do nothing outside of its jail.
//!
//! Each attack runs in a jail that is made and closed as the helper's is, with the same files,
//! limits and environment, at the point where the helper would read the upload. The filter ends
//! most attacks. A second round has a filter that allows everything, and shows that the rest of the
//! jail holds by itself. Attacks that only the filter prevents must succeed there, or they would
//! not be attacks.
//!
//! A separate process makes the jail: this program, started again. It leaves the host's namespaces,
//! and may have only one thread. It starts this program a third time, as the helper.
//!
//! If the host allows no namespaces, every test of the full level prints a message and counts as
//! ignored; tests of the reduced level need none.

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

/// The part of the inmate that does not attack.
const SIBLING: &str = "sibling";
/// The message of an inmate whose jail is closed.
const CLOSED: &[u8] = b"closed";
/// The upload of all inmates.
const UPLOAD: &[u8] = b"an upload";
/// Processor time of each inmate, in seconds. One attack tries to exceed it.
const CPU_SECONDS: u64 = 1;
/// Every existing system call number, and some more.
const CALLS: std::ops::Range<libc::c_long> = 0..600;
/// Exit code of an inmate that was not ready. No error number is as large.
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

/// Makes two jails, runs the attack in one of them, and returns the outcome.
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
    // From here on, whatever ends the attacker is due to the attack.
    assert!(
        attacker.report().starts_with(CLOSED),
        "it did not come to the attack: {status:?}"
    );
    sibling.end();
    testbed.remove();
    Outcome::of(status)
}

/// Closes the jail and plays the part; the exit code is the result.
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
        // Frees one descriptor: otherwise many attacks would fail only because none is left.
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
    // SAFETY: writes bytes of a constant.
    let written = unsafe { libc::write(REPORT_FD, CLOSED.as_ptr().cast(), CLOSED.len()) };
    (written == CLOSED.len().cast_signed()).then_some(())
}
