//! Rules for calls that all programs on the C library have in common: memory that cannot be
//! executed, locks, clocks, panics and aborts.

use crate::filter::{ArgCondition, Rule, rule};

/// The memory is readable, writable, both or neither, and not executable.
pub const NOT_EXECUTABLE: ArgCondition =
    ArgCondition::MaskedEquals(2, !((libc::PROT_READ | libc::PROT_WRITE) as u64), 0);

/// `MAP_DROPPABLE | MAP_ANONYMOUS` (Linux 6.11).
const DROPPABLE: u64 = 0x08 | libc::MAP_ANONYMOUS as u64;

/// Allows a call with any arguments.
#[must_use]
pub fn unconditional(name: &'static str, call: libc::c_long) -> Rule {
    rule(name, call, &[])
}

/// Allows an operation on a lock in the process's own memory (futex(2)).
#[must_use]
pub fn futex(name: &'static str, operation: i32) -> Rule {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    rule(
        name,
        libc::SYS_futex,
        &[ArgCondition::Equals(1, operation.cast_unsigned())],
    )
}

/// Allows reading a clock by a system call.
#[must_use]
pub fn clock(name: &'static str, clock: libc::clockid_t) -> Rule {
    rule(
        name,
        libc::SYS_clock_gettime,
        &[ArgCondition::Equals(0, clock.cast_unsigned())],
    )
}

/// Allows changing the protection of memory, except to executable.
#[must_use]
pub fn change_protection() -> Rule {
    rule("change protection", libc::SYS_mprotect, &[NOT_EXECUTABLE])
}

/// Allows making an allocation larger.
#[must_use]
pub fn move_memory() -> Rule {
    rule(
        "move memory",
        libc::SYS_mremap,
        &[ArgCondition::MaskedEquals(
            3,
            u64::MAX,
            libc::MREMAP_MAYMOVE as u64,
        )],
    )
}

/// Allows releasing memory that stays mapped.
#[must_use]
pub fn release_pages() -> Rule {
    rule(
        "let pages go",
        libc::SYS_madvise,
        &[ArgCondition::Equals(2, libc::MADV_DONTNEED.cast_unsigned())],
    )
}

/// Allows the memory that glibc uses from 2.41 on to draw entropy without a call each time, and
/// that the kernel may drop.
#[must_use]
pub fn map_droppable() -> Rule {
    rule(
        "take memory for entropy",
        libc::SYS_mmap,
        &[
            NOT_EXECUTABLE,
            ArgCondition::MaskedEquals(3, u64::MAX, DROPPABLE),
        ],
    )
}

/// Allows a panic and an abort. They write the reason to the null device: they are a mistake, or
/// caused by an upload, which is reported, and not an attempt to break out. `abort` sends a signal
/// to the process itself. The filtered process must make these rules itself: they contain its
/// number.
#[must_use]
pub fn exit_rules() -> [Rule; 4] {
    [
        rule("say why", libc::SYS_write, &[ArgCondition::Equals(0, 2)]),
        unconditional("return from a handler", libc::SYS_rt_sigreturn),
        unconditional("ask for the process's number", libc::SYS_getpid),
        rule(
            "abort",
            libc::SYS_tgkill,
            &[
                ArgCondition::Equals(0, std::process::id()),
                ArgCondition::Equals(2, libc::SIGABRT.cast_unsigned()),
            ],
        ),
    ]
}

/// Allows reading clocks if that takes a call: with some hosts' clock sources.
#[must_use]
pub fn clock_rules() -> [Rule; 2] {
    [
        clock("read the time of day", libc::CLOCK_REALTIME),
        clock("read a clock", libc::CLOCK_MONOTONIC),
    ]
}
