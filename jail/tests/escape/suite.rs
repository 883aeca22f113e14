//! The two rounds of a suite.
//!
//! An attack that is refused for another reason than its test assumes would prove nothing. So each
//! attack lists the expected errors, and the testbed fails if the attacker does not get as far as
//! the attack.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

use faasw_jail::{ConfinementLevel, has_privilege};
use libtest_mimic::{Failed, Trial};

use super::attack::{Attack, Filter, Kernel};
use super::denied::deny_namespaces;
use super::outcome::Outcome;
use super::reduced::reduce;

/// The argument that makes a suite's program the testbed. After it come the attack's name,
/// [`FILTERED`] or another word, [`REDUCED`] or another word, and the name of the socket outside.
pub const TESTBED: &str = "--testbed";

/// The argument for the first round.
pub const FILTERED: &str = "filtered";

/// The argument for the reduced level.
const REDUCED: &str = "reduced";

/// The order in a testbed's arguments.
pub struct Order {
    pub attack: String,
    pub is_filtered: bool,
    pub level: ConfinementLevel,
    pub outside: String,
}

impl Order {
    /// Reads the order; `None` if this program is not started as the testbed. At the reduced level
    /// with the jail's filter, the process must not make namespaces from then on. Without that
    /// filter, the results must be those of the other parts of the jail.
    pub fn read() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        (words.next()? == TESTBED).then_some(())?;
        let order = Self {
            attack: words.next()?,
            is_filtered: words.next()? == FILTERED,
            level: match words.next()?.as_str() {
                REDUCED => ConfinementLevel::Reduced,
                _ => ConfinementLevel::Full,
            },
            outside: words.next()?,
        };
        if order.level == ConfinementLevel::Reduced && order.is_filtered {
            rustix::thread::set_no_new_privs(true).unwrap();
            deny_namespaces();
        }
        Some(order)
    }
}

/// Returns a trial for each attack, round and level. With `skip` all of them are ignored; with
/// `skip_full` those of the full level, because this host allows no namespaces.
pub fn trials(attacks: fn() -> Vec<Attack>, skip: bool, skip_full: bool) -> Vec<Trial> {
    let full = ConfinementLevel::Full;
    let mut trials = trials_of(attacks(), full, skip || skip_full);
    // An empty root and own users take root's privileges.
    let (level, has_more) = (
        ConfinementLevel::Reduced,
        has_privilege(ConfinementLevel::Reduced),
    );
    if !has_more {
        eprintln!("NOT ROOT: at the reduced level the tests that go without a filter are ignored");
    }
    let attacks = attacks().into_iter();
    let reduced = attacks.filter_map(|attack| reduce(attack, has_more));
    trials.extend(trials_of(reduced.collect(), level, skip));
    trials
}

fn trials_of(attacks: Vec<Attack>, level: ConfinementLevel, skip: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    let named = move |name: String| match level {
        ConfinementLevel::Full => name,
        ConfinementLevel::Reduced => format!("{REDUCED}::{name}"),
    };
    for attack in attacks {
        let Attack {
            name,
            filter,
            kernel,
            ..
        } = attack;
        let trial = Trial::test(named(format!("filtered::{name}")), move || {
            expect(attempt(name, FILTERED, level), |outcome| match filter {
                Filter::Ends => outcome == Outcome::Signal(libc::SIGSYS),
                Filter::Answers(errno) => outcome == Outcome::Refused(errno),
                Filter::Passes => is_right(kernel, outcome),
            })
        });
        trials.push(trial.with_ignored_flag(skip));
        if kernel != Kernel::LeavesItToTheFilter {
            let trial = Trial::test(named(format!("unfiltered::{name}")), move || {
                expect(attempt(name, "unfiltered", level), |outcome| {
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

/// Runs an attack in a jail of its own. Meanwhile a socket outside listens, and must not get a
/// connection.
fn attempt(attack: &str, filter: &str, level: ConfinementLevel) -> Outcome {
    let level = match level {
        ConfinementLevel::Full => "full",
        ConfinementLevel::Reduced => REDUCED,
    };
    let name = format!(
        "faasw-escape-{}-{level}-{filter}-{attack}",
        std::process::id()
    );
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let output = Command::new("/proc/self/exe")
        .args([TESTBED, attack, filter, level, &name])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "the testbed failed: {told}{}",
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
