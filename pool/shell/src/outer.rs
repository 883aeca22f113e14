//! The filter round the launcher and the spawner, and so round everything that they make.
//!
//! It is by number only: what making cells takes is dangerous by nature, and arguments
//! would not tell good from bad. The kernel caches its answers, so that shells, whose own
//! filters lie on top and are far stricter, hardly pay for it. What is not here fails; what
//! nobody here has any business with ends the process.

use faasw_cell::dangerous::DANGEROUS;
use faasw_cell::filter::{Filter, rule};
use rustix::io::Errno;

/// What the programs inside do: make namespaces, mounts and groups, fork, become others,
/// execute the compile helper; and all that helper and shells do in their cells.
const CALLS: &[libc::c_long] = &[
    // Files, and the groups' files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_memfd_create,
    libc::SYS_eventfd2,
    // Messages and waiting.
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_signalfd4,
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_getrandom,
    // Memory and threads.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_arch_prctl,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_setpriority,
    libc::SYS_getcpu,
    // Processes, and who they are.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_setsid,
    libc::SYS_setgroups,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // Namespaces and the empty root.
    libc::SYS_unshare,
    libc::SYS_sethostname,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chdir,
    libc::SYS_fchdir,
];

/// Makes it.
///
/// # Errors
/// Why there is no such filter.
pub fn filter() -> Result<Filter, String> {
    let rules: Vec<_> = CALLS
        .iter()
        .map(|call| rule("make cells", *call, &[]))
        .collect();
    Filter::compile_lenient(&rules, DANGEROUS).map_err(|error| error.to_string())
}

/// Installs it in the calling thread, and so in all that it makes.
///
/// # Errors
/// The kernel's.
pub fn install() -> std::io::Result<()> {
    let filter = filter().map_err(std::io::Error::other)?;
    rustix::thread::set_no_new_privs(true)
        .and_then(|()| filter.install())
        .map_err(|errno: Errno| errno.into())
}
