//! The state that all host functions work on: one function's side of the store.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::wire::{FunctionKind, Pair, RequestHead, SeedConfig};
use wasmtime::Result;
use wasmtime::component::ResourceTable;

use crate::cgi::{self, Output};
use crate::descriptors::Descriptors;
use crate::draws::{Draws, Kind};
use crate::failure::RunEnd;
use crate::files::{FileSystem, Files, Node};
use crate::invocation::Invocation;
use crate::memory::{MemoryLimit, StartMemoryTooLarge};
use crate::platform::{Incoming, LogStream, Platform};
use crate::platform_proxy::PlatformProxy;
use crate::secrets::Secrets;

/// Maximum number of resources that a component may hold at one time.
const MAX_RESOURCES: usize = 16 << 10;

/// Maximum random bytes of one call.
const MAX_RANDOM: u64 = 1 << 20;

/// Bytes that are taken from the request body at a time.
const READ_CHUNK: usize = 4 << 10;

/// The meaning of a function's standard output and input.
#[derive(Debug)]
pub(crate) enum Stdio {
    /// Output goes to the log, and input is empty.
    Log,
    /// A command in CGI style: output is the response, and input is the request body.
    Command(Output),
}

/// Returns the folders that a core module has open before it runs.
fn preopened(files: Option<&Files>) -> Vec<Node> {
    let nodes = |files: &Files| files.preopened().map(|(node, _)| node).collect();
    files.map_or_else(|| nodes(&Files::default()), nodes)
}

/// The store's data of one function.
pub(crate) struct State<P> {
    pub(crate) platform: PlatformProxy<P>,
    pub(crate) table: ResourceTable,
    pub(crate) memory: MemoryLimit,
    pub(crate) draws: Draws,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The function's own environment. For commands, it also has the CGI variables during a
    /// request.
    pub(crate) environment: Vec<Pair>,
    /// Keys and values of the function's configuration.
    pub(crate) configuration: Vec<Pair>,
    pub(crate) secrets: Secrets,
    /// Names of the shared key-value stores that the function may open.
    pub(crate) stores: Vec<Vec<u8>>,
    pub(crate) stdio: Stdio,
    /// The descriptors of a core module.
    pub(crate) descriptors: Descriptors,
    /// The function's files, once it has used them or if it was deployed with some.
    pub(crate) files: Option<Box<Files>>,
    /// The `wasi:http` request in progress.
    pub(crate) invocation: Invocation,
    /// Whether the function may still declare its func-entry point.
    pub(crate) may_enter: bool,
    /// Whether the function is a command on its way to its func-entry point.
    pub(crate) runs_to_entry: bool,
}

impl<P: Platform> State<P> {
    /// Returns the state of a function none of whose code has run.
    pub(crate) fn new(config: SeedConfig, stdio: Stdio, files: Option<Files>, platform: P) -> Self {
        let mut table = ResourceTable::new();
        let preopened = match config.kind {
            FunctionKind::CgiModule => preopened(files.as_ref()),
            // Components have resources instead of descriptors.
            FunctionKind::HttpComponent | FunctionKind::CliComponent => Vec::new(),
        };
        table.set_max_capacity(MAX_RESOURCES);
        Self {
            platform: PlatformProxy::new(platform),
            table,
            memory: MemoryLimit::new(config.memory_limit),
            draws: Draws::default(),
            arguments: config.arguments,
            environment: config.environment,
            configuration: config.configuration,
            secrets: Secrets::named(config.secrets),
            stores: config.stores,
            stdio,
            descriptors: Descriptors::new(preopened),
            files: files.map(Box::new),
            invocation: Invocation::default(),
            may_enter: !config.tells_state,
            runs_to_entry: false,
        }
    }

    /// Turns an engine into the function that its script makes of it. Its earlier draws are
    /// dropped, because they are the engine's.
    ///
    /// # Errors
    /// Returns [`StartMemoryTooLarge`] if it uses more memory than the function may.
    pub(crate) fn become_function(
        &mut self,
        config: SeedConfig,
    ) -> Result<(), StartMemoryTooLarge> {
        self.memory.become_at_most(config.memory_limit)?;
        self.draws = Draws::default();
        self.arguments = config.arguments;
        self.environment = config.environment;
        self.configuration = config.configuration;
        self.secrets = Secrets::named(config.secrets);
        self.stores = config.stores;
        Ok(())
    }

    /// Returns the function's files for changes.
    pub(crate) fn file_system(&mut self) -> FileSystem<'_> {
        let now = self.platform.wall();
        let files = self.files.get_or_insert_default();
        files.with(&mut self.memory, now)
    }

    /// Begins a command's request: its environment then has CGI's variables, too.
    pub(crate) fn begin_command(&mut self, request: &RequestHead) {
        let variables = cgi::variables(request);
        self.environment
            .retain(|(name, _)| !variables.iter().any(|(other, _)| name == other));
        self.environment.extend(variables);
    }

    /// Takes at most `most` of the present bytes of the body that arrives on a channel.
    ///
    /// The buffer grows with the present bytes, not with `most`, so that a large read of a small
    /// body touches few pages.
    pub(crate) fn read_body(&mut self, channel: Channel, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut chunk = [0; READ_CHUNK];
        while bytes.len() < most {
            let wanted = READ_CHUNK.min(most - bytes.len());
            let room = chunk.get_mut(..wanted).unwrap_or_default();
            let taken = self.platform.read(channel, room);
            let Some(read) = room.get(..taken).filter(|read| !read.is_empty()) else {
                break;
            };
            bytes.extend_from_slice(read);
        }
        bytes
    }

    /// Discards the present bytes of the body that arrives on a channel, and returns the state
    /// afterwards.
    pub(crate) fn discard_rest(&mut self, channel: Channel) -> Incoming {
        let mut chunk = [0; READ_CHUNK];
        loop {
            match self.platform.incoming(channel) {
                Incoming::Ready => {
                    self.platform.read(channel, &mut chunk);
                }
                other => return other,
            }
        }
    }

    /// Writes to standard output. If that is the response, waits until there is space for it.
    ///
    /// # Errors
    /// Returns an `RunEnd`, which ends the run, if the response's head is too large.
    pub(crate) fn write_stdout(&mut self, bytes: &[u8]) -> Result<(), RunEnd> {
        match &mut self.stdio {
            Stdio::Log => self.platform.log(LogStream::Out, bytes),
            Stdio::Command(output) => output
                .write(bytes, self.invocation.is_head, &mut self.platform)
                .map_err(RunEnd::Refused)?,
        }
        Ok(())
    }

    /// Flushes standard output.
    pub(crate) fn flush_stdout(&mut self) {
        if let Stdio::Command(_) = self.stdio {
            self.platform.flush();
        }
    }

    /// Returns how many bytes standard output takes now without waiting.
    pub(crate) fn stdout_room(&self) -> usize {
        match self.stdio {
            Stdio::Log => usize::MAX,
            Stdio::Command(_) => self.platform.room(Channel::INVOCATION),
        }
    }

    /// Writes to standard error.
    pub(crate) fn write_stderr(&mut self, bytes: &[u8]) {
        self.platform.log(LogStream::Err, bytes);
    }

    /// Returns `count` random bytes for the import with that name.
    ///
    /// # Errors
    /// Returns a trap if `count` exceeds the maximum of one call.
    pub(crate) fn random(
        &mut self,
        kind: Kind,
        import: &'static str,
        count: u64,
    ) -> Result<Vec<u8>> {
        let Some(length) = usize::try_from(count).ok().filter(|_| count <= MAX_RANDOM) else {
            wasmtime::bail!(
                "{import}: {count} bytes requested; the maximum per call is {MAX_RANDOM}"
            );
        };
        let mut bytes = vec![0; length];
        self.platform.random(&mut bytes);
        self.draws.record(kind, import, length);
        Ok(bytes)
    }

    /// Returns a random number for the import with that name.
    pub(crate) fn random_u64(&mut self, kind: Kind, import: &'static str) -> u64 {
        let mut bytes = [0; size_of::<u64>()];
        self.platform.random(&mut bytes);
        self.draws.record(kind, import, bytes.len());
        u64::from_le_bytes(bytes)
    }
}
