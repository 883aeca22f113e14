//! The attacks that are the same in every jail: they use no resources of it.

use std::ffi::c_long;
use std::ptr;

use libc::{
    AF_INET, AF_UNIX, CLONE_NEWNS, CLONE_NEWUSER, EACCES, EAGAIN, ECONNREFUSED, EINVAL,
    ENETUNREACH, ENOENT, ENOSYS, EPERM, EROFS, ESRCH, PROT_EXEC, PROT_READ, PROT_WRITE, SIGKILL,
    SOCK_STREAM,
};

use super::attack::{Attack, Scene, call, filter_only, forbidden, not_asked};

const RDWR: i32 = libc::O_RDWR;

pub fn open(path: &std::ffi::CStr, flags: i32) -> c_long {
    call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600)
}

/// Connects to the socket outside in the abstract name space.
fn visit(scene: &Scene) -> c_long {
    let socket = call!(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    // SAFETY: all zeroes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = AF_UNIX as u16;
    for (to, from) in address.sun_path[1..].iter_mut().zip(scene.outside.bytes()) {
        *to = from.cast_signed();
    }
    let bytes = 2 + 1 + scene.outside.len();
    call!(SYS_connect, socket, &raw const address, bytes)
}

/// Connects to a port of this host.
fn call_home(_: &Scene) -> c_long {
    let socket = call!(SYS_socket, AF_INET, SOCK_STREAM, 0);
    let address = libc::sockaddr_in {
        sin_family: AF_INET as u16,
        sin_port: 80_u16.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_be_bytes([127, 0, 0, 1]).to_be(),
        },
        sin_zero: [0; 8],
    };
    call!(
        SYS_connect,
        socket,
        &raw const address,
        size_of_val(&address)
    )
}

fn fork_bomb(_: &Scene) -> c_long {
    for _ in 0..64 {
        match call!(SYS_fork) {
            // The children stay alive.
            0 => loop {
                call!(SYS_pause);
            },
            1.. => {}
            refused => return refused,
        }
    }
    0
}

fn remote_memory(scene: &Scene) -> c_long {
    let mut word = 0_u64;
    let ours = libc::iovec {
        iov_base: (&raw mut word).cast(),
        iov_len: 8,
    };
    let theirs = libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(0x40_0000),
        iov_len: 8,
    };
    call!(
        SYS_process_vm_readv,
        scene.sibling,
        &raw const ours,
        1_u64,
        &raw const theirs,
        1_u64,
        0_u64
    )
}

fn higher_limit(_: &Scene) -> c_long {
    let most = [u64::MAX; 2];
    let none = ptr::null::<u64>();
    call!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, most.as_ptr(), none)
}

fn load_program(_: &Scene) -> c_long {
    let nothing = [0_u64; 16];
    call!(SYS_bpf, 5, nothing.as_ptr(), size_of_val(&nothing))
}

fn ring(_: &Scene) -> c_long {
    let mut parameters = [0_u32; 30];
    call!(SYS_io_uring_setup, 8, parameters.as_mut_ptr())
}

/// The system calls of 32-bit programs, which a filter for 64-bit ones must not miss.
fn old_gate(_: &Scene) -> c_long {
    let answer: i32;
    // SAFETY: gets this process's number by the other table of calls.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") 20 => answer, options(nostack));
    }
    answer.into()
}

fn other_table(_: &Scene) -> c_long {
    const X32: c_long = 0x4000_0000;
    // SAFETY: gets this process's number.
    let answer = unsafe { libc::syscall(X32 | libc::SYS_getpid) };
    if answer < 0 {
        -c_long::from(ENOSYS)
    } else {
        answer
    }
}

/// Attacks that open a file, where there is none. A filter may return the error instead of the
/// kernel.
pub const OPENING: [Attack; 5] = [
    forbidden("read-a-file", &[ENOENT], |_| open(c"/etc/passwd", 0)),
    forbidden("make-a-file", &[EROFS, EACCES], |_| {
        open(c"/here", RDWR | libc::O_CREAT)
    }),
    forbidden("open-kvm", &[ENOENT], |_| open(c"/dev/kvm", RDWR)),
    forbidden("read-own-memory", &[ENOENT], |_| {
        open(c"/proc/self/mem", RDWR)
    }),
    forbidden("read-a-siblings-environment", &[ENOENT], |_| {
        open(c"/proc/1/environ", 0)
    }),
];

/// Attacks that every filter forbids.
pub const ATTACKS: [Attack; 33] = [
    forbidden("connect-by-network", &[ENETUNREACH], call_home),
    forbidden("connect-by-name", &[ECONNREFUSED], visit),
    filter_only("make-a-socket", |_| {
        call!(SYS_socket, AF_UNIX, SOCK_STREAM, 0)
    }),
    forbidden("execute", &[ENOENT], |_| {
        let arguments = [ptr::null::<u8>(); 2];
        call!(
            SYS_execve,
            c"/bin/sh".as_ptr(),
            arguments.as_ptr(),
            arguments.as_ptr()
        )
    }),
    forbidden("trace-a-sibling", &[ESRCH], |scene| {
        call!(SYS_ptrace, libc::PTRACE_ATTACH, scene.sibling, 0, 0)
    }),
    forbidden("kill-a-sibling", &[ESRCH], |scene| {
        call!(SYS_kill, scene.sibling, SIGKILL)
    }),
    forbidden("kill-everybody", &[ESRCH], |_| call!(SYS_kill, -1, SIGKILL)),
    forbidden("read-a-siblings-memory", &[ESRCH], remote_memory),
    forbidden("watch-a-sibling", &[ESRCH], |scene| {
        call!(SYS_pidfd_open, scene.sibling, 0)
    }),
    forbidden("mount", &[EPERM], |_| {
        let none = ptr::null::<u8>();
        call!(SYS_mount, none, c"/".as_ptr(), c"tmpfs".as_ptr(), 0, none)
    }),
    forbidden("unmount", &[EPERM], |_| {
        call!(SYS_umount2, c"/".as_ptr(), 2)
    }),
    forbidden("change-the-root", &[EPERM], |_| {
        call!(SYS_chroot, c"/".as_ptr())
    }),
    forbidden("leave-the-mount-namespace", &[EPERM], |_| {
        call!(SYS_unshare, CLONE_NEWNS)
    }),
    forbidden("make-a-user-namespace", &[EPERM], |_| {
        call!(SYS_unshare, CLONE_NEWUSER)
    }),
    forbidden("become-root", &[EINVAL, EPERM], |_| call!(SYS_setuid, 0)),
    forbidden("join-roots-group", &[EINVAL, EPERM], |_| {
        call!(SYS_setgid, 0)
    }),
    forbidden("rename-the-host", &[EPERM], |_| {
        call!(SYS_sethostname, c"mine".as_ptr(), 4)
    }),
    forbidden("load-a-kernel-program", &[EPERM], load_program),
    not_asked("make-a-ring", ring),
    forbidden("handle-page-faults", &[EPERM], |_| {
        call!(SYS_userfaultfd, 0)
    }),
    forbidden("fork-bomb", &[EAGAIN], fork_bomb),
    filter_only("change-protection", |scene| {
        let page = (&raw const *scene).addr() & !4095;
        call!(SYS_mprotect, page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)
    }),
    filter_only("make-a-file-in-memory", |_| {
        call!(SYS_memfd_create, c"mine".as_ptr(), 0)
    }),
    forbidden("raise-a-limit", &[EPERM], higher_limit),
    forbidden("lock-memory", &[EPERM, libc::ENOMEM], |_| {
        call!(SYS_mlockall, libc::MCL_CURRENT)
    }),
    forbidden("be-real-time", &[EPERM], |_| {
        let priority = 50_i32;
        call!(
            SYS_sched_setscheduler,
            0,
            libc::SCHED_FIFO,
            &raw const priority
        )
    }),
    forbidden("set-the-clock", &[EPERM], |_| {
        let then = [0_u64; 2];
        call!(SYS_clock_settime, 0, then.as_ptr())
    }),
    forbidden("read-the-kernels-log", &[EPERM], |_| {
        let mut log = [0_u8; 64];
        call!(SYS_syslog, 3, log.as_mut_ptr(), log.len())
    }),
    forbidden("load-a-module", &[EPERM, ENOSYS], |_| {
        call!(SYS_init_module, c"".as_ptr(), 0, c"".as_ptr())
    }),
    forbidden("restart-the-host", &[EPERM], |_| {
        call!(SYS_reboot, 0xfee1_dead_u32, 672_274_793, 0, 0)
    }),
    filter_only("share-memory", |_| call!(SYS_shmget, 0, 4096, 0o1600)),
    not_asked("call-by-the-old-gate", old_gate),
    not_asked("call-by-the-other-table", other_table),
];
