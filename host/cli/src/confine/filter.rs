//! The system-call filter of a serving node, for all its threads.
//!
//! The filter allows neither binding nor connecting: addresses were bound before, and a node makes
//! no connections. It allows listening only if the node opens later. It also forbids making
//! processes and executable memory. It was derived from the end-to-end suites, and from what the C
//! library and the runtime call in other circumstances. Dangerous calls ([`KILL_LIST`],
//! [`JAIL_SETUP_CALLS`]) end the process. All other calls fail with `ENOSYS`, as on an older
//! kernel.

use faasw::ServerAddress;
use faasw_jail::daemon_allow::DAEMON_ALLOW;
use faasw_jail::filter::{ArgCondition, Filter, Rule, rule};
use faasw_jail::kill_list::{JAIL_SETUP_CALLS, KILL_LIST};
use faasw_pool::PAGE_FAULT_CALLS;

/// Calls that are allowed with any arguments, in addition to [`DAEMON_ALLOW`].
const FREE: &[libc::c_long] = &[
    // Open files.
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_fchmod,
    // Files by name.
    libc::SYS_statfs,
    libc::SYS_getcwd,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    // Accepted connections, and sockets of child processes.
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_pipe2,
    // Memory that must not be swapped out, within the system's limit for any program.
    libc::SYS_mlock,
];

/// Every namespace that `clone` can make (clone(2)).
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u64;

/// The flags of `clone` that make a thread and not a process.
const THREAD: u64 = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;

/// Returns the rules for memory without code and for threads without namespaces.
fn memory_and_threads() -> [Rule; 3] {
    use ArgCondition::MaskedEquals;
    let not_executable = MaskedEquals(2, libc::PROT_EXEC as u64, 0);
    let only_thread = MaskedEquals(0, THREAD | NEW_NAMESPACES, THREAD);
    [
        rule("map memory", libc::SYS_mmap, &[not_executable]),
        rule("protect memory", libc::SYS_mprotect, &[not_executable]),
        rule("start a thread", libc::SYS_clone, &[only_thread]),
    ]
}

/// Returns the rules for a serving node.
fn rules() -> Vec<Rule> {
    use ArgCondition::{Equals, MaskedEquals};
    let control = |command: i32| {
        let must = [Equals(1, command.cast_unsigned())];
        rule("ask about a descriptor", libc::SYS_fcntl, &must)
    };
    let device = |request: libc::c_ulong| {
        let must = [Equals(1, request as u32)];
        rule("ask about a stream", libc::SYS_ioctl, &must)
    };
    let own = std::process::id();
    let free = DAEMON_ALLOW.iter().chain(FREE);
    let mut rules: Vec<_> = free.map(|call| rule("serve", *call, &[])).collect();
    rules.extend(memory_and_threads());
    rules.extend([
        rule(
            "make a file in memory",
            libc::SYS_memfd_create,
            &[MaskedEquals(1, MFD_EXEC, 0)],
        ),
        rule(
            "make a pair of sockets",
            libc::SYS_socketpair,
            // Datagrams could be sent from such a socket to any listener.
            &[
                Equals(0, libc::AF_UNIX.cast_unsigned()),
                MaskedEquals(1, SOCKET_TYPE, libc::SOCK_SEQPACKET as u64),
            ],
        ),
        rule(
            "make a pair of sockets for a worker",
            libc::SYS_socketpair,
            &[
                Equals(0, libc::AF_UNIX.cast_unsigned()),
                MaskedEquals(1, SOCKET_TYPE, libc::SOCK_STREAM as u64),
            ],
        ),
        rule(
            "note when an image was used",
            libc::SYS_utimensat,
            // Only an open file is allowed: a name could denote any file.
            &[MaskedEquals(1, u64::MAX, 0)],
        ),
        rule("abort", libc::SYS_tgkill, &[Equals(0, own)]),
        rule("ask for its limits", libc::SYS_prlimit64, &[Equals(0, 0)]),
        rule(
            "name a thread",
            libc::SYS_prctl,
            &[Equals(0, libc::PR_SET_NAME.cast_unsigned())],
        ),
        rule(
            "name memory",
            libc::SYS_prctl,
            &[Equals(0, libc::PR_SET_VMA.cast_unsigned())],
        ),
    ]);
    rules.extend(
        [
            libc::F_DUPFD,
            libc::F_DUPFD_CLOEXEC,
            libc::F_GETFD,
            libc::F_SETFD,
            libc::F_GETFL,
            libc::F_SETFL,
            libc::F_SETLK,
            libc::F_OFD_SETLK,
            libc::F_ADD_SEALS,
            libc::F_GET_SEALS,
        ]
        .map(control),
    );
    rules.extend(
        [
            libc::FIONBIO,
            libc::FIONREAD,
            libc::TCGETS,
            libc::TIOCGWINSZ,
        ]
        .map(device),
    );
    // For sandboxes whose seeds are still being read from disk.
    rules.extend(PAGE_FAULT_CALLS.map(|request| {
        let must = [Equals(1, request)];
        rule("answer a page fault", libc::SYS_ioctl, &must)
    }));
    rules
}

/// The bits of `socketpair`'s type that are not flags (socket(2)).
const SOCKET_TYPE: u64 = 0xF;

/// `MFD_EXEC` (Linux 6.3).
const MFD_EXEC: u64 = 0x10;

/// Returns the filter of a node. `opens_later` allows listening after the confinement.
///
/// # Errors
/// Returns a message if the filter cannot be compiled.
pub fn filter(opens_later: bool) -> Result<Filter, String> {
    let mut rules = rules();
    if opens_later {
        // The node has only sockets that are bound already, and cannot make others.
        rules.push(rule("let clients connect", libc::SYS_listen, &[]));
    }
    compile(&rules)
}

fn compile(rules: &[Rule]) -> Result<Filter, String> {
    let dangerous: Vec<_> = [KILL_LIST, JAIL_SETUP_CALLS].concat();
    Filter::compile_lenient(rules, &dangerous).map_err(|error| error.to_string())
}

/// Calls for connecting to a key-value server, in addition to [`DAEMON_ALLOW`]. The C library
/// resolves names by configurable plug-ins, which are libraries that it maps as executable memory.
const DIALING: &[libc::c_long] = &[
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_fadvise64,
];

/// Returns the filter of a dialer for a key-value server at this address.
///
/// # Errors
/// Returns a message if the filter cannot be compiled.
pub fn of_dialer(address: &ServerAddress) -> Result<Filter, String> {
    use ArgCondition::Equals;
    let families: &[i32] = match address {
        // The C library queries name servers over the first three families. Over the last one, it
        // lists the host's addresses.
        ServerAddress::Tcp(..) => &[
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_UNIX,
            libc::AF_NETLINK,
        ],
        _ => &[libc::AF_UNIX],
    };
    let free = DAEMON_ALLOW.iter().chain(DIALING);
    let mut rules: Vec<_> = free.map(|call| rule("connect", *call, &[])).collect();
    rules.extend(families.iter().map(|family| {
        let must = [Equals(0, family.cast_unsigned())];
        rule("make a socket", libc::SYS_socket, &must)
    }));
    for command in [
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
    ] {
        let must = [Equals(1, command.cast_unsigned())];
        rules.push(rule("ask about a descriptor", libc::SYS_fcntl, &must));
    }
    for request in [libc::FIONBIO, libc::FIONREAD] {
        let must = [Equals(1, request as u32)];
        rules.push(rule("ask about a stream", libc::SYS_ioctl, &must));
    }
    let own = std::process::id();
    rules.push(rule("abort", libc::SYS_tgkill, &[Equals(0, own)]));
    compile(&rules)
}

/// Returns the filter of a process that parses scripts: it reads files, and starts a thread for its
/// parser.
///
/// # Errors
/// Returns a message if the filter cannot be compiled.
pub fn of_preparation() -> Result<Filter, String> {
    use ArgCondition::Equals;
    let free = DAEMON_ALLOW
        .iter()
        .chain(&[libc::SYS_getcwd, libc::SYS_readv]);
    let mut rules: Vec<_> = free.map(|call| rule("read", *call, &[])).collect();
    rules.extend(memory_and_threads());
    let own = std::process::id();
    rules.extend([
        rule(
            "name a thread",
            libc::SYS_prctl,
            &[Equals(0, libc::PR_SET_NAME.cast_unsigned())],
        ),
        rule("ask for its limits", libc::SYS_prlimit64, &[Equals(0, 0)]),
        rule("abort", libc::SYS_tgkill, &[Equals(0, own)]),
    ]);
    for command in [
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
    ] {
        let must = [Equals(1, command.cast_unsigned())];
        rules.push(rule("ask about a descriptor", libc::SYS_fcntl, &must));
    }
    compile(&rules)
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
