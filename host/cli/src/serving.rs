//! Options of `up`, `serve` and `pod` for their node.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use faasw::Confinement;
use faasw_client::spelling;
use ipnet::IpNet;

use super::{
    clients::Clients,
    values::{Hidden, at_least_one, at_least_one_use, hidden, network, time},
};

/// The groups of options in `--help`.
const INSTANCES: &str = "Instances";
const MEMORY: &str = "Memory and disk";
const LOGS: &str = "Logs";
const STORES: &str = "Key-value stores";
const OUTBOUND: &str = "Outbound calls";

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Node")]
pub struct Serving {
    /// Run at most this many requests at once [default: 256]
    ///
    /// Other requests wait up to 200 ms, then receive 503. Among several functions, each leaves an
    /// eighth to the others.
    #[arg(long, value_name = "REQUESTS", value_parser = at_least_one, help_heading = INSTANCES)]
    pub max_instances: Option<usize>,
    /// Keep this many zygotes ready, and up to eight times as many under demand [default: 4]
    #[arg(long, value_name = "VMS", help_heading = INSTANCES)]
    pub zygotes: Option<usize>,
    /// Keep a warm instance for this long without a request
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "60s",
        value_parser = time,
        help_heading = INSTANCES
    )]
    pub keep_alive: Duration,
    /// Busy-wait this long for an instance's next request: off, auto (200us) or a time up to 10ms
    ///
    /// Polling uses idle processors only, for functions whose requests follow each other that
    /// quickly. `deploy --poll` sets it for one function.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "off",
        value_parser = spelling::poll::parse,
        help_heading = INSTANCES
    )]
    pub poll: Duration,
    /// Keep this many instances of each function ready at all times
    ///
    /// Busy instances count. --max-warm, --function-memory, --seed-memory and --instance-memory
    /// limit the number.
    #[arg(long, value_name = "VMS", default_value_t = 0, help_heading = INSTANCES)]
    pub min_warm: usize,
    /// Keep at most this many warm instances of all functions [default: 512]
    #[arg(long, value_name = "VMS", help_heading = INSTANCES)]
    pub max_warm: Option<usize>,
    /// Serve at most this many requests with one microVM; 1 forks one for each request
    ///
    /// Each request begins with the exact state of the function's seed.
    #[arg(
        long,
        value_name = "REQUESTS",
        default_value_t = 10_000,
        value_parser = at_least_one_use,
        help_heading = INSTANCES
    )]
    pub max_reuse: u32,
    /// Limit the memory of all microVMs, compilations and seeds to this many MiB
    ///
    /// A request is admitted if its function's --memory fits. [default: the memory of the machine
    /// or of the node's control groups, less an eighth]
    #[arg(long, value_name = "MIB", help_heading = MEMORY)]
    pub instance_memory: Option<u64>,
    /// Limit the memory of all seeds and their code to this many MiB [default: 4096]
    ///
    /// At the limit, the least valuable seeds are evicted. They are restored when they are used.
    #[arg(long, value_name = "MIB", help_heading = MEMORY)]
    pub seed_memory: Option<u64>,
    /// Limit what one function holds between requests to this many MiB [default: 1024]
    ///
    /// Seeds, code and private pages of warm instances count. Over the limit, warm instances end,
    /// then unused seeds are evicted.
    #[arg(long, value_name = "MIB", help_heading = MEMORY)]
    pub function_memory: Option<u64>,
    /// Limit func-images on disk to this many MiB; 0 stores none
    ///
    /// At the limit, the least recently used func-images are removed.
    #[arg(long, value_name = "MIB", default_value_t = 8192, help_heading = MEMORY)]
    pub image_disk: u64,
    /// Confine microVMs, compilers and egress with this level
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = Level::Full)]
    pub confinement: Level,
    /// Encrypt func-images with the 32 bytes of this file instead of image.key
    ///
    /// Only the node's user may have access to the file. Nodes with the same key can import each
    /// other's exports.
    #[arg(long, value_name = "FILE")]
    pub image_key: Option<PathBuf>,
    /// Encrypt secrets with the 32 bytes of this file instead of secrets.key
    ///
    /// Only the node's user may have access to the file.
    #[arg(long, value_name = "FILE")]
    pub secret_key: Option<PathBuf>,
    /// Serve without this mechanism, for a benchmark (repeatable)
    #[cfg(feature = "ablation")]
    #[arg(long, value_name = "MECHANISM")]
    pub without: Vec<faasw_pool::Mechanism>,
    /// Write the node's own events to standard error in this format
    ///
    /// FAASW_LOG selects events: for example debug, or faasw=debug,warn.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, help_heading = LOGS)]
    pub log_format: LogFormat,
    /// Write a line of JSON for each request to this file; - is standard output
    ///
    /// At 64 MiB the file becomes FILE.1. Use a separate folder: the confined node can write to all
    /// of it.
    #[arg(long, value_name = "FILE", help_heading = LOGS)]
    pub access_log: Option<PathBuf>,
    /// Store key-value data on this Redis server instead of in the data directory
    ///
    /// The URL is redis://[USER@]HOST[:PORT][/DB], rediss:// for TLS, or unix:///PATH. Other nodes
    /// may share the server. Other users of the host can read a password in an argument: set it in
    /// the environment variable, or use --kv-password-file.
    #[arg(
        long,
        value_name = "URL",
        env = "FAASW_KV_SERVER",
        hide_env_values = true,
        value_parser = hidden,
        help_heading = STORES
    )]
    pub kv_server: Option<Hidden>,
    /// Log in to the key-value server with the password in this file
    ///
    /// Only the node's user may have access to the file.
    #[arg(long, value_name = "FILE", requires = "kv_server", help_heading = STORES)]
    pub kv_password_file: Option<PathBuf>,
    /// Also trust the certificate authorities in this PEM file for rediss:// (repeatable)
    #[arg(long, value_name = "FILE", requires = "kv_server", help_heading = STORES)]
    pub kv_ca: Vec<PathBuf>,
    /// Limit the keys and values of each store to this many MiB [default: 256]
    #[arg(long, value_name = "MIB", help_heading = STORES)]
    pub kv_size: Option<u64>,
    /// Limit the number of keys of each store
    #[arg(long, value_name = "KEYS", default_value_t = 1_000_000, help_heading = STORES)]
    pub kv_keys: u64,
    /// Allow outbound calls to this private network, such as 10.1.0.0/16 (repeatable)
    ///
    /// This also opens other special addresses, such as the host's own. A function needs a grant
    /// too (--allow-outbound). A cloud's metadata service opens only by its exact address.
    #[arg(long, value_name = "NETWORK", value_parser = network, help_heading = OUTBOUND)]
    pub allow_private: Vec<IpNet>,
    /// Also trust the certificate authorities in this PEM file for outbound calls (repeatable)
    #[arg(long, value_name = "FILE", help_heading = OUTBOUND)]
    pub egress_ca: Vec<PathBuf>,
    /// Resolve names of outbound calls with this server, not /etc/resolv.conf (up to 8 times)
    #[arg(long, value_name = "ADDR:PORT", help_heading = OUTBOUND)]
    pub name_server: Vec<SocketAddr>,
    #[command(flatten)]
    pub clients: Clients,
}

/// The confinement of processes that hold a tenant's code or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Namespaces, dropped privileges, control groups and a system-call filter
    Full,
    /// No namespaces, for hosts that do not allow them; protects less
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

/// The format of the node's own events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
