//! Options of `up`, `serve` and `pod` for their node.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use faasw::Confinement;
use faasw_client::spelling;
use ipnet::IpNet;

use super::{
    clients::Clients,
    kv_server::{Hidden, hidden},
    values::{at_least_one, at_least_one_use, network, time},
};

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Node")]
pub struct Serving {
    /// Run at most this many requests at once; others are answered with 503. Of several
    /// functions each leaves an eighth to the others [default: 256]
    #[arg(long, value_name = "REQUESTS", value_parser = at_least_one)]
    pub max_instances: Option<usize>,
    /// Keep this many microVMs made ahead of requests, and up to eight times as many
    /// while they are needed [default: 4]
    #[arg(long, value_name = "VMS")]
    pub zygotes: Option<usize>,
    /// Keep an instance that no request takes for this long
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = time)]
    pub keep_alive: Duration,
    /// Let an instance look for the next request by itself for at most this long before it
    /// waits, where its function's requests come that fast and a processor has nothing to
    /// do: off, auto (200us) or a time
    #[arg(long, value_name = "TIME", default_value = "off", value_parser = spelling::poll::parse)]
    pub poll: Duration,
    /// Have this many instances of each function at all times, waiting or at work: made ahead
    /// of requests, as far as --max-warm, --function-memory and --instance-memory allow
    #[arg(long, value_name = "VMS", default_value_t = 0)]
    pub min_warm: usize,
    /// Keep at most this many instances of all functions waiting for requests [default: 512]
    #[arg(long, value_name = "VMS")]
    pub max_warm: Option<usize>,
    /// Let the seeds of functions and their code take this many MiB together; those
    /// worth least are evicted and made again when they are used [default: 4096]
    #[arg(long, value_name = "MIB")]
    pub seed_memory: Option<u64>,
    /// Let the images of seeds take this many MiB of the data directory's disk, those
    /// used longest ago going first; 0 for none
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    pub image_disk: u64,
    /// Seal images with the 32 bytes of this file, which only its user may read, instead
    /// of the data directory's image.key: nodes with the same open each other's exports
    #[arg(long, value_name = "FILE")]
    pub image_key: Option<PathBuf>,
    /// Seal functions' secrets with the 32 bytes of this file, which only its user may read,
    /// instead of the data directory's secrets.key
    #[arg(long, value_name = "FILE")]
    pub secret_key: Option<PathBuf>,
    /// Let one function hold this many MiB between requests, in seeds, code and pages
    /// of waiting instances; over it instances end, then seeds are evicted [default: 1024]
    #[arg(long, value_name = "MIB")]
    pub function_memory: Option<u64>,
    /// Let all microVMs and compilations take this many MiB together, seeds included. Requests
    /// are admitted as far as their functions' --memory fits
    /// [default: the machine's, or what the node's control groups allow, less an
    /// eighth]
    #[arg(long, value_name = "MIB")]
    pub instance_memory: Option<u64>,
    /// Serve at most this many requests with one microVM, each from the exact
    /// state of its seed; 1 forks a new one for every request
    #[arg(long, value_name = "REQUESTS", default_value_t = 10_000, value_parser = at_least_one_use)]
    pub max_reuse: u32,
    /// Confine the processes of microVMs, compiler and egress fully, or, on hosts that allow no
    /// namespaces, to a reduced extent that protects less
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = Level::Full)]
    pub confinement: Level,
    /// Serve without this mechanism, any number of times: for a benchmark
    #[cfg(feature = "ablation")]
    #[arg(long, value_name = "MECHANISM")]
    pub without: Vec<faasw_pool::Mechanism>,
    /// Write a line of JSON for each request to this file, or to standard output where that is -;
    /// at 64 MiB the file becomes FILE.1. The node may write in its folder
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Let each key-value store, a function's own or a shared one, have this many MiB of keys and
    /// values [default: 256]
    #[arg(long, value_name = "MIB")]
    pub kv_size: Option<u64>,
    /// Let each key-value store have this many keys
    #[arg(long, value_name = "KEYS", default_value_t = 1_000_000)]
    pub kv_keys: u64,
    /// Have key-value stores on this Redis server, which other nodes may share, instead of in the
    /// data directory: redis://[USER@]HOST[:PORT][/DB], the same with rediss:// for TLS, or
    /// unix:///PATH. A password may be in it, which others see unless it comes by the environment
    #[arg(long, value_name = "URL", env = "FAASW_KV_SERVER", hide_env_values = true, value_parser = hidden)]
    pub kv_server: Option<Hidden>,
    /// Log in to the key-value server with the password in this file, which only its user may read
    #[arg(long, value_name = "FILE", requires = "kv_server")]
    pub kv_password_file: Option<PathBuf>,
    /// Trust the certificates of authorities in this file of PEM, beside the usual ones, where the
    /// key-value server is rediss://
    #[arg(long, value_name = "FILE", requires = "kv_server")]
    pub kv_ca: Vec<PathBuf>,
    /// Let outbound calls reach this network of private or special addresses, such as 10.1.0.0/16
    /// (repeatable). A function also needs a grant (--allow-outbound). The metadata service of a
    /// cloud opens by its own address only
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub allow_private: Vec<IpNet>,
    /// Trust the certificates of authorities in this file of PEM, beside the usual ones, in
    /// functions' requests
    #[arg(long, value_name = "FILE")]
    pub egress_ca: Vec<PathBuf>,
    /// Ask this server for names in functions' requests, eight times at most, instead of those of
    /// /etc/resolv.conf
    #[arg(long, value_name = "ADDR:PORT")]
    pub name_server: Vec<SocketAddr>,
    /// How the node's own events are written to standard error; FAASW_LOG
    /// chooses which, such as debug or faasw=debug,warn
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    #[command(flatten)]
    pub clients: Clients,
}

/// The confinement of processes that hold a tenant's code or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    Full,
    Reduced,
}

impl From<Level> for Confinement {
    fn from(level: Level) -> Self {
        match level {
            Level::Full => Self::Jailed,
            Level::Reduced => Self::Reduced,
        }
    }
}

/// How the node's own events look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
