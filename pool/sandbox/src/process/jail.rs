//! The jail of a sandbox: its descriptors, and the system calls that it may make with them.
//!
//! | number | what |
//! | ---: | --- |
//! | 0–2 | the null device |
//! | 3 | the socket to the node |
//! | 4 | page map of this process |
//! | 5, 6, 7 | VM, vCPU, the vCPU's statistics |
//! | 8 | the eventfd that the guest's progress doorbell signals |
//! | 9 | mailbox |
//! | 10… | layers, and compiled code, if there is any; then the file for a new layer |
//!
//! Descriptors from 9 on come from the node, with messages that say what they are. The kernel gives
//! each the lowest free number. Layers and code are read-only to the kernel, whatever a rule here
//! allows.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use faasw_abi::memory_map::{CODE_MAX, RAM_MAX};
use faasw_jail::Limits;
use faasw_jail::filter::{ArgCondition, Rule, rule};
use faasw_jail::group::{Share, VM_OVERHEAD, WEIGHT_FULL};
use faasw_seedtree::limits::LAYERS_MAX;
use rustix::io::Errno;

use crate::memory::page_map::PAGEMAP_SCAN;
use crate::vm::PageWalk;
use crate::vm::ioctls::{
    KVM_GET_DEBUGREGS, KVM_GET_MSRS, KVM_GET_REGS, KVM_GET_SREGS, KVM_GET_XCRS, KVM_GET_XSAVE,
    KVM_IOEVENTFD, KVM_PRE_FAULT_MEMORY, KVM_RUN, KVM_SET_REGS, KVM_SET_SREGS,
    KVM_SET_USER_MEMORY_REGION, KVM_SET_XCRS, KVM_SET_XSAVE,
};

/// The socket to the node.
pub const SOCKET: u32 = 3;
/// Page map of the process.
pub const PAGE_MAP: u32 = 4;
/// The VM.
pub const VM: u32 = 5;
/// The VM's vCPU.
pub const VCPU: u32 = 6;
/// The vCPU's statistics.
pub const STATISTICS: u32 = 7;
/// The eventfd that the guest's progress doorbell signals.
pub const PROGRESS: u32 = 8;
/// The mailbox.
pub const MAILBOX: u32 = 9;
/// The first of code, layers, and the file for a new layer.
pub const LAYERS: u32 = 10;
/// The number above the highest descriptor that a sandbox can have.
pub const END: u32 = LAYERS + LAYERS_MAX as u32 + 2;

/// The resource limits of a sandbox.
pub const LIMITS: Limits = Limits {
    descriptors: END as u64,
    // The process itself, and a thread that KVM starts on its behalf to recover large pages that
    // were split (`kvm-nx-lpage-recovery`).
    processes: 2,
    // RAM, the seed's view of it, the range reserved for code and another one for code that does
    // not fit there; and the space for aligning large pages.
    address_space: 2 * RAM_MAX + 3 * CODE_MAX,
    file_bytes: RAM_MAX,
};

/// The limits of a sandbox's control group until its function is known: the most memory that a
/// guest can have, and the kernel's overhead for its VM.
pub const SHARE: Share = Share {
    memory: RAM_MAX + VM_OVERHEAD,
    processes: LIMITS.processes,
    weight: WEIGHT_FULL,
};

/// Makes standard error, and the descriptor of statistics if this host has none, refer to the null
/// device. Checks that all other descriptors have their numbers. Standard input must refer to the
/// null device, and standard output does so from the launcher on.
///
/// # Errors
/// Returns `BADF` if a descriptor does not have its number; otherwise the error of `dup3`.
pub fn arrange(socket: &OwnedFd, made: [Option<RawFd>; 5]) -> Result<(), Errno> {
    if socket.as_raw_fd() != SOCKET.cast_signed() {
        return Err(Errno::BADF);
    }
    for (number, fd) in (PAGE_MAP..).zip(made) {
        match fd {
            Some(fd) if fd == number.cast_signed() => {}
            None if number == STATISTICS => duplicate(0, number)?,
            _ => return Err(Errno::BADF),
        }
    }
    // The inherited standard error belongs to the node.
    duplicate(0, 2)
}

fn duplicate(from: RawFd, to: u32) -> Result<(), Errno> {
    // SAFETY: redirects a number that nothing in this process owns.
    match unsafe { libc::dup3(from, to.cast_signed(), libc::O_CLOEXEC) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::BADF)),
        _ => Ok(()),
    }
}

/// Features of the host on which a sandbox's work depends.
#[derive(Clone, Copy, Debug)]
pub struct HostFeatures {
    /// The page map supports `PAGEMAP_SCAN` (Linux 6.7).
    pub scans: bool,
    /// KVM has `KVM_PRE_FAULT_MEMORY`.
    pub prefaults: bool,
    /// How it translates guests' addresses.
    pub page_walk: PageWalk,
}

/// Returns the calls that a sandbox may make once its VM is made, as far as sandboxes make them in
/// normal operation.
#[must_use]
pub fn rules(host: HostFeatures) -> Vec<Rule> {
    use ArgCondition::{Equals, InRange};
    let map = |name, protection: i32, flags: i32, file: &[ArgCondition]| {
        let mut must = vec![
            Equals(2, protection.cast_unsigned()),
            Equals(3, flags.cast_unsigned()),
        ];
        must.extend(file);
        rule(name, libc::SYS_mmap, &must)
    };
    let advise = |name, advice: i32| {
        rule(
            name,
            libc::SYS_madvise,
            &[Equals(2, advice.cast_unsigned())],
        )
    };
    let call = |name, fd, number| rule(name, libc::SYS_ioctl, &[Equals(0, fd), Equals(1, number)]);
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let fresh = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    let shared = libc::MAP_SHARED | libc::MAP_FIXED;
    let layers = InRange(4, LAYERS, END);
    let mut rules = vec![
        rule("hear the node", libc::SYS_recvmsg, &[Equals(0, SOCKET)]),
        rule("tell the node", libc::SYS_sendmsg, &[Equals(0, SOCKET)]),
        rule("wait for the node", libc::SYS_ppoll, &[Equals(1, 1)]),
        rule("end", libc::SYS_exit_group, &[]),
        rule("let a descriptor go", libc::SYS_close, &[]),
        rule("draw entropy", libc::SYS_getrandom, &[Equals(2, 0)]),
        map(
            "reserve addresses",
            libc::PROT_NONE,
            fresh | libc::MAP_ANONYMOUS,
            &[],
        ),
        map(
            "map fresh memory",
            read_write,
            fresh | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            &[],
        ),
        map(
            "cut memory off",
            libc::PROT_NONE,
            fresh | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            &[],
        ),
        map(
            "map a layer",
            read_write,
            fresh | libc::MAP_FIXED,
            &[layers],
        ),
        map(
            "map a root that is made",
            read_write,
            shared,
            &[Equals(4, LAYERS)],
        ),
        map("map the mailbox", read_write, shared, &[Equals(4, MAILBOX)]),
        map(
            "map code",
            libc::PROT_READ,
            fresh | libc::MAP_FIXED,
            &[layers],
        ),
        map("map a seed's view", libc::PROT_READ, shared, &[layers]),
        advise("ask for large pages", libc::MADV_HUGEPAGE),
        advise("ask for small pages", libc::MADV_NOHUGEPAGE),
        advise("make pages private", libc::MADV_POPULATE_WRITE),
        advise("let pages go", libc::MADV_DONTNEED),
        rule(
            "read a layer",
            libc::SYS_pread64,
            &[InRange(0, LAYERS, END)],
        ),
        rule(
            "read statistics",
            libc::SYS_pread64,
            &[Equals(0, STATISTICS)],
        ),
        rule(
            "count its page faults",
            libc::SYS_getrusage,
            &[Equals(0, libc::RUSAGE_THREAD.cast_unsigned())],
        ),
        rule(
            "write a new layer",
            libc::SYS_pwrite64,
            &[InRange(0, LAYERS, END)],
        ),
        rule(
            "count the mailbox's pages",
            libc::SYS_fstat,
            &[Equals(0, MAILBOX)],
        ),
        rule(
            "look for the mailbox's pages",
            libc::SYS_lseek,
            &[Equals(0, MAILBOX)],
        ),
        rule(
            "let the mailbox's pages go",
            libc::SYS_fallocate,
            &[Equals(0, MAILBOX), Equals(1, PUNCH)],
        ),
        call("place memory", VM, KVM_SET_USER_MEMORY_REGION),
        call("connect the progress doorbell", VM, KVM_IOEVENTFD),
        call("run", VCPU, KVM_RUN),
        call("read registers", VCPU, KVM_GET_REGS),
        call("set registers", VCPU, KVM_SET_REGS),
        call("read control registers", VCPU, KVM_GET_SREGS),
        call("set control registers", VCPU, KVM_SET_SREGS),
        call("read vector state", VCPU, KVM_GET_XSAVE),
        call("set vector state", VCPU, KVM_SET_XSAVE),
        call("read extended control registers", VCPU, KVM_GET_XCRS),
        call("set extended control registers", VCPU, KVM_SET_XCRS),
    ];
    if host.scans {
        rules.push(call("scan the page map", PAGE_MAP, PAGEMAP_SCAN));
    } else {
        rules.extend([
            rule(
                "read the page map",
                libc::SYS_pread64,
                &[Equals(0, PAGE_MAP)],
            ),
            rule("find resident pages", libc::SYS_mincore, &[]),
        ]);
    }
    if host.prefaults {
        rules.push(call("prefill", VCPU, KVM_PRE_FAULT_MEMORY));
    }
    if host.page_walk.writes_tables() {
        rules.extend(hidden_state());
    }
    rules
}

/// Returns rules besides those of [`rules`] for calls that depend on conditions outside of the
/// sandbox's control.
fn rare_rules(host: HostFeatures) -> Vec<Rule> {
    let mut rules = vec![
        // If the clock cannot be read without a system call: with some hosts' clock sources.
        rule("read a clock", libc::SYS_clock_gettime, &[]),
        // If guests can poll for requests by themselves.
        rule("limit how long a guest polls", libc::SYS_timer_settime, &[]),
        // Before a guest polls: a signal of an earlier wait may still be pending.
        rule(
            "hear that a guest polls for too long",
            libc::SYS_rt_sigtimedwait,
            &[],
        ),
        // A wait that was stopped and continued (restart_syscall(2)).
        rule("go on waiting", libc::SYS_restart_syscall, &[]),
    ];
    if !host.page_walk.writes_tables() {
        // Only for a guest that may have entered ring 0 without being ended for it.
        rules.extend(hidden_state());
    }
    rules
}

/// Returns the calls by which the reset compares a guest that may have entered ring 0.
fn hidden_state() -> [Rule; 2] {
    use ArgCondition::Equals;
    let call = |name, number| rule(name, libc::SYS_ioctl, &[Equals(0, VCPU), Equals(1, number)]);
    [
        call("read model-specific registers", KVM_GET_MSRS),
        call("read debug registers", KVM_GET_DEBUGREGS),
    ]
}

/// Returns all rules of a sandbox: [`rules`], and those for rare calls.
#[must_use]
pub fn all_rules(host: HostFeatures) -> Vec<Rule> {
    let mut all = rules(host);
    all.extend(rare_rules(host));
    all
}

/// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
const PUNCH: u32 = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE).cast_unsigned();
