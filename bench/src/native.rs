//! The native side of the compute benchmark: the same module, run in this process.
//!
//! Each run gets a fresh instance, as each request does on a node. Only the few WASI functions that
//! a small C program uses are present.

use std::time::Instant;

use anyhow::{Context, Result};
use wasmtime::{Caller, Config, Engine, Extern, Linker, Memory, Module, Store, bail};

use crate::kernel::{Answer, Kernel};

/// The module from which WASI preview 1 is imported.
const WASI: &str = "wasi_snapshot_preview1";
/// The most bytes that a run may print.
const OUTPUT_MAX: usize = 64 << 10;

/// WASI's error numbers that are needed here.
mod errno {
    pub const SUCCESS: i32 = 0;
    pub const BAD_DESCRIPTOR: i32 = 8;
    pub const CANNOT_SEEK: i32 = 70;
}

/// Cranelift's names for the features of x86-64-v3, a node's usual instruction set. This processor
/// may have more, but then the compiled code would differ.
const X86_64_V3: [&str; 12] = [
    "has_cmpxchg16b",
    "has_sse3",
    "has_ssse3",
    "has_sse41",
    "has_sse42",
    "has_popcnt",
    "has_avx",
    "has_avx2",
    "has_fma",
    "has_bmi1",
    "has_bmi2",
    "has_lzcnt",
];

/// The compiled module.
pub struct Native {
    engine: Engine,
    module: Module,
    linker: Linker<Run>,
}

/// The environment and the output of a run.
struct Run {
    /// `NAME=VALUE`, each with its final zero byte.
    environment: Vec<String>,
    output: Vec<u8>,
    begun: Instant,
}

impl Native {
    /// Compiles `wasm` as a node does.
    pub fn compile(wasm: &[u8]) -> Result<Self> {
        let engine = Engine::new(&config()?)?;
        let module = Module::new(&engine, wasm)?;
        let mut linker = Linker::new(&engine);
        link(&mut linker)?;
        Ok(Self {
            engine,
            module,
            linker,
        })
    }

    /// Runs one kernel in a fresh instance.
    pub fn run(&self, kernel: &Kernel) -> Result<Answer> {
        let run = Run {
            environment: vec![
                format!("PATH_INFO=/{}\0", kernel.name),
                format!("QUERY_STRING={}\0", kernel.query()),
            ],
            output: Vec::new(),
            begun: Instant::now(),
        };
        let mut store = Store::new(&self.engine, run);
        let instance = self.linker.instantiate(&mut store, &self.module)?;
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
        start.call(&mut store, ())?;
        let output = String::from_utf8(store.into_data().output)?;
        let (_, body) = output
            .split_once("\n\n")
            .context("the module printed no CGI response")?;
        Answer::parse(body)
    }
}

/// Returns a node's settings that affect the speed of code; the others are Wasmtime's defaults on
/// both sides.
fn config() -> Result<Config> {
    let mut config = Config::new();
    config.target("x86_64-unknown-linux-gnu")?;
    config.cranelift_opt_level(wasmtime::OptLevel::Speed);
    // On a node memories do not move, so code may keep their address.
    config.memory_may_move(false);
    // A node fills tables before it freezes a seed; lazily filled ones would
    // add a check to each indirect call.
    config.table_lazy_init(false);
    for flag in X86_64_V3 {
        // SAFETY: the flags only add instructions, and the engine checks each
        // against this processor before it runs code.
        unsafe { config.cranelift_flag_enable(flag) };
    }
    Ok(config)
}

/// Links the functions with which a C program reads its environment, reads the time and prints.
fn link(linker: &mut Linker<Run>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "environ_sizes_get", environ_sizes_get)?;
    linker.func_wrap(WASI, "environ_get", environ_get)?;
    linker.func_wrap(WASI, "clock_time_get", clock_time_get)?;
    linker.func_wrap(WASI, "fd_write", fd_write)?;
    linker.func_wrap(WASI, "fd_fdstat_get", fd_fdstat_get)?;
    linker.func_wrap(WASI, "fd_seek", |_: i32, _: i64, _: i32, _: i32| {
        errno::CANNOT_SEEK
    })?;
    linker.func_wrap(WASI, "fd_close", |_: i32| errno::SUCCESS)?;
    linker.func_wrap(WASI, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        bail!("the module exited with code {code}")
    })?;
    Ok(())
}

fn environ_sizes_get(
    mut caller: Caller<'_, Run>,
    count_at: u32,
    bytes_at: u32,
) -> wasmtime::Result<i32> {
    let environment = &caller.data().environment;
    let count = environment.len();
    let bytes = environment.iter().map(String::len).sum();
    store_size(&mut caller, count_at, count)?;
    store_size(&mut caller, bytes_at, bytes)
}

fn environ_get(
    mut caller: Caller<'_, Run>,
    mut pointers_at: u32,
    mut strings_at: u32,
) -> wasmtime::Result<i32> {
    for variable in caller.data().environment.clone() {
        store(&mut caller, pointers_at, &strings_at.to_le_bytes())?;
        store(&mut caller, strings_at, variable.as_bytes())?;
        pointers_at = pointers_at.wrapping_add(4);
        strings_at = strings_at.wrapping_add(u32::try_from(variable.len())?);
    }
    Ok(errno::SUCCESS)
}

fn clock_time_get(
    mut caller: Caller<'_, Run>,
    _clock: i32,
    _precision: i64,
    time_at: u32,
) -> wasmtime::Result<i32> {
    let nanoseconds = u64::try_from(caller.data().begun.elapsed().as_nanos())?;
    store(&mut caller, time_at, &nanoseconds.to_le_bytes())
}

fn fd_write(
    mut caller: Caller<'_, Run>,
    descriptor: i32,
    vectors_at: u32,
    vectors: u32,
    written_at: u32,
) -> wasmtime::Result<i32> {
    if !(1..=2).contains(&descriptor) {
        return Ok(errno::BAD_DESCRIPTOR);
    }
    let memory = memory(&mut caller)?;
    let mut written = Vec::new();
    for index in 0..vectors {
        let mut vector = [[0; 4]; 2];
        let at = u64::from(vectors_at) + u64::from(index) * 8;
        memory.read(&caller, usize::try_from(at)?, vector.as_flattened_mut())?;
        let [from, length] = vector.map(|word| u32::from_le_bytes(word) as usize);
        let bytes = memory
            .data(&caller)
            .get(from..)
            .and_then(|rest| rest.get(..length));
        let Some(bytes) = bytes else {
            bail!("the module writes from beyond its memory");
        };
        written.extend_from_slice(bytes);
    }
    let output = &mut caller.data_mut().output;
    if output.len() + written.len() > OUTPUT_MAX {
        bail!("the module prints too much");
    }
    if descriptor == 1 {
        output.extend_from_slice(&written);
    }
    store_size(&mut caller, written_at, written.len())
}

/// Describes the standard streams as pipes, on which libc buffers whole blocks.
fn fd_fdstat_get(
    mut caller: Caller<'_, Run>,
    descriptor: i32,
    stat_at: u32,
) -> wasmtime::Result<i32> {
    const STAT_BYTES: usize = 24;
    if !(0..=2).contains(&descriptor) {
        return Ok(errno::BAD_DESCRIPTOR);
    }
    // File type 0 means unknown, and the linked functions need no rights.
    store(&mut caller, stat_at, &[0; STAT_BYTES])
}

fn store_size(caller: &mut Caller<'_, Run>, at: u32, size: usize) -> wasmtime::Result<i32> {
    store(caller, at, &u32::try_from(size)?.to_le_bytes())
}

/// Writes into the module's memory and returns success.
fn store(caller: &mut Caller<'_, Run>, at: u32, bytes: &[u8]) -> wasmtime::Result<i32> {
    let memory = memory(caller)?;
    memory.write(caller, usize::try_from(at)?, bytes)?;
    Ok(errno::SUCCESS)
}

fn memory(caller: &mut Caller<'_, Run>) -> wasmtime::Result<Memory> {
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => bail!("the module exports no memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KERNELS;

    #[test]
    fn every_kernel_of_the_fixture_runs_and_repeats_itself() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/fixtures/compute/compute-cgi.wasm"
        );
        let native = Native::compile(&std::fs::read(path).unwrap()).unwrap();
        for kernel in KERNELS {
            let small = Kernel {
                amount: 10,
                ..kernel
            };
            let first = native.run(&small).unwrap();
            assert_eq!(
                first.result,
                native.run(&small).unwrap().result,
                "{}",
                kernel.name
            );
        }
        let fib = Kernel {
            amount: 20,
            ..KERNELS[0]
        };
        assert_eq!(native.run(&fib).unwrap().result, 6765);
    }
}
