//! Scripts of the included engines, natively.

use std::sync::LazyLock;

use faasw_abi::outcome::Outcome;
use faasw_abi::script;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::Ready;
use faasw_runtime::testing::MemoryPlatform;
use faasw_wasm_runtimes::BundledRuntime;

use super::{Call, HttpComponent, compile, get};

/// An engine, compiled at the first use.
pub struct ScriptEngine(LazyLock<Vec<u8>, fn() -> Vec<u8>>);

/// The default memory limit of functions.
const MEMORY: u64 = 128 << 20;

/// The engine of scripts in JavaScript.
pub static JAVASCRIPT: ScriptEngine =
    ScriptEngine(LazyLock::new(|| compiled(&faasw_wasm_runtimes::JAVASCRIPT)));

/// The engine of scripts in Python.
pub static PYTHON: ScriptEngine =
    ScriptEngine(LazyLock::new(|| compiled(&faasw_wasm_runtimes::PYTHON)));

fn compiled(engine: &BundledRuntime) -> Vec<u8> {
    compile(HttpComponent, &engine.component().unwrap())
}

/// Returns a GET of `path` with the default memory limit.
pub fn asked(path: &str) -> Call {
    get(HttpComponent, path).memory(MEMORY)
}

impl ScriptEngine {
    /// Returns the function that the engine becomes by a script of these files.
    pub fn init(
        &self,
        files: &[(&str, &[u8])],
        call: &Call,
    ) -> Result<Ready<MemoryPlatform>, Failure> {
        let mut ready = get(call.config.kind, "/").ready(&self.0).unwrap();
        ready.platform_mut().script = Some((script::write(files).unwrap(), 0));
        let bytes = ready.script_length()?;
        ready.take_script(bytes, call.config.clone(), call.files)?;
        // The request's part of the platform.
        let platform = ready.platform_mut();
        platform.request_body.clone_from(&call.body);
        platform.ring = call.ring;
        platform.secrets = call.encoded_secrets();
        platform.arriving = call.arriving.clone().into();
        Ok(ready)
    }

    /// Returns the function after it has answered its request.
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

    /// Returns the text of the function's response.
    #[track_caller]
    pub fn answer(&self, files: &[(&str, &[u8])], call: Call) -> String {
        let ready = self.answered(files, call);
        String::from_utf8(ready.platform().response_body.clone()).unwrap()
    }

    /// Returns the reason why the engine rejects a script.
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

    /// Returns the report of a failed request.
    #[track_caller]
    pub fn failed(&self, files: &[(&str, &[u8])], call: Call) -> String {
        let mut ready = self
            .init(files, &call)
            .unwrap_or_else(|failure| panic!("{}", failure.report));
        ready.handle(call.request).unwrap_err().report
    }
}
