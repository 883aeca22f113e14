//! The system registers of guests, which run at privilege level 3 only.

use kvm_bindings::{kvm_segment, kvm_sregs};

// Selectors into a guest's GDT; the low two bits are the privilege level.
const DATA: u16 = 4 << 3 | 3;
const CODE: u16 = 5 << 3 | 3;
const TASK: u16 = 6 << 3;

// PE MP ET NE WP AM PG
const CR0: u64 = 1 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 16 | 1 << 18 | 1 << 31;
// PAE OSFXSR OSXMMEXCPT OSXSAVE
const CR4: u64 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 18;
// LME LMA. Not SCE: `syscall` would enter ring 0 without a trace in memory.
const EFER: u64 = 1 << 8 | 1 << 10;

/// The value of the local APIC's base register after a reset: enabled, and of the bootstrap
/// processor. Guests have no local APIC.
const APIC_BASE: u64 = 0xfee0_0900;

/// Returns the registers of a guest in long mode whose page tables and task state are at these
/// addresses. It has no descriptor tables yet.
#[must_use]
pub fn system_registers(page_tables: u64, task_state: u64) -> kvm_sregs {
    let segment = |selector, type_, is_code: bool| kvm_segment {
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        dpl: 3,
        db: (!is_code).into(),
        s: 1,
        l: is_code.into(),
        g: 1,
        ..kvm_segment::default()
    };
    let data = segment(DATA, 3, false);
    kvm_sregs {
        cs: segment(CODE, 11, true),
        ds: data,
        es: data,
        fs: data,
        gs: data,
        ss: data,
        ldt: kvm_segment {
            type_: 2,
            unusable: 1,
            ..kvm_segment::default()
        },
        // A busy TSS.
        tr: kvm_segment {
            base: task_state,
            limit: 0x67,
            selector: TASK,
            type_: 11,
            present: 1,
            ..kvm_segment::default()
        },
        cr0: CR0,
        cr3: page_tables,
        cr4: CR4,
        efer: EFER,
        apic_base: APIC_BASE,
        ..kvm_sregs::default()
    }
}
