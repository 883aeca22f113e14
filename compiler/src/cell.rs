//! The cell of the compile helper: three files, and the system calls that an
//! allocator and threads need.

use std::os::fd::{FromRawFd, OwnedFd};

use faasw_cell::filter::{Filter, Must, Rule, rule};
use faasw_cell::{Cell, Limits};
use faasw_compile_report::contract::{CELL_FD, INPUT_FD, OUTPUT_FD, REPORT_FD};
use rustix::io::Errno;

/// Most bytes of an artifact or a report.
const FILE_BYTES: u64 = faasw_abi::memory_map::CODE_MAX;
/// Most threads: one for each processor that the compiler may use, and a few.
const THREADS: u64 = 32;

/// What `clone` is called with for a thread (pthread_create in glibc).
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

/// What the helper may do. Nothing can be made executable.
pub fn rules() -> Vec<Rule> {
    use Must::{Be, Have};
    let file = |name, call, fd: i32| rule(name, call, &[Be(0, fd.cast_unsigned())]);
    let not_executable = Have(2, libc::PROT_EXEC as u64, 0);
    let nameless = |name, call: libc::c_long| {
        let anonymous = libc::MAP_ANONYMOUS as u64;
        rule(name, call, &[not_executable, Have(3, anonymous, anonymous)])
    };
    let free = |name, call| rule(name, call, &[]);
    let prctl = |name, option: i32| rule(name, libc::SYS_prctl, &[Be(0, option.cast_unsigned())]);
    vec![
        file("read the upload's size", libc::SYS_statx, INPUT_FD),
        file("read the upload", libc::SYS_pread64, INPUT_FD),
        file("write the artifact", libc::SYS_pwrite64, OUTPUT_FD),
        file("write the report", libc::SYS_write, REPORT_FD),
        nameless("take memory", libc::SYS_mmap),
        rule("change protection", libc::SYS_mprotect, &[not_executable]),
        free("give memory back", libc::SYS_munmap),
        free("move memory", libc::SYS_mremap),
        free("let pages go", libc::SYS_madvise),
        free("grow the heap", libc::SYS_brk),
        free("wait for a thread", libc::SYS_futex),
        free("let others run", libc::SYS_sched_yield),
        free("count processors", libc::SYS_sched_getaffinity),
        rule("start a thread", libc::SYS_clone, &[Be(0, THREAD)]),
        free("set up a thread's locks", libc::SYS_set_robust_list),
        free("set up a thread's sequences", libc::SYS_rseq),
        free("set up a thread's signal stack", libc::SYS_sigaltstack),
        free("set up a thread's signals", libc::SYS_rt_sigprocmask),
        free("end a thread", libc::SYS_exit),
        free("end", libc::SYS_exit_group),
        // For debuggers: the C library names each stack that it makes, the compiler its
        // threads.
        prctl("name memory", libc::PR_SET_VMA),
        prctl("name a thread", libc::PR_SET_NAME),
        free("seed hash tables", libc::SYS_getrandom),
        free("read a clock", libc::SYS_clock_gettime),
        free("close a file", libc::SYS_close),
        free("ask for a thread's number", libc::SYS_gettid),
    ]
}

/// Rules beside those of [`rules`] that come to use only when something is wrong.
pub fn rare_rules() -> Vec<Rule> {
    let free = |name, call| rule(name, call, &[]);
    vec![
        // A panic and an abort say why, to the null device: they are an upload's fault
        // that is told, and no attempt to break out.
        rule("say why", libc::SYS_write, &[Must::Be(0, 2)]),
        // What the stack guard and the standard library's abort do.
        free("handle a fault", libc::SYS_rt_sigaction),
        free("return from a handler", libc::SYS_rt_sigreturn),
        free("ask for the process's number", libc::SYS_getpid),
        free("abort", libc::SYS_tgkill),
        // A wait that was stopped and continued.
        free("go on waiting", libc::SYS_restart_syscall),
    ]
}

/// Calls that only look for what is not there.
const REFUSED: [(Errno, &[libc::c_long]); 2] = [
    (
        Errno::NOENT,
        &[
            libc::SYS_openat,
            libc::SYS_access,
            libc::SYS_readlink,
            libc::SYS_newfstatat,
        ],
    ),
    // Whose flags a filter cannot see: the library uses `clone` then.
    (Errno::NOSYS, &[libc::SYS_clone3]),
];

/// Closes the cell that was handed to this process.
///
/// # Errors
/// Why it could not be closed; the process must end then.
pub fn close(text: &str) -> Result<(), String> {
    // SAFETY: whoever gives a cell gives this descriptor with it, and nothing else
    // owns it.
    let maker = unsafe { OwnedFd::from_raw_fd(CELL_FD) };
    let cell = Cell::take_over(text, maker).ok_or("the cell's description makes no sense")?;
    let mut rules = rules();
    rules.extend(rare_rules());
    let filter = Filter::compile(&rules, &REFUSED).map_err(|error| error.to_string())?;
    let limits = Limits {
        descriptors: CELL_FD as u64,
        processes: THREADS,
        address_space: u64::MAX,
        file_bytes: FILE_BYTES,
    };
    // Where it is to be read is found out at the first time, with calls that are not
    // allowed later.
    let _ = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    silence().map_err(|errno| format!("standard error: {errno}"))?;
    cell.close(limits, &filter)
        .map_err(|error| error.to_string())
}

/// Standard output and error are the node's.
fn silence() -> Result<(), Errno> {
    for number in [1, 2] {
        // SAFETY: makes a number lead to the null device, as standard input does.
        if unsafe { libc::dup2(0, number) } < 0 {
            return Err(Errno::BADF);
        }
    }
    Ok(())
}
