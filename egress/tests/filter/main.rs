//! Every rule of the filters is needed. Connector and worker make calls in jails with all rules,
//! and with all but one; the missing rule ends the process.
//!
//! A separate process makes each jail: this program, started again. It leaves the host's
//! namespaces, and may have only one thread. It starts this program a third time, in the jail.
//!
//! If the host allows no namespaces, every test here prints a message and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod secure;
mod work;

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use faasw_egress::{connector, jail, runtime, worker};
use faasw_jail::egress::{self, CONNECTIONS_FD, EgressRole, NODE_FD};
use faasw_jail::filter::{Filter, Rule};
use faasw_jail::{ConfinementLevel, Network, Program, Site};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, waitpid};

/// The arguments with which this program makes a jail, and checks whether it can. The kind and the
/// missing rule follow the first one.
const TESTBED: &str = "--testbed";
const PROBE: &str = "--can-make-jails";
/// The variable that names the rule that an inmate lacks.
const MISSING: &str = "FAASW_TEST_MISSING";
/// Exit code of a testbed whose inmate was ended by its filter.
const FORBIDDEN: i32 = 31;
/// A name that no rule has.
const NONE: &str = "none";

fn main() {
    if let Ok(missing) = std::env::var(MISSING) {
        let code = play(&missing).map_or(1, |()| 0);
        std::process::exit(code);
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [TESTBED, kind, missing] => std::process::exit(testbed(kind, missing)),
        [PROBE] => drop(Site::prepare(Network::Host, ConfinementLevel::Full).unwrap()),
        _ => {
            let skip = !is_possible();
            let trials = trials().into_iter();
            let trials = trials.map(|trial| trial.with_ignored_flag(skip)).collect();
            libtest_mimic::run(&Arguments::from_args(), trials).exit();
        }
    }
}

fn is_possible() -> bool {
    let probe = Command::new("/proc/self/exe").arg(PROBE).output().unwrap();
    let is_possible = probe.status.success();
    if !is_possible {
        eprintln!(
            "WITHOUT NAMESPACES: the tests of this file are ignored: {}",
            String::from_utf8_lossy(&probe.stderr)
        );
    }
    is_possible
}

fn name(kind: EgressRole) -> &'static str {
    kind.argument().to_str().unwrap()
}

/// Returns a trial with all rules, and one without each rule.
fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("all_rules_are_enough", || match calls(None) {
        ([0, 0], Ok(())) => Ok(()),
        (codes, came) => Err(Failed::from(format!(
            "connector and worker ended by {codes:?}, and of the calls came {came:?}"
        ))),
    })];
    for kind in [EgressRole::Connector, EgressRole::Worker] {
        // The resolver decides which name server it queries, and thereby the address family.
        let is_sure = |rule: &Rule| !rule.name.starts_with("ask by IPv");
        for rule in jail::rules(kind).into_iter().filter(is_sure) {
            let named = format!("{}::{}", name(kind), rule.name.replace(' ', "_"));
            trials.push(Trial::test(named, move || {
                let ([connector, worker], _) = calls(Some((kind, rule.name)));
                let code = match kind {
                    EgressRole::Connector => connector,
                    EgressRole::Worker => worker,
                };
                match code {
                    FORBIDDEN => Ok(()),
                    _ => Err(Failed::from(format!("nobody misses it: {code}"))),
                }
            }));
        }
    }
    trials
}

fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// Makes calls through both processes. Returns the exit codes of both after their node has closed
/// the sockets, and the result of the calls.
fn calls(missing: Option<(EgressRole, &str)>) -> ([i32; 2], Result<(), String>) {
    let of = |kind| match missing {
        Some((which, rule)) if which == kind => rule,
        _ => NONE,
    };
    let (orders, theirs) = pair(SocketType::SEQPACKET);
    let null = File::open("/dev/null").unwrap().into();
    let connector = start(
        EgressRole::Connector,
        of(EgressRole::Connector),
        [theirs, null],
    );
    let (frames, theirs) = pair(SocketType::STREAM);
    let (passing, connections) = pair(SocketType::SEQPACKET);
    let worker = start(
        EgressRole::Worker,
        of(EgressRole::Worker),
        [theirs, connections],
    );
    let came = work::through(orders, frames, passing);
    let codes = [connector, worker].map(|mut testbed| testbed.wait().unwrap().code().unwrap());
    (codes, came)
}

fn start(kind: EgressRole, missing: &str, fds: [OwnedFd; 2]) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.args([TESTBED, name(kind), missing]);
    // The descriptors are moved away from the numbers that they are to get.
    let moved = fds
        .iter()
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 64).unwrap());
    let moved: Vec<OwnedFd> = moved.collect();
    let moves: Vec<_> = (NODE_FD..)
        .zip(moved.iter().map(AsRawFd::as_raw_fd))
        .collect();
    // SAFETY: between fork and exec only dup2 is called, which is safe there.
    unsafe {
        command.pre_exec(move || {
            for (number, fd) in &moves {
                if libc::dup2(*fd, *number) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn().unwrap()
}

/// Makes a jail with this program in it, and waits for its end.
fn testbed(kind: &str, missing: &str) -> i32 {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let kind = EgressRole::of_argument(kind).unwrap();
    let program = File::open("/proc/self/exe").unwrap();
    let network = match kind {
        EgressRole::Connector => Network::Host,
        EgressRole::Worker => Network::Empty,
    };
    let site = Site::prepare(network, ConfinementLevel::Full);
    let variables = [CString::new(format!("{MISSING}={missing}")).unwrap()];
    let program = Program {
        file: program.as_fd(),
        carried: None,
        variables: &variables,
    };
    // SAFETY: the process that started this one passed these descriptors, and they are closed only
    // below.
    let fds = [NODE_FD, CONNECTIONS_FD].map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let pid = egress::spawn(&site.unwrap(), (0, None), program, kind, fds).unwrap();
    // The peers must notice when the inmate closes its descriptors.
    for number in [NODE_FD, CONNECTIONS_FD] {
        // SAFETY: nothing uses them any more.
        unsafe { libc::close(number) };
    }
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    match status.terminating_signal() {
        Some(libc::SIGSYS) => FORBIDDEN,
        Some(signal) => 64 + signal,
        None => status.exit_status().unwrap(),
    }
}

/// Runs the program; only the filter differs.
fn play(missing: &str) -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, _, jail] = words.as_slice() else {
        return Err("no jail".to_owned());
    };
    let kind = EgressRole::of_argument(kind).ok_or("no kind")?;
    let mut rules = jail::rules(kind);
    rules.retain(|rule| rule.name != missing);
    rules.extend(jail::rare_rules(kind));
    let filter = Filter::compile(&rules, &[]).map_err(|error| error.to_string())?;
    let runtime = runtime().map_err(|error| error.to_string())?;
    jail::close(kind, jail, &filter)?;
    // SAFETY: the process that hands the jail over passes these descriptors, and nothing else owns
    // them.
    let inherited = |number| unsafe { OwnedFd::from_raw_fd(number) };
    let served = match kind {
        EgressRole::Connector => connector::run(&runtime, inherited(NODE_FD)),
        EgressRole::Worker => worker::run(&runtime, inherited(NODE_FD), inherited(CONNECTIONS_FD)),
    };
    served.map_err(|error| error.to_string())
}
