//! The programs of these tests' guests: machine code that does not depend on its address.

use std::arch::global_asm;
use std::slice;

use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_abi::memory_map::{MAILBOX, PAGE};

use crate::machine::{LAST_TABLE, NUMBER, PROGRAM, RAM, TABLE_BEYOND, UNMAPPED, UNMAPPED_BEYOND};

/// x87, SSE, AVX, the three of AVX-512, and the general registers of APX.
const COMPONENTS: u32 = 0b1110_0111 | 1 << 19;

// Every program rings with 3 (done) and starts over when it is run again.
global_asm!(
    r#"
.balign 16
.macro PROGRAM name
    .globl \name, \name\()_end
    \name:
.endm
.macro DONE name
    mov $3, %eax
    mov $0x50, %edx
    out %eax, %dx
    jmp \name
    \name\()_end:
.endm

// Tells what it finds in every register it can read, then leaves nothing as it was.
PROGRAM everything
    mov %rax, -8(%rsp)
    movabs ${mailbox}, %rax
    mov %rbx, 8(%rax)
    mov %rcx, 16(%rax)
    mov %rdx, 24(%rax)
    mov %rsi, 32(%rax)
    mov %rdi, 40(%rax)
    mov %rbp, 48(%rax)
    mov %rsp, 56(%rax)
    mov %r8, 64(%rax)
    mov %r9, 72(%rax)
    mov %r10, 80(%rax)
    mov %r11, 88(%rax)
    mov %r12, 96(%rax)
    mov %r13, 104(%rax)
    mov %r14, 112(%rax)
    mov %r15, 120(%rax)
    mov -8(%rsp), %rbx
    mov %rbx, 0(%rax)
    pushfq
    popq 128(%rax)
    mov %ds, 136(%rax)
    mov %es, 138(%rax)
    mov %fs, 140(%rax)
    mov %gs, 142(%rax)
    fxsave64 512(%rax)
    cmpl $0, {number}+8
    je 1f
    .set i, 0
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovups %ymm\n, 1024+32*\n(%rax)
    .endr
1:  cld
    mov $0x5a, %eax
    mov ${above}, %edi
    mov ${above_bytes}, %ecx
    rep stosb
    mov ${number}, %edi
    mov $4096, %ecx
    rep stosb
    movabs ${mailbox_rest}, %rdi
    mov ${mailbox_rest_bytes}, %ecx
    rep stosb
    fninit
    fld1
    fldpi
    push $0x0c7f
    fldcw (%rsp)
    push $0x9fc0
    ldmxcsr (%rsp)
    pcmpeqd %xmm0, %xmm0
    .irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movaps %xmm0, %xmm\n
    .endr
    movabs $0x5a5a5a5a5a5a5a5a, %rbx
    mov %rbx, %rcx
    mov %rbx, %rsi
    mov %rbx, %rdi
    mov %rbx, %rbp
    mov %rbx, %rsp
    mov %rbx, %r8
    mov %rbx, %r9
    mov %rbx, %r10
    mov %rbx, %r11
    mov %rbx, %r12
    mov %rbx, %r13
    mov %rbx, %r14
    mov %rbx, %r15
    std
    stc
DONE everything

// The upper halves of the vector registers: written by run 1, told by run 2.
PROGRAM wide
    movabs ${mailbox}, %rbx
    .irp n, 0,5,15
    vmovups %ymm\n, 32*\n(%rbx)
    .endr
    vxorps %ymm0, %ymm0, %ymm0
    vcmptrueps %ymm0, %ymm0, %ymm0
    vmovaps %ymm0, %ymm5
    vmovaps %ymm0, %ymm15
DONE wide

// Registers beyond AVX are stored and overwritten in the same way, if the guest can reach them.
PROGRAM wider
    movabs ${mailbox}, %rbx
    vmovups %zmm0, (%rbx)
    vmovups %zmm31, 64(%rbx)
    kmovw %k1, %eax
    mov %eax, 128(%rbx)
    vpternlogd $0xff, %zmm0, %zmm0, %zmm0
    vpternlogd $0xff, %zmm31, %zmm31, %zmm31
    kxnorw %k1, %k1, %k1
DONE wider

// Stores every component of XCR0 that can hold any value, then fills it. Excluded are components
// with bits that must not be set, and components that require permission from the kernel.
PROGRAM components
    movabs ${mailbox}, %rbx
    xor %ecx, %ecx
    xgetbv
    and ${components}, %eax
    mov %eax, %esi
    xor %edx, %edx
    xsave64 (%rbx)
    mov %esi, 4088(%rbx)
    cld
    lea 0x2000(%rbx), %rdi
    mov $0x5a, %eax
    mov $0x1000, %ecx
    rep stosb
    lea 0x2000(%rbx), %rdi
    movl $0x9fc0, 24(%rdi)
    xor %eax, %eax
    .irp n, 0,8,16,24,32,40,48,56
    mov %rax, 512+\n(%rdi)
    .endr
    mov %rsi, 512(%rdi)
    mov %esi, %eax
    xor %edx, %edx
    xrstor64 (%rdi)
DONE components

// PKRU: told, then changed for a key that no page has.
PROGRAM keys
    movabs ${mailbox}, %rbx
    xor %ecx, %ecx
    rdpkru
    mov %eax, (%rbx)
    movl $1, 8(%rbx)
    xor $0xc0000000, %eax
    xor %edx, %edx
    wrpkru
DONE keys

// Tells what CPUID says to its number: the leaf, and its part in the upper half.
PROGRAM identity
    mov {number}, %rax
    mov %rax, %rcx
    shr $32, %rcx
    cpuid
    movabs ${mailbox}, %rsi
    mov %eax, (%rsi)
    mov %ebx, 4(%rsi)
    mov %ecx, 8(%rsi)
    mov %edx, 12(%rsi)
DONE identity

// Run 1 maps a page where there was none and uses it; others use it only.
PROGRAM stray
    movabs ${unmapped}, %rbx
    cmpl $1, {number}
    jne 1f
    movq $0x3000067, {last_table}
1:  mov 24(%rbx), %rax
    movabs ${mailbox}, %rbx
    mov %rax, (%rbx)
DONE stray

// As `stray`, with the table beyond the zone for tables.
PROGRAM stray_beyond
    movabs ${unmapped_beyond}, %rbx
    cmpl $1, {number}
    jne 1f
    movq $0x3000067, {table_beyond}
1:  mov 24(%rbx), %rax
    movabs ${mailbox}, %rbx
    mov %rax, (%rbx)
DONE stray_beyond

// Maps the page that its number says, without a flush: nothing was there.
PROGRAM mapper
    mov {number}, %rax
    shl $20, %rax
    or $0x67, %rax
    mov %rax, {last_table}
    movabs ${unmapped}, %rbx
    mov 24(%rbx), %rax
    movabs ${mailbox}, %rbx
    mov %rax, (%rbx)
DONE mapper

// Writes to the page that its number says.
PROGRAM poke
    mov {number}, %rax
    mov (%rax), %rbx
    mov %rbx, (%rax)
DONE poke

// Uses the page that its number says, in the way that the lowest bits of it say.
.macro WAY number
    cmp $\number, %eax
    jne 1f
.endm
.macro WENT
    jmp 9f
    1:
.endm
PROGRAM ways
    mov {number}, %rbx
    mov %ebx, %eax
    and $0xfff, %eax
    shr $12, %rbx
    shl $12, %rbx
    mov $0x5a5a, %ecx
WAY 0
    mov 24(%rbx), %rcx
WENT
WAY 1
    mov %rcx, 24(%rbx)
WENT
WAY 2
    mov 24(%rbx), %rcx
    mov %rcx, 24(%rbx)
WENT
WAY 3
    push %rax
    lock cmpxchg %rcx, 24(%rbx)
    pop %rax
WENT
WAY 4
    lock xadd %rcx, 4088(%rbx)
WENT
WAY 5
    cld
    lea 4000(%rbx), %rdi
    mov $200, %ecx
    rep stosb
WENT
WAY 6
    mov %rsp, %r8
    lea 4096(%rbx), %rsp
    push %r8
    mov %r8, %rsp
WENT
WAY 7
    fxsave64 512(%rbx)
WENT
WAY 8
    movnti %rcx, 64(%rbx)
    sfence
WENT
WAY 9
    mov %rcx, 4092(%rbx)
WENT
WAY 10
    xor %eax, %eax
    xor %edx, %edx
    xsave64 1024(%rbx)
WENT
// By another translation, which the walk marks as used, and as written.
WAY 11
    mov %rbx, %rcx
    or $7, %rcx
    mov %rcx, {last_table}+24
    movabs ${unmapped}, %rdx
    mov 0x3018(%rdx), %rcx
WENT
WAY 12
    mov %rbx, %rdx
    or $7, %rdx
    mov %rdx, {last_table}+24
    movabs ${unmapped}, %rdx
    mov %rcx, 0x3018(%rdx)
WENT
WAY 13
    prefetchw 24(%rbx)
    clflush 24(%rbx)
WENT
9:
DONE ways

// Reads a word of each page from 40 MiB on, as many as its number says.
PROGRAM reader
    mov {number}, %rcx
    mov $0x2800000, %ebx
1:  mov 24(%rbx), %rax
    add $4096, %rbx
    dec %rcx
    jnz 1b
DONE reader

// Writes a word of each page from 9 MiB on, as many as its number says.
PROGRAM writer
    mov {number}, %rcx
    mov $0x900000, %ebx
1:  mov %rcx, 24(%rbx)
    add $4096, %rbx
    dec %rcx
    jnz 1b
DONE writer

// Routines that every guest has and the host starts.
.globl rewrite, rewrite_end
rewrite:
1:  mov (%rdi), %rax
    mov (%rax), %rcx
    mov %rcx, (%rax)
    add $8, %rdi
    dec %rsi
    jnz 1b
    mov $9, %eax
    mov $0x50, %edx
    out %eax, %dx
    ud2
rewrite_end:

.globl touch, touch_end
touch:
1:  mov (%rdi), %rax
    mov (%rax), %rcx
    add $8, %rdi
    dec %rsi
    jnz 1b
    mov $10, %eax
    mov $0x50, %edx
    out %eax, %dx
    ud2
touch_end:

// Tells what is mapped where nothing is at first.
PROGRAM glance
    movabs ${unmapped}, %rbx
    mov 24(%rbx), %rax
    movabs ${mailbox}, %rbx
    mov %rax, (%rbx)
DONE glance

// Enters ring 0 by the gate that leads to the start of the program plus 16, and
// changes a debug register there.
PROGRAM trip
    jmp 1f
    .balign 16
    .globl trip_gate
trip_gate:
    mov $0x1234, %eax
    mov %rax, %dr0
    iretq
1:  int3
DONE trip

// Instructions that require ring 0.
PROGRAM debug_register
    mov $0x1234, %eax
    mov %rax, %dr0
DONE debug_register
PROGRAM control_register
    mov %cr4, %rax
    xor $0x80, %rax
    mov %rax, %cr4
DONE control_register
PROGRAM root
    mov %cr3, %rax
    or $8, %rax
    mov %rax, %cr3
DONE root
PROGRAM descriptor_table
    lea {number}, %rbx
    lidt (%rbx)
DONE descriptor_table
PROGRAM extended_register
    xor %ecx, %ecx
    xor %edx, %edx
    mov $1, %eax
    xsetbv
DONE extended_register
PROGRAM model_specific
    mov {number}, %ecx
    xor %edx, %edx
    xor %eax, %eax
    wrmsr
DONE model_specific

// Selectors: told, then loaded with null, which ring 3 may do.
PROGRAM selectors
    movabs ${mailbox}, %rbx
    mov %ds, 0(%rbx)
    mov %es, 2(%rbx)
    mov %fs, 4(%rbx)
    mov %gs, 6(%rbx)
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %fs
    mov %eax, %gs
DONE selectors

// Segment bases: told, then changed, where the CPU lets ring 3 do so.
PROGRAM bases
    movabs ${mailbox}, %rbx
    rdfsbase %rax
    mov %rax, 0(%rbx)
    rdgsbase %rax
    mov %rax, 8(%rbx)
    mov $0x5a5a5a, %eax
    wrfsbase %rax
    wrgsbase %rax
DONE bases
"#,
    mailbox = const MAILBOX,
    components = const COMPONENTS,
    number = const NUMBER,
    unmapped = const UNMAPPED,
    last_table = const LAST_TABLE,
    unmapped_beyond = const UNMAPPED_BEYOND,
    table_beyond = const TABLE_BEYOND,
    above = const PROGRAM + PAGE,
    above_bytes = const RAM - PROGRAM - PAGE,
    mailbox_rest = const MAILBOX + 2048,
    mailbox_rest_bytes = const MAILBOX_BYTES - 2048,
    options(att_syntax)
);

/// The number of ways to a page in `ways`.
pub const WAYS: u64 = 14;
/// The ways that map the page at another address first.
pub const TRANSLATING: [u64; 2] = [11, 12];

/// Returns the offset in `trip` to which its gate leads.
pub fn trip_gate() -> u64 {
    unsafe extern "C" {
        static trip: u8;
        static trip_gate: u8;
    }
    // SAFETY: both labels are of one program.
    unsafe { (&raw const trip_gate).offset_from_unsigned(&raw const trip) as u64 }
}

macro_rules! programs {
    ($($name:ident $end:ident),* $(,)?) => {
        $(
            pub fn $name() -> &'static [u8] {
                unsafe extern "C" {
                    static $name: u8;
                    static $end: u8;
                }
                let (start, end) = (&raw const $name, &raw const $end);
                // SAFETY: both labels are of one section, in this order.
                unsafe { slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
            }
        )*
    };
}

programs! {
    everything everything_end,
    wide wide_end,
    wider wider_end,
    components components_end,
    keys keys_end,
    identity identity_end,
    stray stray_end,
    stray_beyond stray_beyond_end,
    mapper mapper_end,
    poke poke_end,
    ways ways_end,
    reader reader_end,
    writer writer_end,
    rewrite rewrite_end,
    touch touch_end,
    glance glance_end,
    trip trip_end,
    debug_register debug_register_end,
    control_register control_register_end,
    root root_end,
    descriptor_table descriptor_table_end,
    extended_register extended_register_end,
    model_specific model_specific_end,
    selectors selectors_end,
    bases bases_end,
}
