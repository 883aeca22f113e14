//! Deeds that a helper does instead of compiling, for rules that no compilation uses: real faults,
//! and behaviour of other hosts.

use std::{
    cell::UnsafeCell,
    hint::black_box,
    sync::atomic::{AtomicI32, Ordering},
};

use faasw_abi::isa::Isa;
use faasw_compiler::protocol::{Input, Refusal, RefusalKind};
use faasw_compiler::{Artifact, helper::Perform};

/// How a deed ends if the filter has its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a report that refuses the upload with this text.
    Told(&'static str),
    /// By one of these signals.
    Signal(&'static [i32]),
    /// With this exit code and no report.
    Code(i32),
}

pub struct Deed {
    pub name: &'static str,
    pub act: Perform,
    pub end: End,
    /// The rules without which the filter ends the process.
    pub rules: &'static [&'static str],
}

/// The message of a deed that has finished.
const DONE: &str = "done";

/// The first process of a namespace ignores this signal from itself. `abort` then executes an
/// instruction that ends any process.
const ABORTED: End = End::Signal(&[libc::SIGABRT, libc::SIGSEGV]);

pub const DEEDS: [Deed; 9] = [
    Deed {
        name: "a_panic_is_told",
        act: |_, _| panic!("as a parser might"),
        end: End::Told("panicked"),
        rules: &["say why"],
    },
    Deed {
        name: "a_stack_overflow_aborts",
        act: |_, _| done(dig(0)),
        end: ABORTED,
        rules: &["say why", "ask for the process's number", "abort"],
    },
    Deed {
        name: "an_abort_is_one",
        act: |_, _| std::process::abort(),
        end: ABORTED,
        rules: &["ask for the process's number", "abort"],
    },
    Deed {
        name: "a_wild_pointer_faults",
        act: |_, _| {
            // SAFETY: none. The fault is the purpose; no memory is mapped at the address.
            done(unsafe { std::ptr::read_volatile(std::ptr::without_provenance::<u64>(8)) })
        },
        end: End::Signal(&[libc::SIGSEGV]),
        rules: &["return from a handler"],
    },
    Deed {
        name: "memory_runs_out",
        act: |_, _| done(Vec::<u8>::with_capacity(1 << 40).len() as u64),
        end: End::Code(faasw_compiler::protocol::contract::EXIT_MEMORY),
        rules: &[],
    },
    Deed {
        name: "a_thread_gives_memory_back",
        act: give_back,
        end: End::Told(DONE),
        rules: &["let pages go", "find no file"],
    },
    Deed {
        name: "two_want_one_lock",
        act: contend,
        end: End::Told(DONE),
        rules: &["wait for a lock"],
    },
    Deed {
        name: "a_newer_c_library_takes_memory",
        act: take_as_newer,
        end: End::Told(DONE),
        rules: &["take memory for entropy", "guard a stack"],
    },
    Deed {
        name: "clocks_are_read_by_calls",
        act: read_clocks,
        end: End::Told(DONE),
        rules: &["read the time of day", "read a clock"],
    },
];

fn done(value: u64) -> Result<Artifact, Refusal> {
    black_box(value);
    Err(Refusal::new(RefusalKind::Unsupported, DONE))
}

/// Recurses without end.
#[expect(unconditional_recursion, reason = "the stack is to overflow")]
fn dig(depth: u64) -> u64 {
    let space = black_box([depth; 64]);
    black_box(dig(depth + 1)) + space[1]
}

/// A thread allocates much memory in small parts, and frees all of it. The thread stays, because
/// its end makes a call that is not allowed.
fn give_back(_: &Input<'_>, _: Isa) -> Result<Artifact, Refusal> {
    let main = std::thread::current();
    std::thread::spawn(move || {
        let parts: Vec<Vec<u8>> = (0..256).map(|_| vec![1; 64 << 10]).collect();
        drop(black_box(parts));
        main.unpark();
        loop {
            std::thread::park();
        }
    });
    std::thread::park();
    done(0)
}

/// A lock of the C library, as its allocator uses.
struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex may be shared by threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// A thread holds the lock until another waits for it.
fn contend(_: &Input<'_>, _: Isa) -> Result<Artifact, Refusal> {
    /// The value of the lock's first word from just before a thread waits.
    const WAITED_FOR: i32 = 2;
    // SAFETY: the lock lives as long as the process.
    unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
    let main = std::thread::current();
    std::thread::spawn(move || {
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
        main.unpark();
        loop {
            std::thread::park();
        }
    });
    // SAFETY: the first word of a lock is only used by atomic operations.
    let word = unsafe { AtomicI32::from_ptr(LOCK.0.get().cast()) };
    while word.load(Ordering::Relaxed) != WAITED_FOR {
        std::thread::yield_now();
    }
    // SAFETY: as above; this thread holds the lock.
    unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
    std::thread::park();
    done(0)
}

/// Reads the clocks as the C library does if the host's clock source needs a system call.
fn read_clocks(_: &Input<'_>, _: Isa) -> Result<Artifact, Refusal> {
    for clock in [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC] {
        let mut time = [0_u64; 2];
        // SAFETY: the time is written to a live array.
        let read = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time.as_mut_ptr()) };
        if read != 0 || time == [0; 2] {
            panic!("the clock was not read");
        }
    }
    done(0)
}

/// Makes the calls of glibc since 2.41 and 2.42. This host may have an older glibc. Its kernel may
/// not support the calls either; the library then does without.
fn take_as_newer(_: &Input<'_>, _: Isa) -> Result<Artifact, Refusal> {
    const MAP_DROPPABLE: i32 = 0x08;
    const MADV_GUARD_INSTALL: i32 = 102;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let own = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
    let droppable = libc::MAP_ANONYMOUS | MAP_DROPPABLE;
    // SAFETY: the memory is new, and nothing else uses it.
    unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, protection, droppable, -1, 0);
        let page = libc::mmap(std::ptr::null_mut(), 4096, protection, own, -1, 0);
        libc::madvise(page, 4096, MADV_GUARD_INSTALL);
    }
    done(0)
}
