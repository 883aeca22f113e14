//! The jails of connector and worker: three descriptors, and the system calls that a
//! single-threaded runtime, TLS and HTTP need.
//!
//! | number | connector | worker |
//! | ---: | --- | --- |
//! | 0–2 | the null device | the null device |
//! | 3 | the socket to the node | the socket to the node |
//! | 4 | the null device | connections, from the connector |
//! | 5… | the runtime's, workers, connections | the runtime's, connections |
//!
//! Neither process opens files, creates or sees processes, or makes memory executable. A worker
//! creates no socket and connects none. A connector creates IPv4 and IPv6 sockets that connect or
//! send, and listens on none.

#![allow(unsafe_code, reason = "a process is named by a call")]

use faasw_jail::close_handed_over;
use faasw_jail::egress::{CONNECTIONS_FD, EgressRole, JAIL_FD, NODE_FD};
use faasw_jail::filter::{ArgCondition, Filter, Rule, rule};
use faasw_jail::libc_baseline::{
    NOT_EXECUTABLE, change_protection, clock_rules, exit_rules, futex, map_droppable, move_memory,
    release_pages, unconditional,
};

/// The bits of a socket's type argument that are the type; the others are flags (socket(2)).
const TYPE: u64 = 0xF;

fn word(number: i32) -> u32 {
    number.cast_unsigned()
}

/// Returns the system calls that the process may make in its normal work. A test removes each rule.
#[must_use]
pub fn rules(kind: EgressRole) -> Vec<Rule> {
    let mut rules = common();
    rules.extend(match kind {
        EgressRole::Connector => connector(),
        EgressRole::Worker => worker(),
    });
    rules
}

/// Descriptors of the runtime, which opens them before the jail is closed. The kernel gives each
/// the lowest free number, and [`JAIL_FD`] is not yet free. The runtime waits on the first, wakes
/// itself by the second, and registers descriptors with the third, a copy of the first.
const EVENTS: u32 = 6;
const WAKER: u32 = 7;
const WATCHED: u32 = 8;

/// The rules of both processes.
fn common() -> Vec<Rule> {
    use ArgCondition::{Equals, MaskedEquals};
    let own = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    vec![
        // The runtime: one thread, its events and its clock. It was created before.
        rule(
            "watch a descriptor",
            libc::SYS_epoll_ctl,
            &[Equals(0, WATCHED)],
        ),
        rule("wait", libc::SYS_epoll_wait, &[Equals(0, EVENTS)]),
        rule("wake the runtime", libc::SYS_write, &[Equals(0, WAKER)]),
        rule(
            "have a socket not block",
            libc::SYS_ioctl,
            &[Equals(1, libc::FIONBIO as u32)],
        ),
        unconditional("let a descriptor go", libc::SYS_close),
        // Memory, which is never executable.
        rule(
            "take memory",
            libc::SYS_mmap,
            &[NOT_EXECUTABLE, MaskedEquals(3, u64::MAX, own)],
        ),
        unconditional("give memory back", libc::SYS_munmap),
        unconditional("end", libc::SYS_exit_group),
    ]
}

/// Only for connected sockets: the address pointer is null.
const CONNECTED: ArgCondition = ArgCondition::MaskedEquals(4, u64::MAX, 0);

fn worker() -> Vec<Rule> {
    vec![
        rule(
            "take a connection",
            libc::SYS_recvmsg,
            &[ArgCondition::Equals(0, word(CONNECTIONS_FD))],
        ),
        rule("receive", libc::SYS_recvfrom, &[CONNECTED]),
        rule("send", libc::SYS_sendto, &[CONNECTED]),
        unconditional("send several pieces", libc::SYS_writev),
        unconditional("end a connection", libc::SYS_shutdown),
        unconditional("grow the heap", libc::SYS_brk),
    ]
}

fn connector() -> Vec<Rule> {
    use ArgCondition::{Equals, MaskedEquals};
    let socket = |name, family: i32, kind: i32| {
        // With the family's default protocol: TCP or UDP.
        let must = [
            Equals(0, word(family)),
            MaskedEquals(1, TYPE, kind as u64),
            Equals(2, 0),
        ];
        rule(name, libc::SYS_socket, &must)
    };
    let node = word(NODE_FD);
    vec![
        rule("hear the node", libc::SYS_recvmsg, &[Equals(0, node)]),
        rule("tell the node", libc::SYS_sendmsg, &[Equals(0, node)]),
        // A worker's socket may have any number, even that of [`JAIL_FD`], which is free by then.
        rule(
            "hand a connection over",
            libc::SYS_sendmsg,
            &[ArgCondition::InRange(0, word(JAIL_FD), DESCRIPTORS)],
        ),
        unconditional("draw entropy", libc::SYS_getrandom),
        unconditional("read known hosts", libc::SYS_pread64),
        socket("connect by IPv4", libc::AF_INET, libc::SOCK_STREAM),
        socket("connect by IPv6", libc::AF_INET6, libc::SOCK_STREAM),
        // In the address family of the name server.
        socket("ask by IPv6", libc::AF_INET6, libc::SOCK_DGRAM),
        socket("ask by IPv4", libc::AF_INET, libc::SOCK_DGRAM),
        unconditional("connect", libc::SYS_connect),
        unconditional("ask where it is connected to", libc::SYS_getpeername),
        unconditional("ask where it is connected from", libc::SYS_getsockname),
        rule(
            "ask whether it is connected",
            libc::SYS_getsockopt,
            &[
                Equals(1, word(libc::SOL_SOCKET)),
                Equals(2, word(libc::SO_ERROR)),
            ],
        ),
        rule(
            "have what is sent go at once",
            libc::SYS_setsockopt,
            &[
                Equals(1, word(libc::IPPROTO_TCP)),
                Equals(2, word(libc::TCP_NODELAY)),
            ],
        ),
        // Name servers, by datagrams and streams, from a port that the kernel chooses at random.
        unconditional("take a port to ask from", libc::SYS_bind),
        unconditional("ask for a name", libc::SYS_sendto),
        unconditional("hear of a name", libc::SYS_recvfrom),
    ]
}

/// The highest descriptor of a connector, plus 1.
const DESCRIPTORS: u32 = 1024;

/// Returns rules besides those of [`rules`] that are used only by chance, on other hosts, or when
/// something goes wrong.
#[must_use]
pub fn rare_rules(kind: EgressRole) -> Vec<Rule> {
    use ArgCondition::Equals;
    let control = |name, command: i32| rule(name, libc::SYS_fcntl, &[Equals(1, word(command))]);
    let mut rules = vec![
        // Reads the counter of a waker that has reached its maximum.
        rule("reset the waker", libc::SYS_read, &[Equals(0, WAKER)]),
        // Builds with assertions check whether a descriptor is open and non-blocking.
        control("look at a descriptor", libc::F_GETFD),
        control("look at a socket", libc::F_GETFL),
        // Handling of a fault.
        unconditional("handle a fault", libc::SYS_rt_sigaction),
        unconditional("take the signal stack away", libc::SYS_sigaltstack),
        unconditional("set up signals", libc::SYS_rt_sigprocmask),
        unconditional("ask for the thread's number", libc::SYS_gettid),
        // The allocator, depending on how much it has to do.
        move_memory(),
        release_pages(),
        change_protection(),
        map_droppable(),
        // A single thread never waits for a lock. Releasing a lock may call the kernel although no
        // thread waits for it.
        futex("wake", libc::FUTEX_WAKE),
        futex("wait for a lock", libc::FUTEX_WAIT),
        futex("wait for a lock for a time", libc::FUTEX_WAIT_BITSET),
        // A wait that was interrupted by stopping and continuing the process (restart_syscall(2)).
        unconditional("go on waiting", libc::SYS_restart_syscall),
    ];
    rules.extend(exit_rules());
    rules.extend(clock_rules());
    if kind == EgressRole::Worker {
        // TLS draws entropy; everything else draws it before the jail is closed.
        rules.push(unconditional("draw entropy", libc::SYS_getrandom));
    }
    if kind == EgressRole::Connector {
        rules.push(unconditional("grow the heap", libc::SYS_brk));
    }
    rules
}

/// Returns the filter with all rules of such a process.
///
/// # Errors
/// Returns the reason if the filter cannot be compiled.
pub fn filter(kind: EgressRole) -> Result<Filter, String> {
    let mut all = rules(kind);
    all.extend(rare_rules(kind));
    Filter::compile(&all, &[]).map_err(|error| error.to_string())
}

/// Runs the program without a jail: for tests.
const UNCONFINED: &str = "--unconfined";

/// Closes the jail that was handed to this process by its arguments, with the filter of the kind
/// that it was started as. Returns that kind.
///
/// Must be called after [`runtime`](crate::runtime) and before everything else: there must be only
/// one thread, and no untrusted data may have been read.
///
/// # Errors
/// Returns the reason if the arguments are wrong or the jail could not be closed. The process must
/// then end.
pub fn enter() -> Result<EgressRole, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let usage = || {
        format!(
            "usage: faasw-egress connector|worker --jail JAIL | {UNCONFINED}; the node starts it, \
             people do not"
        )
    };
    let (kind, rest) = words.split_first().ok_or_else(usage)?;
    let kind = EgressRole::of_argument(kind).ok_or_else(usage)?;
    match rest {
        ["--jail", jail] => close(kind, jail, &filter(kind)?)?,
        [UNCONFINED] => {}
        _ => return Err(usage()),
    }
    Ok(kind)
}

/// Closes a jail that was handed to this process.
///
/// # Errors
/// Returns the reason if the jail could not be closed. The process must then end.
pub fn close(kind: EgressRole, jail: &str, filter: &Filter) -> Result<(), String> {
    name(kind);
    close_handed_over(jail, JAIL_FD, kind.limits(), filter)
}

/// Names the process, for process lists.
fn name(kind: EgressRole) {
    let name = match kind {
        EgressRole::Connector => c"faasw-connector",
        EgressRole::Worker => c"faasw-worker",
    };
    // SAFETY: reads a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
