//! What an attacker can do who has broken out of a VM: nothing.
//!
//! Each attack runs in a cell that is made just as a shell's is, with the descriptors
//! of a shell that serves a function, and at the point where the shell would serve.
//! Most are ended by the filter. A second round has a filter that lets everything
//! through, and shows that what is round it holds by itself.
//!
//! The cell is made by a process of its own, this program started anew, since that
//! leaves the host's namespaces and may have one thread only.
//!
//! Without `/dev/kvm` every test here says so and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod attacks;
mod jail;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};

use attacks::{ATTACKS, Attack, Kernel, LOCATE};
use faasw_shell::page_map::PageMap;
use jail::Outcome;

/// The word that has this program be the jail.
const JAIL: &str = "--jail";

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == JAIL) {
        jail::run(&words[2], words[3] == "filtered", &words[4]);
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
    let mut trials = Vec::new();
    // Elsewhere shells read the map, and what it shows is all that protects.
    let scans = PageMap::open().is_ok_and(|map| map.scans());
    for attack in ATTACKS {
        if attack.name != LOCATE || scans {
            trials.push(
                Trial::test(format!("filtered::{}", attack.name), || filtered(attack))
                    .with_ignored_flag(skip),
            );
        }
        if !matches!(attack.kernel, Kernel::LeavesItToTheFilter) {
            trials.push(
                Trial::test(format!("unfiltered::{}", attack.name), || {
                    unfiltered(attack)
                })
                .with_ignored_flag(skip),
            );
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Runs an attack in a cell of its own. Something of the outside listens meanwhile,
/// and gets no visit.
fn attempt(attack: &Attack, filter: &str) -> Outcome {
    let name = format!(
        "faasw-escape-{}-{filter}-{}",
        std::process::id(),
        attack.name
    );
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let output = Command::new("/proc/self/exe")
        .args([JAIL, attack.name, filter, &name])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "the jail failed: {told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(listener.accept().is_err(), "somebody came out");
    Outcome::read(told.trim()).unwrap()
}

fn filtered(attack: &Attack) -> Result<(), Failed> {
    expect(attempt(attack, "filtered"), |outcome| match outcome {
        Outcome::Signal(signal) => signal == libc::SIGSYS && attack.is_forbidden,
        Outcome::Refused(errno) => !attack.is_forbidden && attack.kernel.refuses_with(errno),
        Outcome::Succeeded => false,
    })
}

fn unfiltered(attack: &Attack) -> Result<(), Failed> {
    expect(attempt(attack, "unfiltered"), |outcome| match outcome {
        Outcome::Refused(errno) => attack.kernel.refuses_with(errno),
        _ => false,
    })
}

fn expect(outcome: Outcome, is_right: impl Fn(Outcome) -> bool) -> Result<(), Failed> {
    if is_right(outcome) {
        Ok(())
    } else {
        Err(Failed::from(format!("it ended thus: {outcome}")))
    }
}
