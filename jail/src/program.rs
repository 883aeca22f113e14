//! Starting another program in a jail that it closes itself: limits, descriptors, and exec.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::{Pid, Resource, Rlimit};

use crate::close::{Jail, Limits, close_from};
use crate::embedded_program::EmbeddedProgram;
use crate::filter::Filter;
use crate::group::{Group, Share};
use crate::signals::unblock_signals;
use crate::site::{ForkSide, Site};

/// The first of the program's descriptors; the one for closing its jail follows them.
const FIRST_FD: i32 = 3;

/// The argument before the description of the jail that a program takes over.
const JAIL_FLAG: &CStr = c"--jail";

/// A program that can be started.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The file from which it is executed.
    pub file: BorrowedFd<'a>,
    /// The place of the program in another file, if `file` does not contain it from the start. A
    /// shared program is copied to `file` once; otherwise each start makes a file of its own.
    pub carried: Option<EmbeddedProgram<'a>>,
    /// Variables in addition to those that the spawner sets: for tests, which start their own
    /// program as one of ours.
    pub variables: &'a [CString],
}

/// The parameters of a start.
pub(crate) struct Start<'a> {
    /// The name of the program.
    pub name: &'static CStr,
    /// The arguments; [`JAIL_FLAG`] and the jail follow them.
    pub arguments: Vec<CString>,
    /// The environment.
    pub environment: Vec<CString>,
    /// The descriptors from [`FIRST_FD`] on.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// Resource limits that hold even before the program has closed its jail.
    pub limits: &'a [(Resource, u64)],
    /// Added to the nice value; with a larger value, others run first.
    pub priority: i32,
    /// The limits of its control group.
    pub share: Share,
}

/// Starts a program in the open jail of this number and group. The program closes the jail itself
/// once its libraries are loaded.
pub(crate) fn start(
    site: &Site,
    (number, group): (u32, Option<&Group>),
    program: Program<'_>,
    how: Start<'_>,
) -> io::Result<Pid> {
    if let Some(group) = group {
        group.set(how.share)?;
    }
    match site.fork(number, group)? {
        ForkSide::Child(jail) => {
            let name = how.name;
            if let Err(error) = become_program(program, how, &jail) {
                // Standard error is the maker's, and so the node's. No tenant's data was accessed.
                eprintln!("faasw spawner: {name:?} does not start: {error}");
            }
            // SAFETY: ends this process without running anything.
            unsafe { libc::_exit(127) }
        }
        ForkSide::Parent(pid) => Ok(pid),
    }
}

fn become_program(
    Program {
        file,
        carried,
        variables,
    }: Program<'_>,
    how: Start<'_>,
    jail: &Jail,
) -> io::Result<()> {
    // SAFETY: changes this process's priority only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, how.priority) };
    for (resource, most) in how.limits.iter().chain(&[(Resource::Core, 0)]) {
        let limit = Rlimit {
            current: Some(*most),
            maximum: Some(*most),
        };
        rustix::process::setrlimit(*resource, limit)?;
    }
    let own;
    let file = match carried {
        Some(carried) if carried.is_shared => {
            carried.seal_copy_into(file)?;
            file
        }
        Some(carried) => {
            own = carried.sealed_copy(how.name)?;
            own.as_fd()
        }
        None => file,
    };
    // To high numbers first, so that they do not collide with the final numbers.
    let program = rustix::io::fcntl_dupfd_cloexec(file, FIRST_FD + 10)?;
    let mut copies = Vec::new();
    for fd in how.descriptors {
        copies.push(rustix::io::fcntl_dupfd_cloexec(fd, FIRST_FD + 10)?);
    }
    for (number, fd) in (FIRST_FD..).zip(&copies) {
        // SAFETY: the previous owner of this number does not use it again in this process.
        if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let jail_fd = FIRST_FD + i32::try_from(copies.len()).map_err(io::Error::other)?;
    let handed = jail.hand_over(jail_fd).map_err(io::Error::other)?;
    let mut arguments = vec![how.name.to_owned()];
    arguments.extend(how.arguments);
    arguments.extend([JAIL_FLAG.to_owned(), CString::new(handed)?]);
    let program_fd = jail_fd + 1;
    // SAFETY: as above; the copy closes on exec.
    if unsafe { libc::dup3(program.as_raw_fd(), program_fd, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    debug_assert!(program.as_raw_fd() > program_fd);
    // Not dropped: all higher numbers are closed below.
    std::mem::forget((copies, program));
    close_from((program_fd + 1).unsigned_abs().into())?;
    unblock_signals();
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let mut environment = how.environment;
    environment.extend_from_slice(variables);
    let mut variables: Vec<*const libc::c_char> = environment.iter().map(|v| v.as_ptr()).collect();
    variables.push(std::ptr::null());
    // SAFETY: both arrays end with null and outlive the call.
    unsafe { libc::fexecve(program_fd, pointers.as_ptr(), variables.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// Closes the jail that was handed over to this process: by `text` among its arguments, and by the
/// descriptor `number`, which nothing else owns. From then on its standard output and error, which
/// are the node's, refer to the null device.
///
/// # Errors
/// Returns the reason if the jail cannot be closed; the process must end then.
pub fn close_handed_over(
    text: &str,
    number: RawFd,
    limits: Limits,
    filter: &Filter,
) -> Result<(), String> {
    // SAFETY: the maker of a jail passes this descriptor with it, and nothing else owns it.
    let maker = unsafe { OwnedFd::from_raw_fd(number) };
    let jail = Jail::take_over(text, maker).ok_or("the jail's description is invalid")?;
    for number in [1, 2] {
        // SAFETY: redirects a number to the null device, like standard input.
        if unsafe { libc::dup2(0, number) } < 0 {
            return Err("standard error cannot be turned off".to_owned());
        }
    }
    jail.close(limits, filter)
        .map_err(|error| error.to_string())
}
