//! The executables that faasw contains.
//!
//! Each is a separate program, because each runs where the others must not: the guest inside the
//! VM, the sandbox around it, the compile helper next to both, and the processes with outside
//! connections apart from all of them. The build script builds them with the cargo that builds this
//! crate.

#![forbid(unsafe_code)]

/// The guest: a static ELF image for the addresses of the memory map.
pub static GUEST: &[u8] = include_bytes!(env!("FAASW_GUEST"));

/// The spawner and its sandboxes: a Linux executable.
pub static SANDBOX: &[u8] = include_bytes!(env!("FAASW_SANDBOX"));

/// The compile helper: a Linux executable.
pub static COMPILER: &[u8] = include_bytes!(env!("FAASW_COMPILER"));

/// Connector and workers: a Linux executable.
pub static EGRESS: &[u8] = include_bytes!(env!("FAASW_EGRESS"));

/// Sixteen hexadecimal digits, which change with any of the first three parts. A build does not
/// load code that was compiled by a build with other digits.
pub static DIGEST: &str = env!("FAASW_PARTS_DIGEST");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_an_elf_image_for_this_machine() {
        const X86_64: [u8; 2] = 62_u16.to_le_bytes();
        for part in [GUEST, SANDBOX, COMPILER, EGRESS] {
            assert_eq!(&part[..4], b"\x7fELF");
            assert_eq!(part[18..20], X86_64);
        }
    }
}
