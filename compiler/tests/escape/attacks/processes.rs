//! Attacks by processes and threads, and attacks on those of others.

use std::ffi::c_long;

use faasw_compiler::protocol::contract::OUTPUT_FD;
use libc::{
    CLONE_NEWUSER, CLONE_VM, EAGAIN, EINVAL, ENOSYS, EPERM, ESRCH, SIGABRT, SIGCHLD, SIGKILL,
};

use crate::escape::attack::{
    Attack, Filter, Kernel, Scene, call, filter_only, forbidden, not_asked, refused,
};

pub const PROCESSES: [Attack; 19] = [
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

/// Ends a child at once.
fn child(number: c_long) -> c_long {
    if number == 0 {
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) }
    }
    number
}

/// Starts threads that stay. As many as a compilation needs are allowed.
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
