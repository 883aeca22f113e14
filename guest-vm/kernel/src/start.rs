//! The first instructions, the memory functions that compiled code expects, and the symbols that
//! `panic = "abort"` still requires.
//!
//! The host enters at `_start` in long mode at privilege level 3, with the stack of the memory map
//! and interrupts off. Large copies use string instructions: on every CPU that faasw runs on they
//! move whole cache lines (ERMS).

use core::arch::global_asm;

global_asm!(
    r#"
.section .text._start,"ax"
.globl _start
_start:
    xor %ebp, %ebp
    call guest_main
    ud2

.section .text.memory,"ax"
.globl memcpy, memmove, memset, memcmp, bcmp, strlen
memcpy:
    mov %rdi, %rax
    mov %rdx, %rcx
    cmp $32, %rdx
    ja 2f
    // Short copies are most copies, and starting a string instruction costs more than they do.
    cmp $8, %rdx
    jb 1f
    cmp $16, %rdx
    ja 3f
    mov (%rsi), %r8
    mov -8(%rsi,%rdx), %r9
    mov %r8, (%rdi)
    mov %r9, -8(%rdi,%rdx)
    ret
3:  movups (%rsi), %xmm0
    movups -16(%rsi,%rdx), %xmm1
    movups %xmm0, (%rdi)
    movups %xmm1, -16(%rdi,%rdx)
    ret
1:  cmp $4, %rdx
    jb 4f
    mov (%rsi), %r8d
    mov -4(%rsi,%rdx), %r9d
    mov %r8d, (%rdi)
    mov %r9d, -4(%rdi,%rdx)
    ret
4:  test %rdx, %rdx
    je 5f
    // Lengths of 1 to 3 bytes: copy the first byte, the middle one and the last.
    shr $1, %rcx
    movzbl (%rsi), %r8d
    movzbl (%rsi,%rcx), %r10d
    movzbl -1(%rsi,%rdx), %r9d
    mov %r8b, (%rdi)
    mov %r10b, (%rdi,%rcx)
    mov %r9b, -1(%rdi,%rdx)
5:  ret
2:  rep movsb
    ret
memmove:
    // Short copies read everything before they write, long ones go upwards.
    cmp $32, %rdx
    jbe memcpy
    mov %rdi, %r8
    sub %rsi, %r8
    cmp %rdx, %r8
    jae memcpy
    // Downwards; string instructions are slow in that direction.
    mov %rdi, %rax
    movups (%rsi), %xmm1
6:  movups -16(%rsi,%rdx), %xmm0
    movups %xmm0, -16(%rdi,%rdx)
    sub $16, %rdx
    cmp $16, %rdx
    ja 6b
    movups %xmm1, (%rdi)
    ret
memset:
    mov %rdi, %r8
    mov %esi, %eax
    mov %rdx, %rcx
    rep stosb
    mov %r8, %rax
    ret
bcmp:
memcmp:
    xor %ecx, %ecx
1:  cmp %rdx, %rcx
    je 2f
    movzbl (%rdi,%rcx), %eax
    movzbl (%rsi,%rcx), %r8d
    inc %rcx
    sub %r8d, %eax
    je 1b
    ret
2:  xor %eax, %eax
    ret
strlen:
    xor %eax, %eax
1:  cmpb $0, (%rdi,%rax)
    je 2f
    inc %rax
    jmp 1b
2:  ret
"#,
    options(att_syntax)
);

/// Referenced by unwind tables of precompiled core; never called, since panics abort.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Referenced by the same tables.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::host::fatal(format_args!("unwinding was attempted"))
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::host::fatal(format_args!("{info}"))
}
