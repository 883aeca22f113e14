//! The two rounds.
//!
//! An attack that is refused for a reason that its test did not mean would prove
//! nothing. So each says which errors are right, and the jail fails where the attacker
//! did not come as far as the attack.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use super::attack::{Attack, Filter, Kernel};
use super::outcome::Outcome;

/// The word that has a suite's program be the jail. After it come the attack's name,
/// [`FILTERED`] or another word, and the name of the socket outside.
pub const JAIL: &str = "--jail";

/// The word for the first round.
pub const FILTERED: &str = "filtered";

/// The order in a jail's arguments, if that is what this program is started for.
pub struct Order {
    pub attack: String,
    pub is_filtered: bool,
    pub outside: String,
}

impl Order {
    pub fn read() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        (words.next()? == JAIL).then_some(())?;
        Some(Self {
            attack: words.next()?,
            is_filtered: words.next()? == FILTERED,
            outside: words.next()?,
        })
    }
}

/// A trial for each attack and round.
pub fn trials(attacks: Vec<Attack>, skip: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    for attack in attacks {
        let Attack {
            name,
            filter,
            kernel,
            ..
        } = attack;
        let trial = Trial::test(format!("filtered::{name}"), move || {
            expect(attempt(name, FILTERED), |outcome| match filter {
                Filter::Ends => outcome == Outcome::Signal(libc::SIGSYS),
                Filter::Answers(errno) => outcome == Outcome::Refused(errno),
                Filter::Passes => is_right(kernel, outcome),
            })
        });
        trials.push(trial.with_ignored_flag(skip));
        if kernel != Kernel::LeavesItToTheFilter {
            let trial = Trial::test(format!("unfiltered::{name}"), move || {
                expect(attempt(name, "unfiltered"), |outcome| {
                    is_right(kernel, outcome)
                })
            });
            trials.push(trial.with_ignored_flag(skip));
        }
    }
    trials
}

fn is_right(kernel: Kernel, outcome: Outcome) -> bool {
    match (kernel, outcome) {
        (Kernel::Refuses(errnos), Outcome::Refused(errno)) => errnos.contains(&errno),
        (Kernel::Ends(right), Outcome::Signal(signal)) => right == signal,
        (Kernel::Allows, outcome) => outcome == Outcome::Succeeded,
        _ => false,
    }
}

/// Runs an attack in a cell of its own. Something of the outside listens meanwhile,
/// and gets no visit.
fn attempt(attack: &str, filter: &str) -> Outcome {
    let name = format!("faasw-escape-{}-{filter}-{attack}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let output = Command::new("/proc/self/exe")
        .args([JAIL, attack, filter, &name])
        .stdin(Stdio::null())
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

fn expect(outcome: Outcome, is_right: impl Fn(Outcome) -> bool) -> Result<(), Failed> {
    if is_right(outcome) {
        Ok(())
    } else {
        Err(Failed::from(format!("it ended thus: {outcome}")))
    }
}
