//! Scripts of the carried engines, natively.

use std::sync::LazyLock;

use faasw_abi::outcome::Outcome;
use faasw_abi::script;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::Ready;
use faasw_runtime::testing::MemoryPlatform;
use faasw_wasm_runtimes::Carried;

use super::{Call, HttpComponent, compile, get};

/// An engine, compiled when a test needs it first.
pub struct ScriptEngine(LazyLock<Vec<u8>, fn() -> Vec<u8>>);

/// The memory limit that functions have if nobody says otherwise.
const MEMORY: u64 = 128 << 20;

/// Scripts of JavaScript.
pub static JAVASCRIPT: ScriptEngine =
    ScriptEngine(LazyLock::new(|| compiled(&faasw_wasm_runtimes::JAVASCRIPT)));

/// Scripts of Python.
pub static PYTHON: ScriptEngine =
    ScriptEngine(LazyLock::new(|| compiled(&faasw_wasm_runtimes::PYTHON)));

fn compiled(engine: &Carried) -> Vec<u8> {
    compile(HttpComponent, &engine.component().unwrap())
}

/// A GET of `path` with the usual memory.
pub fn asked(path: &str) -> Call {
    get(HttpComponent, path).memory(MEMORY)
}

impl ScriptEngine {
    /// What the engine becomes by a script of these files.
    pub fn init(
        &self,
        files: &[(&str, &[u8])],
        call: &Call,
    ) -> Result<Ready<MemoryPlatform>, Failure> {
        let mut ready = get(call.config.kind, "/").ready(&self.0).unwrap();
        ready.platform_mut().script = Some((script::write(files).unwrap(), 0));
        ready.take_script(call.config.clone())?;
        // What the request brings.
        let platform = ready.platform_mut();
        platform.request_body.clone_from(&call.body);
        platform.ring = call.ring;
        platform.arriving = call.arriving.clone().into();
        Ok(ready)
    }

    /// The same once it has answered its request.
    #[track_caller]
    pub fn answered(&self, files: &[(&str, &[u8])], call: Call) -> Ready<MemoryPlatform> {
        let mut ready = self
            .init(files, &call)
            .unwrap_or_else(|failure| panic!("{}", failure.report));
        ready
            .handle(call.request)
            .unwrap_or_else(|failure| panic!("{}", failure.report));
        ready
    }

    /// The text of its answer.
    #[track_caller]
    pub fn answer(&self, files: &[(&str, &[u8])], call: Call) -> String {
        let ready = self.answered(files, call);
        String::from_utf8(ready.platform().response_body.clone()).unwrap()
    }

    /// Why it does not take a script.
    #[track_caller]
    pub fn refused(&self, files: &[(&str, &[u8])]) -> String {
        match self.init(files, &asked("/")) {
            Ok(_) => panic!("it was taken"),
            Err(failure) => {
                assert_eq!(failure.outcome, Outcome::LoadFailed, "{failure}");
                failure.report
            }
        }
    }

    /// Why a request fails.
    #[track_caller]
    pub fn failed(&self, files: &[(&str, &[u8])], call: Call) -> String {
        let mut ready = self
            .init(files, &call)
            .unwrap_or_else(|failure| panic!("{}", failure.report));
        ready.handle(call.request).unwrap_err().report
    }
}
