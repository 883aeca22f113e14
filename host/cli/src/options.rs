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
use super::values::{at_least_one, host, time};

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Function")]
pub struct Options {
    /// Set an environment variable, any number of times
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// Take environment variables from a .toml or .json file of texts, any number of times; what
    /// --env sets comes before it. Unlike a command line it is not for everybody on the host to
    /// read
    #[arg(long = "env-file", value_name = "FILE", value_parser = table_file::read)]
    pub environment_files: Vec<TableFile>,
    /// Set a value of the configuration, any number of times; that is no place for secrets
    #[arg(long = "config", value_name = "KEY=VALUE", value_parser = setting)]
    pub configuration: Vec<(String, String)>,
    /// Take the configuration from a .toml or .json file of texts, any number of times; what
    /// --config sets comes before it
    #[arg(long = "config-file", value_name = "FILE", value_parser = table_file::read)]
    pub config_files: Vec<TableFile>,
    /// Let the function read this secret like its configuration, any number of times;
    /// `faasw secret set` says what it is
    #[arg(long = "secret", value_name = "NAME", value_parser = secret)]
    pub secrets: Vec<SecretName>,
    /// Bind this secret to a host, any number of times: the function reads a random text in its
    /// place, for which the node puts the secret into the headers of requests to that host, and to
    /// no other
    #[arg(long = "bind-secret", value_name = "NAME=https://HOST", value_parser = bound_secret)]
    pub bound_secrets: Vec<(SecretName, Outbound)>,
    /// Let the function use this key-value store, which others may use, too, any number of times;
    /// its own, "default", needs no grant
    #[arg(long = "kv", value_name = "STORE", value_parser = store)]
    pub stores: Vec<StoreName>,
    /// Let the function make requests to this, any number of times: https://api.example.com,
    /// http://*.internal:8080, https://192.0.2.0/24, with a port or ports; of this node http://self
    /// (all functions, by path) or http://NAME.spin.internal. It makes none without; private
    /// addresses are for the node to allow, too
    #[arg(long = "allow-outbound", value_name = "GRANT", value_parser = outbound)]
    pub outbound: Vec<Outbound>,
    /// Give the function all that is in this folder, or archive (tar, packed by gzip or zstd or
    /// not), for its files, at / or the path behind the colon, 64 MiB at most: it may change them,
    /// and each request begins with what was deployed
    #[arg(id = "folder", long = "files", value_name = "DIR[:/PATH]", value_parser = files::folder)]
    pub files: Option<files::Folder>,
    /// Give the function this program argument, behind its name, any number of times
    #[arg(long = "args", value_name = "ARG", allow_hyphen_values = true)]
    pub arguments: Vec<String>,
    #[command(flatten)]
    pub own: OwnLimits,
    /// Run at most this many requests of the function at once; others are
    /// answered with 503 [default: as many as the node runs]
    #[arg(long, value_name = "REQUESTS", value_parser = at_least_one)]
    pub concurrency: Option<usize>,
    /// Give the function this host for its own, any number of times: it is served there
    /// with the whole path
    #[arg(long = "host", value_name = "HOST", value_parser = host)]
    pub hosts: Vec<HostName>,
    /// Freeze the seed before or after initialisation; after-init shares the
    /// randomness that it drew between all requests [default: auto]
    #[arg(long, value_name = "auto|before-init|after-init", value_parser = freeze)]
    pub freeze: Option<FreezePolicy>,
    /// Freeze a command's seed where it opens this of its files, an absolute path: what it did
    /// before is done once, and it finds the variables of its request there
    #[arg(long, value_name = "PATH", requires = "folder")]
    pub freeze_at: Option<String>,
    /// Call this export once, at deployment: every request begins with what that left.
    /// One of an exported interface is INTERFACE#NAME
    #[arg(long, value_name = "EXPORT")]
    pub init: Option<String>,
    /// Have the function answer this before its seed is frozen, any number of times: every
    /// request begins with what that left. A path, METHOD PATH, or a whole request in the file
    /// after an @
    #[arg(long = "warmup-request", value_name = "REQUEST|@FILE", value_parser = warm_up)]
    pub warm_ups: Vec<WarmUpRequest>,
}

/// Limits that a function has of its own or from its node.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub struct OwnLimits {
    /// Let a function's memories grow to this many MiB [default: 128]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: Option<u32>,
    /// End a request that takes more CPU time [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub cpu_time: Option<Duration>,
    /// End a request that has no first byte of its response after this time,
    /// such as 500ms or 30s [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub timeout: Option<Duration>,
    /// End a request whose client takes or sends nothing for this long while
    /// the function waits for it, and an import of which no MiB comes for
    /// this long [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub idle_client: Option<Duration>,
    /// End a request whose function takes and sends nothing for this long
    /// after its first byte [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub idle_guest: Option<Duration>,
    /// End a request that takes longer altogether [default: no limit]
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

type SetTime = fn(FunctionOptions, Duration) -> FunctionOptions;

impl From<Options> for FunctionOptions {
    fn from(given: Options) -> Self {
        let mut options = Self::default().freeze(given.freeze.unwrap_or_default());
        if let Some(export) = given.init {
            options = options.init(export);
        }
        if let Some(path) = given.freeze_at {
            options = options.freeze_at(path);
        }
        for request in given.warm_ups {
            options = options.warm_up(request);
        }
        let own = given.own;
        if let Some(mebibytes) = own.memory {
            options = options.memory(u64::from(mebibytes) << 20);
        }
        let times: [(_, SetTime); 5] = [
            (own.cpu_time, Self::cpu_time),
            (own.timeout, Self::first_byte),
            (own.idle_client, Self::idle_client),
            (own.idle_guest, Self::idle_guest),
            (own.total_time, Self::total_time),
        ];
        for (limit, set) in times {
            if let Some(limit) = limit {
                options = set(options, limit);
            }
        }
        if let Some(requests) = given.concurrency {
            options = options.concurrency(requests);
        }
        for host in given.hosts {
            options = options.host(host);
        }
        for store in given.stores {
            options = options.store(store);
        }
        for name in given.secrets {
            options = options.secret(name);
        }
        for (name, host) in given.bound_secrets {
            options = options.bind_secret(name, host);
        }
        for grant in given.outbound {
            options = options.allow_outbound(grant);
        }
        for argument in given.arguments {
            options = options.argument(argument);
        }
        if let Some(path) = given.files.and_then(|files| files.at) {
            options = options.files_at(path);
        }
        for (name, value) in of_files(given.environment_files).chain(given.environment) {
            options = options.env(name, value);
        }
        for (key, value) in of_files(given.config_files).chain(given.configuration) {
            options = options.config(key, value);
        }
        options
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

fn store(text: &str) -> Result<StoreName, String> {
    StoreName::new(text).map_err(|error| error.to_string())
}

fn secret(text: &str) -> Result<SecretName, String> {
    SecretName::new(text).map_err(|error| error.to_string())
}

/// Parses a secret's name and a host.
fn bound_secret(text: &str) -> Result<(SecretName, Outbound), String> {
    let form = "not of the form NAME=https://HOST; `faasw secret set` says what the secret is";
    let (name, host) = text.split_once('=').ok_or(form)?;
    let host = host.starts_with("https://").then_some(host).ok_or(form)?;
    Ok((secret(name)?, outbound(host)?))
}

fn outbound(text: &str) -> Result<Outbound, String> {
    Outbound::new(text).map_err(|error| error.to_string())
}

fn freeze(text: &str) -> Result<FreezePolicy, String> {
    spelling::freeze::parse(text)
        .ok_or_else(|| format!("not one of {}", spelling::freeze::WORDS.join(", ")))
}
