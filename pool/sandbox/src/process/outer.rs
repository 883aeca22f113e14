//! The system-call filter of the launcher and the spawner, which all of their processes inherit.
//!
//! The filter decides by number only: the calls that make jails are dangerous by nature, and
//! arguments would not tell good from bad. Sandboxes pass it as well, although their own filters
//! lie on top and are far stricter: the kernel answers from a cache only if no filter inspects
//! arguments. A filter of numbers is a few comparisons; as two lists of them it took 3 % of a
//! request.
//!
//! A call that is not listed here fails. A call that no process here has a reason for ends the
//! process.

use faasw_jail::daemon_allow::DAEMON_ALLOW;
use faasw_jail::filter::{Filter, rule};
use faasw_jail::kill_list::KILL_LIST;
use rustix::io::Errno;

/// The calls that the programs inside make besides [`DAEMON_ALLOW`]: they make namespaces, mounts
/// and groups, fork, change identity and execute programs. All calls that those and sandboxes make
/// in their jails are here as well.
const CALLS: &[libc::c_long] = &[
    // Files, and the groups' files.
    libc::SYS_close_range,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_memfd_create,
    // Messages and waiting.
    libc::SYS_signalfd4,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_rt_sigtimedwait,
    // Memory and threads.
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_arch_prctl,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_setpriority,
    // Connections, for connector and workers.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_readv,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    // Processes, and their identities.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_setsid,
    libc::SYS_setgroups,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_prlimit64,
    libc::SYS_setrlimit,
    // Namespaces and the empty root, or their replacements at the reduced level.
    libc::SYS_unshare,
    libc::SYS_sethostname,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_chdir,
    libc::SYS_fchdir,
];

/// Compiles the filter.
///
/// # Errors
/// Returns the reason if the filter does not compile.
pub fn filter() -> Result<Filter, String> {
    let rules: Vec<_> = DAEMON_ALLOW
        .iter()
        .chain(CALLS)
        .map(|call| rule("make jails", *call, &[]))
        .collect();
    Filter::compile_lenient(&rules, KILL_LIST).map_err(|error| error.to_string())
}

/// Installs the filter in the calling thread, and so in all processes that it makes.
///
/// # Errors
/// Returns an error if the filter does not compile, or the kernel's error from installing it.
pub fn install() -> std::io::Result<()> {
    let filter = filter().map_err(std::io::Error::other)?;
    rustix::thread::set_no_new_privs(true)
        .and_then(|()| filter.install())
        .map_err(|errno: Errno| errno.into())
}
