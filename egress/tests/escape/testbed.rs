//! Jails with this program in them as connector or worker, started as by the spawner, and the
//! outcome of attacks there.
//!
//! A separate process makes the jail: this program, started again. It leaves the host's namespaces,
//! and may have only one thread. It starts this program a third time, in the jail.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use faasw_egress::jail;
use faasw_jail::egress::{self, EgressRole, NODE_FD};
use faasw_jail::filter::{Filter, rule};
use faasw_jail::group::{CgroupLocation, Groups, Share};
use faasw_jail::{ConfinementLevel, Network, Program, Site, dup_to_high_fd};
use libtest_mimic::Arguments;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

use crate::escape::attack::{Attack, Scene};
use crate::escape::outcome::Outcome;
use crate::escape::suite::{self, Order};

/// The argument with which this program checks whether it can make jails.
const PROBE: &str = "--can-make-jails";
/// The variable that names the part that an inmate plays.
const PART: &str = "FAASW_TEST_PART";
/// The part of the inmate that does not attack.
const SIBLING: &str = "sibling";
/// The message of an inmate whose jail is closed.
const CLOSED: &[u8] = b"closed";
/// Every existing system call number, and some more.
const CALLS: std::ops::Range<libc::c_long> = 0..600;
/// Exit code of an inmate that was not ready. No error number is as large.
const NOT_READY: i32 = 255;

/// Runs the suite, or plays a part of it.
pub fn run(kind: EgressRole, attacks: fn() -> Vec<Attack>) {
    if let Ok(part) = std::env::var(PART) {
        let code = play(&part, kind, attacks()).unwrap_or(NOT_READY);
        // SAFETY: ends this process.
        unsafe { libc::_exit(code) }
    }
    if std::env::args().nth(1).is_some_and(|word| word == PROBE) {
        return Testbed::prepare(kind, ConfinementLevel::Full).remove();
    }
    if let Some(order) = Order::read() {
        println!("{}", attempt(kind, &order));
        return;
    }
    let arguments = Arguments::from_args();
    let trials = suite::trials(attacks, false, !is_possible());
    libtest_mimic::run(&arguments, trials).exit();
}

/// Returns whether this host allows jails; prints a message if not.
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

/// Makes two jails, runs the attack in one of them, and returns the outcome.
fn attempt(kind: EgressRole, order: &Order) -> Outcome {
    let mut testbed = Testbed::prepare(kind, order.level);
    let sibling = testbed.start(SIBLING);
    sibling.is_closed();
    let Order {
        attack,
        is_filtered,
        outside,
        ..
    } = order;
    let number = sibling.pid.as_raw_nonzero();
    let attacker = testbed.start(&format!("{attack} {is_filtered} {number} {outside}"));
    // From here on, whatever ends the attacker is due to the attack.
    attacker.is_closed();
    let status = attacker.wait();
    kill_process(sibling.pid, Signal::KILL).unwrap();
    let signal = sibling.wait().terminating_signal();
    assert_eq!(signal, Some(libc::SIGKILL), "it was gone");
    testbed.remove();
    Outcome::of(status)
}

/// The place where jails are made: a process with one thread that has left the host's namespaces.
struct Testbed {
    kind: EgressRole,
    site: Site,
    groups: Option<Groups>,
    program: OwnedFd,
    jails: u32,
}

/// A process in a jail.
struct Inmate {
    pid: Pid,
    socket: OwnedFd,
    _passing: OwnedFd,
}

fn pair(kind: SocketType) -> [OwnedFd; 2] {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let (one, other) = pair.unwrap();
    [one, other].map(|end| dup_to_high_fd(end).unwrap())
}

impl Testbed {
    fn prepare(kind: EgressRole, level: ConfinementLevel) -> Self {
        // Nothing must remain when a test is stopped.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let share = Share {
            memory: 1 << 30,
            processes: 64,
            weight: 100,
        };
        let network = match kind {
            EgressRole::Connector => Network::Host,
            EgressRole::Worker => Network::Empty,
        };
        Self {
            kind,
            program: dup_to_high_fd(File::open("/proc/self/exe").unwrap()).unwrap(),
            // Before the site, as in the spawner.
            groups: CgroupLocation::find()
                .and_then(|place| Groups::prepare(&place, share))
                .ok(),
            site: Site::prepare(network, level).unwrap(),
            jails: 0,
        }
    }

    fn start(&mut self, part: &str) -> Inmate {
        self.jails += 1;
        let group = self.groups.as_ref();
        let group = group.map(|groups| groups.group(self.jails).unwrap());
        let variables = [CString::new(format!("{PART}={part}")).unwrap()];
        let program = Program {
            file: self.program.as_fd(),
            carried: None,
            variables: &variables,
        };
        let [socket, theirs] = pair(SocketType::STREAM);
        let [passing, connections] = pair(SocketType::SEQPACKET);
        // The node shuts down writing, too.
        rustix::net::shutdown(&connections, Shutdown::Write).unwrap();
        let fds = [theirs.as_fd(), connections.as_fd()];
        let jail = (self.jails, group.as_ref());
        let pid = egress::spawn(&self.site, jail, program, self.kind, fds).unwrap();
        Inmate {
            pid,
            socket,
            _passing: passing,
        }
    }

    /// Removes everything; all inmates must have ended.
    fn remove(self) {
        if let Some(groups) = self.groups {
            groups.remove();
        }
    }
}

impl Inmate {
    /// Waits until the inmate's jail is closed; fails if it could not be closed.
    fn is_closed(&self) {
        let mut said = [0; CLOSED.len()];
        let received = rustix::net::recv(&self.socket, &mut said, RecvFlags::WAITALL);
        assert_eq!(received.map(|(_, bytes)| bytes), Ok(CLOSED.len()));
        assert_eq!(said, CLOSED);
    }

    fn wait(&self) -> WaitStatus {
        let ended = waitpid(Some(self.pid), WaitOptions::empty()).unwrap();
        ended.unwrap().1
    }
}

/// Closes the jail and plays the part; the exit code is the result.
fn play(part: &str, kind: EgressRole, attacks: Vec<Attack>) -> Option<i32> {
    if part == SIBLING {
        close(kind, &jail::filter(kind).ok()?)?;
        loop {
            // Waits until the testbed is gone.
            let mut byte = 0_u8;
            // SAFETY: room for one byte.
            let read = unsafe { libc::recv(NODE_FD, (&raw mut byte).cast(), 1, 0) };
            if read <= 0 {
                return Some(0);
            }
        }
    }
    let words: Vec<&str> = part.split(' ').collect();
    let [name, is_filtered, sibling, outside] = *words else {
        return None;
    };
    let mut attacks = attacks.into_iter();
    let Attack { run, .. } = attacks.find(|attack| attack.name == name)?;
    let scene = Scene {
        sibling: sibling.parse().ok()?,
        outside: outside.to_owned(),
    };
    let filter = match is_filtered {
        "true" => jail::filter(kind).ok()?,
        _ => {
            let all: Vec<_> = CALLS.map(|call| rule("anything", call, &[])).collect();
            Filter::compile(&all, &[]).ok()?
        }
    };
    close(kind, &filter)?;
    Some(match run(&scene) {
        0.. => 0,
        refused => i32::try_from(-refused).ok()?,
    })
}

fn close(kind: EgressRole, filter: &Filter) -> Option<()> {
    let mut words = std::env::args().skip_while(|word| word != "--jail");
    jail::close(kind, &words.nth(1)?, filter).ok()?;
    // SAFETY: sends bytes of a constant.
    let sent = unsafe { libc::send(NODE_FD, CLOSED.as_ptr().cast(), CLOSED.len(), 0) };
    (sent == CLOSED.len().cast_signed()).then_some(())
}
