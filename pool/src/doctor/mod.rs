//! The capabilities of this host.

mod cpu;
mod finding;
mod kernel;
mod protection;

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;

use faasw_abi::isa::Isa;
use faasw_fri::userfault::Device;
use kvm_bindings::KVM_CAP_X86_MSR_FILTER;
use kvm_ioctls::{Cap, Kvm};

pub use self::finding::{Finding, FindingState};
use crate::confinement::Confinement;
use crate::error::StartError;
use crate::snapshots::has_small_pages;

/// The only KVM interface version.
const KVM_API: i32 = 12;

/// Checks that KVM can be used at all.
///
/// # Errors
/// Returns the reason why not, and the remedy.
pub fn check_kvm() -> Result<(), StartError> {
    open_kvm().map(|_| ())
}

fn open_kvm() -> Result<Kvm, StartError> {
    let opened = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .and_then(|file| file.metadata());
    match opened {
        Ok(metadata) if metadata.file_type().is_char_device() => {}
        // A regular file of that name, which careless scripts leave behind.
        Ok(_) => return Err(StartError::KvmMissing),
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::NotFound => StartError::KvmMissing,
                ErrorKind::PermissionDenied => StartError::KvmPermission,
                // The device file exists without a driver.
                _ if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                    StartError::KvmMissing
                }
                _ => StartError::KvmBroken(error),
            });
        }
    }
    let broken = |error: kvm_ioctls::Error| StartError::KvmBroken(error.into());
    let kvm = Kvm::new().map_err(broken)?;
    if kvm.get_api_version() != KVM_API {
        return Err(StartError::KvmLacks("API version 12"));
    }
    for (cap, name) in [
        (Cap::UserMemory, "user memory regions"),
        (Cap::ReadonlyMem, "read-only memory slots"),
        (Cap::ImmediateExit, "immediate exits"),
        (Cap::Xcrs, "extended control registers"),
    ] {
        if !kvm.check_extension(cap) {
            return Err(StartError::KvmLacks(name));
        }
    }
    Ok(kvm)
}

/// Returns the best instruction set that this CPU fully supports.
fn best_isa() -> Option<Isa> {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("sse3")
        && has!("ssse3")
        && has!("sse4.1")
        && has!("sse4.2")
        && has!("popcnt")
        && has!("cmpxchg16b");
    let v3 =
        has!("avx") && has!("avx2") && has!("fma") && has!("bmi1") && has!("bmi2") && has!("lzcnt");
    v2.then_some(if v3 { Isa::V3 } else { Isa::V2 })
}

/// Returns the instruction set to compile for.
///
/// # Errors
/// Returns [`StartError::IsaMissing`] if this CPU lacks the requested instruction set, or even the
/// smallest one.
pub fn choose_isa(wanted: Option<Isa>) -> Result<Isa, StartError> {
    let best = best_isa();
    let wanted = wanted.or(best).unwrap_or(Isa::V2);
    if best.is_some_and(|best| wanted <= best) {
        Ok(wanted)
    } else {
        Err(StartError::IsaMissing(wanted.name()))
    }
}

/// Examines everything that matters to a pool with this confinement. If a system-call filter kills
/// processes that make namespaces, it kills the calling process.
#[must_use]
pub fn findings(confinement: Confinement) -> Vec<Finding> {
    let mut findings = kvm();
    findings.push(match choose_isa(None) {
        Ok(Isa::V3) => Finding::good("CPU", "functions are compiled for x86-64-v3"),
        Ok(isa) => Finding::poor(
            "CPU",
            format!("functions are compiled for {isa}: this CPU lacks AVX2, FMA or BMI"),
        ),
        Err(error) => Finding::new("CPU", FindingState::Bad, error.to_string()),
    });
    findings.push(cpu::finding());
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    findings.push(match huge {
        Ok(setting) if !setting.contains("[never]") => Finding::good(
            "huge pages",
            "memory that functions grow comes in pages of 2 MiB",
        ),
        _ => Finding::poor(
            "huge pages",
            "transparent huge pages are off: memory that functions grow comes in pages of 4 KiB",
        ),
    });
    findings.push(paging());
    findings.extend(kernel::findings());
    findings.extend(protection::findings(confinement));
    findings
}

/// Examines KVM.
fn kvm() -> Vec<Finding> {
    let kvm = match open_kvm() {
        Ok(kvm) => kvm,
        Err(error) => return vec![Finding::new("KVM", FindingState::Bad, error.to_string())],
    };
    let mut findings = vec![Finding::good("KVM", "/dev/kvm works")];
    findings.push(if kvm.check_extension_raw(PRE_FAULT_MEMORY) > 0 {
        let detail = "second-level page tables can be filled in advance";
        Finding::good("prefill", detail)
    } else {
        let detail = "KVM_PRE_FAULT_MEMORY is missing: page tables fill on demand, which is slower";
        Finding::poor("prefill", detail)
    });
    if kvm.check_extension_raw(KVM_CAP_X86_MSR_FILTER.into()) <= 0 {
        findings.push(Finding::poor(
            "MSRs",
            "KVM cannot deny them (Linux 5.10 can): an instance that may have entered ring 0 is \
             ended instead of reset",
        ));
    }
    findings
}

/// Reports whether requests have to wait until a seed is completely read from disk.
fn paging() -> Finding {
    let what = "page faults";
    let why = match Device::open() {
        Err(error) => format!("/dev/userfaultfd cannot be used ({error})"),
        Ok(_) if !has_small_pages() => {
            "shared memory always gets large pages (shmem_enabled)".to_owned()
        }
        Ok(_) => {
            let detail = "requests begin before a seed is fully loaded from disk";
            return Finding::good(what, detail);
        }
    };
    let then = "a seed is read completely from disk before its first request runs";
    Finding::poor(what, format!("{why}: {then}"))
}

/// `KVM_CAP_PRE_FAULT_MEMORY`, which the bindings do not define yet.
const PRE_FAULT_MEMORY: std::ffi::c_ulong = 236;
