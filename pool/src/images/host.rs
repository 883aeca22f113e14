//! The conditions under which a snapshot is valid: the build that made it, and the processor and
//! system that it ran on.

use std::arch::x86_64::__cpuid_count;

use sha2::{Digest as _, Sha256};

/// The CPUID leaves that identify a processor and its features, and which of their words do:
/// vendor, family, model and stepping, features. The omitted words differ between a processor's
/// cores.
const LEAVES: [(u32, u32, [bool; 4]); 6] = [
    (0x0, 0, [false, true, true, true]),
    (0x1, 0, [true, false, true, true]),
    (0x7, 0, [false, true, true, true]),
    (0x7, 1, [true, true, true, true]),
    (0xD, 0, [true, false, true, true]),
    (0x8000_0001, 0, [false, false, true, true]),
];

/// Returns build, processor and system, as bytes to compare. A guest may have read CPUID, and
/// remembers it.
pub fn describe() -> Vec<u8> {
    [build(), machine()].concat()
}

/// Returns the digest of a part of it, as text.
pub fn digest(described: &[u8]) -> String {
    let digest = Sha256::digest(described);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the identity of the build.
pub fn build() -> Vec<u8> {
    let digests = [faasw_bundled::DIGEST, env!("FAASW_SOURCES_DIGEST")];
    digests.concat().into_bytes()
}

/// Returns the identity of processor and system.
pub fn machine() -> Vec<u8> {
    let mut described = Vec::new();
    let system = rustix::system::uname();
    for part in [system.release(), system.version()] {
        described.extend(part.to_bytes_with_nul());
    }
    for (leaf, index, identifies) in LEAVES {
        // The first leaf of each range contains the number of the last one.
        let highest = __cpuid_count(leaf & 0x8000_0000, 0).eax;
        if leaf > highest {
            described.push(0);
            continue;
        }
        let registers = __cpuid_count(leaf, index);
        let words = [registers.eax, registers.ebx, registers.ecx, registers.edx];
        let words = words
            .into_iter()
            .zip(identifies)
            .filter(|(_, identifies)| *identifies);
        described.extend(words.flat_map(|(word, _)| word.to_le_bytes()));
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_description_is_equal_on_all_cores_and_not_empty() {
        let here = describe();
        let there: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(describe))
            .map(|told| told.join().unwrap())
            .collect();
        assert!(there.iter().all(|told| *told == here));
        assert!(here.len() > faasw_bundled::DIGEST.len() + 40);
    }
}
