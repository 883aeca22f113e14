//! The attacks that are made with what a helper has.

use std::{ffi::c_long, ptr};

use faasw_abi::memory_map::CODE_MAX;
use faasw_compile_report::contract::{INPUT_FD, OUTPUT_FD, REPORT_FD};
use libc::{
    CLONE_NEWNS, CLONE_NEWUSER, CLONE_VM, EACCES, EAGAIN, EBADF, EFBIG, EINVAL, EMFILE, ENOENT,
    ENOEXEC, ENOMEM, ENOSYS, ENOTSOCK, ENOTTY, EPERM, ESRCH, ETXTBSY, MAP_ANONYMOUS, MAP_PRIVATE,
    MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE, SIGABRT, SIGCHLD, SIGKILL,
};

use crate::{
    UPLOAD,
    escape::{
        attack::{Attack, Filter, Kernel, Scene, call, filter_only, forbidden, not_asked, refused},
        common,
    },
};

const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

/// Every attack on a helper's cell.
pub fn attacks() -> Vec<Attack> {
    let reopen = forbidden("reopen-the-upload", &[ENOENT], |_| {
        common::open(c"/proc/self/fd/3", libc::O_RDWR)
    });
    // The allocator asks for a file, so the filter does not end who does.
    let opening = common::OPENING.into_iter().chain([reopen]);
    let mut attacks: Vec<Attack> = opening
        .map(|attack| Attack {
            filter: Filter::Answers(ENOENT),
            ..attack
        })
        .collect();
    attacks.extend(WORK);
    attacks.extend(common::ATTACKS);
    attacks.extend(FILES);
    attacks.extend(DESCRIPTORS);
    attacks.extend(MEMORY);
    attacks.extend(PROCESSES);
    attacks.extend(PRIVILEGES);
    attacks.extend(LIMITS);
    attacks
}

/// What a helper is there for, in both rounds: or all that ends otherwise might end for
/// a reason that the cell has nothing to do with.
const WORK: [Attack; 5] = [
    work("do-nothing", |_| 0),
    work("read-the-upload", |_| {
        let mut read = [0_u8; UPLOAD.len()];
        let count = call!(SYS_pread64, INPUT_FD, read.as_mut_ptr(), read.len(), 0);
        if read == UPLOAD {
            count
        } else {
            -c_long::from(EINVAL)
        }
    }),
    work("write-the-artifact", |_| {
        call!(SYS_pwrite64, OUTPUT_FD, c"x".as_ptr(), 1, CODE_MAX - 1)
    }),
    work("write-the-report", |_| {
        call!(SYS_write, REPORT_FD, c"x".as_ptr(), 1)
    }),
    work("take-memory", |_| {
        map(READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1)
    }),
];

const fn work(name: &'static str, run: fn(&Scene) -> c_long) -> Attack {
    Attack {
        name,
        filter: Filter::Passes,
        kernel: Kernel::Allows,
        run,
    }
}

const FILES: [Attack; 24] = [
    forbidden("read-a-file-by-the-old-call", &[ENOENT], |_| {
        call!(SYS_open, c"/etc/passwd".as_ptr(), 0)
    }),
    forbidden("read-a-file-by-the-new-call", &[ENOENT], |_| {
        let how = [0_u64; 3];
        let path = c"/etc/passwd".as_ptr();
        call!(
            SYS_openat2,
            libc::AT_FDCWD,
            path,
            how.as_ptr(),
            size_of_val(&how)
        )
    }),
    forbidden("ask-for-a-file", &[ENOENT], |_| {
        let mut status = [0_u64; 32];
        let path = c"/etc/passwd".as_ptr();
        call!(SYS_statx, INPUT_FD, path, 0, 0xfff, status.as_mut_ptr())
    }),
    forbidden("look-for-a-file", &[ENOENT], |_| {
        call!(SYS_access, c"/etc/passwd".as_ptr(), 0)
    }),
    // It is no program; and some kernels execute no file that can be written to.
    forbidden("execute-the-upload", &[ENOEXEC, ETXTBSY], |_| {
        execute(INPUT_FD)
    }),
    // There is no shell.
    forbidden("execute-the-artifact", &[ENOENT, ETXTBSY], |_| {
        let script = c"#!/bin/sh\n";
        match call!(SYS_pwrite64, OUTPUT_FD, script.as_ptr(), 10, 0) {
            10 => execute(OUTPUT_FD),
            refused => refused,
        }
    }),
    forbidden("write-the-upload", &[EPERM], |_| {
        call!(SYS_pwrite64, INPUT_FD, c"x".as_ptr(), 1, 0)
    }),
    forbidden("write-the-upload-in-place", &[EPERM], |_| {
        call!(SYS_write, INPUT_FD, c"x".as_ptr(), 1)
    }),
    forbidden("cut-the-upload", &[EPERM], |_| {
        call!(SYS_ftruncate, INPUT_FD, 0)
    }),
    forbidden("grow-the-upload", &[EPERM], |_| {
        call!(SYS_ftruncate, INPUT_FD, 4096)
    }),
    forbidden("punch-the-upload", &[EPERM], |_| {
        call!(SYS_fallocate, INPUT_FD, 3, 0, 4096)
    }),
    forbidden("unseal-the-upload", &[EPERM], |_| {
        call!(SYS_fcntl, INPUT_FD, libc::F_ADD_SEALS, 0x10)
    }),
    forbidden("map-the-upload-to-write", &[EPERM], |_| {
        map(READ_WRITE, MAP_SHARED, INPUT_FD)
    }),
    filter_only("map-the-upload", |_| map(PROT_READ, MAP_PRIVATE, INPUT_FD)),
    filter_only("map-the-upload-to-run", |_| {
        map(PROT_READ | PROT_EXEC, MAP_PRIVATE, INPUT_FD)
    }),
    // The node could not seal it.
    filter_only("map-the-artifact-to-write", |_| {
        map(READ_WRITE, MAP_SHARED, OUTPUT_FD)
    }),
    filter_only("seal-the-artifact", |_| {
        call!(SYS_fcntl, OUTPUT_FD, libc::F_ADD_SEALS, libc::F_SEAL_SEAL)
    }),
    filter_only("read-the-artifact", |_| {
        let mut byte = 0_u8;
        call!(SYS_pread64, OUTPUT_FD, &raw mut byte, 1, 0)
    }),
    refused("write-beyond-an-artifact", &[EFBIG], |_| {
        call!(SYS_pwrite64, OUTPUT_FD, c"x".as_ptr(), 1, CODE_MAX)
    }),
    forbidden("grow-the-artifact", &[EFBIG], |_| {
        call!(SYS_ftruncate, OUTPUT_FD, CODE_MAX + 1)
    }),
    forbidden("grow-the-artifact-behind", &[EFBIG], |_| {
        call!(SYS_fallocate, OUTPUT_FD, 0, CODE_MAX, 4096)
    }),
    forbidden("write-beyond-a-report", &[EFBIG], |_| {
        match call!(SYS_lseek, REPORT_FD, CODE_MAX, libc::SEEK_SET) {
            0.. => call!(SYS_write, REPORT_FD, c"x".as_ptr(), 1),
            refused => refused,
        }
    }),
    forbidden("control-a-file", &[ENOTTY], |_| {
        let mut terminal = [0_u8; 64];
        call!(SYS_ioctl, OUTPUT_FD, libc::TCGETS, terminal.as_mut_ptr())
    }),
    forbidden("mount-what-shows-processes", &[EPERM], |_| {
        let kind = c"proc".as_ptr();
        call!(SYS_mount, kind, c"/".as_ptr(), kind, 0, 0)
    }),
];

fn execute(file: i32) -> c_long {
    let arguments = [ptr::null::<u8>(); 2];
    call!(
        SYS_execveat,
        file,
        c"".as_ptr(),
        arguments.as_ptr(),
        arguments.as_ptr(),
        libc::AT_EMPTY_PATH
    )
}

/// A page, somewhere.
fn map(protection: i32, flags: i32, file: i32) -> c_long {
    call!(SYS_mmap, 0, 4096, protection, flags, file, 0)
}

const DESCRIPTORS: [Attack; 9] = [
    filter_only("read-standard-input", |_| {
        let mut byte = 0_u8;
        call!(SYS_read, 0, &raw mut byte, 1)
    }),
    // The null device may have been opened to be read only.
    not_asked("write-to-standard-output", |_| {
        call!(SYS_write, 1, c"x".as_ptr(), 1)
    }),
    filter_only("write-the-artifact-in-place", |_| {
        call!(SYS_write, OUTPUT_FD, c"x".as_ptr(), 1)
    }),
    forbidden("find-another-descriptor", &[EBADF], |_| {
        let found = (REPORT_FD + 1..4096).find(|fd| call!(SYS_fcntl, *fd, libc::F_GETFD) >= 0);
        found.map_or(-c_long::from(EBADF), c_long::from)
    }),
    forbidden("take-all-descriptors", &[EMFILE], |_| {
        for _ in 0..64 {
            let copy = call!(SYS_dup, INPUT_FD);
            if copy < 0 {
                return copy;
            }
        }
        0
    }),
    filter_only("replace-a-descriptor", |_| call!(SYS_dup3, OUTPUT_FD, 0, 0)),
    filter_only("let-a-descriptor-go", |_| call!(SYS_close, INPUT_FD)),
    forbidden("pass-a-descriptor-on", &[ENOTSOCK], |_| {
        // SAFETY: all zeroes is a message.
        let message: libc::msghdr = unsafe { std::mem::zeroed() };
        call!(SYS_sendmsg, REPORT_FD, &raw const message, 0)
    }),
    // The sockets would be two more.
    forbidden("pass-a-descriptor-to-itself", &[EMFILE], |_| {
        let mut pair = [0_i32; 2];
        call!(
            SYS_socketpair,
            libc::AF_UNIX,
            libc::SOCK_STREAM,
            0,
            pair.as_mut_ptr()
        )
    }),
];

const MEMORY: [Attack; 13] = [
    filter_only("take-memory-to-run", |_| {
        map(READ_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1)
    }),
    filter_only("take-memory-that-is-shared", |_| {
        map(READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1)
    }),
    not_asked("take-the-hosts-large-pages", |_| {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | libc::MAP_HUGETLB;
        call!(SYS_mmap, 0, 2 << 20, READ_WRITE, flags, -1, 0)
    }),
    filter_only("take-memory-that-grows", |_| {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | libc::MAP_GROWSDOWN;
        map(READ_WRITE, flags, -1)
    }),
    filter_only("make-fresh-memory-executable", |_| {
        match map(READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) {
            page @ 0.. => call!(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC),
            refused => refused,
        }
    }),
    filter_only("change-code", |_| {
        let code = (libc::qsort as *const ()).addr() & !4095;
        match call!(SYS_mprotect, code, 4096, READ_WRITE) {
            0 => call!(SYS_mprotect, code, 4096, PROT_READ | PROT_EXEC),
            refused => refused,
        }
    }),
    not_asked("make-memory-executable-by-a-key", |scene| {
        let page = (&raw const *scene).addr() & !4095;
        call!(SYS_pkey_mprotect, page, 4096, READ_WRITE | PROT_EXEC, -1)
    }),
    filter_only("have-all-memory-executable", |_| {
        call!(SYS_personality, libc::READ_IMPLIES_EXEC)
    }),
    filter_only("move-memory-to-a-place", |_| {
        match map(READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) {
            page @ 0.. => call!(
                SYS_mremap,
                page,
                4096,
                4096,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                0x1_0000_0000_u64
            ),
            refused => refused,
        }
    }),
    // Sees by the time of a write what others' pages hold.
    not_asked("share-pages-with-others", |_| {
        match map(READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) {
            page @ 0.. => call!(SYS_madvise, page, 4096, libc::MADV_MERGEABLE),
            refused => refused,
        }
    }),
    filter_only("inherit-a-priority", |_| {
        let word = 0_u32;
        call!(SYS_futex, &raw const word, libc::FUTEX_LOCK_PI, 0, 0)
    }),
    filter_only("wake-others-by-a-file", |_| {
        let word = 0_u32;
        call!(SYS_futex, &raw const word, libc::FUTEX_WAKE, 1)
    }),
    refused("take-all-memory", &[ENOMEM], |_| {
        for _ in 0..64 {
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let taken = call!(SYS_mmap, 0, 1_u64 << 30, READ_WRITE, flags, -1, 0);
            if taken < 0 {
                return taken;
            }
        }
        0
    }),
];

const PROCESSES: [Attack; 19] = [
    filter_only("fork", |_| child(call!(SYS_fork))),
    not_asked("fork-and-wait", |_| child(call!(SYS_vfork))),
    filter_only("start-a-process", |_| {
        child(call!(SYS_clone, SIGCHLD, 0, 0, 0, 0))
    }),
    not_asked("start-a-process-in-this-memory", |_| {
        child(call!(SYS_clone, CLONE_VM | SIGCHLD, 0, 0, 0, 0))
    }),
    forbidden("start-a-process-in-a-namespace", &[EPERM], |_| {
        child(call!(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0))
    }),
    Attack {
        name: "start-a-process-by-the-new-call",
        filter: Filter::Answers(ENOSYS),
        kernel: Kernel::Allows,
        run: |_| {
            let mut arguments = [0_u64; 11];
            arguments[4] = SIGCHLD as u64;
            child(call!(
                SYS_clone3,
                arguments.as_ptr(),
                size_of_val(&arguments)
            ))
        },
    },
    refused("thread-bomb", &[EAGAIN], thread_bomb),
    forbidden("kill-a-siblings-thread", &[ESRCH], |scene| {
        call!(SYS_tgkill, scene.sibling, scene.sibling, SIGKILL)
    }),
    forbidden("abort-a-sibling", &[ESRCH], |scene| {
        call!(SYS_tgkill, scene.sibling, scene.sibling, SIGABRT)
    }),
    forbidden(
        "kill-a-siblings-thread-by-the-old-call",
        &[ESRCH],
        |scene| call!(SYS_tkill, scene.sibling, SIGKILL),
    ),
    forbidden("tell-a-sibling", &[ESRCH], |scene| {
        let mut info = [0_i32; 32];
        info[2] = -1;
        let number = scene.sibling;
        call!(SYS_rt_sigqueueinfo, number, SIGKILL, info.as_ptr())
    }),
    forbidden("take-a-siblings-descriptor", &[ESRCH], |scene| {
        match call!(SYS_pidfd_open, scene.sibling, 0) {
            process @ 0.. => call!(SYS_pidfd_getfd, process, OUTPUT_FD, 0),
            refused => refused,
        }
    }),
    not_asked("take-a-descriptor", |_| {
        call!(SYS_pidfd_getfd, OUTPUT_FD, 0, 0)
    }),
    forbidden("read-a-siblings-clock", &[EINVAL], |scene| {
        let clock = (!scene.sibling << 3) | 2;
        let mut time = [0_u64; 2];
        call!(SYS_clock_gettime, clock, time.as_mut_ptr())
    }),
    forbidden("write-a-siblings-memory", &[ESRCH], |scene| {
        let mut word = 0_u64;
        let part = libc::iovec {
            iov_base: (&raw mut word).cast(),
            iov_len: 8,
        };
        let (ours, theirs) = (&raw const part, &raw const part);
        let number = scene.sibling;
        call!(
            SYS_process_vm_writev,
            number,
            ours,
            1_u64,
            theirs,
            1_u64,
            0_u64
        )
    }),
    not_asked("be-traced", |_| {
        call!(SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0)
    }),
    not_asked("count-events", |_| {
        let mut event = [0_u32; 32];
        event[1] = 128;
        call!(SYS_perf_event_open, event.as_ptr(), 0, -1, -1, 0)
    }),
    not_asked("compare-with-a-sibling", |scene| {
        call!(SYS_kcmp, 1, scene.sibling, 0, 0, 0)
    }),
    filter_only("see-who-is-there", |_| call!(SYS_kill, 1, 0)),
];

/// A child goes at once.
fn child(number: c_long) -> c_long {
    if number == 0 {
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) }
    }
    number
}

/// Threads that stay; those that a compilation needs can be had.
fn thread_bomb(_: &Scene) -> c_long {
    const NEEDED: u32 = 8;
    for count in 0..1000 {
        let stays = || {
            loop {
                std::thread::park();
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(stays) {
            return match error.raw_os_error() {
                Some(errno) if count >= NEEDED => -c_long::from(errno),
                _ => -c_long::from(EINVAL),
            };
        }
    }
    0
}

const PRIVILEGES: [Attack; 15] = [
    filter_only("be-readable", |_| {
        call!(SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0)
    }),
    filter_only("outlive-its-maker", |_| {
        call!(SYS_prctl, libc::PR_SET_PDEATHSIG, 0, 0, 0, 0)
    }),
    forbidden("allow-privileges", &[EINVAL], |_| {
        call!(SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
    }),
    forbidden("keep-capabilities", &[EPERM], |_| {
        call!(SYS_prctl, libc::PR_SET_KEEPCAPS, 1, 0, 0, 0)
    }),
    forbidden("undo-the-secure-bits", &[EPERM], |_| {
        call!(SYS_prctl, libc::PR_SET_SECUREBITS, 0, 0, 0, 0)
    }),
    forbidden("raise-a-capability", &[EPERM], |_| {
        let raise = libc::PR_CAP_AMBIENT_RAISE;
        call!(SYS_prctl, libc::PR_CAP_AMBIENT, raise, 21, 0, 0)
    }),
    forbidden("take-capabilities", &[EPERM], |_| {
        let header = [0x2008_0522_u32, 0];
        let all = [u32::MAX; 6];
        call!(SYS_capset, header.as_ptr(), all.as_ptr())
    }),
    not_asked("put-a-filter-over-the-filter", |_| {
        call!(SYS_seccomp, 1, 0, 0)
    }),
    not_asked("speculate", |_| {
        call!(SYS_prctl, libc::PR_SET_SPECULATION_CTRL, 0, 2, 0, 0)
    }),
    // Through its own process, the only one that it can name.
    forbidden("enter-a-namespace", &[EPERM], |_| {
        match call!(SYS_pidfd_open, 1, 0) {
            process @ 0.. => call!(SYS_setns, process, CLONE_NEWNS),
            refused => refused,
        }
    }),
    not_asked("keep-a-key", |_| {
        let (kind, name) = (c"user".as_ptr(), c"mine".as_ptr());
        call!(SYS_add_key, kind, name, c"x".as_ptr(), 1, -2)
    }),
    not_asked("find-a-key", |_| call!(SYS_keyctl, 0, -3, 0)),
    not_asked("change-where-this-thread-is", |_| {
        call!(SYS_arch_prctl, 0x1003, 0)
    }),
    forbidden("open-by-handle", &[EPERM, EINVAL], |_| {
        let handle = [0_u32; 8];
        call!(SYS_open_by_handle_at, INPUT_FD, handle.as_ptr(), 0)
    }),
    filter_only("know-the-host", |_| {
        let mut names = [0_u8; 6 * 65];
        call!(SYS_uname, names.as_mut_ptr())
    }),
];

const LIMITS: [Attack; 8] = [
    forbidden("write-larger-files", &[EPERM], |_| {
        let most = [u64::MAX; 2];
        call!(SYS_setrlimit, libc::RLIMIT_FSIZE, most.as_ptr())
    }),
    forbidden("have-more-threads", &[EPERM], |_| {
        let most = [1000_u64; 2];
        call!(SYS_setrlimit, libc::RLIMIT_NPROC, most.as_ptr())
    }),
    forbidden("have-more-processor-time", &[EPERM], |_| {
        let most = [u64::MAX; 2];
        call!(SYS_setrlimit, libc::RLIMIT_CPU, most.as_ptr())
    }),
    forbidden("come-first", &[EACCES, EPERM], |_| {
        call!(SYS_setpriority, libc::PRIO_PROCESS, 0, -20)
    }),
    filter_only("choose-processors", |_| {
        let all = [u64::MAX; 16];
        call!(SYS_sched_setaffinity, 0, size_of_val(&all), all.as_ptr())
    }),
    filter_only("be-woken", |_| call!(SYS_alarm, 1000)),
    refused("handle-its-end", &[EINVAL], |_| {
        let ignore = [1_u64, 0, 0, 0];
        let none = ptr::null_mut::<u8>();
        call!(SYS_rt_sigaction, SIGKILL, ignore.as_ptr(), none, 8)
    }),
    Attack {
        name: "outlive-its-processor-time",
        filter: Filter::Passes,
        kernel: Kernel::Ends(SIGKILL),
        run: |_| {
            let all = u64::MAX;
            let none = ptr::null_mut::<u8>();
            let set = call!(SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const all, none, 8);
            if set < 0 {
                return set;
            }
            loop {
                std::hint::spin_loop();
            }
        },
    },
];
