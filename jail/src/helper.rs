//! Starting the compile helper in a jail that it closes itself.

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::process::{Pid, Resource};

use crate::group::{Group, Share, WEIGHT_FULL};
pub use crate::program::Program;
use crate::program::{Start, start};
use crate::site::Site;

/// The helper's task, and its limits.
#[derive(Clone, Copy, Debug)]
pub struct HelperLimits<'a> {
    /// Name of the instruction set to compile for.
    pub isa: &'a str,
    /// Seconds of processor time.
    pub cpu_seconds: u64,
    /// Bytes of memory of its own.
    pub memory_bytes: u64,
}

/// Starts the helper with input, output and report at descriptors 3, 4 and 5, in an open jail that
/// it closes itself once its libraries are loaded.
///
/// # Errors
/// Returns an error if the limits of its group cannot be set, or if it cannot be forked.
pub fn spawn(
    site: &Site,
    jail: (u32, Option<&Group>),
    program: Program<'_>,
    order: &HelperLimits<'_>,
    fds: [BorrowedFd<'_>; 3],
) -> io::Result<Pid> {
    let arguments = vec![c"--isa".to_owned(), CString::new(order.isa)?];
    let how = Start {
        name: c"faasw-compiler",
        arguments,
        environment: environment()?,
        descriptors: &fds,
        // The signal for the lower limit would be lost on the first process of a namespace.
        limits: &[
            (Resource::Cpu, order.cpu_seconds),
            (Resource::Data, order.memory_bytes),
            (Resource::As, order.memory_bytes.max(ADDRESSES)),
        ],
        // Compiling is never urgent; requests that run at the same time are.
        priority: 10,
        share: share(order),
    };
    start(site, jail, program, how)
}

/// Bytes of address space that the helper may have whatever its memory limit: arenas and stacks
/// reserve large ranges and use little of them.
const ADDRESSES: u64 = 2 << 30;

/// Returns the limits of the helper's control group: files that it shares with the node count in
/// addition to its own memory.
fn share(order: &HelperLimits<'_>) -> Share {
    Share {
        memory: order.memory_bytes.saturating_mul(2),
        processes: 64,
        weight: WEIGHT_FULL / 4,
    }
}

/// Returns variables that bound the helper's address space on machines with many CPUs. Each thread
/// of the compiler may take an arena of glibc's allocator, and each arena reserves 64 MiB.
/// Compilation allocates little at a time, so two arenas are enough.
fn environment() -> io::Result<Vec<CString>> {
    const THREADS_MAX: usize = 8;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(vec![
        c"MALLOC_ARENA_MAX=2".to_owned(),
        CString::new(format!("RAYON_NUM_THREADS={}", threads.min(THREADS_MAX)))?,
    ])
}
