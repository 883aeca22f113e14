//! The attacks.

use std::ffi::c_long;
use std::ptr;

use faasw_shell::cell::{LAYERS, MAILBOX, PAGE_MAP, VM};
use libc::{
    AF_INET, AF_UNIX, CLONE_NEWNS, CLONE_NEWUSER, E2BIG, EACCES, EAGAIN, EBADF, ECONNREFUSED,
    EFBIG, EINVAL, EMFILE, ENETUNREACH, ENOENT, ENOSYS, ENOTTY, EPERM, EROFS, ESRCH, MAP_FIXED,
    MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE, SIGKILL, SOCK_STREAM,
};

/// What an attacker knows.
pub struct Scene {
    /// Another shell.
    pub sibling: i32,
    /// Name of a socket that somebody outside listens at.
    pub outside: String,
    /// The socket to the node.
    pub socket: i32,
}

/// What the kernel does about it where no filter does.
pub enum Kernel {
    /// It answers with one of these.
    Refuses(&'static [i32]),
    /// It allows it, as to any unprivileged process.
    LeavesItToTheFilter,
}

impl Kernel {
    pub fn refuses_with(&self, errno: i32) -> bool {
        matches!(self, Self::Refuses(errnos) if errnos.contains(&errno))
    }
}

pub struct Attack {
    pub name: &'static str,
    /// The filter ends the process for it.
    pub is_forbidden: bool,
    pub kernel: Kernel,
    /// Answers as the kernel does: negative for an error.
    pub run: fn(&Scene) -> c_long,
}

const fn forbidden(
    name: &'static str,
    errnos: &'static [i32],
    run: fn(&Scene) -> c_long,
) -> Attack {
    Attack {
        name,
        is_forbidden: true,
        kernel: Kernel::Refuses(errnos),
        run,
    }
}

const fn filter_only(name: &'static str, run: fn(&Scene) -> c_long) -> Attack {
    Attack {
        name,
        is_forbidden: true,
        kernel: Kernel::LeavesItToTheFilter,
        run,
    }
}

const fn refused(name: &'static str, errnos: &'static [i32], run: fn(&Scene) -> c_long) -> Attack {
    Attack {
        name,
        is_forbidden: false,
        kernel: Kernel::Refuses(errnos),
        run,
    }
}

macro_rules! call {
    ($number:ident $(, $argument:expr)* $(,)?) => {{
        // SAFETY: an attacker's call; what it points to lives, or is meant not to.
        let answer = unsafe { libc::syscall(libc::$number $(, $argument)*) };
        if answer < 0 {
            -c_long::from(std::io::Error::last_os_error().raw_os_error().unwrap())
        } else {
            answer
        }
    }};
}

const fn fd(number: u32) -> i32 {
    number.cast_signed()
}

const LAYER: i32 = fd(LAYERS + 1);
const KVM_CREATE_VM: u64 = 0xAE01;
const KVM_CREATE_VCPU: u64 = 0xAE41;
const RDWR: i32 = libc::O_RDWR;

fn open(path: &std::ffi::CStr, flags: i32) -> c_long {
    call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600)
}

/// Connects to the socket of the outside in the abstract name space.
fn visit(scene: &Scene) -> c_long {
    let socket = call!(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    // SAFETY: all zeroes is an address.
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
            // The children stay.
            0 => loop {
                call!(SYS_pause);
            },
            1.. => {}
            refused => return refused,
        }
    }
    0
}

/// Sends the node its own descriptors, over and over. It sees that nothing comes of
/// it, and the answer here is the error that ends the flood.
fn flood(scene: &Scene) -> c_long {
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
    // SAFETY: all zeroes is a message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = space as usize;
    // SAFETY: the header and what follows it lie in `control`.
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
            scene.socket,
            &raw const message,
            libc::MSG_DONTWAIT
        );
        if sent == -c_long::from(EAGAIN) {
            // The node has more to do than to read this.
            std::hint::spin_loop();
        } else if sent < 0 {
            return sent;
        }
    }
    // Nothing came in, or the jail would have said so: that is the refusal.
    -c_long::from(E2BIG)
}

fn map(protection: i32, flags: i32, file: i32) -> c_long {
    // In the middle of nothing, so that fixed places are harmless.
    let place = 0x1_0000_0000_u64;
    call!(SYS_mmap, place, 4096, protection, flags, file, 0)
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

fn more_descriptors(_: &Scene) -> c_long {
    for _ in 0..64 {
        let copy = call!(SYS_dup, fd(MAILBOX));
        if copy < 0 {
            return copy;
        }
    }
    0
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
    // SAFETY: asks for this process's number by the other table of calls.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") 20 => answer, options(nostack));
    }
    answer.into()
}

fn other_table(_: &Scene) -> c_long {
    const X32: c_long = 0x4000_0000;
    // SAFETY: asks for this process's number.
    let answer = unsafe { libc::syscall(X32 | libc::SYS_getpid) };
    if answer < 0 {
        -c_long::from(ENOSYS)
    } else {
        answer
    }
}

/// What a filter forbids only where the system scans page maps by a call.
pub const LOCATE: &str = "find-its-memory-in-the-hosts";

/// Reads where in the host's memory a page of this process is. The page map answers,
/// and zero stands for what it does not show.
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

pub const ATTACKS: &[Attack] = &[
    forbidden("read-a-file", &[ENOENT], |_| open(c"/etc/passwd", 0)),
    forbidden("make-a-file", &[EROFS, EACCES], |_| {
        open(c"/here", RDWR | libc::O_CREAT)
    }),
    forbidden("open-kvm", &[ENOENT], |_| open(c"/dev/kvm", RDWR)),
    forbidden("read-own-memory", &[ENOENT], |_| {
        open(c"/proc/self/mem", RDWR)
    }),
    forbidden("reopen-a-layer", &[ENOENT], |_| {
        open(c"/proc/self/fd/11", RDWR)
    }),
    forbidden("read-a-siblings-environment", &[ENOENT], |_| {
        open(c"/proc/1/environ", 0)
    }),
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
    filter_only("make-a-user-namespace", |_| {
        call!(SYS_unshare, CLONE_NEWUSER)
    }),
    forbidden("enter-a-namespace", &[EINVAL], |_| {
        call!(SYS_setns, LAYER, CLONE_NEWUSER)
    }),
    forbidden("become-root", &[EINVAL, EPERM], |_| call!(SYS_setuid, 0)),
    forbidden("join-roots-group", &[EINVAL, EPERM], |_| {
        call!(SYS_setgid, 0)
    }),
    forbidden("rename-the-host", &[EPERM], |_| {
        call!(SYS_sethostname, c"mine".as_ptr(), 4)
    }),
    forbidden("load-a-kernel-program", &[EPERM], load_program),
    filter_only("make-a-ring", ring),
    forbidden("handle-page-faults", &[EPERM], |_| {
        call!(SYS_userfaultfd, 0)
    }),
    forbidden("fork-bomb", &[EAGAIN], fork_bomb),
    filter_only("start-a-thread", |_| call!(SYS_clone, 0x3d0f00, 0, 0, 0, 0)),
    filter_only("start-a-process", |_| {
        let nothing = [0_u64; 11];
        call!(SYS_clone3, nothing.as_ptr(), size_of_val(&nothing))
    }),
    forbidden("make-another-vm", &[ENOTTY], |_| {
        call!(SYS_ioctl, fd(VM), KVM_CREATE_VM, 0)
    }),
    forbidden("make-another-vcpu", &[libc::EEXIST, EINVAL], |_| {
        call!(SYS_ioctl, fd(VM), KVM_CREATE_VCPU, 0)
    }),
    Attack {
        name: LOCATE,
        is_forbidden: true,
        kernel: Kernel::Refuses(&[EPERM]),
        run: locate_memory,
    },
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
    filter_only("change-protection", |scene| {
        let page = (&raw const *scene).addr() & !4095;
        call!(SYS_mprotect, page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)
    }),
    filter_only("make-a-file-in-memory", |_| {
        call!(SYS_memfd_create, c"mine".as_ptr(), 0)
    }),
    forbidden("take-all-descriptors", &[EMFILE], more_descriptors),
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
    forbidden("open-by-handle", &[EPERM, EINVAL], |_| {
        let handle = [0_u32; 8];
        call!(SYS_open_by_handle_at, LAYER, handle.as_ptr(), 0)
    }),
    filter_only("handle-a-signal", |_| {
        let none = ptr::null_mut::<u8>();
        call!(SYS_rt_sigaction, libc::SIGSEGV, none, none, 8)
    }),
    filter_only("share-memory", |_| call!(SYS_shmget, 0, 4096, 0o1600)),
    filter_only("call-by-the-old-gate", old_gate),
    filter_only("call-by-the-other-table", other_table),
    refused(
        "flood-the-node-with-descriptors",
        &[E2BIG, libc::ETOOMANYREFS],
        flood,
    ),
];
