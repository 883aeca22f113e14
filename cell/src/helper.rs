//! Starting the compile helper in a cell that it closes itself: limits, three descriptors, and
//! exec.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::process::{Pid, Resource, Rlimit};

use crate::carried::Carried;
use crate::close::{Cell, close_from};
use crate::group::{Group, Share};
use crate::signals::unblock_signals;
use crate::site::{Born, Site};

/// First of the descriptors that the helper finds its input, output and report at.
const FIRST_FD: i32 = 3;

/// The helper's program.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// Its file.
    pub file: BorrowedFd<'a>,
    /// What has to be put into that before, unless it was.
    pub carried: Option<Carried<'a>>,
    /// What its environment has beside what the spawner gives it: for tests, whose own
    /// program is a helper, too.
    pub variables: &'a [CString],
}

/// What it is to do, and what it may take for that.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Name of the instruction set to compile for.
    pub isa: &'a str,
    /// Seconds of processor time.
    pub cpu_seconds: u64,
    /// Bytes of address space.
    pub memory_bytes: u64,
}

/// Starts the helper with input, output and report at descriptors 3, 4 and 5, in the
/// open cell that it closes itself once its libraries are loaded.
///
/// # Errors
/// When it cannot be forked.
pub fn spawn(
    site: &Site,
    (number, group): (u32, Option<&Group>),
    program: Program<'_>,
    order: &Order<'_>,
    fds: [BorrowedFd<'_>; 3],
) -> io::Result<Pid> {
    if let Some(group) = group {
        group.set(share(order))?;
    }
    match site.fork(number, group)? {
        Born::Child(cell) => {
            if let Err(error) = become_helper(program, order, fds, &cell) {
                // Its maker's, which is the node's; nothing of a tenant's was looked at.
                eprintln!("faasw spawner: the compile helper does not start: {error}");
            }
            // SAFETY: ends this process without running anything.
            unsafe { libc::_exit(127) }
        }
        Born::Maker(pid) => Ok(pid),
    }
}

/// What the kernel's group lets the helper have: files that it shares with the node
/// come to its address space.
fn share(order: &Order<'_>) -> Share {
    Share {
        memory: order.memory_bytes.saturating_mul(2),
        processes: 64,
        weight: 25,
    }
}

/// What keeps the helper's address space in bounds on machines with many CPUs:
/// each thread of the compiler may take an arena of glibc's allocator, and each
/// arena reserves 64 MiB. Compilation allocates little at a time, so two arenas do.
fn environment() -> io::Result<Vec<CString>> {
    const THREADS_MAX: usize = 8;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(vec![
        c"MALLOC_ARENA_MAX=2".to_owned(),
        CString::new(format!("RAYON_NUM_THREADS={}", threads.min(THREADS_MAX)))?,
    ])
}

fn become_helper(
    Program {
        file,
        carried,
        variables,
    }: Program<'_>,
    order: &Order<'_>,
    fds: [BorrowedFd<'_>; 3],
    cell: &Cell,
) -> io::Result<()> {
    // Compiling is never urgent; requests that run meanwhile are.
    // SAFETY: changes this process's priority only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
    // The signal for the lower limit would be lost on the first process of a namespace.
    let limit = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    rustix::process::setrlimit(Resource::Cpu, limit(order.cpu_seconds))?;
    rustix::process::setrlimit(Resource::As, limit(order.memory_bytes))?;
    rustix::process::setrlimit(Resource::Core, limit(0))?;
    if let Some(carried) = carried {
        carried.put_into(file)?;
    }
    // Out of the way of the numbers they are to get, then into place.
    let mut program = rustix::io::fcntl_dupfd_cloexec(file, FIRST_FD + 10)?;
    let mut parked = Vec::new();
    for fd in fds {
        parked.push(rustix::io::fcntl_dupfd_cloexec(fd, FIRST_FD + 10)?);
    }
    for (number, fd) in (FIRST_FD..).zip(&parked) {
        // SAFETY: what had this number is not used again in this process.
        if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    const CELL_FD: i32 = FIRST_FD + 3;
    let handed = cell.hand_over(CELL_FD).map_err(io::Error::other)?;
    let arguments = [
        c"faasw-compiler".to_owned(),
        c"--isa".to_owned(),
        CString::new(order.isa)?,
        c"--cell".to_owned(),
        CString::new(handed)?,
    ];
    const PROGRAM_FD: i32 = CELL_FD + 1;
    // SAFETY: as above; the copy closes on exec.
    if unsafe { libc::dup3(program.as_raw_fd(), PROGRAM_FD, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // Not dropped: their numbers are closed wholesale below.
    std::mem::forget(parked);
    program = {
        let fd = program.as_fd().as_raw_fd();
        std::mem::forget(program);
        close_from((PROGRAM_FD + 1) as u64)?;
        debug_assert!(fd > PROGRAM_FD);
        // SAFETY: PROGRAM_FD was made above and has no other owner.
        unsafe { std::os::fd::FromRawFd::from_raw_fd(PROGRAM_FD) }
    };
    unblock_signals();
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let mut environment: Vec<CString> = environment()?;
    environment.extend_from_slice(variables);
    let mut variables: Vec<*const libc::c_char> = environment.iter().map(|v| v.as_ptr()).collect();
    variables.push(std::ptr::null());
    // SAFETY: both arrays end with null and outlive the call.
    unsafe { libc::fexecve(program.as_raw_fd(), pointers.as_ptr(), variables.as_ptr()) };
    Err(io::Error::last_os_error())
}
