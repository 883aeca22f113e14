//! Exceptions: a few instructions in ring 0, then back to privilege level 3.
//!
//! On hosts without hardware virtualisation, code in ring 0 is emulated one instruction at a time.
//! The stubs therefore only record the exception and return to [`trap_entry`] instead of the
//! faulting instruction. That routine runs on a stack of its own, because the faulting stack may be
//! exhausted. It calls Wasmtime's handler, which does not return if the fault is a Wasm trap.
//! Otherwise the guest ends.
//!
//! `int3` (vector 3) flushes the TLB, because only ring 0 can do that.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use faasw_abi::doorbell::{Doorbell, PORT};

use crate::single::Single;

/// Wasmtime's handler, which checks whether a fault is a Wasm trap. Parameters: instruction
/// pointer, frame pointer, whether there is a faulting address, and that address.
pub type TrapHandler = extern "C" fn(usize, usize, bool, usize);

static HANDLER: Single<Option<TrapHandler>> = Single::new(None);

/// Vector of a page fault.
const PAGE_FAULT: u8 = 14;

/// The record of the last exception. Assembly in ring 0 writes it.
#[repr(C)]
struct TrapRecord {
    instruction: UnsafeCell<u64>,
    error: UnsafeCell<u64>,
    address: UnsafeCell<u64>,
    vector: UnsafeCell<u64>,
}

// SAFETY: there is one vCPU, and the stubs finish their writes before anything reads.
unsafe impl Sync for TrapRecord {}

#[unsafe(no_mangle)]
static trap_noted: TrapRecord = TrapRecord {
    instruction: UnsafeCell::new(0),
    error: UnsafeCell::new(0),
    address: UnsafeCell::new(0),
    vector: UnsafeCell::new(0),
};

/// Bytes of the stack on which faults are handled. Wasmtime's lookup is a few hundred bytes deep;
/// the rest is for formatting a report.
const TRAP_STACK: usize = 32 << 10;

#[repr(C, align(4096))]
struct TrapStack(UnsafeCell<[u8; TRAP_STACK]>);

// SAFETY: only the trap entry uses it, and that never nests: a fault on this stack restarts it from
// the top and does not return to the first.
unsafe impl Sync for TrapStack {}

#[unsafe(no_mangle)]
static trap_stack: TrapStack = TrapStack(UnsafeCell::new([0; TRAP_STACK]));

global_asm!(
    r#"
.section .stubs,"ax"
.balign 64
// Every stub is {size} bytes, so that the host can compute the gates.
.globl exception_stubs
exception_stubs:
.macro STUB vector, has_error
    .balign {size}
    .if \has_error
    popq trap_noted+8
    .endif
    movq $\vector, trap_noted+24
    jmp exception_common
.endm
STUB 0 0
STUB 1 0
STUB 2 0
// Vector 3: flush the TLB and go on.
    .balign {size}
    push %rax
    mov %cr3, %rax
    mov %rax, %cr3
    pop %rax
    iretq
STUB 4 0
STUB 5 0
STUB 6 0
STUB 7 0
STUB 8 1
STUB 9 0
STUB 10 1
STUB 11 1
STUB 12 1
STUB 13 1
STUB 14 1
STUB 15 0
STUB 16 0
STUB 17 1
STUB 18 0
STUB 19 0
STUB 20 0
STUB 21 1
STUB 22 0
STUB 23 0
STUB 24 0
STUB 25 0
STUB 26 0
STUB 27 0
STUB 28 0
STUB 29 1
STUB 30 1
STUB 31 0
// The host's way to have table entries written anew, see memory_map::REWRITE.
    .balign {size}
1:  mov (%rdi), %rax
    mov (%rax), %rcx
    mov %rcx, (%rax)
    add $8, %rdi
    dec %rsi
    jnz 1b
    mov ${rewritten}, %eax
    mov ${port}, %edx
    out %eax, %dx
    ud2
// And to have translations made, see memory_map::TOUCH.
    .balign {size}
1:  mov (%rdi), %rax
    mov (%rax), %rcx
    add $8, %rdi
    dec %rsi
    jnz 1b
    mov ${touched}, %eax
    mov ${port}, %edx
    out %eax, %dx
    ud2
    .balign {size}
exception_common:
    push %rax
    mov %cr2, %rax
    mov %rax, trap_noted+16
    pop %rax
    popq trap_noted
    pushq $trap_entry
    iretq

.section .text.trap_entry,"ax"
trap_entry:
    cld
    mov trap_noted, %rdi
    mov %rbp, %rsi
    lea trap_stack+{stack}, %rsp
    call trap_arrived
    ud2
"#,
    size = const STUB_BYTES,
    rewritten = const Doorbell::Rewritten as u32,
    touched = const Doorbell::Touched as u32,
    port = const PORT,
    stack = const TRAP_STACK,
    options(att_syntax)
);

/// Bytes from one exception stub to the next; part of the boot contract with the host.
const STUB_BYTES: usize = faasw_abi::memory_map::EXCEPTION_STUB_BYTES as usize;

/// Stores Wasmtime's handler.
pub fn set_handler(handler: TrapHandler) {
    // SAFETY: the closure stores a pointer and nothing else.
    unsafe { HANDLER.with(|slot| *slot = Some(handler)) }
}

/// Flushes the CPU's translations of unmapped pages.
pub fn flush_tlb() {
    // SAFETY: vector 3 has a gate that privilege level 3 may use; its stub
    // preserves every register.
    unsafe { asm!("int3") }
}

#[unsafe(no_mangle)]
extern "C" fn trap_arrived(instruction: usize, frame: usize) -> ! {
    // SAFETY: the stub has written these, and no other exception can be under way.
    let (vector, error, address) = unsafe {
        (
            *trap_noted.vector.get() as u8,
            *trap_noted.error.get(),
            *trap_noted.address.get() as usize,
        )
    };
    // SAFETY: the closure copies a pointer and nothing else.
    if let Some(handler) = unsafe { HANDLER.with(|slot| *slot) } {
        // Returns only if the fault does not belong to Wasm code.
        handler(instruction, frame, vector == PAGE_FAULT, address);
    }
    crate::host::fatal(format_args!(
        "exception {vector} (error {error:#x}) at {instruction:#x}, address {address:#x}"
    ))
}
