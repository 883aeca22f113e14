//! The engine settings, in one place for both sides.
//!
//! The compile helper makes code with `compile_config`; the guest and the native tests run it with
//! [`config`]. Wasmtime refuses code whose settings differ from the engine's. Its defaults depend
//! on cargo features and on the environment, so every setting that affects code is explicit here.

use core::num::NonZeroUsize;

#[cfg(feature = "compile")]
use faasw_abi::isa::Isa;
use wasmtime::{Collector, Config, Inlining, WasmBacktraceDetails, WasmFeatures};

/// Maximum bytes of stack that Wasm code may use. Host functions run below it on the same stack;
/// the guest's stack zone is twice this size.
pub const MAX_WASM_STACK: usize = 1 << 20;

/// Bytes of address space reserved for each linear memory: all that a 32-bit index can reach, so
/// that a memory never moves and needs no bounds checks.
pub const MEMORY_RESERVATION: u64 = 4 << 30;

/// Bytes of unmapped address space behind each linear memory. Constant offsets below it need no
/// bounds checks either.
pub const MEMORY_GUARD: u64 = 32 << 20;

/// Maximum number of frames of a backtrace.
pub const BACKTRACE_FRAMES: usize = 30;

/// Returns the Cranelift flags that an instruction set level turns on.
#[cfg(feature = "compile")]
fn cranelift_flags(isa: Isa) -> impl Iterator<Item = &'static str> {
    const V2: [&str; 6] = [
        "has_cmpxchg16b",
        "has_sse3",
        "has_ssse3",
        "has_sse41",
        "has_sse42",
        "has_popcnt",
    ];
    const V3: [&str; 6] = [
        "has_avx",
        "has_avx2",
        "has_fma",
        "has_bmi1",
        "has_bmi2",
        "has_lzcnt",
    ];
    let beyond: &[&str] = match isa {
        Isa::V2 => &[],
        Isa::V3 => &V3,
    };
    V2.into_iter().chain(beyond.iter().copied())
}

/// Returns the settings of the engine that runs functions.
///
/// Without `std` the caller adds the settings that only it can provide: `with_custom_code_memory`
/// and `detect_host_feature`.
#[must_use]
pub fn config() -> Config {
    let mut config = Config::new();

    // Memory. The guest maps pages itself: growing is page-table work. A copy-on-write image would
    // only be a second way to the same pages.
    config
        .signals_based_traps(true)
        .memory_reservation(MEMORY_RESERVATION)
        .memory_reservation_for_growth(0)
        .memory_may_move(false)
        .memory_guard_size(MEMORY_GUARD)
        .guard_before_linear_memory(true)
        .memory_init_cow(false);
    config
        .gc_heap_reservation(MEMORY_RESERVATION)
        .gc_heap_reservation_for_growth(0)
        .gc_heap_may_move(false)
        .gc_heap_guard_size(MEMORY_GUARD)
        .gc_heap_initial_size(0)
        .collector(Collector::DeferredReferenceCounting);

    // Filled tables are part of the seed. With lazy filling, the first request would write, and
    // thereby copy, their pages.
    config.table_lazy_init(false);
    config.max_wasm_stack(MAX_WASM_STACK);

    // Time is limited from outside: the sandbox stops the vCPU.
    config.consume_fuel(false).epoch_interruption(false);

    // Names and offsets for trap reports, but no DWARF, because nothing here parses it.
    config
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES))
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .generate_address_map(true)
        .debug_info(false)
        .debug_symbols(false)
        .native_unwind_info(false);

    config
        .compiler_inlining(Inlining::No)
        .relaxed_simd_deterministic(false)
        .concurrency_support(false)
        .shared_memory(false)
        .metadata_for_internal_asserts(false)
        .metadata_for_gc_heap_corruption(true);
    features(&mut config);
    config
}

/// Sets the Wasm features: all that Wasmtime considers stable, except threads. There is one vCPU,
/// so nothing could run beside the function.
fn features(config: &mut Config) {
    let on = WasmFeatures::WASM3 | WasmFeatures::GC_TYPES | WasmFeatures::COMPONENT_MODEL;
    let off = WasmFeatures::THREADS
        | WasmFeatures::SHARED_EVERYTHING_THREADS
        | WasmFeatures::CUSTOM_PAGE_SIZES
        | WasmFeatures::STACK_SWITCHING
        | WasmFeatures::WIDE_ARITHMETIC
        | WasmFeatures::LEGACY_EXCEPTIONS
        | WasmFeatures::CM_ASYNC
        | WasmFeatures::CM_ASYNC_STACKFUL
        | WasmFeatures::CM_MORE_ASYNC_BUILTINS
        | WasmFeatures::CM_THREADING
        | WasmFeatures::CM_ERROR_CONTEXT
        | WasmFeatures::CM_GC
        | WasmFeatures::CM_MAP
        | WasmFeatures::CM64
        | WasmFeatures::CM_FIXED_LENGTH_LISTS
        | WasmFeatures::CM_IMPLEMENTS;
    config.wasm_features(on, true).wasm_features(off, false);
}

/// Returns the settings of the engine that compiles functions for `isa`.
///
/// # Errors
/// Returns Wasmtime's error if this build of it cannot compile for x86-64 Linux.
#[cfg(feature = "compile")]
pub fn compile_config(isa: Isa) -> wasmtime::Result<Config> {
    let mut config = config();
    // Wasmtime queries this machine's features unless the target is named.
    config.target("x86_64-unknown-linux-gnu")?;
    config.cranelift_opt_level(wasmtime::OptLevel::Speed);
    for flag in cranelift_flags(isa) {
        // SAFETY: the flags only add instructions that `isa` promises, and the
        // engine that loads the code checks each against its own processor.
        unsafe { config.cranelift_flag_enable(flag) };
    }
    Ok(config)
}
