//! Each call is made in a forked child, which may make only raw system calls.
#![allow(
    unsafe_code,
    reason = "a child of a fork makes raw calls, as somebody would who has taken the node over"
)]

use std::os::fd::AsRawFd as _;

use faasw_jail::filter::Filter;

use super::*;

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The call returned this value, or its negated error number.
    Gave(i32),
    /// The filter ended the process.
    Ended,
}

/// Makes a call under the filter.
fn call(filter: &Filter, number: libc::c_long, arguments: [libc::c_long; 6]) -> Outcome {
    let [a, b, c, d, e, f] = arguments;
    let mut pipe = [0; 2];
    // SAFETY: the call fills in two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let [from, to] = pipe;
    // SAFETY: the child installs a compiled filter, makes the call, writes a number and ends. None
    // of this takes a lock or allocates memory.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above. The arguments are numbers, null, or what the test passes.
        unsafe {
            if filter.install().is_err() {
                libc::_exit(2);
            }
            let gave = match libc::syscall(number, a, b, c, d, e, f) {
                -1 => -*libc::__errno_location(),
                other => other as i32,
            };
            libc::write(to, (&raw const gave).cast(), size_of::<i32>());
            libc::_exit(0);
        }
    }
    let mut status = 0;
    let mut gave = [0; size_of::<i32>()];
    // SAFETY: child and pipe belong to this process. The lengths that are passed are those of the
    // buffers.
    unsafe {
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        libc::close(to);
        let read = libc::read(from, gave.as_mut_ptr().cast(), gave.len());
        libc::close(from);
        if libc::WIFSIGNALED(status) {
            assert_eq!(libc::WTERMSIG(status), libc::SIGSYS, "{number}");
            return Outcome::Ended;
        }
        assert_eq!((libc::WEXITSTATUS(status), read), (0, 4), "{number}");
    }
    Outcome::Gave(i32::from_ne_bytes(gave))
}

const NONE: [libc::c_long; 6] = [0; 6];

fn with(arguments: &[libc::c_long]) -> [libc::c_long; 6] {
    let mut all = NONE;
    for (to, from) in all.iter_mut().zip(arguments) {
        *to = *from;
    }
    all
}

#[test]
fn dangerous_calls_kill_the_node() {
    let filter = filter(false).unwrap();
    for number in KILL_LIST.iter().chain(JAIL_SETUP_CALLS) {
        assert_eq!(call(&filter, *number, NONE), Outcome::Ended, "{number}");
    }
}

#[test]
fn calls_that_a_node_does_not_need_fail() {
    let filter = filter(false).unwrap();
    let refused = Outcome::Gave(-libc::ENOSYS);
    let executable = libc::c_long::from(libc::PROT_READ | libc::PROT_EXEC);
    let private = libc::c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let inet = libc::c_long::from(libc::AF_INET);
    let stream = libc::c_long::from(libc::SOCK_STREAM);
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let zero = libc::c_long::from(zero.as_raw_fd());
    for (number, arguments) in [
        (libc::SYS_socket, with(&[inet, stream])),
        (libc::SYS_connect, NONE),
        (
            libc::SYS_socketpair,
            with(&[libc::AF_UNIX.into(), libc::SOCK_DGRAM.into()]),
        ),
        (libc::SYS_bind, NONE),
        (libc::SYS_listen, NONE),
        // A process, and one in new namespaces.
        (libc::SYS_clone, with(&[libc::SIGCHLD.into()])),
        (libc::SYS_clone, with(&[libc::CLONE_NEWUSER.into()])),
        (libc::SYS_clone3, NONE),
        // Executable memory.
        (libc::SYS_mmap, with(&[0, 4096, executable, private, -1])),
        (libc::SYS_mmap, with(&[0, 4096, executable, private, zero])),
        (libc::SYS_mprotect, with(&[0, 0, executable])),
        (libc::SYS_pkey_mprotect, NONE),
        (libc::SYS_memfd_create, with(&[0, MFD_EXEC as i64])),
        // Other processes.
        (libc::SYS_kill, with(&[1, 0])),
        (libc::SYS_tkill, with(&[1, 0])),
        (libc::SYS_tgkill, with(&[1, 1, 0])),
        (libc::SYS_pidfd_open, with(&[1])),
        (libc::SYS_pidfd_send_signal, NONE),
        (libc::SYS_prlimit64, with(&[1])),
        // Input that a terminal treats as typed.
        (libc::SYS_ioctl, with(&[0, libc::TIOCSTI as i64])),
        (libc::SYS_prctl, with(&[libc::PR_SET_DUMPABLE.into(), 1])),
        (libc::SYS_prctl, with(&[libc::PR_SET_SECCOMP.into(), 0])),
        (libc::SYS_fcntl, with(&[0, libc::F_SETOWN.into(), 1])),
        (libc::SYS_chown, NONE),
        // A file by its name.
        (libc::SYS_utimensat, with(&[-1, 1 << 40])),
        (libc::SYS_link, NONE),
        (libc::SYS_symlink, NONE),
        (libc::SYS_shmget, NONE),
        (libc::SYS_setxattr, NONE),
        // A call of the x32 interface with the same number.
        (0x4000_0000 | libc::SYS_execve, NONE),
        // A call that no kernel has yet.
        (4_000, NONE),
    ] {
        assert_eq!(call(&filter, number, arguments), refused, "{number}");
    }
}

#[test]
fn calls_that_serving_needs_are_allowed() {
    let filter = filter(false).unwrap();
    let read_write = libc::c_long::from(libc::PROT_READ | libc::PROT_WRITE);
    let private = libc::c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let unix = libc::c_long::from(libc::AF_UNIX);
    for (number, arguments) in [
        (libc::SYS_getpid, NONE),
        (libc::SYS_epoll_create1, NONE),
        (libc::SYS_eventfd2, NONE),
        (libc::SYS_mmap, with(&[0, 4096, read_write, private, -1])),
        (libc::SYS_mprotect, with(&[0, 0, read_write])),
        (libc::SYS_mlock, NONE),
        (libc::SYS_fcntl, with(&[2, libc::F_GETFL.into()])),
        (libc::SYS_prlimit64, with(&[0, libc::RLIMIT_NOFILE as i64])),
    ] {
        let outcome = call(&filter, number, arguments);
        let went = matches!(outcome, Outcome::Gave(gave) if gave != -libc::ENOSYS);
        assert!(went, "{number}: {outcome:?}");
    }
    // The kernel rejects the arguments of these calls, not the filter.
    for kind in [libc::SOCK_SEQPACKET, libc::SOCK_STREAM] {
        let pair = call(&filter, libc::SYS_socketpair, with(&[unix, kind.into()]));
        assert_eq!(pair, Outcome::Gave(-libc::EFAULT), "{kind}");
    }
    for number in [libc::SYS_close, libc::SYS_utimensat] {
        let closed = call(&filter, number, with(&[-1]));
        assert_eq!(closed, Outcome::Gave(-libc::EBADF), "{number}");
    }
}

#[test]
fn a_dialer_may_make_only_the_sockets_of_its_server() {
    let stream = libc::c_long::from(libc::SOCK_STREAM);
    let family = |family: i32| with(&[family.into(), stream]);
    let tcp = of_dialer(&ServerAddress::Tcp("store".into(), 6379)).unwrap();
    let unix = of_dialer(&ServerAddress::Unix("/run/redis.sock".into())).unwrap();
    let refused = Outcome::Gave(-libc::ENOSYS);
    for (filter, families) in [
        (&tcp, &[libc::AF_INET, libc::AF_INET6, libc::AF_UNIX][..]),
        (&unix, &[libc::AF_UNIX]),
    ] {
        for number in KILL_LIST.iter().chain(JAIL_SETUP_CALLS) {
            assert_eq!(call(filter, *number, NONE), Outcome::Ended, "{number}");
        }
        for each in [
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_UNIX,
            libc::AF_PACKET,
            libc::AF_VSOCK,
            libc::AF_ALG,
        ] {
            let made = call(filter, libc::SYS_socket, family(each));
            assert_eq!(made != refused, families.contains(&each), "{each} {made:?}");
        }
        for (number, arguments) in [
            (libc::SYS_listen, NONE),
            (libc::SYS_accept4, NONE),
            (libc::SYS_clone, with(&[libc::SIGCHLD.into()])),
            (libc::SYS_clone3, NONE),
            (libc::SYS_kill, with(&[1, 0])),
            (libc::SYS_pidfd_open, with(&[1])),
            (libc::SYS_prctl, with(&[libc::PR_SET_DUMPABLE.into(), 1])),
            (libc::SYS_fcntl, with(&[0, libc::F_SETOWN.into(), 1])),
            (libc::SYS_unlink, NONE),
            (libc::SYS_rename, NONE),
        ] {
            assert_eq!(call(filter, number, arguments), refused, "{number}");
        }
        let closed = call(filter, libc::SYS_connect, with(&[-1]));
        assert_eq!(closed, Outcome::Gave(-libc::EBADF));
    }
}
