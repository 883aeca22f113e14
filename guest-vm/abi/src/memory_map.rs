//! Layout of guest-physical memory, on which host and guest agree.
//!
//! ```text
//! 0x0000_0000  unmapped, so that a null pointer faults
//! 0x0000_1000  boot page                          rw
//! 0x0000_2000  GDT and TSS                        rw
//! 0x0000_3000  IDT                                rw
//! 0x0000_4000  ring-0 exception stack             rw
//! 0x0000_5000  page tables made by the host       rw
//! 0x0010_0000  page tables made by the guest      rw   (TABLE_ZONE)
//! 0x0020_0000  guest text                         rx   2 MiB pages
//! 0x0060_0000  guest read-only data               r    2 MiB page
//! 0x0080_0000  guest data and bss                 rw   4 KiB pages
//! 0x00a0_0000  guard page, then the stack         rw   4 KiB pages
//! 0x00c0_0000  kernel heap                        rw   2 MiB pages
//! 0x0100_0000  frames: linear memories, tables…   rw   2 MiB pages
//!   RAM end
//! 0x10_0000_0000  mailbox                         rw   2 MiB pages
//! 0x10_4000_0000  compiled Wasm                   rx   2 MiB pages
//! ```
//!
//! All of this is mapped one to one, so a guest-physical address below [`LINEAR_BASE`] is also a
//! pointer. Read-only and writable parts never share a 2 MiB page, so that the read-only parts can
//! be large pages and shared on both sides. Linear memories live in virtual space only, from
//! [`LINEAR_BASE`] up.

/// Size of a small page and of a frame, in bytes.
pub const PAGE: u64 = 4096;
/// Size of a large page, in bytes.
pub const LARGE_PAGE: u64 = 2 << 20;

/// The boot page, see [`crate::boot`].
pub const BOOT_PAGE: u64 = 0x1000;
/// Global descriptor table; the task state segment is at [`TSS`] in the same page.
pub const GDT: u64 = 0x2000;
/// Task state segment.
pub const TSS: u64 = 0x2800;
/// Interrupt descriptor table (32 gates are filled).
pub const IDT: u64 = 0x3000;
/// Top of the stack on which exceptions enter ring 0 (exclusive).
pub const EXCEPTION_STACK_TOP: u64 = 0x5000;
/// Root page table. The tables that the host makes follow it.
pub const PML4: u64 = 0x5000;
/// End of the space for page tables made by the host (exclusive).
pub const HOST_TABLES_END: u64 = 0x10_0000;
/// Space for page tables that the guest makes, packed so that few pages are written.
pub const TABLE_ZONE: u64 = 0x10_0000;
/// End of the zone that starts at [`TABLE_ZONE`] (exclusive).
pub const TABLE_ZONE_END: u64 = 0x20_0000;

/// Bytes from one exception stub to the next. The stubs of the 32 exceptions are
/// the first thing in [`TEXT`].
pub const EXCEPTION_STUB_BYTES: u64 = 32;
/// Address of a routine behind the exception stubs that the host may run at privilege level 3 in a
/// paused guest. RDI points to a list of RSI addresses. The routine rewrites each word there with
/// its current value, and then rings [`crate::doorbell::Doorbell::Rewritten`]. A host that keeps
/// shadow page tables thereby detects the entries that it has changed itself.
pub const REWRITE: u64 = TEXT + 32 * EXCEPTION_STUB_BYTES;
/// Address of a second such routine, which only reads each word and then rings
/// [`crate::doorbell::Doorbell::Touched`]. The translations of these addresses are then present
/// before a request needs them.
pub const TOUCH: u64 = REWRITE + EXCEPTION_STUB_BYTES;

/// Guest text: executable, read-only.
pub const TEXT: u64 = 0x20_0000;
/// End of the space for guest text (exclusive).
pub const TEXT_END: u64 = 0x60_0000;
/// Guest read-only data.
pub const RODATA: u64 = 0x60_0000;
/// End of the space for read-only data (exclusive).
pub const RODATA_END: u64 = 0x80_0000;
/// Guest data and bss.
pub const DATA: u64 = 0x80_0000;
/// End of the space for data and bss (exclusive).
pub const DATA_END: u64 = 0xa0_0000;
/// Lowest page of the stack zone; it stays unmapped as a guard.
pub const STACK_GUARD: u64 = 0xa0_0000;
/// Top of the stack (exclusive).
pub const STACK_TOP: u64 = 0xc0_0000;
/// Kernel heap that exists from the start; further heap memory is taken from the frames.
pub const HEAP: u64 = 0xc0_0000;
/// End of the initial kernel heap (exclusive).
pub const HEAP_END: u64 = 0x100_0000;
/// First frame that the guest allocates.
pub const FRAMES: u64 = 0x100_0000;

/// Size of the window of frames that are allocated one by one and backed by small host pages. Above
/// it, frames are allocated as whole large pages. See `docs/decisions/0003-guest-memory.md`.
pub const SMALL_FRAME_WINDOW: u64 = 8 << 20;

/// RAM that a guest needs besides its linear memories, in bytes: everything below [`FRAMES`], the
/// window of small frames, and space for instance tables.
pub const RAM_OVERHEAD: u64 = FRAMES + SMALL_FRAME_WINDOW + (8 << 20);
/// Maximum RAM of a guest in bytes; bounded by the space for page tables above.
pub const RAM_MAX: u64 = 5 << 30;

/// The mailbox, see [`crate::mailbox`].
pub const MAILBOX: u64 = 0x10_0000_0000;
/// Compiled Wasm, which the host places and the guest executes in place.
pub const CODE: u64 = 0x10_4000_0000;
/// Maximum bytes of compiled Wasm.
pub const CODE_MAX: u64 = 1 << 30;

/// First virtual address that the guest allocates for linear memories and similar mappings.
pub const LINEAR_BASE: u64 = 0x80_0000_0000;

/// Bytes of RAM for a guest whose functions may use `memory_limit` bytes,
/// rounded up to a large page; `None` when that is more than [`RAM_MAX`].
#[must_use]
pub fn ram_bytes(memory_limit: u64) -> Option<u64> {
    let wanted = memory_limit
        .checked_add(RAM_OVERHEAD)?
        .checked_next_multiple_of(LARGE_PAGE)?;
    (wanted <= RAM_MAX).then_some(wanted)
}

/// Bits of a page-table entry that both sides set. The accessed and dirty bits are always set in
/// advance, because otherwise each first page walk would write the table.
pub mod pte {
    /// The entry maps something.
    pub const PRESENT: u64 = 1;
    /// The mapped memory is writable.
    pub const WRITABLE: u64 = 1 << 1;
    /// Privilege level 3 can use it. The whole guest runs there.
    pub const USER: u64 = 1 << 2;
    /// Accessed.
    pub const ACCESSED: u64 = 1 << 5;
    /// Dirty.
    pub const DIRTY: u64 = 1 << 6;
    /// The entry maps a 2 MiB page instead of a table.
    pub const LARGE: u64 = 1 << 7;
    /// The mapped memory is not executable (only if EFER.NXE is set).
    pub const NO_EXECUTE: u64 = 1 << 63;
    /// Mask of the physical address.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    /// An entry for a table, with every permission: the leaves decide.
    pub const TABLE: u64 = PRESENT | WRITABLE | USER | ACCESSED | DIRTY;
    /// A read-only leaf.
    pub const READ: u64 = PRESENT | USER | ACCESSED | DIRTY;
    /// A writable leaf.
    pub const READ_WRITE: u64 = READ | WRITABLE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_is_whole_large_pages_and_bounded() {
        let ram = ram_bytes(128 << 20).unwrap();
        assert_eq!(ram % LARGE_PAGE, 0);
        assert!(ram >= (128 << 20) + RAM_OVERHEAD);
        assert_eq!(ram_bytes(RAM_MAX), None);
        assert_eq!(ram_bytes(u64::MAX), None);
    }
}
