//! A hostile guest: machine code in place of a function's.
//!
//! A function is compiled like any other, then its code is overwritten in the artifact. An attacker
//! who found a bug in the compiler controls as much. So real guest, real sandbox and real node meet
//! code that does anything that ring 3 of a guest may do: write the mailbox, page tables and
//! descriptor tables, and ring doorbells. A script determines what it does. The script comes as the
//! request's body or, for code that runs while the function is instantiated, with the code itself.

use std::arch::global_asm;
use std::mem::offset_of;

use bytes::Bytes;
use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::mailbox::{HOST_WORDS, HostWords};
use faasw_abi::memory_map::{CODE, MAILBOX};
use faasw_abi::ring::RingBuffer;
use faasw_pool::{FreezePolicy, FunctionKind, FunctionSpec, FunctionVersion, SeedError};

use crate::HOSTILE;
use crate::script::{Op, SCRIPT, Script};
use crate::support::{Bench, load_code, spec};

/// The request's ring, and the offset of the word that holds the length of its head.
const REQUEST: RingBuffer = Channel::INVOCATION.to_guest();
const HEAD: u64 =
    HOST_WORDS.offset + (offset_of!(HostWords, channels) + offset_of!(ChannelWords, head)) as u64;

// An interpreter of scripts. It needs no memory but the scripts', and its code is
// position-independent.
global_asm!(
    r#"
    .pushsection .rodata.hostile, "a"
    .balign 8
    .globl hostile_begin
hostile_begin:
    // The script behind this code; where there is none, the request's body.
    lea rbx, [rip + hostile_end]
    cmp qword ptr [rbx], 0
    jne 20f
    // In one piece: what is behind the head in the last page before the words, and what
    // goes on at the ring's start.
    movabs rax, {head}
    mov eax, [rax]
    movabs rsi, {first}
    add rsi, rax
    mov ecx, {first_bytes}
    sub ecx, eax
    movabs rdi, {script}
    mov rbx, rdi
    rep movsb
    movabs rsi, {wraps}
    mov ecx, {more}
    rep movsb
20: mov rsi, rbx
30: mov rax, [rsi]
    mov rdi, [rsi + 8]
    mov rdx, [rsi + 16]
    mov rcx, [rsi + 24]
    add rsi, 32
    cmp rax, {store}
    je 41f
    cmp rax, {ring}
    je 42f
    cmp rax, {add}
    je 43f
    cmp rax, {jump}
    je 44f
    cmp rax, {copy}
    je 45f
    cmp rax, {dice}
    je 46f
    cmp rax, {race}
    je 47f
    cmp rax, {again}
    je 48f
    cmp rax, {breakpoint}
    je 49f
    cmp rax, {until}
    je 50f
    ud2
41: mov [rdi], rdx
    jmp 30b
42: mov eax, edx
    mov edx, edi
    out dx, eax
    jmp 30b
43: add [rdi], rdx
    jmp 30b
44: shl rdx, 5
    lea rsi, [rbx + rdx]
    jmp 30b
45: mov r9, rsi
    mov rsi, rdx
    rep movsb
    mov rsi, r9
    jmp 30b
46: mov r10, rdi
    mov r11, rdx
    jmp 30b
    // Random words at random places, as fast as it goes (xorshift64).
47: mov rax, r10
    shl rax, 13
    xor r10, rax
    mov rax, r10
    shr rax, 7
    xor r10, rax
    mov rax, r10
    shl rax, 17
    xor r10, rax
    mov rax, r10
    shr rax, 32
    and rax, rdx
    mov r8, r10
    and r8, r11
    mov [rdi + rax], r8
    dec rcx
    jnz 47b
    jmp 30b
48: dec qword ptr [rdi]
    jz 30b
    jmp 44b
49: int3
    jmp 30b
50: pause
    cmp [rdi], rdx
    jne 50b
    jmp 30b
    .globl hostile_ring_0
hostile_ring_0:
    push rax
    mov rax, cr0
    mov cr0, rax
    mov rax, cr4
    xor rax, 0x100
    mov cr4, rax
    mov rax, 0x1234
    mov dr0, rax
    pop rax
    iretq
    .globl hostile_halt
hostile_halt:
    cli
    hlt
    jmp hostile_halt
    .balign 8
    .globl hostile_end
hostile_end:
    .quad 0
    .popsection
    "#,
    head = const MAILBOX + HEAD,
    first = const MAILBOX + REQUEST.area.offset + REQUEST.first,
    first_bytes = const REQUEST.area.size - REQUEST.first,
    wraps = const MAILBOX + REQUEST.area.offset,
    more = const 16 << 10,
    script = const MAILBOX + SCRIPT.offset,
    store = const Op::Store as u64,
    ring = const Op::Doorbell as u64,
    add = const Op::Add as u64,
    jump = const Op::Jump as u64,
    copy = const Op::Copy as u64,
    dice = const Op::Dice as u64,
    race = const Op::Race as u64,
    again = const Op::Again as u64,
    breakpoint = const Op::Breakpoint as u64,
    until = const Op::Until as u64,
);

unsafe extern "C" {
    static hostile_begin: u8;
    static hostile_ring_0: u8;
    static hostile_halt: u8;
    static hostile_end: u8;
}

/// Number of constants that the function stores, each in an instruction of its own. They make room
/// for the interpreter's code and for a script behind it.
const STORES: u64 = 1200;
/// Returns the constant with this index.
const fn constant(index: u64) -> u64 {
    0x5eed_1e55_c0de_0000 | index
}

/// The machine code of the interpreter.
fn code() -> Vec<u8> {
    let (begin, end) = (&raw const hostile_begin, &raw const hostile_end);
    // SAFETY: both labels are in one section, and the end is behind the beginning.
    unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)).to_vec() }
}

/// Returns a command whose entry function, or start function, consists of stores only.
fn module(at_start: bool) -> Bytes {
    let stores: String = (0..STORES)
        .map(|index| {
            let (at, value) = (index * 8, constant(index));
            format!("(i64.store (i32.const {at}) (i64.const {value}))\n")
        })
        .collect();
    let (start, empty) = if at_start {
        ("(start $f)", "(func (export \"_start\"))")
    } else {
        ("(export \"_start\" (func $f))", "")
    };
    Bytes::from(format!(
        "(module (memory (export \"memory\") 1) (func $f {stores}) {empty} {start})"
    ))
}

/// A function that executes scripts.
pub struct Carrier {
    artifact: Vec<u8>,
    /// Offset of the hostile code in the artifact.
    at: usize,
}

impl Carrier {
    /// Makes a carrier that executes the script in each request.
    pub async fn of_requests(bench: &Bench) -> Self {
        Self::of(bench, false, &[]).await
    }

    /// Makes a carrier that executes `script` while it is instantiated.
    pub async fn of_instantiation(bench: &Bench, script: &Script) -> Self {
        Self::of(bench, true, &script.bytes()).await
    }

    async fn of(bench: &Bench, at_start: bool, script: &[u8]) -> Self {
        let compiled = bench.pool.compile(module(at_start)).await.unwrap();
        assert_eq!(compiled.kind, FunctionKind::CgiModule);
        let mut artifact = compiled.bytes().unwrap();
        let place = |index: u64| {
            let wanted = constant(index).to_le_bytes();
            let mut found = artifact
                .windows(wanted.len())
                .enumerate()
                .filter_map(|(at, bytes)| (bytes == wanted).then_some(at));
            let at = found.next().expect("the constant is in the code");
            assert!(found.next().is_none(), "it is there once");
            at
        };
        // The constant follows two bytes that encode the target register.
        let (at, room_end) = (place(0) - 2, place(STORES - 1));
        let hostile = [code(), script.to_vec(), vec![0; 8]].concat();
        assert!(at + hostile.len() <= room_end, "{at:#x} to {room_end:#x}");
        artifact[at..at + hostile.len()].copy_from_slice(&hostile);
        Self { artifact, at }
    }

    pub async fn seed(&self, bench: &Bench) -> Result<FunctionVersion, SeedError> {
        let compiled = load_code(FunctionKind::CgiModule, &self.artifact);
        let spec = FunctionSpec {
            name: HOSTILE.to_owned(),
            ..spec(FreezePolicy::Auto)
        };
        Ok(bench.pool.make_seed(&spec, &compiled).await?.version)
    }

    /// Returns the guest address of the ring-0 code that changes registers and returns.
    pub fn ring_0(&self) -> u64 {
        self.address_of(&raw const hostile_ring_0)
    }

    /// Returns the guest address of the ring-0 code that halts.
    pub fn halt(&self) -> u64 {
        self.address_of(&raw const hostile_halt)
    }

    fn address_of(&self, label: *const u8) -> u64 {
        let begin = &raw const hostile_begin;
        // SAFETY: both labels are in one section.
        let offset = unsafe { label.offset_from_unsigned(begin) };
        CODE + (self.at + offset) as u64
    }
}
