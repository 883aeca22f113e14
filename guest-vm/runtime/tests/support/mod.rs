//! Compiles functions as the compile helper does and runs them natively.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod archives;
pub mod calls;
pub mod scripts;
pub mod stores;

use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::{Arc, LazyLock};

use faasw_abi::files::upload::{Files, pack};
use faasw_abi::isa::Isa;
use faasw_abi::outcome::Outcome;
use faasw_abi::secrets::encode;
use faasw_abi::wire::{FunctionKind, Pair, RequestHead, ResponseHead, SeedConfig, SeedFiles};
use faasw_runtime::engine;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::{Linkers, Loaded, Prepared, Ready};
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::MemoryPlatform;
use wasmtime::{CustomCodeMemory, Engine};

pub use FunctionKind::{CgiModule, CliComponent, HttpComponent};
pub use faasw_abi::files::Kind;

const PAGE: usize = 4096;

pub static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut config = engine::config();
    config.with_custom_code_memory(Some(Arc::new(CodeInPlace)));
    Engine::new(&config).unwrap()
});

/// Code memory that is executable in place, as in the guest.
struct CodeInPlace;

impl CustomCodeMemory for CodeInPlace {
    fn required_alignment(&self) -> usize {
        PAGE
    }

    fn publish_executable(&self, _: *const u8, _: usize) -> wasmtime::Result<()> {
        Ok(())
    }

    fn unpublish_executable(&self, _: *const u8, _: usize) -> wasmtime::Result<()> {
        Ok(())
    }
}

static COMPILER: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(&engine::compile_config(Isa::V2).unwrap()).unwrap());

/// Returns a built fixture of the repository.
pub fn fixture(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Compiles Wasm, or WAT, with the compile helper's settings.
pub fn compile(kind: FunctionKind, wasm: &[u8]) -> Vec<u8> {
    compile_with(&COMPILER, kind, wasm)
}

pub fn compile_with(compiler: &Engine, kind: FunctionKind, wasm: &[u8]) -> Vec<u8> {
    match kind {
        HttpComponent | CliComponent => compiler.precompile_component(wasm).unwrap(),
        CgiModule => compiler.precompile_module(wasm).unwrap(),
    }
}

/// Loads compiled code as the guest does: in place, on whole pages.
pub fn load(kind: FunctionKind, code: &[u8]) -> Result<Loaded, Failure> {
    // SAFETY: a new anonymous mapping overlays nothing.
    let pages = unsafe {
        libc::mmap(
            ptr::null_mut(),
            code.len(),
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(pages, libc::MAP_FAILED);
    let pages = NonNull::new(pages.cast::<u8>()).unwrap();
    // SAFETY: the pages are new and as long as the code.
    unsafe { ptr::copy_nonoverlapping(code.as_ptr(), pages.as_ptr(), code.len()) };
    let code = NonNull::slice_from_raw_parts(pages, code.len());
    // SAFETY: compiled by this process with the helper's settings; never unmapped.
    unsafe { Loaded::from_raw(&ENGINE, code, kind) }
}

/// The configuration of a function, and a request to it.
pub struct Call {
    pub config: SeedConfig,
    pub request: RequestHead,
    pub body: Vec<u8>,
    pub ring: usize,
    pub arriving: Vec<Vec<u8>>,
    pub files: Option<&'static [u8]>,
    /// Names and values of the secrets that arrive with the request.
    pub secret_values: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The result of a call.
#[derive(Debug)]
pub struct Answer {
    pub result: Result<(), Failure>,
    pub head: Option<ResponseHead>,
    pub body: Vec<u8>,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub waits: usize,
    /// The trailers, once the body was finished.
    pub finished: Option<Vec<Pair>>,
}

pub fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Returns a GET of `path` for a function with 128 MiB, no environment and no configuration.
pub fn get(kind: FunctionKind, path: &str) -> Call {
    Call {
        config: SeedConfig {
            kind,
            tells_state: false,
            has_entry: false,
            memory_limit: 128 << 20,
            arguments: vec![bytes("fn")],
            environment: Vec::new(),
            configuration: Vec::new(),
            secrets: Vec::new(),
            stores: Vec::new(),
            files: None,
        },
        request: RequestHead {
            method: bytes("GET"),
            scheme: bytes("http"),
            authority: bytes("example.org:8080"),
            path_and_query: bytes(path),
            script_name: bytes("/fn"),
            remote_address: bytes("192.0.2.7"),
            protocol: bytes("HTTP/1.1"),
            headers: Vec::new(),
        },
        body: Vec::new(),
        ring: 1 << 20,
        arriving: Vec::new(),
        files: None,
        secret_values: Vec::new(),
    }
}

impl Call {
    pub fn method(mut self, method: &str) -> Self {
        self.request.method = bytes(method);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request.headers.push((bytes(name), bytes(value)));
        self
    }

    /// Sets the path at which the client reached the function; empty for a host of its own.
    pub fn prefix(mut self, path: &str) -> Self {
        self.request.script_name = bytes(path);
        self
    }

    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.config.environment.push((bytes(name), bytes(value)));
        self
    }

    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.config.configuration.push((bytes(key), bytes(value)));
        self
    }

    pub fn secret(mut self, name: &str) -> Self {
        self.config.secrets.push(bytes(name));
        self
    }

    /// Adds a secret whose value arrives with the request.
    pub fn secret_value(mut self, name: &str, value: &str) -> Self {
        self.secret_values.push((bytes(name), bytes(value)));
        self.secret(name)
    }

    /// Returns what the channel of secrets has during the request, which is open if there are
    /// values.
    pub fn encoded_secrets(&self) -> Option<Vec<u8>> {
        let values = self.secret_values.iter();
        let values: Vec<(&[u8], &[u8])> = values.map(|(name, value)| (&**name, &**value)).collect();
        (!values.is_empty()).then(|| encode(&values))
    }

    /// Adds the name of a shared key-value store that the function may open.
    pub fn store(mut self, name: &str) -> Self {
        self.config.stores.push(bytes(name));
        self
    }

    pub fn argument(mut self, argument: &str) -> Self {
        self.config.arguments.push(bytes(argument));
        self
    }

    /// Adds files to the function, mounted at `mount`: for each folder, link and file the kind, the
    /// path and the content.
    pub fn files(mut self, mount: &str, files: &[(Kind, &str, &[u8])]) -> Self {
        let mut upload = Files::default();
        for (kind, path, content) in files {
            upload.add(*kind, path, content);
        }
        let bundle = pack(&upload.into_bytes()).unwrap();
        self.config.files = Some(SeedFiles {
            bytes: bundle.len() as u64,
            mount: mount.into(),
            freeze_at: None,
        });
        self.files = Some(bundle.leak());
        self
    }

    pub fn memory(mut self, bytes: u64) -> Self {
        self.config.memory_limit = bytes;
        self
    }

    /// Sets the bytes of the response that are taken until the function waits for space.
    pub fn ring(mut self, bytes: usize) -> Self {
        self.ring = bytes;
        self
    }

    /// Sets the pieces of the request's body that arrive while the function waits.
    pub fn arriving(mut self, pieces: &[&[u8]]) -> Self {
        self.arriving = pieces.iter().map(|piece| piece.to_vec()).collect();
        self
    }

    /// Returns the function before its request, or the reason why it did not become ready.
    pub fn ready(&self, code: &[u8]) -> Result<Ready<MemoryPlatform>, Failure> {
        let mut platform = MemoryPlatform::new(1);
        platform.request_body = self.body.clone();
        platform.ring = self.ring;
        platform.arriving = self.arriving.clone().into();
        let loaded = load(self.config.kind, code)?;
        Prepared::new(
            &Linkers::new(&ENGINE).unwrap(),
            loaded,
            self.config.clone(),
            self.files,
            platform,
        )
        .and_then(Prepared::instantiate)
        .map_err(|unready| unready.failure)
    }

    /// Runs the function with its request.
    pub fn run(self, code: &[u8]) -> Answer {
        let mut ready = match self.ready(code) {
            Ok(ready) => ready,
            Err(failure) => panic!("not ready: {failure}"),
        };
        let result = ready.handle(self.request);
        let platform = ready.platform();
        Answer {
            result,
            head: platform.response_head.clone(),
            body: platform.response_body.clone(),
            finished: platform.finished.clone(),
            out: platform.logged(LogStream::Out),
            err: platform.logged(LogStream::Err),
            waits: platform.waits.len(),
        }
    }
}

impl Answer {
    /// Returns the report of the expected failure.
    #[track_caller]
    pub fn failure(&self, outcome: Outcome) -> &str {
        match &self.result {
            Ok(()) => panic!("a response where {outcome:?} was expected: {self:?}"),
            Err(failure) => {
                assert_eq!(failure.outcome, outcome, "{failure}");
                &failure.report
            }
        }
    }

    /// Returns the head of the expected response.
    #[track_caller]
    pub fn head(&self) -> &ResponseHead {
        if let Err(failure) = &self.result {
            panic!("{:?}: {failure}", failure.outcome);
        }
        self.head.as_ref().expect("a head was sent")
    }

    /// Returns the text of the expected response, whose status must be 200.
    #[track_caller]
    pub fn text(&self) -> &str {
        assert_eq!(self.head().status, 200);
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the values of a response header.
    #[track_caller]
    pub fn header(&self, name: &str) -> Vec<&[u8]> {
        values(&self.head().headers, name)
    }
}

pub fn values<'a>(pairs: &'a [Pair], name: &str) -> Vec<&'a [u8]> {
    pairs
        .iter()
        .filter(|(other, _)| other == name.as_bytes())
        .map(|(_, value)| value.as_slice())
        .collect()
}
