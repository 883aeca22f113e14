//! Initialisation by Wizer, but for the running: code that can be asked what it has become,
//! and, from what it said, a module that begins there.
//!
//! The two steps are apart in time and in process, and a guest stands between them. What it
//! says it has become is a stranger's word: whatever Wizer asks for and was not told, or was
//! told otherwise, is an error; what comes of the rest is validated like any upload.

use std::{
    panic::{self, AssertUnwindSafe},
    task::{Context, Poll, Waker},
};

use crate::protocol::{FunctionKind, Refusal, RefusalKind};
use faasw_abi::state::{INITIALISER, Memory, RESUME, State, ValueType};
use wasmparser::{ValType, Validator, WasmFeatures};
use wasmtime_wizer::{ComponentInstanceState, InstanceState, SnapshotVal, Wizer};

use crate::{module::START, outline::exports_function};

/// What a library is initialised by before anything else of it is called.
const REACTOR: &str = "_initialize";

/// `wasm` with exports that show its state, or why it cannot have them.
pub fn instrument(wasm: &[u8], kind: FunctionKind, export: &str) -> Result<Vec<u8>, String> {
    if kind == FunctionKind::CgiModule && exports_function(wasm, REACTOR) {
        // Wizer takes the export away, as what was called.
        return Err(format!("it exports {REACTOR}, which is not called here"));
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

/// `wasm` so that it begins with `state`, which `export` has made of it.
pub fn rewrite(
    wasm: &[u8],
    kind: FunctionKind,
    export: &str,
    state: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let rewritten = caught(|| {
        let state = State::decode(state).map_err(|error| error.to_string())?;
        let mut told = Told {
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
            format!("what it was initialised to cannot be made a module: {reason}"),
        )
    })
}

fn wizer(wasm: &[u8], kind: FunctionKind, export: &str) -> Wizer {
    let mut wizer = Wizer::new();
    wizer.init_func(export);
    match kind {
        // Calling it again would initialise it twice.
        FunctionKind::CgiModule if export == INITIALISER && exports_function(wasm, RESUME) => {
            wizer.func_rename(START, RESUME);
        }
        FunctionKind::CgiModule => {}
        // Its modules may have exports of the same name, which are not to go.
        FunctionKind::HttpComponent | FunctionKind::CliComponent => {
            wizer.keep_init_func(true);
        }
    }
    wizer
}

/// A release build of Wizer does not look.
fn validate(wasm: &[u8]) -> Result<(), String> {
    let validated = Validator::new_with_features(WasmFeatures::all()).validate_all(wasm);
    validated
        .map(drop)
        .map_err(|error| format!("what Wizer makes of it is not valid: {error}"))
}

/// Wizer panics at some of what it does not know.
fn caught(work: impl FnOnce() -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("Wizer does not know something in it".to_owned()))
}

/// What never waits.
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

/// What a guest told, for Wizer to ask.
struct Told<'a> {
    state: &'a State<'a>,
    /// What was not told as it was asked for, the first of it.
    missed: Option<String>,
}

impl Told<'_> {
    fn miss(&mut self, name: &str, what: &str) {
        self.missed
            .get_or_insert_with(|| format!("its guest told no {what} {name}"));
    }

    /// The bits of a global.
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
        match self.state.memories.get(name) {
            Some(memory) => contents(&whole(memory)),
            None => {
                self.miss(name, "memory");
                contents(&[]);
            }
        }
    }
}

/// A memory with its zeroes. What is too large for the process ends that.
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

/// A number of 32 bits that was told in 128.
fn low_32(bits: u128) -> u32 {
    (bits & u128::from(u32::MAX)) as u32
}

/// A number of 64 bits that was told in 128.
fn low_64(bits: u128) -> u64 {
    (bits & u128::from(u64::MAX)) as u64
}

impl InstanceState for Told<'_> {
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

impl ComponentInstanceState for Told<'_> {
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
