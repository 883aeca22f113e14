//! Starting a sandbox: its VM, and the jail around it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};

use faasw_fri::messages::{Failure, Prepared};
use faasw_jail::filter::Filter;
use faasw_jail::{Jail, Step, unblock_signals, without_privilege};
use rustix::io::Errno;

use super::{End, FAILED, PANICKED, Sandbox, report};
use crate::memory::page_map::PageMap;
use crate::process::name_process;
use crate::process::priority;
use crate::vm::clock;
use crate::vm::{Vm, VmTemplate};

/// How a sandbox was started.
#[derive(Clone, Copy, Debug)]
pub struct SandboxStart {
    /// No request waits for the sandbox: it runs only when nothing else wants to, until the spawner
    /// restores its priority.
    pub is_ahead: bool,
    /// Time from the beginning of the fork until the sandbox ran in its control group, in
    /// nanoseconds.
    pub nanoseconds: u64,
}

/// Runs as the sandbox of a jail; returns the exit code. The guest's progress doorbell signals
/// `progress`. The jail is closed as soon as the VM is made, before any tenant's data arrives.
pub fn run(
    jail: Jail,
    socket: OwnedFd,
    progress: OwnedFd,
    template: &VmTemplate,
    filter: &Filter,
    start: SandboxStart,
) -> i32 {
    if start.is_ahead {
        priority::lower();
    }
    name_process(c"faasw-sandbox");
    unblock_signals();
    // Output on standard error would only serve an attacker.
    std::panic::set_hook(Box::new(|_| {
        // SAFETY: ends this process without running anything.
        unsafe { libc::_exit(PANICKED) }
    }));
    let started = clock::monotonic();
    let made = enclose(jail, &socket, progress, template, filter);
    let (vm, page_map, closing) = match made {
        Ok(made) => made,
        Err((failure, errno, step)) => {
            report(&socket, failure, errno.raw_os_error() as u64, step);
            return FAILED;
        }
    };
    // Neither is dropped: the kernel releases everything when the process ends.
    let socket = ManuallyDrop::new(socket);
    let mut sandbox = ManuallyDrop::new(Sandbox::new(&socket, template, vm, page_map));
    let lived = sandbox.live(Prepared {
        nanoseconds: clock::monotonic() - started,
        jail_nanoseconds: closing,
        born_nanoseconds: start.nanoseconds,
    });
    match lived {
        Ok(()) => 0,
        Err(End::Failed) => FAILED,
        Err(End::Dismissed) => wait_to_be_ended(),
    }
}

/// Waits for the spawner to end this process. If a node ends, it leaves thousands of sandboxes,
/// which must not all end at once (`spawner/kill_queue.rs`). If the spawner ends, this process ends
/// with it.
fn wait_to_be_ended() -> ! {
    let mut nothing = libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    };
    loop {
        // SAFETY: there is one entry, without a descriptor; without a timeout the call only waits
        // for signals.
        unsafe { libc::ppoll(&raw mut nothing, 1, std::ptr::null(), std::ptr::null()) };
    }
}

/// Makes the VM and closes the jail around it. Apart from `socket` and `progress`, no descriptor
/// number that a jail uses may be in use. Also returns the time for closing the jail, in
/// nanoseconds.
///
/// # Errors
/// Returns the operation that failed, the error, and the step of closing.
pub fn enclose(
    jail: Jail,
    socket: &OwnedFd,
    progress: OwnedFd,
    template: &VmTemplate,
    filter: &Filter,
) -> Result<(Vm, PageMap, u64), (Failure, Errno, u64)> {
    fault_by_default();
    super::hand_over_faults(socket, template);
    let moved =
        rustix::io::fcntl_dupfd_cloexec(&progress, crate::process::jail::PROGRESS.cast_signed())
            .map_err(|errno| (Failure::Create, errno, 0))?;
    drop(progress);
    let progress = moved;
    // Opened while this process may still inspect itself, but without the privilege by which the
    // page map would show host-physical addresses.
    let page_map = without_privilege(PageMap::open)
        .flatten()
        .map_err(|errno| (Failure::Create, errno, 0))?;
    let mut vm = Vm::new(template, progress).map_err(|errno| (Failure::Create, errno, 0))?;
    // If this fails, no guest of this sandbox polls.
    let _ = vm.set_alarm();
    let made_at = clock::monotonic();
    let [machine, vcpu, statistics, progress] = vm.descriptors();
    let page_map_fd = Some(page_map.as_raw_fd());
    let made = [page_map_fd, machine, vcpu, statistics, progress];
    crate::process::jail::arrange(socket, made)
        .map_err(Step::Descriptors.failed())
        .and_then(|()| jail.close(crate::process::jail::LIMITS, filter))
        .map_err(|error| (Failure::Jail, error.errno, error.step as u64))?;
    Ok((vm, page_map, clock::monotonic() - made_at))
}

/// Restores the default action for faults: the process ends by the fault's own signal. The standard
/// library's handlers first report the fault, which requires system calls that no jail allows. The
/// process would end by a forbidden call, like one that has tried to break out.
fn fault_by_default() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: nothing relies on the handlers that this replaces.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
