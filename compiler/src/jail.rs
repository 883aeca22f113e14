//! The jail of the compile helper: three files, and the system calls that an allocator and threads
//! need.

use crate::protocol::contract::{INPUT_FD, JAIL_FD, OUTPUT_FD, REPORT_FD};
use faasw_jail::filter::{ArgCondition, Filter, Rule, rule};
use faasw_jail::libc_baseline::{
    NOT_EXECUTABLE, change_protection, clock, clock_rules, exit_rules, futex, map_droppable,
    move_memory, release_pages, unconditional,
};
use faasw_jail::{Limits, close_handed_over};
use rustix::io::Errno;

/// Most bytes of an artifact or a report.
const FILE_BYTES: u64 = faasw_abi::memory_map::CODE_MAX;
/// Most threads: one for each processor that the compiler may use, and a few more.
const THREADS: u64 = 32;

/// The flags of `clone` for a thread (pthread_create in glibc).
const THREAD: u32 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID)
    .cast_unsigned();

/// `MADV_GUARD_INSTALL` (Linux 6.13).
const GUARD_INSTALL: u32 = 102;

/// Returns the system calls that compiling needs. A test removes each rule. No memory can be made
/// executable.
#[must_use]
pub fn rules() -> Vec<Rule> {
    use ArgCondition::{Equals, MaskedEquals};
    let file = |name, call, fd: i32| rule(name, call, &[Equals(0, fd.cast_unsigned())]);
    // Private and anonymous memory, without the large pages that the host has reserved.
    let own = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let idle = (libc::MAP_NORESERVE | libc::MAP_STACK) as u64;
    vec![
        file("read the upload's size", libc::SYS_fstat, INPUT_FD),
        file("read the upload", libc::SYS_pread64, INPUT_FD),
        file("write the artifact", libc::SYS_pwrite64, OUTPUT_FD),
        file("write the report", libc::SYS_write, REPORT_FD),
        rule(
            "take memory",
            libc::SYS_mmap,
            &[NOT_EXECUTABLE, MaskedEquals(3, !idle, own)],
        ),
        change_protection(),
        unconditional("give memory back", libc::SYS_munmap),
        move_memory(),
        unconditional("grow the heap", libc::SYS_brk),
        futex("wake a thread", libc::FUTEX_WAKE),
        futex("wait for a thread", libc::FUTEX_WAIT_BITSET),
        unconditional("let others run", libc::SYS_sched_yield),
        unconditional("count processors", libc::SYS_sched_getaffinity),
        rule("start a thread", libc::SYS_clone, &[Equals(0, THREAD)]),
        unconditional("set up a thread's locks", libc::SYS_set_robust_list),
        unconditional("set up a thread's sequences", libc::SYS_rseq),
        unconditional("set up a thread's signal stack", libc::SYS_sigaltstack),
        unconditional("set up a thread's signals", libc::SYS_rt_sigprocmask),
        unconditional("handle a fault", libc::SYS_rt_sigaction),
        unconditional("ask for a thread's number", libc::SYS_gettid),
        unconditional("seed hash tables", libc::SYS_getrandom),
        clock("read its processor time", libc::CLOCK_PROCESS_CPUTIME_ID),
        unconditional("end", libc::SYS_exit_group),
    ]
}

/// Returns rules besides those of [`rules`] that are used only by chance or when something goes
/// wrong. A test provokes the use of each.
#[must_use]
pub fn rare_rules() -> Vec<Rule> {
    let mut rules = vec![
        // The allocator returns memory, depending on how threads share the work.
        release_pages(),
        // Two threads that use the allocator at the same time.
        futex("wait for a lock", libc::FUTEX_WAIT),
        map_droppable(),
        // glibc sets up a stack's guard in this way since 2.42.
        rule(
            "guard a stack",
            libc::SYS_madvise,
            &[ArgCondition::Equals(2, GUARD_INSTALL)],
        ),
    ];
    // The handler of the stack guard, for a fault that is not a stack overflow.
    rules.extend(exit_rules());
    rules.extend(clock_rules());
    rules
}

/// Calls that fail with an error number, and that the C library can do without.
pub const REFUSED: [(Errno, &[libc::c_long]); 2] = [
    // A filter cannot see its flags. The C library then falls back to `clone`.
    (Errno::NOSYS, &[libc::SYS_clone3]),
    // The allocator tries to read the system's overcommit policy before it returns memory, see "let
    // pages go".
    (Errno::NOENT, &[libc::SYS_openat]),
];

/// Returns the filter with all rules of the helper.
///
/// # Errors
/// Returns the reason if the filter cannot be compiled.
pub fn filter() -> Result<Filter, String> {
    let mut all = rules();
    all.extend(rare_rules());
    Filter::compile(&all, &REFUSED).map_err(|error| error.to_string())
}

/// Closes the jail that was handed to this process: from now on it has three files and the system
/// calls of `filter`.
///
/// # Errors
/// Returns the reason if the jail could not be closed. The process must then end.
pub fn close(text: &str, filter: &Filter) -> Result<(), String> {
    let limits = Limits {
        descriptors: JAIL_FD as u64,
        processes: THREADS,
        address_space: u64::MAX,
        file_bytes: FILE_BYTES,
    };
    // The first reading of this clock locates it, by calls that are not allowed later.
    let _ = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    close_handed_over(text, JAIL_FD, limits, filter)
}
