//! Attacks with the system calls and descriptors of a helper.

mod files;
mod processes;

use std::{ffi::c_long, ptr};

use crate::{
    UPLOAD,
    escape::{
        attack::{Attack, Filter, Kernel, Scene, call, filter_only, forbidden, not_asked, refused},
        common,
    },
};
use faasw_abi::memory_map::CODE_MAX;
use faasw_compiler::protocol::contract::{INPUT_FD, OUTPUT_FD, REPORT_FD};
use libc::{
    CLONE_NEWNS, EACCES, EBADF, EINVAL, EMFILE, ENOENT, ENOMEM, ENOTSOCK, EPERM, MAP_ANONYMOUS,
    MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE, SIGKILL,
};

const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

/// Every attack on a helper's jail.
pub fn attacks() -> Vec<Attack> {
    let reopen = forbidden("reopen-the-upload", &[ENOENT], |_| {
        common::open(c"/proc/self/fd/3", libc::O_RDWR)
    });
    // The allocator tries to open a file, so the filter returns an error instead of ending the
    // process.
    let opening = common::OPENING.into_iter().chain([reopen]);
    let mut attacks: Vec<Attack> = opening
        .map(|attack| Attack {
            filter: Filter::Answers(ENOENT),
            ..attack
        })
        .collect();
    attacks.extend(WORK);
    attacks.extend(common::ATTACKS);
    attacks.extend(files::FILES);
    attacks.extend(DESCRIPTORS);
    attacks.extend(MEMORY);
    attacks.extend(processes::PROCESSES);
    attacks.extend(PRIVILEGES);
    attacks.extend(LIMITS);
    attacks
}

/// Normal work of a helper, which must succeed in both rounds. Otherwise the attacks might fail for
/// a reason other than the jail.
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

/// Maps a page at any address.
fn map(protection: i32, flags: i32, file: i32) -> c_long {
    call!(SYS_mmap, 0, 4096, protection, flags, file, 0)
}

const DESCRIPTORS: [Attack; 9] = [
    filter_only("read-standard-input", |_| {
        let mut byte = 0_u8;
        call!(SYS_read, 0, &raw mut byte, 1)
    }),
    // The null device may have been opened only for reading.
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
    // The sockets would need two more descriptors.
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
    // The time of a write would reveal the content of other processes' pages.
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
    // Uses its own process, the only one that it can name.
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
