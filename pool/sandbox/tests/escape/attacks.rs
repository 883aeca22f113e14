//! The attacks that use the resources of a sandbox.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_long;
use std::ptr;

use faasw_sandbox::memory::page_map::PageMap;
use faasw_sandbox::process::exit_on_oom::{ExitOnOom, HEAP_USED_UP};
use faasw_sandbox::process::jail::{LAYERS, MAILBOX, PAGE_MAP, SOCKET, VM};
use kvm_bindings::KVMIO;
use libc::{
    CLONE_NEWUSER, E2BIG, EACCES, EAGAIN, EBADF, EFBIG, EINVAL, EMFILE, ENOENT, ENOTTY, EPERM,
    MAP_FIXED, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use vmm_sys_util::ioctl::{_IOC_NONE, ioctl_expr};

use crate::escape::attack::{
    Attack, Filter, Kernel, Scene, call, filter_only, forbidden, not_asked, refused,
};
use crate::escape::common::{self, open};

const fn fd(number: u32) -> i32 {
    number.cast_signed()
}

const LAYER: i32 = fd(LAYERS + 1);
const KVM_CREATE_VM: u64 = ioctl_expr(_IOC_NONE, KVMIO, 0x01, 0);
const KVM_CREATE_VCPU: u64 = ioctl_expr(_IOC_NONE, KVMIO, 0x41, 0);
const RDWR: i32 = libc::O_RDWR;

/// Sends the node the sandbox's own descriptors, over and over. The testbed checks that none
/// arrives; the result is the error that ends the flood.
fn flood(_: &Scene) -> c_long {
    let mut byte = 0_u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let fds = [LAYER; 200];
    // SAFETY: only computes lengths.
    let (space, length) = unsafe {
        let bytes = size_of_val(&fds) as u32;
        (libc::CMSG_SPACE(bytes), libc::CMSG_LEN(bytes))
    };
    let mut control = [0_u64; 128];
    assert!(space as usize <= size_of_val(&control));
    // SAFETY: all zeroes are a valid message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = space as usize;
    // SAFETY: the header and the data after it lie in `control`.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = length as usize;
        ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(header).cast(), fds.len());
    }
    for _ in 0..10_000 {
        let sent = call!(
            SYS_sendmsg,
            fd(SOCKET),
            &raw const message,
            libc::MSG_DONTWAIT
        );
        if sent == -c_long::from(EAGAIN) {
            // The node is slower than this loop.
            std::hint::spin_loop();
        } else if sent < 0 {
            return sent;
        }
    }
    // If a descriptor had arrived, the testbed would have failed: so this counts as a refusal.
    -c_long::from(E2BIG)
}

fn map(protection: i32, flags: i32, file: i32) -> c_long {
    // In an unused range, so that fixed addresses are harmless.
    let place = 0x1_0000_0000_u64;
    call!(SYS_mmap, place, 4096, protection, flags, file, 0)
}

fn more_descriptors(_: &Scene) -> c_long {
    for _ in 0..64 {
        let copy = call!(SYS_dup, fd(MAILBOX));
        if copy < 0 {
            return copy;
        }
    }
    0
}

/// Reads the host-physical address of a page of this process. The page map can be read, and zero
/// stands for an address that it does not show.
fn locate_memory(scene: &Scene) -> c_long {
    const FRAME: u64 = (1 << 55) - 1;
    let mut entry = 0_u64;
    let place = (&raw const *scene).addr() / 4096 * 8;
    let read = call!(SYS_pread64, fd(PAGE_MAP), &raw mut entry, 8, place);
    match (read, entry & FRAME) {
        (8, 0) => -c_long::from(EPERM),
        (8, _) => 0,
        (refused, _) => refused,
    }
}

/// Every attack on a sandbox's jail.
pub fn attacks() -> Vec<Attack> {
    // If the kernel has no call that scans page maps, sandboxes read theirs. Then only the page
    // map's own restriction protects the addresses.
    let scans = PageMap::open().is_ok_and(|map| map.scans());
    let locate = Attack {
        name: "find-its-memory-in-the-hosts",
        filter: if scans { Filter::Ends } else { Filter::Passes },
        kernel: Kernel::Refuses(&[EPERM]),
        run: locate_memory,
    };
    let mut attacks = vec![locate];
    attacks.extend(common::OPENING);
    attacks.extend(common::ATTACKS);
    attacks.extend(OWN);
    attacks.extend(FAULTS);
    attacks
}

/// Faults of a sandbox without an attacker: they must not end as a forbidden call, which raises an
/// alarm.
const FAULTS: [Attack; 3] = [
    fault("use-no-memory", Kernel::Ends(libc::SIGSEGV), |_| {
        // SAFETY: nothing is mapped there; that is the purpose of the test.
        unsafe { std::hint::black_box(ptr::dangling::<u64>()).read_volatile() as c_long }
    }),
    fault("use-up-the-stack", Kernel::Ends(libc::SIGSEGV), |_| {
        recurse(1)
    }),
    fault("use-up-the-heap", Kernel::Refuses(&[HEAP_USED_UP]), |_| {
        let all = Layout::new::<u64>();
        // SAFETY: the size is not zero.
        let memory = unsafe { ExitOnOom(Nothing).alloc(all) };
        memory.addr() as c_long
    }),
];

const fn fault(name: &'static str, kernel: Kernel, run: fn(&Scene) -> c_long) -> Attack {
    Attack {
        name,
        filter: Filter::Passes,
        kernel,
        run,
    }
}

fn recurse(depth: c_long) -> c_long {
    let frame = std::hint::black_box([depth; 64]);
    match depth {
        c_long::MAX => 0,
        _ => recurse(depth + 1) + frame[0],
    }
}

/// A heap that is used up.
struct Nothing;

// SAFETY: it never returns memory.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

const OWN: [Attack; 22] = [
    forbidden("reopen-a-layer", &[ENOENT], |_| {
        open(c"/proc/self/fd/11", RDWR)
    }),
    forbidden("execute-a-layer", &[EACCES, libc::ENOEXEC], |_| {
        let arguments = [ptr::null::<u8>(); 2];
        call!(
            SYS_execveat,
            LAYER,
            c"".as_ptr(),
            arguments.as_ptr(),
            arguments.as_ptr(),
            libc::AT_EMPTY_PATH
        )
    }),
    forbidden("enter-a-namespace", &[EINVAL], |_| {
        call!(SYS_setns, LAYER, CLONE_NEWUSER)
    }),
    not_asked("start-a-thread", |_| call!(SYS_clone, 0x3d0f00, 0, 0, 0, 0)),
    not_asked("start-a-process", |_| {
        let nothing = [0_u64; 11];
        call!(SYS_clone3, nothing.as_ptr(), size_of_val(&nothing))
    }),
    forbidden("make-another-vm", &[ENOTTY], |_| {
        call!(SYS_ioctl, fd(VM), KVM_CREATE_VM, 0)
    }),
    forbidden("make-another-vcpu", &[libc::EEXIST, EINVAL], |_| {
        call!(SYS_ioctl, fd(VM), KVM_CREATE_VCPU, 0)
    }),
    refused("write-a-layer", &[EBADF], |_| {
        call!(SYS_pwrite64, LAYER, c"x".as_ptr(), 1, 0)
    }),
    forbidden("write-a-layer-in-place", &[EBADF], |_| {
        call!(SYS_write, LAYER, c"x".as_ptr(), 1)
    }),
    forbidden("map-a-layer-to-write", &[EACCES, EPERM], |_| {
        map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, LAYER)
    }),
    refused("map-code-to-write", &[EACCES, EPERM], |_| {
        map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd(LAYERS))
    }),
    forbidden("cut-a-layer", &[EINVAL, EBADF], |_| {
        call!(SYS_ftruncate, LAYER, 0)
    }),
    forbidden("punch-a-layer", &[EBADF, EPERM], |_| {
        call!(SYS_fallocate, LAYER, 3, 0, 4096)
    }),
    forbidden("unseal-a-layer", &[EPERM], |_| {
        call!(SYS_fcntl, LAYER, libc::F_ADD_SEALS, 0x10)
    }),
    forbidden("cut-the-mailbox", &[EPERM], |_| {
        call!(SYS_ftruncate, fd(MAILBOX), 0)
    }),
    forbidden("grow-the-mailbox", &[EPERM, EFBIG], |_| {
        call!(SYS_ftruncate, fd(MAILBOX), 1_u64 << 40)
    }),
    forbidden("grow-the-mailbox-behind", &[EPERM, EFBIG], |_| {
        call!(SYS_fallocate, fd(MAILBOX), 0, 1_u64 << 40, 4096)
    }),
    filter_only("make-memory-executable", |_| {
        map(PROT_READ | PROT_EXEC, libc::MAP_PRIVATE | MAP_FIXED, LAYER)
    }),
    forbidden("take-all-descriptors", &[EMFILE], more_descriptors),
    forbidden("open-by-handle", &[EPERM, EINVAL], |_| {
        let handle = [0_u32; 8];
        call!(SYS_open_by_handle_at, LAYER, handle.as_ptr(), 0)
    }),
    filter_only("handle-a-signal", |_| {
        let none = ptr::null_mut::<u8>();
        call!(SYS_rt_sigaction, libc::SIGSEGV, none, none, 8)
    }),
    refused(
        "flood-the-node-with-descriptors",
        &[E2BIG, libc::ETOOMANYREFS],
        flood,
    ),
];
