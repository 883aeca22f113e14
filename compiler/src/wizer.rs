//! Initialisation by Wizer, except for running the code: instruments code so that its state can be
//! read, and makes a module that starts from such a state.
//!
//! The two steps run at different times and in different processes, and a guest runs in between.
//! The state that the guest reports is untrusted. If Wizer needs a value that is missing or of
//! another type, that is an error. The result is validated like any upload.

use std::{
    panic::{self, AssertUnwindSafe},
    task::{Context, Poll, Waker},
};

use crate::protocol::{FunctionKind, Refusal, RefusalKind};
use faasw_abi::memory_map::RAM_MAX;
use faasw_abi::state::{INITIALISER, Memory, RESUME, State, ValueType};
use wasmparser::{ValType, Validator, WasmFeatures};
use wasmtime_wizer::{ComponentInstanceState, InstanceState, SnapshotVal, Wizer};

use crate::{module::START, outline::exports_function};

/// The export that initialises a library before any of its other exports is called.
const REACTOR: &str = "_initialize";

/// Adds exports to `wasm` that show its state. Returns the reason if that is not possible.
pub fn instrument(wasm: &[u8], kind: FunctionKind, export: &str) -> Result<Vec<u8>, String> {
    if kind == FunctionKind::CgiModule && exports_function(wasm, REACTOR) {
        // Wizer removes this export, because it assumes that it was called.
        return Err(format!("it exports {REACTOR}, which faasw does not call"));
    }
    caught(|| {
        let wizer = wizer(wasm, kind, export);
        let instrumented = match kind {
            FunctionKind::CgiModule => wizer.instrument(wasm).map(|(_, wasm)| wasm),
            FunctionKind::HttpComponent | FunctionKind::CliComponent => {
                wizer.instrument_component(wasm).map(|(_, wasm)| wasm)
            }
        };
        let instrumented = instrumented.map_err(|error| format!("{error:#}"))?;
        validate(&instrumented)?;
        Ok(instrumented)
    })
}

/// Rewrites `wasm` so that it starts from `state`, which `export` has produced.
pub fn rewrite(
    wasm: &[u8],
    kind: FunctionKind,
    export: &str,
    state: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let rewritten = caught(|| {
        let state = State::decode(state).map_err(|error| error.to_string())?;
        let mut told = ReportedState {
            state: &state,
            missed: None,
        };
        let wizer = wizer(wasm, kind, export);
        let rewritten = match kind {
            FunctionKind::CgiModule => {
                let (context, _) = wizer
                    .instrument(wasm)
                    .map_err(|error| format!("{error:#}"))?;
                at_once(wizer.snapshot(&context, &mut told))?
            }
            FunctionKind::HttpComponent | FunctionKind::CliComponent => {
                let instrumented = wizer.instrument_component(wasm);
                let (context, _) = instrumented.map_err(|error| format!("{error:#}"))?;
                at_once(wizer.snapshot_component(&context, &mut told))?
            }
        };
        let rewritten = rewritten.map_err(|error| format!("{error:#}"))?;
        match told.missed {
            Some(what) => Err(what),
            None => validate(&rewritten).map(|()| rewritten),
        }
    });
    rewritten.map_err(|reason| {
        Refusal::new(
            RefusalKind::Unsupported,
            format!("no module can be made from its initialised state: {reason}"),
        )
    })
}

fn wizer(wasm: &[u8], kind: FunctionKind, export: &str) -> Wizer {
    let mut wizer = Wizer::new();
    wizer.init_func(export);
    match kind {
        // Calling the entry point again would initialise the module twice.
        FunctionKind::CgiModule if export == INITIALISER && exports_function(wasm, RESUME) => {
            wizer.func_rename(START, RESUME);
        }
        FunctionKind::CgiModule => {}
        // The component's modules may have exports of the same name, which must stay.
        FunctionKind::HttpComponent | FunctionKind::CliComponent => {
            wizer.keep_init_func(true);
        }
    }
    wizer
}

/// Validates the result, which a release build of Wizer does not do.
fn validate(wasm: &[u8]) -> Result<(), String> {
    let validated = Validator::new_with_features(WasmFeatures::all()).validate_all(wasm);
    validated
        .map(drop)
        .map_err(|error| format!("Wizer's result is invalid: {error}"))
}

/// Runs `work`, and turns a panic into an error: Wizer panics on some constructs that it does not
/// know.
fn caught(work: impl FnOnce() -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("Wizer does not support something in it".to_owned()))
}

/// Polls a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Err("Wizer waits".to_owned()),
    }
}

/// The state that a guest has reported, from which Wizer reads.
struct ReportedState<'a> {
    state: &'a State<'a>,
    /// The first value that was missing or of another type.
    missed: Option<String>,
}

impl ReportedState<'_> {
    fn miss(&mut self, name: &str, what: &str) {
        self.missed
            .get_or_insert_with(|| format!("its guest reported no {what} {name}"));
    }

    /// Returns the bits of a global.
    fn global(&mut self, name: &str, ty: ValueType) -> u128 {
        match self.state.globals.get(name) {
            Some(value) if value.ty == ty => value.bits,
            _ => {
                self.miss(name, "value of that type for the global");
                0
            }
        }
    }

    fn memory(&mut self, name: &str, contents: impl FnOnce(&[u8])) {
        // No guest has a larger memory than its RAM.
        let memory = self.state.memories.get(name);
        match memory.filter(|memory| memory.bytes <= RAM_MAX) {
            Some(memory) => contents(&whole(memory)),
            None => {
                self.miss(name, "possible memory");
                contents(&[]);
            }
        }
    }
}

/// Returns the whole contents of a memory, with its zeroes. If the process lacks the memory, the
/// allocator ends it.
fn whole(memory: &Memory<'_>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(memory.bytes).unwrap_or(usize::MAX)];
    for (offset, run) in &memory.runs {
        let start = usize::try_from(*offset).unwrap_or(usize::MAX);
        let place = bytes
            .get_mut(start..)
            .and_then(|rest| rest.get_mut(..run.len()));
        if let Some(place) = place {
            place.copy_from_slice(run);
        }
    }
    bytes
}

/// Returns the low 32 bits of a stored value.
fn low_32(bits: u128) -> u32 {
    (bits & u128::from(u32::MAX)) as u32
}

/// Returns the low 64 bits of a stored value.
fn low_64(bits: u128) -> u64 {
    (bits & u128::from(u64::MAX)) as u64
}

impl InstanceState for ReportedState<'_> {
    async fn global_get(&mut self, name: &str, ty: ValType) -> SnapshotVal {
        match ty {
            ValType::I32 => {
                SnapshotVal::I32(low_32(self.global(name, ValueType::I32)).cast_signed())
            }
            ValType::I64 => {
                SnapshotVal::I64(low_64(self.global(name, ValueType::I64)).cast_signed())
            }
            ValType::F32 => SnapshotVal::F32(low_32(self.global(name, ValueType::F32))),
            ValType::F64 => SnapshotVal::F64(low_64(self.global(name, ValueType::F64))),
            ValType::V128 => SnapshotVal::V128(self.global(name, ValueType::V128)),
            ValType::Ref(_) => {
                self.miss(name, "reference");
                SnapshotVal::I32(0)
            }
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        self.memory(name, contents);
    }
}

impl ComponentInstanceState for ReportedState<'_> {
    async fn call_func_ret_list_u8(
        &mut self,
        _: &str,
        func: &str,
        contents: impl FnOnce(&[u8]) + Send,
    ) {
        self.memory(func, contents);
    }

    async fn call_func_ret_s32(&mut self, _: &str, func: &str) -> i32 {
        low_32(self.global(func, ValueType::I32)).cast_signed()
    }

    async fn call_func_ret_s64(&mut self, _: &str, func: &str) -> i64 {
        low_64(self.global(func, ValueType::I64)).cast_signed()
    }

    async fn call_func_ret_f32(&mut self, _: &str, func: &str) -> u32 {
        low_32(self.global(func, ValueType::F32))
    }

    async fn call_func_ret_f64(&mut self, _: &str, func: &str) -> u64 {
        low_64(self.global(func, ValueType::F64))
    }
}
