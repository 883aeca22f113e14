//! Which system calls a node makes that serves: for all its threads, from then on.
//!
//! Listening and connecting are not among them: addresses were taken before, and a node
//! calls nobody. Neither is making a process, or memory that can be executed. It was
//! derived from the end-to-end suites and from what the C library and the runtime come to
//! in other circumstances; what is missing fails with `ENOSYS`, as on an older kernel.

use faasw::ServerAddress;
use faasw_jail::dangerous::{DANGEROUS, MAKERS};
use faasw_jail::filter::{Filter, Must, Rule, rule};
use faasw_jail::ordinary::ORDINARY;
use faasw_pool::PAGE_FAULT_CALLS;

/// What is let through whatever its arguments beside [`ORDINARY`].
const FREE: &[libc::c_long] = &[
    // Files that are open.
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
    // Connections that were accepted, and sockets of processes that are made.
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
    // Memory that is not to be swapped out: no more of it than the system lets any program have.
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

/// What makes a thread and no process.
const THREAD: u64 = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;

/// What such a node does.
fn rules() -> Vec<Rule> {
    use Must::{Be, Have};
    let control = |command: i32| {
        let must = [Be(1, command.cast_unsigned())];
        rule("ask about a descriptor", libc::SYS_fcntl, &must)
    };
    let device = |request: libc::c_ulong| {
        let must = [Be(1, request as u32)];
        rule("ask about a stream", libc::SYS_ioctl, &must)
    };
    let not_executable = Have(2, libc::PROT_EXEC as u64, 0);
    let own = std::process::id();
    let free = ORDINARY.iter().chain(FREE);
    let mut rules: Vec<_> = free.map(|call| rule("serve", *call, &[])).collect();
    rules.extend([
        rule("map memory", libc::SYS_mmap, &[not_executable]),
        rule("protect memory", libc::SYS_mprotect, &[not_executable]),
        rule(
            "start a thread",
            libc::SYS_clone,
            &[Have(0, THREAD | NEW_NAMESPACES, THREAD)],
        ),
        rule(
            "make a file in memory",
            libc::SYS_memfd_create,
            &[Have(1, MFD_EXEC, 0)],
        ),
        rule(
            "make a pair of sockets",
            libc::SYS_socketpair,
            // Datagrams could be sent from it to whoever listens.
            &[
                Be(0, libc::AF_UNIX.cast_unsigned()),
                Have(1, SOCKET_TYPE, libc::SOCK_SEQPACKET as u64),
            ],
        ),
        rule(
            "make a pair of sockets for a worker",
            libc::SYS_socketpair,
            &[
                Be(0, libc::AF_UNIX.cast_unsigned()),
                Have(1, SOCKET_TYPE, libc::SOCK_STREAM as u64),
            ],
        ),
        rule(
            "note when an image was used",
            libc::SYS_utimensat,
            // Of a file that is open: by name it could be anybody's.
            &[Have(1, u64::MAX, 0)],
        ),
        rule("abort", libc::SYS_tgkill, &[Be(0, own)]),
        rule("ask for its limits", libc::SYS_prlimit64, &[Be(0, 0)]),
        rule(
            "name a thread",
            libc::SYS_prctl,
            &[Be(0, libc::PR_SET_NAME.cast_unsigned())],
        ),
        rule(
            "name memory",
            libc::SYS_prctl,
            &[Be(0, libc::PR_SET_VMA.cast_unsigned())],
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
    // Of sandboxes whose seeds are on their way from disk.
    rules.extend(PAGE_FAULT_CALLS.map(|request| {
        let must = [Be(1, request)];
        rule("answer a page fault", libc::SYS_ioctl, &must)
    }));
    rules
}

/// What of `socketpair`'s type is one, and no flag (socket(2)).
const SOCKET_TYPE: u64 = 0xF;

/// `MFD_EXEC` (Linux 6.3).
const MFD_EXEC: u64 = 0x10;

/// Makes it: of a node that lets clients connect later, or not.
///
/// # Errors
/// Why there is no such filter.
pub fn filter(opens_later: bool) -> Result<Filter, String> {
    let mut rules = rules();
    if opens_later {
        // It has no other sockets than those that it has bound, and cannot make any.
        rules.push(rule("let clients connect", libc::SYS_listen, &[]));
    }
    compile(&rules)
}

fn compile(rules: &[Rule]) -> Result<Filter, String> {
    let dangerous: Vec<_> = [DANGEROUS, MAKERS].concat();
    Filter::compile_lenient(rules, &dangerous).map_err(|error| error.to_string())
}

/// What connecting to a key-value server comes to beside [`ORDINARY`]. The C library asks for names
/// in ways that it is configured to, by libraries that it loads for that: these are mapped to be
/// executed.
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

/// The filter of what connects to a key-value server at such an address.
///
/// # Errors
/// Why there is no such filter.
pub fn of_dialer(address: &ServerAddress) -> Result<Filter, String> {
    use Must::Be;
    let families: &[i32] = match address {
        // Servers of names are asked by all of them, and the system which addresses it has.
        ServerAddress::Tcp(..) => &[
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_UNIX,
            libc::AF_NETLINK,
        ],
        _ => &[libc::AF_UNIX],
    };
    let free = ORDINARY.iter().chain(DIALING);
    let mut rules: Vec<_> = free.map(|call| rule("connect", *call, &[])).collect();
    rules.extend(families.iter().map(|family| {
        let must = [Be(0, family.cast_unsigned())];
        rule("make a socket", libc::SYS_socket, &must)
    }));
    for command in [
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
    ] {
        let must = [Be(1, command.cast_unsigned())];
        rules.push(rule("ask about a descriptor", libc::SYS_fcntl, &must));
    }
    for request in [libc::FIONBIO, libc::FIONREAD] {
        let must = [Be(1, request as u32)];
        rules.push(rule("ask about a stream", libc::SYS_ioctl, &must));
    }
    let own = std::process::id();
    rules.push(rule("abort", libc::SYS_tgkill, &[Be(0, own)]));
    compile(&rules)
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
