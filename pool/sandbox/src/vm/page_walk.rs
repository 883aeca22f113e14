//! How this host translates a guest's addresses, observed with a trial guest.
//!
//! A reset must know two things about the guest's page tables. Does a walk of them, without any
//! write by the guest, make their pages private to the instance? And does KVM keep shadows of
//! them, which go stale when this process changes a table behind KVM's back?
//!
//! | translation | walks make table pages private | shadows |
//! | --- | --- | --- |
//! | shadow paging (no EPT or NPT, `kvm-pvm`) | no | yes |
//! | AMD's NPT | yes | no |
//! | Intel's EPT with accessed and dirty bits | yes | no |
//! | Intel's EPT without them | no | no |
//!
//! NPT treats each access to a guest's page table as a write at the second level, even where the
//! table's entries have all their accessed and dirty bits (AMD64 Architecture Programmer's Manual,
//! volume 2, "Nested Paging"). EPT does so where its own accessed and dirty bits are on (Intel
//! SDM, volume 3, "Accessed and Dirty Flags for EPT"). Neither follows from a capability that KVM
//! reports: `KVM_PRE_FAULT_MEMORY` also depends on the kernel's version. So a trial guest shows
//! it, once for each process that makes VMs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use faasw_abi::doorbell::PORT;
use faasw_abi::memory_map::PAGE;
use kvm_bindings::{kvm_regs, kvm_userspace_memory_region};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::vm::ring3::system_registers;

/// How the host translates the addresses of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageWalk {
    /// KVM keeps shadows of the guest's tables. A table's page becomes private only when the
    /// guest or KVM writes to it.
    Shadowed,
    /// The hardware walks the guest's tables and thereby makes their pages private.
    Writing,
    /// The hardware walks the guest's tables and leaves their pages shared.
    Reading,
}

impl PageWalk {
    /// Whether KVM keeps shadows of guests' tables, which go stale when a table is changed
    /// behind KVM's back.
    #[must_use]
    pub fn has_shadows(self) -> bool {
        self == Self::Shadowed
    }

    /// Whether a private table page proves nothing about the guest: walks make it private, too.
    #[must_use]
    pub fn writes_tables(self) -> bool {
        self == Self::Writing
    }
}

/// The trial guest's pages. The four tables map the low addresses one to one.
///
/// The first page is the task state segment, all zeroes: it allows all output. `kvm-pvm` does not
/// keep the I/O privilege level with which the guest is started, and then the task state decides.
const TASK: u64 = 0;
const ROOT: u64 = PAGE;
const POINTERS: u64 = 2 * PAGE;
const DIRECTORY: u64 = 3 * PAGE;
const TABLE: u64 = 4 * PAGE;
const CODE: u64 = 5 * PAGE;
/// The page that the guest reads, and the one to which its address is moved.
const FIRST: u64 = 6 * PAGE;
const SECOND: u64 = 7 * PAGE;
const BYTES: u64 = 8 * PAGE;

/// Present, writable, for ring 3, accessed and dirty.
const ENTRY: u64 = 0x67;
const ENTRY_BYTES: u64 = 8;
/// A word of each table that no walk of the trial guest uses: its last entry.
const UNUSED: u64 = PAGE - ENTRY_BYTES;

/// The words in the guest's first and second page.
const MARKS: [u32; 2] = [0x1111_1111, 0x2222_2222];

/// The guest's program: `mov (%rbx), %eax`, `out %eax, %dx`, and from the start again.
const PROGRAM: [u8; 5] = [0x8b, 0x03, 0xef, 0xeb, 0xfb];

/// CR4's bit for global pages. A change of it makes KVM flush the guest's translations.
const PAGE_GLOBAL_ENABLE: u64 = 1 << 7;

/// Observes a trial guest in `vm`, which must have no memory yet, and cannot be used afterwards.
///
/// # Errors
/// Returns KVM's or the kernel's error, or [`io::ErrorKind::InvalidData`] if the guest did not run
/// as it must on any host.
pub fn observe(vm: &VmFd, vcpu: &mut VcpuFd) -> io::Result<PageWalk> {
    try_guest(vm, vcpu, watch)
}

/// Measures how long the trial guest takes to leave `vm` and to be entered again: the median of 201
/// exits. `vm` must have no memory yet, and cannot be used afterwards.
///
/// # Errors
/// Returns the errors of [`observe`].
pub fn exit_time(vm: &VmFd, vcpu: &mut VcpuFd) -> io::Result<Duration> {
    const EXITS: usize = 201;
    try_guest(vm, vcpu, |vcpu, _, _| {
        start(vcpu)?;
        let read_first = |read| read == MARKS[0];
        run(vcpu, read_first)?;
        let mut times = Vec::with_capacity(EXITS);
        for _ in 0..EXITS {
            let begun = Instant::now();
            run(vcpu, read_first)?;
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        Ok(times.get(EXITS / 2).copied().unwrap_or_default())
    })
}

/// Gives `vm` the trial guest's memory for the duration of `attempt`.
fn try_guest<T>(
    vm: &VmFd,
    vcpu: &mut VcpuFd,
    attempt: impl FnOnce(&mut VcpuFd, &OwnedFd, &Memory) -> io::Result<T>,
) -> io::Result<T> {
    let file = rustix::fs::memfd_create("faasw-trial", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, BYTES)?;
    for (at, entry) in [
        (ROOT, POINTERS),
        (POINTERS, DIRECTORY),
        (DIRECTORY, TABLE),
        (TABLE, TASK),
        (TABLE + CODE / PAGE * ENTRY_BYTES, CODE),
        (TABLE + FIRST / PAGE * ENTRY_BYTES, FIRST),
    ] {
        put(&file, at, &(entry | ENTRY).to_le_bytes())?;
    }
    put(&file, CODE, &PROGRAM)?;
    for (at, mark) in [FIRST, SECOND].into_iter().zip(MARKS) {
        put(&file, at, &mark.to_le_bytes())?;
    }

    let memory = Memory::map(&file)?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: BYTES,
        userspace_addr: memory.0.as_ptr().expose_provenance() as u64,
    };
    // SAFETY: the slot is taken away again before the memory is unmapped.
    unsafe { vm.set_user_memory_region(region) }?;
    let outcome = attempt(vcpu, &file, &memory);
    let gone = kvm_userspace_memory_region {
        memory_size: 0,
        ..region
    };
    // SAFETY: the region has no memory.
    if let Err(error) = unsafe { vm.set_user_memory_region(gone) } {
        // The VM still uses these addresses, so nothing else may be mapped there.
        std::mem::forget(memory);
        return Err(error.into());
    }
    outcome
}

/// Puts the vCPU at the start of the guest's program.
fn start(vcpu: &VcpuFd) -> io::Result<()> {
    vcpu.set_sregs(&system_registers(ROOT, TASK))?;
    vcpu.set_regs(&kvm_regs {
        rip: CODE,
        rbx: FIRST,
        rdx: PORT.into(),
        // Input and output are allowed in ring 3.
        rflags: 1 << 1 | 3 << 12,
        ..kvm_regs::default()
    })?;
    Ok(())
}

fn watch(vcpu: &mut VcpuFd, file: &OwnedFd, memory: &Memory) -> io::Result<PageWalk> {
    start(vcpu)?;
    run(vcpu, |read| read == MARKS[0])?;
    // A page that is still shared shows what is written to the file from now on.
    let mut are_private = [false; 4];
    for (is_private, table) in are_private
        .iter_mut()
        .zip([ROOT, POINTERS, DIRECTORY, TABLE])
    {
        let mark = 1_u64 << 63;
        put(file, table + UNUSED, &mark.to_le_bytes())?;
        *is_private = memory.word(table + UNUSED) != mark;
    }
    if are_private.contains(&true) {
        return Ok(PageWalk::Writing);
    }
    // Moves the guest's address behind KVM's back and has all translations flushed: only
    // shadows still lead to the first page.
    memory.set_word(TABLE + FIRST / PAGE * ENTRY_BYTES, SECOND | ENTRY);
    // The `out` is completed before registers are changed.
    vcpu.set_kvm_immediate_exit(1);
    let completed = vcpu.run().map(|_| ());
    vcpu.set_kvm_immediate_exit(0);
    match completed {
        Err(error) if error.errno() == libc::EINTR => {}
        Err(error) => return Err(error.into()),
        Ok(()) => return Err(astray("left while its output was completed")),
    }
    let sregs = system_registers(ROOT, TASK);
    let mut flushed = sregs;
    flushed.cr4 ^= PAGE_GLOBAL_ENABLE;
    for sregs in [flushed, sregs] {
        vcpu.set_sregs(&sregs)?;
    }
    let read = run(vcpu, |read| MARKS.contains(&read))?;
    Ok(if read == MARKS[1] {
        PageWalk::Reading
    } else {
        PageWalk::Shadowed
    })
}

/// Runs the guest until it reports the word that it has read.
fn run(vcpu: &mut VcpuFd, is_expected: impl Fn(u32) -> bool) -> io::Result<u32> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(PORT, data)) => {
                let read = data.try_into().map(u32::from_le_bytes);
                let read = read.map_err(|_| astray("reported something else than a word"))?;
                return if is_expected(read) {
                    Ok(read)
                } else {
                    Err(astray("read what is not in its memory"))
                };
            }
            Ok(other) => return Err(astray(&format!("stopped for {other:?}"))),
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn astray(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("KVM does not run a guest as it must: the trial guest {what}"),
    )
}

fn put(file: &OwnedFd, at: u64, bytes: &[u8]) -> io::Result<()> {
    match rustix::io::pwrite(file, bytes, at)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The trial guest's memory: the file's pages, private to this process once they are written.
struct Memory(NonNull<u8>);

impl Memory {
    fn map(file: &OwnedFd) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                BYTES as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
                file.as_fd(),
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self(start))
    }

    /// The word at `at`, one of this module's own places.
    fn word(&self, at: u64) -> u64 {
        // SAFETY: in bounds and aligned; the vCPU does not run.
        unsafe {
            self.0
                .as_ptr()
                .add(at as usize)
                .cast::<u64>()
                .read_volatile()
        }
    }

    fn set_word(&self, at: u64, word: u64) {
        // SAFETY: as above.
        unsafe {
            let place = self.0.as_ptr().add(at as usize).cast::<u64>();
            place.write_volatile(word);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing else refers to the mapping; no slot has it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), BYTES as usize) };
    }
}
