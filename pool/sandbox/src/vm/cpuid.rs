//! The CPUID table for KVM: the features that are supported here, leaf by leaf and bit by bit.
//!
//! The table decides which features with state KVM lets a guest use: the bits of XCR0, CR4 and
//! EFER, and the MSRs. So it lists only the features that the guest kernel needs, and those of the
//! instruction sets for which functions are compiled (`faasw_abi::isa`). A new CPU or KVM adds
//! nothing to it: no protection keys, no AVX-512, no nested virtualisation, no counters, no
//! paravirtual clock. Bits that are not listed here read as zero.
//!
//! If the CPU executes CPUID itself (`kvm-pvm` without CPUID faulting), or KVM adds features that
//! it cannot withhold (`kvm-pvm` with it), the table hides little. There the reset restores the
//! state that instructions reach all the same, and `faasw doctor` reports it.

use std::arch::x86_64::{__cpuid, __cpuid_count};

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};
use rustix::io::Errno;

/// The bits of one leaf that a guest may see.
struct Leaf {
    function: u32,
    index: u32,
    /// In each register, the bits that are taken from KVM.
    eax: u32,
    ebx: u32,
    ecx: u32,
    edx: u32,
}

const NONE: Leaf = Leaf {
    function: 0,
    index: 0,
    eax: 0,
    ebx: 0,
    ecx: 0,
    edx: 0,
};

/// Returns a word in which the bits with these numbers are set.
const fn bits(mut numbers: &[u32]) -> u32 {
    let mut bits = 0;
    while let [first, rest @ ..] = numbers {
        bits |= 1 << *first;
        numbers = rest;
    }
    bits
}

/// SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT.
const LEAF_1_ECX: u32 = bits(&[0, 9, 12, 13, 19, 20, 23]);
/// BMI1, AVX2, BMI2.
const LEAF_7_EBX: u32 = bits(&[3, 5, 8]);
/// LZCNT.
const EXTENDED_ECX: u32 = bits(&[5]);
/// x87, SSE and AVX: the states that a seed holds.
pub(crate) const STATES: u32 = bits(&[0, 1, 2]);

const XSAVE: u32 = 0xd;
const EXTENDED: u32 = 0x8000_0000;
const FEATURES: u32 = 0x8000_0001;
const ADDRESSES: u32 = 0x8000_0008;

/// All leaves that are supported.
const LEAVES: [Leaf; 8] = [
    // The maker of the CPU, by which KVM distinguishes between makers. The number of the last leaf
    // is set by hand.
    Leaf {
        ebx: u32::MAX,
        ecx: u32::MAX,
        edx: u32::MAX,
        ..NONE
    },
    Leaf {
        function: 1,
        // The instruction sets for which code is compiled; XSAVE, OSXSAVE, AVX.
        ecx: LEAF_1_ECX | bits(&[26, 27, 28]),
        // FPU, PSE, TSC, MSR, PAE, CMPXCHG8B, PGE, CMOV, MMX, FXSR, SSE, SSE2.
        edx: bits(&[0, 3, 4, 5, 6, 8, 13, 15, 23, 24, 25, 26]),
        ..NONE
    },
    Leaf {
        function: 7,
        ebx: LEAF_7_EBX,
        ..NONE
    },
    Leaf {
        function: XSAVE,
        eax: STATES,
        // The size of the area, for all states and for those that are on; KVM keeps the second
        // number up to date.
        ebx: u32::MAX,
        ecx: u32::MAX,
        ..NONE
    },
    Leaf {
        function: XSAVE,
        index: 2,
        // Size and place of AVX's part.
        eax: u32::MAX,
        ebx: u32::MAX,
        ..NONE
    },
    // The number of the last leaf is set by hand.
    Leaf {
        function: EXTENDED,
        ..NONE
    },
    Leaf {
        function: FEATURES,
        // LAHF in long mode.
        ecx: EXTENDED_ECX | bits(&[0]),
        // Pages without execution, long mode.
        edx: bits(&[20, 29]),
        ..NONE
    },
    Leaf {
        function: ADDRESSES,
        // Bits of physical and virtual addresses.
        eax: 0xffff,
        ..NONE
    },
];

/// Returns the table, made of the features that KVM supports on this CPU.
///
/// # Errors
/// Returns `TOOBIG` if the table has too many entries.
pub(crate) fn table(supported: &CpuId) -> Result<CpuId, Errno> {
    let entries: Vec<_> = LEAVES
        .iter()
        .filter_map(|leaf| allowed(leaf, supported.as_slice()))
        .collect();
    CpuId::from_entries(&entries).map_err(|_| Errno::TOOBIG)
}

fn allowed(leaf: &Leaf, supported: &[kvm_cpuid_entry2]) -> Option<kvm_cpuid_entry2> {
    let is_it = |entry: &&kvm_cpuid_entry2| {
        let index = match entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX {
            0 => 0,
            _ => entry.index,
        };
        entry.function == leaf.function && index == leaf.index
    };
    let offered = supported.iter().find(is_it)?;
    let mut entry = kvm_cpuid_entry2 {
        eax: offered.eax & leaf.eax,
        ebx: offered.ebx & leaf.ebx,
        ecx: offered.ecx & leaf.ecx,
        edx: offered.edx & leaf.edx,
        function: offered.function,
        index: offered.index,
        flags: offered.flags,
        ..kvm_cpuid_entry2::default()
    };
    // KVM's table may lack some of the instruction sets for which code is compiled (`kvm-pvm`
    // leaves LZCNT out). But no hypervisor can withhold them: they are not trapped, and have no
    // state of their own beyond what XCR0 governs.
    match (leaf.function, leaf.index) {
        (0, _) => entry.eax = offered.eax.min(XSAVE),
        (1, _) => entry.ecx |= __cpuid(1).ecx & LEAF_1_ECX,
        (7, _) => entry.ebx |= __cpuid_count(7, 0).ebx & LEAF_7_EBX,
        (XSAVE, 0) => entry.ecx = area(entry.eax),
        (EXTENDED, _) => entry.eax = offered.eax.min(ADDRESSES),
        (FEATURES, _) => entry.ecx |= __cpuid(FEATURES).ecx & EXTENDED_ECX,
        _ => {}
    }
    Some(entry)
}

/// Whether a vCPU's guest sees a feature that is not supported here: KVM may add to its table.
pub(crate) fn goes_beyond(cpuid: &CpuId) -> bool {
    cpuid.as_slice().iter().any(|entry| {
        let named = LEAVES
            .iter()
            .find(|leaf| leaf.function == entry.function && leaf.index == entry.index);
        let leaf = named.unwrap_or(&NONE);
        // The number of the last leaf is a number, not a set of bits. KVM itself sets the number of
        // the vCPU, and whether its interrupt controller is on.
        let is_last = matches!(entry.function, 0 | EXTENDED);
        let (ids, controller) = match entry.function {
            1 => (u32::MAX, bits(&[9])),
            _ => (0, 0),
        };
        (!is_last && entry.eax & !leaf.eax != 0)
            || entry.ebx & !(leaf.ebx | ids) != 0
            || entry.ecx & !leaf.ecx != 0
            || entry.edx & !(leaf.edx | controller) != 0
    })
}

/// Returns the size in bytes of the area for these states: x87 and SSE with a header, then AVX.
fn area(states: u32) -> u32 {
    match states >> 2 & 1 {
        0 => 576,
        _ => 576 + 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table with all features that a CPU could have.
    fn everything() -> CpuId {
        let functions = [
            0,
            1,
            2,
            6,
            7,
            XSAVE,
            0xf,
            0x12,
            0x14,
            0x4000_0000,
            0x4000_0001,
        ];
        let extended = [
            EXTENDED,
            FEATURES,
            ADDRESSES,
            0x8000_0007,
            0x8000_000a,
            0x8000_001f,
        ];
        let entries: Vec<_> = functions
            .into_iter()
            .chain(extended)
            .flat_map(|function| {
                (0..3).map(move |index| kvm_cpuid_entry2 {
                    function,
                    index,
                    flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
                    eax: u32::MAX,
                    ebx: u32::MAX,
                    ecx: u32::MAX,
                    edx: u32::MAX,
                    ..kvm_cpuid_entry2::default()
                })
            })
            .collect();
        CpuId::from_entries(&entries).unwrap()
    }

    fn entry(table: &CpuId, function: u32, index: u32) -> Option<kvm_cpuid_entry2> {
        let mut entries = table.as_slice().iter();
        entries
            .find(|entry| entry.function == function && entry.index == index)
            .copied()
    }

    #[test]
    fn nothing_gets_in_that_is_not_named() {
        let table = table(&everything()).unwrap();
        for entry in table.as_slice() {
            assert!(
                LEAVES.iter().any(|leaf| {
                    let is_it = leaf.function == entry.function && leaf.index == entry.index;
                    let by_hand = matches!(leaf.function, 0 | EXTENDED);
                    is_it
                        && (by_hand || entry.eax & !leaf.eax == 0)
                        && entry.ebx & !leaf.ebx == 0
                        && entry.ecx & !leaf.ecx == 0
                        && entry.edx & !leaf.edx == 0
                }),
                "{entry:?}"
            );
        }
        let of = |function, index| entry(&table, function, index).unwrap();
        assert_eq!(of(0, 0).eax, XSAVE);
        // Protection keys, AVX-512, SGX; the bit that shows a hypervisor.
        assert_eq!(of(7, 0).ecx | of(7, 0).edx | of(7, 0).eax, 0);
        assert_eq!(of(7, 0).ebx & bits(&[2, 16, 17, 28, 30, 31]), 0);
        assert_eq!(of(1, 0).ecx & bits(&[5, 31]), 0);
        assert_eq!(of(XSAVE, 0).eax, 0b111);
        assert_eq!(of(XSAVE, 0).ecx, 832);
        assert!(
            entry(&table, XSAVE, 1).is_none(),
            "XSAVES has states of its own"
        );
        assert!(entry(&table, 0x4000_0001, 0).is_none());
    }

    #[test]
    fn additions_to_the_cpuid_table_are_visible() {
        let table = table(&everything()).unwrap();
        assert!(!goes_beyond(&table));
        let with = |change: fn(&mut kvm_cpuid_entry2)| {
            let mut entries = table.as_slice().to_vec();
            entries.iter_mut().for_each(change);
            CpuId::from_entries(&entries).unwrap()
        };
        assert!(!goes_beyond(&with(|entry| match entry.function {
            1 => entry.ebx |= 7 << 24,
            XSAVE => entry.ebx = 576,
            _ => {}
        })));
        for change in [
            |entry: &mut kvm_cpuid_entry2| entry.edx |= 1 << 30,
            |entry: &mut kvm_cpuid_entry2| {
                if entry.function == 7 {
                    entry.ebx |= bits(&[16]);
                }
            },
            |entry: &mut kvm_cpuid_entry2| {
                if entry.function == XSAVE && entry.index == 0 {
                    entry.eax |= bits(&[9]);
                }
            },
            |entry: &mut kvm_cpuid_entry2| {
                if entry.function == FEATURES {
                    // A leaf that is not listed at all.
                    entry.function = 0x8000_000a;
                }
            },
        ] {
            assert!(goes_beyond(&with(change)));
        }
    }

    #[test]
    fn a_cpu_without_leaves_gets_none() {
        let none = table(&CpuId::from_entries(&[]).unwrap()).unwrap();
        assert!(none.as_slice().is_empty());
        let bare = kvm_cpuid_entry2 {
            function: XSAVE,
            eax: 0b11,
            ..kvm_cpuid_entry2::default()
        };
        let bare = table(&CpuId::from_entries(&[bare]).unwrap()).unwrap();
        assert_eq!(bare.as_slice()[0].ecx, 576);
    }
}
