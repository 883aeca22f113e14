//! The command line's options of a function.

use std::{fs, time::Duration};

use clap::Args;
use faasw::Limits;
use faasw_client::{
    FreezePolicy, FunctionOptions, HostName, Outbound, SecretName, StoreName, WarmUpRequest,
    spelling,
};

use super::files;
use super::table_file::{self, TableFile};
use super::values::{at_least_one, time};

/// The groups of options in `--help`.
const CONFIGURATION: &str = "Configuration";
const GRANTS: &str = "Grants and hosts";
const INITIALISATION: &str = "Initialisation";

#[derive(Debug, Args)]
#[group(skip)]
pub struct Options {
    /// Set an environment variable (repeatable)
    #[arg(
        long = "env",
        short = 'e',
        value_name = "NAME=VALUE",
        value_parser = variable,
        help_heading = CONFIGURATION
    )]
    pub environment: Vec<(String, String)>,
    /// Read environment variables from a table of strings in .toml or .json (repeatable)
    ///
    /// --env overrides the file. Other users of the host cannot see values passed this way.
    #[arg(
        long = "env-file",
        value_name = "FILE",
        value_parser = table_file::read,
        help_heading = CONFIGURATION
    )]
    pub environment_files: Vec<TableFile>,
    /// Set a configuration value, which must not be a secret (repeatable)
    #[arg(
        long = "config",
        value_name = "KEY=VALUE",
        value_parser = setting,
        help_heading = CONFIGURATION
    )]
    pub configuration: Vec<(String, String)>,
    /// Read configuration values from a table of strings in .toml or .json (repeatable)
    ///
    /// --config overrides the file.
    #[arg(
        long = "config-file",
        value_name = "FILE",
        value_parser = table_file::read,
        help_heading = CONFIGURATION
    )]
    pub config_files: Vec<TableFile>,
    /// Add the files of this folder or archive, at / or at PATH
    ///
    /// An archive is a tar file, plain or packed with gzip or zstd. Files have at most 64 MiB. The
    /// function may change them; the next request sees the deployed files again.
    #[arg(
        id = "folder",
        long = "files",
        value_name = "DIR[:/PATH]",
        value_parser = files::folder,
        help_heading = CONFIGURATION
    )]
    pub files: Option<files::Folder>,
    /// Add a program argument after the function's name (repeatable)
    #[arg(
        long = "args",
        value_name = "ARG",
        allow_hyphen_values = true,
        help_heading = CONFIGURATION
    )]
    pub arguments: Vec<String>,
    /// Allow the function to read this secret, like its configuration (repeatable)
    ///
    /// `faasw secret set` sets the value.
    #[arg(long = "secret", value_name = "NAME", help_heading = GRANTS)]
    pub secrets: Vec<SecretName>,
    /// Send this secret to HOST without showing it to the function (repeatable)
    ///
    /// The function reads a placeholder. The node substitutes the secret in header fields of
    /// requests to HOST, and of no others.
    #[arg(
        long = "bind-secret",
        value_name = "NAME=https://HOST",
        value_parser = bound_secret,
        help_heading = GRANTS
    )]
    pub bound_secrets: Vec<(SecretName, Outbound)>,
    /// Grant access to a shared key-value store (repeatable)
    ///
    /// The function's own store, "default", needs no grant.
    #[arg(long = "kv", value_name = "STORE", help_heading = GRANTS)]
    pub stores: Vec<StoreName>,
    /// Allow outbound calls to this destination, such as https://api.example.com (repeatable)
    ///
    /// Other forms: http://*.internal:8080, https://192.0.2.0/24:8000..8010. Functions of this node
    /// are http://self (all, by path) and http://NAME.spin.internal. Without a grant a function
    /// calls nothing. Private addresses also need --allow-private of the node.
    #[arg(
        long = "allow-outbound",
        value_name = "GRANT",
        value_parser = |text: &str| Outbound::new(text),
        help_heading = GRANTS
    )]
    pub outbound: Vec<Outbound>,
    /// Serve the function at this host, with the whole path (repeatable)
    #[arg(long = "host", value_name = "HOST", help_heading = GRANTS)]
    pub hosts: Vec<HostName>,
    #[command(flatten, next_help_heading = "Limits")]
    pub own: OwnLimits,
    /// Run at most this many requests of the function at once [default: the node's limit]
    ///
    /// Other requests receive 503.
    #[arg(long, value_name = "REQUESTS", value_parser = at_least_one, help_heading = "Limits")]
    pub concurrency: Option<usize>,
    /// Snapshot before or after initialisation; after-init shares drawn randomness [default: auto]
    ///
    /// With after-init, all requests share the random values that the initialisation drew. auto
    /// snapshots after it, unless it draws randomness.
    #[arg(
        long,
        value_name = "auto|before-init|after-init",
        value_parser = freeze,
        help_heading = INITIALISATION
    )]
    pub freeze: Option<FreezePolicy>,
    /// Snapshot when the command opens this file, an absolute path
    ///
    /// The command's work up to this point is done once. PATH then contains the variables of the
    /// request.
    #[arg(long, value_name = "PATH", requires = "folder", help_heading = INITIALISATION)]
    pub freeze_at: Option<String>,
    /// Call this export at deployment; requests start from its result
    ///
    /// An export of an exported interface is INTERFACE#NAME.
    #[arg(long, value_name = "EXPORT", help_heading = INITIALISATION)]
    pub init: Option<String>,
    /// Send this request to the function before its snapshot (repeatable)
    ///
    /// Requests start from the resulting state. REQUEST is a path, or METHOD PATH; FILE contains a
    /// whole request.
    #[arg(
        long = "warmup-request",
        value_name = "REQUEST|@FILE",
        value_parser = warm_up,
        help_heading = INITIALISATION
    )]
    pub warm_ups: Vec<WarmUpRequest>,
}

/// Limits that a function has of its own or from its node.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub struct OwnLimits {
    /// Limit a function's memories to this many MiB [default: 128]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: Option<u32>,
    /// End a request that uses more CPU time [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub cpu_time: Option<Duration>,
    /// End a request without the first byte of a response after this time [default: 10s]
    ///
    /// The time begins when the function has received the last byte of the request. A duration has
    /// a unit, such as 500ms or 30s.
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub timeout: Option<Duration>,
    /// End a request whose client stalls for this long [default: 30s]
    ///
    /// A client stalls if it sends or reads nothing while the function waits for it. This also ends
    /// an import slower than 1 MiB in this time.
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub idle_client: Option<Duration>,
    /// End a request whose function stalls for this long during its response [default: 60s]
    ///
    /// A function stalls if it neither reads nor sends anything.
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub idle_guest: Option<Duration>,
    /// End a request that takes longer in all [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub total_time: Option<Duration>,
}

impl From<OwnLimits> for Limits {
    fn from(given: OwnLimits) -> Self {
        let mut limits = Self::default();
        if let Some(mebibytes) = given.memory {
            limits.memory = u64::from(mebibytes) << 20;
        }
        limits.cpu_time = given.cpu_time.unwrap_or(limits.cpu_time);
        limits.first_byte = given.timeout.unwrap_or(limits.first_byte);
        limits.idle_client = given.idle_client.unwrap_or(limits.idle_client);
        limits.idle_guest = given.idle_guest.unwrap_or(limits.idle_guest);
        limits.total_time = given.total_time.or(limits.total_time);
        limits
    }
}

impl From<Options> for FunctionOptions {
    fn from(given: Options) -> Self {
        let mebibytes = |memory: u32| u64::from(memory) << 20;
        let variables = of_files(given.environment_files).chain(given.environment);
        let configuration = of_files(given.config_files).chain(given.configuration);
        let files_at = given.files.and_then(|files| files.at);
        let own = given.own;
        Self::default()
            .with(given.freeze, Self::freeze)
            .with(given.init, Self::init)
            .with(given.freeze_at, Self::freeze_at)
            .with(given.warm_ups, Self::warm_up)
            .with(own.memory.map(mebibytes), Self::memory)
            .with(own.cpu_time, Self::cpu_time)
            .with(own.timeout, Self::first_byte)
            .with(own.idle_client, Self::idle_client)
            .with(own.idle_guest, Self::idle_guest)
            .with(own.total_time, Self::total_time)
            .with(given.concurrency, Self::concurrency)
            .with(given.hosts, Self::host)
            .with(given.stores, Self::store)
            .with(given.secrets, Self::secret)
            .with(given.bound_secrets, |options, (name, host)| {
                options.bind_secret(name, host)
            })
            .with(given.outbound, Self::allow_outbound)
            .with(given.arguments, Self::argument)
            .with(files_at, Self::files_at)
            .with(variables, |options, (name, value)| options.env(name, value))
            .with(configuration, |options, (key, value)| {
                options.config(key, value)
            })
    }
}

fn of_files(files: Vec<TableFile>) -> impl Iterator<Item = (String, String)> {
    files.into_iter().flat_map(|TableFile(pairs)| pairs)
}

pub fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("not of the form NAME=VALUE".into()),
    }
}

/// Parses a key and its value.
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("not of the form KEY=VALUE".into()),
    }
}

/// Parses a request, or reads it from a file.
fn warm_up(text: &str) -> Result<WarmUpRequest, String> {
    let text = match text.strip_prefix('@') {
        Some(file) => fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?,
        None => text.to_owned(),
    };
    WarmUpRequest::new(text).map_err(|error| error.to_string())
}

/// Parses a secret's name and a host.
fn bound_secret(text: &str) -> Result<(SecretName, Outbound), String> {
    let form = "not of the form NAME=https://HOST; `faasw secret set` sets the value";
    let (name, host) = text.split_once('=').ok_or(form)?;
    let host = host.starts_with("https://").then_some(host).ok_or(form)?;
    let name = SecretName::new(name).map_err(|error| error.to_string())?;
    let host = Outbound::new(host).map_err(|error| error.to_string())?;
    Ok((name, host))
}

fn freeze(text: &str) -> Result<FreezePolicy, String> {
    spelling::freeze::parse(text)
        .ok_or_else(|| format!("not one of {}", spelling::freeze::WORDS.join(", ")))
}
