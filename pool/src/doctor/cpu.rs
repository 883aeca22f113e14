//! The CPU features that are visible to guests.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::fs;
use std::path::Path;

use faasw_sandbox::vm::VmTemplate;
use kvm_ioctls::Kvm;

use super::finding::Finding;

/// The components of extended state, by their bits in XCR0.
const COMPONENTS: [(u32, &str); 9] = [
    (1 << 0, "x87"),
    (1 << 1, "SSE"),
    (1 << 2, "AVX"),
    (0b11 << 3, "MPX"),
    (0b111 << 5, "AVX-512"),
    (1 << 9, "PKRU"),
    (1 << 17, "AMX"),
    (1 << 18, "AMX tiles"),
    (1 << 19, "APX"),
];

/// Reports whether KVM's CPUID table takes effect in guests.
pub fn finding() -> Finding {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_module = |name| Path::new("/sys/module").join(name).exists();
    let runs_on_the_cpu =
        has_module("kvm_pvm") && !has_module("kvm_amd") && !has_module("kvm_intel");
    let what = "CPUID";
    let why = if runs_on_the_cpu && !has_flag(&cpu, "cpuid_fault") {
        "this CPU answers CPUID of guests itself (kvm-pvm)"
    } else {
        match Kvm::new().map_err(Into::into).and_then(VmTemplate::new) {
            Ok(template) if template.reports_more_features() => {
                "KVM reports more CPU features to guests than configured (kvm-pvm)"
            }
            Ok(_) => {
                let detail = "guests see only the CPU features that functions are compiled for";
                return Finding::good(what, detail);
            }
            Err(error) => {
                return Finding::poor(what, format!("KVM's CPUID table cannot be read: {error}"));
            }
        }
    };
    let states = match __cpuid(0).eax {
        0xd.. => __cpuid_count(0xd, 0).eax,
        _ => 0b11,
    };
    let states = names(states);
    let detail = format!(
        "{why}: guests can use all instructions that the host enables; each reset restores their \
         state: {states}"
    );
    Finding::poor(what, detail)
}

/// Returns whether `/proc/cpuinfo` lists this flag.
fn has_flag(cpu: &str, flag: &str) -> bool {
    cpu.lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split_whitespace().any(|word| word == flag))
}

fn names(states: u32) -> String {
    let names: Vec<_> = COMPONENTS
        .iter()
        .filter(|(bits, _)| states & bits != 0)
        .map(|(_, name)| *name)
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_flags_are_reported_by_name() {
        assert_eq!(names(0b11), "x87, SSE");
        assert_eq!(names(0b10_1110_0111), "x87, SSE, AVX, AVX-512, PKRU");
        let cpu = "processor: 0\nflags\t\t: fpu cpuid cpuid_fault\n";
        assert!(has_flag(cpu, "cpuid_fault"));
        assert!(!has_flag("flags: cpuid_faults", "cpuid_fault"));
    }
}
