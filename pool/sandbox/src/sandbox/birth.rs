//! How a sandbox comes to be: its VM, and the jail round it.

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
use crate::vm::{Template, Vm};

/// How a sandbox came to be.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Nobody waits for it: it runs when nothing else wants to, until the spawner says
    /// otherwise.
    pub is_ahead: bool,
    /// Time from the beginning of the fork until it ran in its control group, in
    /// nanoseconds.
    pub nanoseconds: u64,
}

/// Lives as the sandbox of a jail; answers with the exit code. The guest's progress
/// doorbell signals `progress`. The jail is closed as soon as the VM is made, before
/// anything of a tenant's comes.
pub fn run(
    jail: Jail,
    socket: OwnedFd,
    progress: OwnedFd,
    template: &Template,
    filter: &Filter,
    birth: Birth,
) -> i32 {
    if birth.is_ahead {
        priority::lower();
    }
    name_process(c"faasw-sandbox");
    unblock_signals();
    // What is said on standard error would only get an attacker heard.
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
    // Neither is dropped: the system lets go of everything by itself.
    let socket = ManuallyDrop::new(socket);
    let mut sandbox = ManuallyDrop::new(Sandbox::new(&socket, template, vm, page_map));
    let lived = sandbox.live(Prepared {
        nanoseconds: clock::monotonic() - started,
        jail_nanoseconds: closing,
        born_nanoseconds: birth.nanoseconds,
    });
    match lived {
        Ok(()) => 0,
        Err(End::Failed) => FAILED,
        Err(End::Dismissed) => wait_to_be_ended(),
    }
}

/// Leaves it to the spawner when this process ends: a node that goes leaves thousands, which are
/// not to end at once (`spawner/ending.rs`). A spawner that goes takes it along.
fn wait_to_be_ended() -> ! {
    let mut nothing = libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    };
    loop {
        // SAFETY: one entry is there, of no descriptor; without a time it is waited for signals
        // alone.
        unsafe { libc::ppoll(&raw mut nothing, 1, std::ptr::null(), std::ptr::null()) };
    }
}

/// Makes the VM and closes the jail round it. Beside `socket` and `progress` no number
/// may be in use that a jail has. Also says what closing took, in nanoseconds.
///
/// # Errors
/// What failed, and at which step of closing.
pub fn enclose(
    jail: Jail,
    socket: &OwnedFd,
    progress: OwnedFd,
    template: &Template,
    filter: &Filter,
) -> Result<(Vm, PageMap, u64), (Failure, Errno, u64)> {
    fault_by_default();
    super::hand_over_faults(socket, template);
    let moved =
        rustix::io::fcntl_dupfd_cloexec(&progress, crate::process::jail::PROGRESS.cast_signed())
            .map_err(|errno| (Failure::Create, errno, 0))?;
    drop(progress);
    let progress = moved;
    // While this process may still look at itself; but not as one that is shown where
    // in the host's memory its pages are.
    let page_map = without_privilege(PageMap::open)
        .flatten()
        .map_err(|errno| (Failure::Create, errno, 0))?;
    let mut vm = Vm::new(template, progress).map_err(|errno| (Failure::Create, errno, 0))?;
    // Without it no guest of this sandbox polls.
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

/// Has a fault of this process end it by its own signal, as the system does. The standard
/// library's handlers tell of it first, which takes calls that no jail allows: a fault
/// would end as a forbidden call, and be taken for somebody who broke out.
fn fault_by_default() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: no handler of this program's is replaced that anything relies on.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
