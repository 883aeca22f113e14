//! The features of this CPU, which Wasmtime checks before it runs compiled code.

use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};

/// Reads the time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: reads a counter.
    unsafe { _rdtsc() }
}

/// Returns XCR0, whose bits name the vector state that the host saves; 0 if the register does not
/// exist.
fn saved_state(leaf1_ecx: u32) -> u32 {
    const OSXSAVE: u32 = 1 << 27;
    if leaf1_ecx & OSXSAVE == 0 {
        return 0;
    }
    let low: u32;
    // SAFETY: OSXSAVE means that the instruction exists; register 0 always does.
    unsafe {
        core::arch::asm!(
            "xgetbv",
            in("ecx") 0,
            out("eax") low,
            out("edx") _,
            options(nomem, nostack),
        );
    }
    low
}

/// Returns whether the CPU has a feature, by Cranelift's name for it; `None` for unknown names.
pub fn has(feature: &str) -> Option<bool> {
    const AVX_STATE: u32 = 0b110;
    let leaf1 = __cpuid(1);
    let leaf7 = __cpuid_count(7, 0);
    let extended = __cpuid(0x8000_0001);
    let avx_saved = saved_state(leaf1.ecx) & AVX_STATE == AVX_STATE;
    let bit = |register: u32, number: u32| register >> number & 1 == 1;
    Some(match feature {
        "sse3" => bit(leaf1.ecx, 0),
        "ssse3" => bit(leaf1.ecx, 9),
        "cmpxchg16b" => bit(leaf1.ecx, 13),
        "sse4.1" => bit(leaf1.ecx, 19),
        "sse4.2" => bit(leaf1.ecx, 20),
        "popcnt" => bit(leaf1.ecx, 23),
        "lzcnt" => bit(extended.ecx, 5),
        "bmi1" => bit(leaf7.ebx, 3),
        "bmi2" => bit(leaf7.ebx, 8),
        "avx" => avx_saved && bit(leaf1.ecx, 28),
        "avx2" => avx_saved && bit(leaf7.ebx, 5),
        "fma" => avx_saved && bit(leaf1.ecx, 12),
        _ => return None,
    })
}
