//! Rules for what programs on the C library have in common, whatever they do: memory that cannot be
//! executed, locks, clocks, and how they panic and abort.

use crate::filter::{Must, Rule, rule};

/// Memory to read and write, or neither.
pub const NOT_EXECUTABLE: Must = Must::Have(2, !((libc::PROT_READ | libc::PROT_WRITE) as u64), 0);

/// `MAP_DROPPABLE | MAP_ANONYMOUS` (Linux 6.11).
const DROPPABLE: u64 = 0x08 | libc::MAP_ANONYMOUS as u64;

/// A call, whatever its arguments.
#[must_use]
pub fn free(name: &'static str, call: libc::c_long) -> Rule {
    rule(name, call, &[])
}

/// A lock's, on memory of the process's own (futex(2)).
#[must_use]
pub fn futex(name: &'static str, operation: i32) -> Rule {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    rule(
        name,
        libc::SYS_futex,
        &[Must::Be(1, operation.cast_unsigned())],
    )
}

/// Reading a clock by a call.
#[must_use]
pub fn clock(name: &'static str, clock: libc::clockid_t) -> Rule {
    rule(
        name,
        libc::SYS_clock_gettime,
        &[Must::Be(0, clock.cast_unsigned())],
    )
}

/// Changing what may be done with memory, but for executing it.
#[must_use]
pub fn change_protection() -> Rule {
    rule("change protection", libc::SYS_mprotect, &[NOT_EXECUTABLE])
}

/// Making an allocation larger.
#[must_use]
pub fn move_memory() -> Rule {
    rule(
        "move memory",
        libc::SYS_mremap,
        &[Must::Have(3, u64::MAX, libc::MREMAP_MAYMOVE as u64)],
    )
}

/// Giving memory back that is mapped on.
#[must_use]
pub fn let_pages_go() -> Rule {
    rule(
        "let pages go",
        libc::SYS_madvise,
        &[Must::Be(2, libc::MADV_DONTNEED.cast_unsigned())],
    )
}

/// How glibc takes entropy from 2.41 on, without a call each time: in memory that the kernel may
/// drop.
#[must_use]
pub fn memory_for_entropy() -> Rule {
    rule(
        "take memory for entropy",
        libc::SYS_mmap,
        &[NOT_EXECUTABLE, Must::Have(3, u64::MAX, DROPPABLE)],
    )
}

/// A panic and an abort: they say why, to the null device, for they are a mistake or an upload's
/// fault that is told, and no attempt to break out; and `abort` sends itself a signal. The process
/// that is filtered makes these rules: they have its number.
#[must_use]
pub fn ends() -> [Rule; 4] {
    [
        rule("say why", libc::SYS_write, &[Must::Be(0, 2)]),
        free("return from a handler", libc::SYS_rt_sigreturn),
        free("ask for the process's number", libc::SYS_getpid),
        rule(
            "abort",
            libc::SYS_tgkill,
            &[
                Must::Be(0, std::process::id()),
                Must::Be(2, libc::SIGABRT.cast_unsigned()),
            ],
        ),
    ]
}

/// Where clocks cannot be read without a call: some hosts' clock sources.
#[must_use]
pub fn clocks() -> [Rule; 2] {
    [
        clock("read the time of day", libc::CLOCK_REALTIME),
        clock("read a clock", libc::CLOCK_MONOTONIC),
    ]
}
