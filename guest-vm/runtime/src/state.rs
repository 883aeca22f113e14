//! What all host functions work on: one function's side of the store.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use faasw_abi::channel::Channel;
use faasw_abi::wire::{Pair, RequestHead, SeedConfig};
use wasmtime::Result;
use wasmtime::component::ResourceTable;

use crate::cgi::{self, Output};
use crate::descriptors::Descriptors;
use crate::draws::{Draws, Kind};
use crate::exchange::Exchange;
use crate::failure::Ended;
use crate::files::Files;
use crate::front::Front;
use crate::memory::{MemoryLimit, StartMemoryTooLarge};
use crate::platform::{Incoming, LogStream, Platform};
use crate::secrets::Secrets;

/// Most resources that a component may hold at one time.
const MAX_RESOURCES: usize = 16 << 10;

/// Most random bytes that one call may ask for.
const MAX_RANDOM: u64 = 1 << 20;

/// Bytes taken from the request body at a time.
const READ_CHUNK: usize = 4 << 10;

/// Where a function's standard output goes and what its standard input is.
#[derive(Debug)]
pub(crate) enum Stdio {
    /// Output is log, input is empty.
    Log,
    /// A command in CGI style: output is the response, input the request body.
    Command(Output),
}

/// One function's side of the store.
pub(crate) struct State<P> {
    pub(crate) platform: Front<P>,
    pub(crate) table: ResourceTable,
    pub(crate) memory: MemoryLimit,
    pub(crate) draws: Draws,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The function's own environment; of commands, during a request, also the
    /// CGI variables.
    pub(crate) environment: Vec<Pair>,
    /// Keys and values of its configuration.
    pub(crate) configuration: Vec<Pair>,
    pub(crate) secrets: Secrets,
    pub(crate) stdio: Stdio,
    /// The descriptors of a core module.
    pub(crate) descriptors: Descriptors,
    /// Its files, where it was deployed with some.
    pub(crate) files: Option<Box<Files>>,
    /// The `wasi:http` request in progress.
    pub(crate) exchange: Exchange,
    /// Its own code may still say where it is to be frozen.
    pub(crate) may_enter: bool,
    /// It is a command on its way to where it is frozen.
    pub(crate) runs_ahead: bool,
}

impl<P: Platform> State<P> {
    /// The state of a function of which nothing has run.
    pub(crate) fn new(config: SeedConfig, stdio: Stdio, files: Option<Files>, platform: P) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_RESOURCES);
        Self {
            platform: Front::new(platform),
            table,
            memory: MemoryLimit::new(config.memory_limit),
            draws: Draws::default(),
            arguments: config.arguments,
            environment: config.environment,
            configuration: config.configuration,
            secrets: Secrets::named(config.secrets),
            stdio,
            descriptors: Descriptors::new(files.is_some()),
            files: files.map(Box::new),
            exchange: Exchange::default(),
            may_enter: !config.tells_state,
            runs_ahead: false,
        }
    }

    /// An engine becomes the function that its script makes of it; what it drew before is
    /// its own.
    ///
    /// # Errors
    /// When it uses more memory than the function may.
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
        Ok(())
    }

    /// Its files, what they are paid from, and the time; nothing where it has none.
    pub(crate) fn file_system(&mut self) -> Option<(&mut Files, &mut MemoryLimit, Duration)> {
        let now = self.platform.wall();
        let files = self.files.as_mut()?;
        Some((files, &mut self.memory, now))
    }

    /// A command's request begins: its environment has CGI's variables, too.
    pub(crate) fn begin_command(&mut self, request: &RequestHead) {
        let variables = cgi::variables(request);
        self.environment
            .retain(|(name, _)| !variables.iter().any(|(other, _)| name == other));
        self.environment.extend(variables);
    }

    /// Takes at most `most` bytes of the body that comes on a channel, of those that are there.
    ///
    /// Room grows with what is there, not with what was asked for, so that a
    /// large request for a small body touches few pages.
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

    /// Throws away what is there of the body that comes on a channel; says what is there then.
    pub(crate) fn rest_of(&mut self, channel: Channel) -> Incoming {
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

    /// Writes to standard output. Where that is the response, waits until
    /// there is room for it.
    ///
    /// # Errors
    /// The end of the run, when the response's head is too large.
    pub(crate) fn write_stdout(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        match &mut self.stdio {
            Stdio::Log => self.platform.log(LogStream::Out, bytes),
            Stdio::Command(output) => output
                .write(bytes, self.exchange.is_head, &mut self.platform)
                .map_err(Ended::Refused)?,
        }
        Ok(())
    }

    /// Sends what was written to standard output on its way.
    pub(crate) fn flush_stdout(&mut self) {
        if let Stdio::Command(_) = self.stdio {
            self.platform.flush();
        }
    }

    /// How many bytes standard output takes now without waiting.
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

    /// `count` random bytes for the import of that name.
    ///
    /// # Errors
    /// A trap when `count` is above what one call may ask for.
    pub(crate) fn random(
        &mut self,
        kind: Kind,
        import: &'static str,
        count: u64,
    ) -> Result<Vec<u8>> {
        let Some(length) = usize::try_from(count).ok().filter(|_| count <= MAX_RANDOM) else {
            wasmtime::bail!("{import}: {count} bytes asked for; at most {MAX_RANDOM} a call");
        };
        let mut bytes = vec![0; length];
        self.platform.random(&mut bytes);
        self.draws.record(kind, import, length);
        Ok(bytes)
    }

    /// A random number for the import of that name.
    pub(crate) fn random_u64(&mut self, kind: Kind, import: &'static str) -> u64 {
        let mut bytes = [0; size_of::<u64>()];
        self.platform.random(&mut bytes);
        self.draws.record(kind, import, bytes.len());
        u64::from_le_bytes(bytes)
    }
}
