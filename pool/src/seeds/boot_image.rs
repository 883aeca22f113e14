//! The state of a guest when it boots: its image, page tables, descriptor tables and boot page in
//! RAM, and the first state of its vCPU.
//!
//! The state is made by plain writes into a layer, so that booting is a fork like any other. The
//! guest starts in long mode at privilege level 3: on hosts without hardware virtualisation, ring 0
//! is emulated one instruction at a time, so ring 0 only contains the exception stubs.

use faasw_abi::ABI_VERSION;
use faasw_abi::boot::{Activation, BOOT_MAGIC, BootPage, FLAG_NX};
use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_abi::memory_map::pte::{LARGE, NO_EXECUTE, READ, READ_WRITE, TABLE};
use faasw_abi::memory_map::{
    BOOT_PAGE, CODE, CODE_MAX, DATA, DATA_END, EXCEPTION_STACK_TOP, EXCEPTION_STUB_BYTES, GDT,
    HOST_TABLES_END, IDT, LARGE_PAGE, MAILBOX, PAGE, PML4, RAM_MAX, RODATA, RODATA_END,
    STACK_GUARD, STACK_TOP, TEXT, TEXT_END, TSS,
};
use faasw_fri::messages::VcpuState;
use faasw_sandbox::vm::ring3::system_registers;
use faasw_seedtree::LayerBuilder;
use kvm_bindings::{kvm_dtable, kvm_regs, kvm_xcrs};
use object::{Object, ObjectSegment};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::snapshots::gather;

const GIB: u64 = 1 << 30;
const ENTRIES: u64 = 512;

/// The selector of the exception stubs' code in the GDT below.
const RING0_CODE: u16 = 1 << 3;

/// Writes everything that a guest needs to boot, and returns the initial state of its vCPU. `ram`
/// must be empty. The tables map the most RAM that a guest can have, because a function forked from
/// it may have more than the guest boots with.
///
/// # Errors
/// Returns `NOEXEC` if the guest image is not the ELF file that this crate was built with, or the
/// error of writing to `ram`.
pub fn write(ram: &LayerBuilder) -> Result<Box<VcpuState>, Errno> {
    let entry = write_guest(ram)?;
    write_page_tables(ram)?;
    write_descriptor_tables(ram)?;
    let boot = BootPage {
        magic: BOOT_MAGIC,
        abi_version: ABI_VERSION,
        flags: FLAG_NX,
        ram_bytes: ram.bytes(),
        activation: Activation::default(),
    };
    ram.write(BOOT_PAGE, boot.as_bytes())?;
    Ok(Box::new(first_state(entry)))
}

fn write_guest(ram: &LayerBuilder) -> Result<u64, Errno> {
    let image = object::File::parse(faasw_bundled::GUEST).map_err(|_| Errno::NOEXEC)?;
    for segment in image.segments() {
        // The zeroed memory after the file's part needs no write: the layer is new.
        let content = segment.data().map_err(|_| Errno::NOEXEC)?;
        ram.write(segment.address(), content)?;
        if (TEXT..RODATA_END).contains(&segment.address()) {
            let start = segment.address() - segment.address() % LARGE_PAGE;
            let end = segment.address() + content.len() as u64;
            gather(ram, start, (end - start).next_multiple_of(LARGE_PAGE));
        }
    }
    Ok(image.entry())
}

/// Allocates pages for tables and collects their contents.
struct Tables<'a> {
    ram: &'a LayerBuilder,
    next: u64,
}

impl Tables<'_> {
    fn page(&mut self) -> Result<u64, Errno> {
        let page = self.next;
        self.next += PAGE;
        if self.next > HOST_TABLES_END {
            return Err(Errno::NOMEM);
        }
        Ok(page)
    }

    fn set(&self, table: u64, index: u64, entry: u64) -> Result<(), Errno> {
        self.ram
            .write(table + index * size_of::<u64>() as u64, entry.as_bytes())
    }

    /// Returns a page directory with large pages for `start..end`, at most 1 GiB.
    fn directory(&mut self, start: u64, end: u64, bits: u64) -> Result<u64, Errno> {
        let directory = self.page()?;
        let mut at = start;
        while at < end {
            self.set(directory, at / LARGE_PAGE % ENTRIES, at | bits | LARGE)?;
            at += LARGE_PAGE;
        }
        Ok(directory)
    }

    /// Returns a table of small pages for the 2 MiB at `start`; `bits` returns the bits of each
    /// entry for its address.
    fn small(&mut self, start: u64, bits: impl Fn(u64) -> u64) -> Result<u64, Errno> {
        let table = self.page()?;
        for index in 0..ENTRIES {
            let at = start + index * PAGE;
            let bits = bits(at);
            if bits != 0 {
                self.set(table, index, at | bits)?;
            }
        }
        Ok(table)
    }
}

const WRITTEN: u64 = READ_WRITE | NO_EXECUTE;

fn write_page_tables(ram: &LayerBuilder) -> Result<(), Errno> {
    let mut tables = Tables { ram, next: PML4 };
    let top = tables.page()?;
    let directories = tables.page()?;
    tables.set(top, 0, directories | TABLE)?;

    let mut directory_of_start = 0;
    let mut at = 0;
    while at < RAM_MAX {
        let end = RAM_MAX.min(at + GIB);
        let directory = tables.directory(at, end, WRITTEN)?;
        tables.set(directories, at / GIB, directory | TABLE)?;
        if at == 0 {
            directory_of_start = directory;
        }
        at += GIB;
    }
    for (start, end, bits) in [
        (TEXT, TEXT_END, READ),
        (RODATA, RODATA_END, READ | NO_EXECUTE),
    ] {
        for index in start / LARGE_PAGE..end / LARGE_PAGE {
            tables.set(
                directory_of_start,
                index,
                (index * LARGE_PAGE) | bits | LARGE,
            )?;
        }
    }
    // Page 0 and the page below the stack stay unmapped: null pointers and
    // overflows must fault.
    let low = tables.small(0, |at| if at == 0 { 0 } else { WRITTEN })?;
    let data = tables.small(DATA, |_| WRITTEN)?;
    let stack = tables.small(
        STACK_GUARD,
        |at| if at == STACK_GUARD { 0 } else { WRITTEN },
    )?;
    for (start, table) in [(0, low), (DATA, data), (STACK_GUARD, stack)] {
        tables.set(directory_of_start, start / LARGE_PAGE, table | TABLE)?;
    }

    let mailbox_end = MAILBOX + MAILBOX_BYTES.next_multiple_of(LARGE_PAGE);
    let mailbox = tables.directory(MAILBOX, mailbox_end, WRITTEN)?;
    let code = tables.directory(CODE, CODE + CODE_MAX, READ)?;
    tables.set(directories, MAILBOX / GIB, mailbox | TABLE)?;
    tables.set(directories, CODE / GIB, code | TABLE)
}

fn write_descriptor_tables(ram: &LayerBuilder) -> Result<(), Errno> {
    /// Present, 64-bit TSS, limit 0x67, base in bits 16 to 39.
    const TSS_DESCRIPTOR: u64 = 0x89 << 40 | 0x67 | (TSS & 0xff_ffff) << 16;
    let gdt: [u64; 8] = [
        0,
        0x00af_9b00_0000_ffff, // ring 0 code
        0x00cf_9300_0000_ffff, // ring 0 data
        0x00cf_fb00_0000_ffff, // ring 3 code, 32 bits; unused
        0x00cf_f300_0000_ffff, // ring 3 data
        0x00af_fb00_0000_ffff, // ring 3 code, 64 bits
        TSS_DESCRIPTOR,
        0,
    ];
    ram.write(GDT, gdt.as_bytes())?;
    // The stack pointer for ring 0 is the TSS's second field.
    ram.write(TSS + 4, EXCEPTION_STACK_TOP.as_bytes())?;
    for vector in 0..32_u64 {
        // Present interrupt gate; privilege level 3 may use the one of `int3`,
        // by which the guest flushes its TLB.
        let kind: u64 = if vector == 3 { 0xee } else { 0x8e };
        let stub = TEXT + vector * EXCEPTION_STUB_BYTES;
        let gate: [u64; 2] = [
            stub & 0xffff | u64::from(RING0_CODE) << 16 | kind << 40 | (stub >> 16 & 0xffff) << 48,
            stub >> 32,
        ];
        ram.write(IDT + vector * 16, gate.as_bytes())?;
    }
    Ok(())
}

/// Returns the initial state: long mode at privilege level 3, interrupts off.
fn first_state(entry: u64) -> VcpuState {
    const RFLAGS: u64 = 1 << 1 | 3 << 12; // reserved bit, IOPL 3
    const NXE: u64 = 1 << 11;

    let table = |base, limit| kvm_dtable {
        base,
        limit,
        ..kvm_dtable::default()
    };
    let mut sregs = system_registers(PML4, TSS);
    sregs.gdt = table(GDT, 63);
    sregs.idt = table(IDT, 511);
    sregs.efer |= NXE;
    let regs = kvm_regs {
        rip: entry,
        rsp: STACK_TOP,
        rflags: RFLAGS,
        ..kvm_regs::default()
    };
    let mut xcrs = kvm_xcrs {
        nr_xcrs: 1,
        ..kvm_xcrs::default()
    };
    if let Some(xcr0) = xcrs.xcrs.first_mut() {
        xcr0.value = enabled_state();
    }
    let mut state = VcpuState {
        regs: [0; 144],
        sregs: [0; 312],
        xcrs: [0; 392],
        xsave: [0; 4096],
    };
    state.regs.copy_from_slice(regs.as_bytes());
    state.sregs.copy_from_slice(sregs.as_bytes());
    state.xcrs.copy_from_slice(xcrs.as_bytes());
    // The control words of the x87 unit and of SSE as after a reset.
    write_at(&mut state.xsave, 0, &0x037f_u16.to_le_bytes());
    write_at(&mut state.xsave, 24, &0x1f80_u32.to_le_bytes());
    state
}

fn write_at(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(slot) = bytes.get_mut(at..at + value.len()) {
        slot.copy_from_slice(value);
    }
}

/// Returns XCR0: x87 and SSE, and AVX if the host has it. Never more, so that a guest has no state
/// that a seed does not hold.
fn enabled_state() -> u64 {
    if std::arch::is_x86_feature_detected!("avx") {
        0b111
    } else {
        0b011
    }
}

// The tables that a guest of any size needs fit their area, the last windows end where the next
// begin, and one directory suffices for the data window.
const _: () = assert!(
    PML4 + (7 + RAM_MAX / GIB) * PAGE < HOST_TABLES_END
        && DATA_END - DATA == LARGE_PAGE
        && STACK_TOP - STACK_GUARD == LARGE_PAGE
        && MAILBOX.is_multiple_of(GIB)
        && CODE.is_multiple_of(GIB)
        && CODE_MAX <= GIB
);

#[cfg(test)]
mod tests {
    use super::*;

    fn word(layer: &impl std::os::fd::AsFd, at: u64) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::pread(layer, &mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Walks the tables as the CPU does.
    fn walk(layer: &LayerBuilder, address: u64) -> Option<u64> {
        use faasw_abi::memory_map::pte::{ADDRESS, PRESENT};
        let mut table = PML4;
        for shift in [39, 30, 21, 12] {
            let entry = word(layer, table + (address >> shift & 511) * 8);
            if entry & PRESENT == 0 {
                return None;
            }
            if shift == 12 || entry & LARGE != 0 {
                let span = 1 << shift;
                assert_eq!((entry & ADDRESS & !(span - 1)) + address % span, address);
                return Some(entry);
            }
            table = entry & ADDRESS;
        }
        None
    }

    #[test]
    fn nothing_is_both_writable_and_executable_and_guards_are_unmapped() {
        use faasw_abi::memory_map::pte::WRITABLE;
        let ram = LayerBuilder::new("test", 64 << 20).unwrap();
        write(&ram).unwrap();
        let executable = |entry: u64| entry & NO_EXECUTE == 0;
        for address in (0..64 << 20).step_by(PAGE as usize) {
            match walk(&ram, address) {
                None => assert!([0, STACK_GUARD].contains(&address), "{address:#x}"),
                Some(entry) => {
                    assert!(
                        !(executable(entry) && entry & WRITABLE != 0),
                        "{address:#x}"
                    );
                    assert_eq!(executable(entry), (TEXT..TEXT_END).contains(&address));
                }
            }
        }
        assert!(walk(&ram, RAM_MAX - PAGE).is_some_and(|entry| !executable(entry)));
        assert_eq!(walk(&ram, RAM_MAX), None);
        assert!(walk(&ram, MAILBOX).is_some_and(|entry| !executable(entry)));
        assert!(walk(&ram, CODE).is_some_and(|entry| executable(entry) && entry & WRITABLE == 0));
    }

    #[test]
    fn the_guest_lies_where_its_entry_says() {
        let ram = LayerBuilder::new("test", 64 << 20).unwrap();
        let state = write(&ram).unwrap();
        let (regs, _) = <kvm_regs as zerocopy::FromBytes>::read_from_prefix(&state.regs).unwrap();
        assert!((TEXT..TEXT_END).contains(&regs.rip));
        assert_ne!(word(&ram, regs.rip), 0);
    }
}
