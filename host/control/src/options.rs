//! What a deployment may choose about its function.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use faasw_abi::files::is_mount;
use faasw_words::{FreezePolicy, POLL_MAX};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{HostName, Outbound, SecretName, StoreName, TimeLimit, WarmUpRequest, spelling};

/// Least memory limit: one Wasm page, in bytes.
const LEAST_MEMORY: u64 = 64 << 10;

/// Longest name of an export that initialises, in bytes.
const LONGEST_EXPORT: usize = 1024;

/// Most bytes of the texts of all requests that warm a function up.
const LARGEST_WARM_UPS: usize = 16 << 10;

/// Longest key of a configuration, in bytes.
const LONGEST_KEY: usize = 256;

/// Most stores that a function shares.
const MOST_STORES: usize = 32;

/// Most grants of requests that a function makes.
const MOST_OUTBOUND: usize = 64;

/// Most secrets that a function reads.
const MOST_SECRETS: usize = 32;

/// Most arguments of a function.
const MOST_ARGUMENTS: usize = 64;

/// Most bytes of all of them together.
const ARGUMENT_BYTES: usize = 8 << 10;

/// Longest text that says where something came from, in bytes.
const LONGEST_SOURCE: usize = 1024;

/// Most bytes of a configuration's keys and values together. The line of the request that deploys it takes fewer
/// of some, as it spells them: short keys, each with a name of the parameter, and letters that it spells as
/// three bytes for one. There a client says so ([`ClientError::TooLong`](crate::ClientError::TooLong)).
pub const CONFIGURATION_BYTES: usize = 16 << 10;

/// Longest time limit. A request that may hold a microVM for longer than a
/// day is a job, not a request.
const LONGEST_TIME: Duration = Duration::from_secs(24 * 3600);

/// Options of one function; what is left out follows the node's limits.
///
/// ```
/// use std::time::Duration;
/// use faasw_control::FunctionOptions;
///
/// let options = FunctionOptions::default()
///     .env("GREETING", "hello")
///     .memory(64 << 20)
///     .first_byte(Duration::from_millis(500))
///     .concurrency(20);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionOptions {
    environment: Vec<(String, String)>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    configuration: BTreeMap<String, String>,
    /// Bytes.
    memory: Option<u64>,
    /// Microseconds.
    times_us: BTreeMap<TimeLimit, u64>,
    #[serde(with = "spelling::freeze")]
    freeze: FreezePolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    init: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warm_ups: Vec<WarmUpRequest>,
    concurrency: Option<usize>,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_us: Option<u64>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    hosts: BTreeSet<HostName>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    stores: BTreeSet<StoreName>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    outbound: BTreeSet<Outbound>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    secrets: BTreeSet<SecretName>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    bound_secrets: BTreeMap<SecretName, BTreeSet<Outbound>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<String>,
    /// Where its files are, if somewhere else than at `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    files_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freeze_at: Option<String>,
    /// Means nothing to whoever runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// Whether a text can be a key of a configuration.
pub(crate) fn is_key(text: &str) -> bool {
    let is_long = text.len() > LONGEST_KEY;
    !text.is_empty() && !is_long && !text.contains(|c: char| c == '=' || c.is_control())
}

/// Why options were refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionsError {
    /// A variable that no environment can hold.
    #[error(
        "{0:?} cannot be an environment variable: a name is not empty and has neither = nor a zero byte, a value has no zero byte"
    )]
    Environment(String),
    /// A key that no configuration can have.
    #[error(
        "{0:?} cannot be a key of the configuration: it has 1 to {LONGEST_KEY} bytes, without = and control characters"
    )]
    Key(String),
    /// A configuration that is too large.
    #[error(
        "the configuration takes {0} bytes; keys and values take {CONFIGURATION_BYTES} at most"
    )]
    Configuration(usize),
    /// Too many shared stores.
    #[error("a function shares {MOST_STORES} stores at most, not {0}")]
    Stores(usize),
    /// Too many grants of requests.
    #[error("a function has {MOST_OUTBOUND} grants of outbound requests at most, not {0}")]
    Outbound(usize),
    /// Too many secrets.
    #[error("a function reads {MOST_SECRETS} secrets at most, not {0}")]
    Secrets(usize),
    /// A function is to read a secret, and not to.
    #[error("{0} cannot be both a secret that the function reads and one that is bound to hosts")]
    SecretReadAndBound(SecretName),
    /// Others could read it on its way, or anybody could be sent it.
    #[error("a secret is bound to `https://` and a host, not to {0}: that is who gets it")]
    SecretBound(Outbound),
    /// A secret is bound to too much.
    #[error("a secret is bound to {MOST_OUTBOUND} hosts at most, not {0}")]
    SecretHosts(usize),
    /// An argument that no program can have.
    #[error("an argument has no zero byte: {0:?}")]
    Argument(String),
    /// Too many arguments, or too long ones.
    #[error(
        "a function has {MOST_ARGUMENTS} arguments of {ARGUMENT_BYTES} bytes together at most, not {0} of {1}"
    )]
    Arguments(usize, usize),
    /// A path that no files can be at.
    #[error(
        "{0:?} is no place for files: that is / or an absolute path, without a slash at its end, . and .."
    )]
    FilesAt(String),
    /// What is no absolute path of a file.
    #[error("{0:?} is no file to be frozen at: that is an absolute path, without . and ..")]
    FreezeAt(String),
    /// A text that says nothing of where something came from.
    #[error("a source is told by 1 to {LONGEST_SOURCE} bytes without control characters")]
    Source,
    /// What it asks for by this name would be one or the other.
    #[error("{0} cannot be both a secret and a key of the configuration")]
    SecretInConfiguration(SecretName),
    /// Too little memory.
    #[error("a memory limit of {0} bytes is less than the least, {LEAST_MEMORY} bytes")]
    Memory(u64),
    /// No time, or too much.
    #[error("a limit {limit} of {} s is not between 1 ms and {} s", .value.as_secs_f64(), LONGEST_TIME.as_secs())]
    TimeLimit {
        /// Which one, as flags and parameters spell it.
        limit: &'static str,
        /// What was asked for.
        value: Duration,
    },
    /// An export that cannot be named, or is called too late to matter.
    #[error("{0}")]
    Init(&'static str),
    /// Requests that cannot warm the function up.
    #[error("{0}")]
    WarmUps(&'static str),
    /// Instances that look for longer than is sensible.
    #[error(
        "instances look for requests for {} at most",
        spelling::poll::word(POLL_MAX)
    )]
    Poll,
    /// No request could ever run.
    #[error("a concurrency of 0 would refuse every request; remove the function instead")]
    Concurrency,
}

impl FunctionOptions {
    /// Adds an environment variable; a later one of the same name replaces it.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.environment.retain(|(other, _)| *other != name);
        self.environment.push((name, value.into()));
        self
    }

    /// Sets a value of the function's configuration; a later one of the same key replaces it. The
    /// function reads it by `wasi:config/store` or Spin's `variables`. Whoever may ask the node about its
    /// functions sees it: that is no place for secrets ([`FunctionOptions::secret`]).
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.configuration.insert(key.into(), value.into());
        self
    }

    /// Sets the most memory that the function's linear memories may take together, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the CPU time that a request's instance may take.
    #[must_use]
    pub fn cpu_time(self, limit: Duration) -> Self {
        self.time(TimeLimit::CpuTime, limit)
    }

    /// Sets the wall time from the fork to the first byte of the response.
    #[must_use]
    pub fn first_byte(self, limit: Duration) -> Self {
        self.time(TimeLimit::Timeout, limit)
    }

    /// Sets for how long a client may take or send nothing while the function
    /// waits for it.
    #[must_use]
    pub fn idle_client(self, limit: Duration) -> Self {
        self.time(TimeLimit::IdleClient, limit)
    }

    /// Sets for how long the function may take or send nothing after its
    /// first byte.
    #[must_use]
    pub fn idle_guest(self, limit: Duration) -> Self {
        self.time(TimeLimit::IdleGuest, limit)
    }

    /// Sets the wall time from the fork to the end of the request.
    #[must_use]
    pub fn total_time(self, limit: Duration) -> Self {
        self.time(TimeLimit::TotalTime, limit)
    }

    /// Sets how many requests of the function run at once, whatever their
    /// versions; further ones are answered with 503.
    #[must_use]
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = Some(requests);
        self
    }

    /// Sets for how long an instance of the function looks for the next request by itself at most, whatever
    /// the node's functions do otherwise; not at all, with no time.
    #[must_use]
    pub fn poll(mut self, most: Duration) -> Self {
        self.poll_us = Some(u64::try_from(most.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// How long its instances look for requests at most, unless that follows the node's.
    #[must_use]
    pub fn own_poll(&self) -> Option<Duration> {
        self.poll_us.map(Duration::from_micros)
    }

    /// Sets one of the times.
    #[must_use]
    pub fn time(mut self, limit: TimeLimit, value: Duration) -> Self {
        let microseconds = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.times_us.insert(limit, microseconds);
        self
    }

    /// Sets when the function's seed is frozen.
    #[must_use]
    pub fn freeze(mut self, policy: FreezePolicy) -> Self {
        self.freeze = policy;
        self
    }

    /// Has an export without parameters and results initialise the function when it is
    /// deployed: every request begins with what that left. One of a component's exported
    /// interface is named `interface#name`. It may not draw randomness, nor read a clock
    /// first, unless the freeze policy is [`FreezePolicy::AfterInit`].
    #[must_use]
    pub fn init(mut self, export: impl Into<String>) -> Self {
        self.init = Some(export.into());
        self
    }

    /// The export that initialises the function, if there is one.
    #[must_use]
    pub fn init_export(&self) -> Option<&str> {
        self.init.as_deref()
    }

    /// Has the function answer a request that nobody made before its seed is frozen, behind its
    /// initialisation and those given before: every request begins with what that left. It is
    /// answered well, with a status below 500, or the deployment fails. It may not have
    /// randomness drawn, unless the freeze policy is [`FreezePolicy::AfterInit`]. An instance that
    /// is made while there is no seed does without.
    #[must_use]
    pub fn warm_up(mut self, request: WarmUpRequest) -> Self {
        self.warm_ups.push(request);
        self
    }

    /// The requests that warm the function up, in their order.
    #[must_use]
    pub fn warm_ups(&self) -> &[WarmUpRequest] {
        &self.warm_ups
    }

    /// Gives the function a host of its own: the gateway's requests for it are the
    /// function's, with their whole paths. No two functions can have the same.
    #[must_use]
    pub fn host(mut self, host: HostName) -> Self {
        self.hosts.insert(host);
        self
    }

    /// The hosts that are its own.
    #[must_use]
    pub fn hosts(&self) -> &BTreeSet<HostName> {
        &self.hosts
    }

    /// Lets the function use a key-value store that others may use, too, by its name; the one that it
    /// has to itself, `default`, needs no grant.
    #[must_use]
    pub fn store(mut self, name: StoreName) -> Self {
        self.stores.insert(name);
        self
    }

    /// The key-value stores that it shares.
    #[must_use]
    pub fn stores(&self) -> &BTreeSet<StoreName> {
        &self.stores
    }

    /// Lets the function make requests to what the grant names; without one it makes none.
    #[must_use]
    pub fn allow_outbound(mut self, grant: Outbound) -> Self {
        self.outbound.insert(grant);
        self
    }

    /// What it may make requests to.
    #[must_use]
    pub fn outbound(&self) -> &BTreeSet<Outbound> {
        &self.outbound
    }

    /// Gives the function a secret to read, by the same interfaces as its configuration: its value is set apart
    /// from any deployment, and comes with each request.
    #[must_use]
    pub fn secret(mut self, name: SecretName) -> Self {
        self.secrets.insert(name);
        self
    }

    /// The secrets that it reads.
    #[must_use]
    pub fn secrets(&self) -> &BTreeSet<SecretName> {
        &self.secrets
    }

    /// Binds a secret to a host: the function reads a random text in its place, for which the node puts the secret
    /// into the headers of requests to that host alone, over TLS. May be called again with other hosts. That the function may
    /// make requests there has to be granted besides ([`FunctionOptions::allow_outbound`]).
    #[must_use]
    pub fn bind_secret(mut self, name: SecretName, host: Outbound) -> Self {
        self.bound_secrets.entry(name).or_default().insert(host);
        self
    }

    /// The secrets that are bound to hosts, and to which.
    #[must_use]
    pub fn bound_secrets(&self) -> &BTreeMap<SecretName, BTreeSet<Outbound>> {
        &self.bound_secrets
    }

    /// Adds a program argument, behind those given before; the first is the function's name in any case.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Its program arguments, but for its name.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Says where the function finds the files that it is deployed with: an absolute path instead of `/`.
    #[must_use]
    pub fn files_at(mut self, path: impl Into<String>) -> Self {
        self.files_at = Some(path.into());
        self
    }

    /// Where its files are to be, unless that is `/`.
    #[must_use]
    pub fn own_files_at(&self) -> Option<&str> {
        self.files_at.as_deref()
    }

    /// Has the function be frozen where it opens this of its files, by its absolute path: what it did before is done
    /// once. A command finds the variables of its request in it, each with a zero byte behind it.
    #[must_use]
    pub fn freeze_at(mut self, path: impl Into<String>) -> Self {
        self.freeze_at = Some(path.into());
        self
    }

    /// Which of its files it is to be frozen at, if at one.
    #[must_use]
    pub fn own_freeze_at(&self) -> Option<&str> {
        self.freeze_at.as_deref()
    }

    /// Says where what is deployed came from, as a reference to an artifact. That is kept and shown with the version, and
    /// changes nothing else.
    #[must_use]
    pub fn source(mut self, text: impl Into<String>) -> Self {
        self.source = Some(text.into());
        self
    }

    /// Where what is deployed came from, if that was said.
    #[must_use]
    pub fn own_source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// The environment, in its order.
    #[must_use]
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// The configuration, by its keys.
    #[must_use]
    pub fn configuration(&self) -> &BTreeMap<String, String> {
        &self.configuration
    }

    /// The memory limit in bytes, unless it follows the node's.
    #[must_use]
    pub fn own_memory(&self) -> Option<u64> {
        self.memory
    }

    /// The time limits that do not follow the node's.
    pub fn own_times(&self) -> impl Iterator<Item = (TimeLimit, Duration)> {
        self.times_us
            .iter()
            .map(|(limit, microseconds)| (*limit, Duration::from_micros(*microseconds)))
    }

    /// A time limit, unless it follows the node's.
    #[must_use]
    pub fn own_time(&self, limit: TimeLimit) -> Option<Duration> {
        self.times_us
            .get(&limit)
            .copied()
            .map(Duration::from_micros)
    }

    /// Most requests at once, if the function has a limit of its own.
    #[must_use]
    pub fn own_concurrency(&self) -> Option<usize> {
        self.concurrency
    }

    /// The memory limit in bytes; `default` where it follows the node's.
    #[must_use]
    pub fn memory_or(&self, default: u64) -> u64 {
        self.memory.unwrap_or(default)
    }

    /// The freeze policy that is asked for.
    #[must_use]
    pub fn freeze_policy(&self) -> FreezePolicy {
        self.freeze
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// Which option makes no sense.
    pub fn check(&self) -> Result<(), OptionsError> {
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(OptionsError::Environment(name.clone()));
            }
        }
        for key in self.configuration.keys() {
            if !is_key(key) {
                return Err(OptionsError::Key(key.clone()));
            }
        }
        let pairs = self.configuration.iter();
        let bytes = pairs.map(|(key, value)| key.len() + value.len()).sum();
        if bytes > CONFIGURATION_BYTES {
            return Err(OptionsError::Configuration(bytes));
        }
        if self.stores.len() > MOST_STORES {
            return Err(OptionsError::Stores(self.stores.len()));
        }
        if self.outbound.len() > MOST_OUTBOUND {
            return Err(OptionsError::Outbound(self.outbound.len()));
        }
        self.validate_secrets()?;
        if let Some(argument) = self.arguments.iter().find(|one| one.contains('\0')) {
            return Err(OptionsError::Argument(argument.clone()));
        }
        let argument_bytes = self.arguments.iter().map(String::len).sum();
        if self.arguments.len() > MOST_ARGUMENTS || argument_bytes > ARGUMENT_BYTES {
            let count = self.arguments.len();
            return Err(OptionsError::Arguments(count, argument_bytes));
        }
        if let Some(path) = self.files_at.as_ref().filter(|path| !is_mount(path)) {
            return Err(OptionsError::FilesAt(path.clone()));
        }
        if let Some(source) = &self.source {
            let is_long = source.is_empty() || source.len() > LONGEST_SOURCE;
            if is_long || source.contains(char::is_control) {
                return Err(OptionsError::Source);
            }
        }
        let is_file = |path: &&String| path.as_str() != "/" && is_mount(path);
        if let Some(path) = self.freeze_at.as_ref().filter(|path| !is_file(path)) {
            return Err(OptionsError::FreezeAt(path.clone()));
        }
        if let Some(bytes) = self.memory.filter(|bytes| *bytes < LEAST_MEMORY) {
            return Err(OptionsError::Memory(bytes));
        }
        for (limit, value) in self.own_times() {
            if value < Duration::from_millis(1) || value > LONGEST_TIME {
                let limit = limit.word();
                return Err(OptionsError::TimeLimit { limit, value });
            }
        }
        if self.own_poll().is_some_and(|most| most > POLL_MAX) {
            return Err(OptionsError::Poll);
        }
        if self.concurrency == Some(0) {
            return Err(OptionsError::Concurrency);
        }
        let warm_ups = self.warm_ups.iter().map(|request| request.as_str().len());
        if warm_ups.sum::<usize>() > LARGEST_WARM_UPS {
            return Err(OptionsError::WarmUps(
                "warm-up requests take 16 KiB at most, all together",
            ));
        }
        if !self.warm_ups.is_empty() && self.freeze == FreezePolicy::BeforeInit {
            return Err(OptionsError::WarmUps(
                "what warmed up is frozen afterwards: before-init and warm-up requests exclude each other",
            ));
        }
        if let Some(export) = &self.init {
            if export.is_empty() || export.len() > LONGEST_EXPORT {
                return Err(OptionsError::Init(
                    "the export that initialises is named by 1 to 1024 bytes",
                ));
            }
            if self.freeze == FreezePolicy::BeforeInit {
                return Err(OptionsError::Init(
                    "what initialises at deployment is frozen afterwards: before-init and an initialising export exclude each other",
                ));
            }
        }
        Ok(())
    }

    fn validate_secrets(&self) -> Result<(), OptionsError> {
        let count = self.secrets.len() + self.bound_secrets.len();
        if count > MOST_SECRETS {
            return Err(OptionsError::Secrets(count));
        }
        for name in self.secrets.iter().chain(self.bound_secrets.keys()) {
            if self.configuration.contains_key(name.as_str()) {
                return Err(OptionsError::SecretInConfiguration(name.clone()));
            }
        }
        for (name, hosts) in &self.bound_secrets {
            if self.secrets.contains(name) {
                return Err(OptionsError::SecretReadAndBound(name.clone()));
            }
            if hosts.len() > MOST_OUTBOUND {
                return Err(OptionsError::SecretHosts(hosts.len()));
            }
            let is_open = |host: &&Outbound| !host.grant().is_of_hosts_by_tls();
            if let Some(open) = hosts.iter().find(is_open) {
                return Err(OptionsError::SecretBound(open.clone()));
            }
        }
        Ok(())
    }
}
