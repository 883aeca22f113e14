//! Arguments of all commands.

mod artifact;
mod engine;
mod help;
mod image;
mod kv;
mod pod;
mod secret;
mod serving;
mod share;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use faasw_client::FunctionName;
use http::{HeaderName, HeaderValue, Method};

pub use self::{
    artifact::{Accept, Deploy, Kind, Pull, Push, Registries, reference},
    engine::{Engine, EngineAdd, EngineFile, EngineName},
    image::{Image, ImageExport, ImageImport},
    kv::{DialKv, Kv, KvGet, KvLs, KvRm, KvSet},
    pod::Pod,
    secret::{Secret, SecretLs, SecretRm, SecretSet},
    serving::{Serve, Up},
    share::{Of, Share, ShareAdd, ShareFind, ShareLs, ShareRm},
};
use super::{data_dir::DataDir, exit, options::variable, serving::Level};

/// A serverless node that runs every request in its own microVM
#[derive(Debug, Parser)]
#[command(name = "faasw", version, after_help = exit::HELP, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node with these functions in the foreground
    #[command(
        mut_args(help::show_only(help::SHORT_UP)),
        after_help = help::short(help::UP),
        after_long_help = help::UP
    )]
    Up(Box<Up>),
    /// Run a node with the functions of its data directory
    #[command(
        mut_args(help::show_only(help::SHORT_SERVE)),
        after_help = help::short(help::SERVE),
        after_long_help = help::SERVE
    )]
    Serve(Box<Serve>),
    /// Run a node with one function at /, for a container
    #[command(
        mut_args(help::show_only(help::SHORT_POD)),
        after_help = help::short(help::POD),
        after_long_help = help::POD
    )]
    Pod(Box<Pod>),
    /// Cache compiled functions and their seeds for this host's pods
    #[command(subcommand, after_help = help::SHARE)]
    Share(Share),
    /// Deploy a file as a function on the running node
    #[command(
        mut_args(help::show_only(help::SHORT_DEPLOY)),
        after_help = help::short(help::DEPLOY),
        after_long_help = help::DEPLOY
    )]
    Deploy(Box<Deploy>),
    /// Push a module to a registry, with options for its deployment
    #[command(
        mut_args(help::show_only(help::SHORT_PUSH)),
        after_help = help::short(help::PUSH),
        after_long_help = help::PUSH
    )]
    Push(Box<Push>),
    /// Pull a module from a registry
    #[command(after_help = help::PULL)]
    Pull(Pull),
    /// Send a request to a function and print its response
    Invoke(Invoke),
    /// List the functions of the running node
    Ls(Ls),
    /// Show a function: versions, options, limits, imports and seed
    Inspect(Inspect),
    /// Restore an earlier version of a function
    #[command(after_help = help::ROLLBACK)]
    Rollback(Rollback),
    /// Remove a function with all versions and its log
    Rm(Rm),
    /// Print the newest lines of a function's log
    #[command(after_help = help::LOGS)]
    Logs(Logs),
    /// Print a summary of the running node's metrics
    Stats(Stats),
    /// Show the running node's seed tree: sizes, working sets, instances
    #[command(after_help = help::TREE)]
    Tree(Tree),
    /// Inspect, export and import func-images, the seeds on disk
    #[command(subcommand)]
    Image(Image),
    /// List, read and change key-value stores
    #[command(subcommand, after_help = help::KV)]
    Kv(Kv),
    /// Set, list and remove secrets of functions; values cannot be read back
    #[command(subcommand, after_help = help::SECRET)]
    Secret(Secret),
    /// Add, list, prepare and remove language engines, which run scripts
    #[command(subcommand)]
    Engine(Engine),
    /// Pre-initialise a module and save the result
    #[command(after_help = help::WIZEN)]
    Wizen(Wizen),
    /// Create a project: handler, sample request, README
    #[command(after_help = help::NEW)]
    New(New),
    /// Report what this host supports, and run a self-test
    Doctor(Doctor),
    /// Connect to a key-value server for the node that starts this
    #[command(hide = true)]
    DialKv(DialKv),
    /// Parse the modules of a script for the command that starts this
    #[command(hide = true)]
    PrepareScript(PrepareScript),
    /// Read changed scripts for the node that starts this
    #[command(hide = true)]
    ReadScripts,
}

/// The script that a process parses.
#[derive(Debug, Args)]
pub struct PrepareScript {
    /// First file of the script
    pub path: PathBuf,

    /// Folder of the script, if it is not the file's
    pub folder: Option<PathBuf>,
}

/// A language that `new` knows.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Language {
    /// A JavaScript file, which needs no build
    Js,
    /// A TypeScript file, which needs no build
    Ts,
    /// A Python file, which needs no build
    Python,
    /// A component, which cargo builds
    Rust,
}

#[derive(Debug, Args)]
pub struct New {
    /// Language of the function
    pub language: Language,
    /// Name of the function and of its folder
    pub name: FunctionName,
}

#[derive(Debug, Args)]
pub struct Wizen {
    /// WebAssembly component, WASI command, or the text form of either
    pub file: PathBuf,
    /// Write the module to this file
    #[arg(long, short = 'o', value_name = "OUT")]
    pub output: PathBuf,
    /// Call this export, or INTERFACE#NAME of an exported interface [default: wizer-initialize]
    #[arg(long, value_name = "EXPORT")]
    pub init: Option<String>,
    /// Set an environment variable of the initialisation (repeatable)
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// Limit the memories of the module to this many MiB [default: 128]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: Option<u32>,
    /// Allow the initialisation to draw randomness and read the clock; the module keeps the values
    #[arg(long)]
    pub allow_draws: bool,
}

#[derive(Debug, Args)]
pub struct Invoke {
    /// Name of the function
    pub name: FunctionName,
    /// Path and query of the request
    #[arg(long, default_value = "/", help_heading = "Request")]
    pub path: String,
    /// Method of the request [default: GET, or POST with --data]
    #[arg(long, help_heading = "Request")]
    pub method: Option<Method>,
    /// Add a header field (repeatable)
    #[arg(
        long = "header",
        short = 'H',
        value_name = "NAME: VALUE",
        value_parser = header,
        help_heading = "Request"
    )]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Send this text as the body, or the content of @FILE; @- is standard input
    #[arg(long, short = 'd', value_name = "TEXT|@FILE", help_heading = "Request")]
    pub data: Option<String>,
    /// Print status, header fields and timing to standard error
    #[arg(long, short = 'v', help_heading = "Output")]
    pub verbose: bool,
    /// Write the exact bytes of the body to a terminal; control characters then take effect
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub raw: bool,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Ls {
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Inspect {
    /// Name of the function
    pub name: FunctionName,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Rollback {
    /// Name of the function
    pub name: FunctionName,
    /// Number of the version [default: the previous one]
    pub version: Option<u64>,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Tree {
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Rm {
    /// Name of the function
    pub name: FunctionName,
    #[command(flatten)]
    pub node: DataDir,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// Name of the function
    pub name: FunctionName,
    /// Print at most this many lines
    #[arg(
        short = 'n',
        long = "lines",
        default_value_t = 100,
        value_name = "LINES"
    )]
    pub lines: usize,
    /// Print new lines until interrupted; with --json, one object per line
    #[arg(long, short = 'f')]
    pub follow: bool,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Check the host and run the self-test for nodes with this confinement
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = Level::Full)]
    pub confinement: Level,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
#[group(skip)]
pub struct Format {
    /// Print JSON to standard output instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("not of the form NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| "not a field name")?;
    let value = value.trim().parse().map_err(|_| "not a field value")?;
    Ok((name, value))
}

/// Parses a line of words as a command.
#[cfg(test)]
pub fn parse(line: &str) -> Result<Command, clap::Error> {
    let words = std::iter::once("faasw").chain(line.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.command)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use faasw::Limits;
    use faasw_client::{FreezePolicy, FunctionOptions, WarmUpRequest};

    use super::*;
    use clap::{Arg, CommandFactory as _, error::ErrorKind};
    use faasw_common::options::OPTIONS;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// The shim makes flags of annotations, and annotations are documented like flags.
    #[test]
    fn each_option_of_an_artifact_is_a_flag() {
        for name in ["deploy", "pod"] {
            let command = Cli::command();
            let command = command.find_subcommand(name).unwrap();
            let flags: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
            for option in &OPTIONS {
                let flag = match option.name {
                    "arg" => "args",
                    "files-at" => "files",
                    name => name,
                };
                assert!(flags.contains(&flag), "{name} {flag}");
            }
        }
    }

    #[test]
    fn up_takes_files_and_options() {
        let line = "up a.wasm b.wasm --listen [::1]:0 --env A=b=c -e D= --memory 64 --timeout \
             1500ms --cpu-time 1s --idle-client 2s --idle-guest 3s --total-time 4s --concurrency 5 \
             --freeze before-init --watch --init setup --warmup-request /warm";
        let Command::Up(up) = parse(line).unwrap() else {
            panic!("not up");
        };
        assert!(up.files.len() == 2 && up.watch);
        assert_eq!(up.addresses.listen, "[::1]:0".parse().unwrap());
        assert_eq!(up.data_dir, None);
        let expected = FunctionOptions::default()
            .env("A", "b=c")
            .env("D", "")
            .memory(64 << 20)
            .first_byte(Duration::from_millis(1500))
            .cpu_time(Duration::from_secs(1))
            .idle_client(Duration::from_secs(2))
            .idle_guest(Duration::from_secs(3))
            .total_time(Duration::from_secs(4))
            .concurrency(5)
            .init("setup")
            .warm_up(WarmUpRequest::new("/warm").unwrap())
            .freeze(FreezePolicy::BeforeInit);
        assert_eq!(FunctionOptions::from(up.options), expected);
    }

    #[test]
    fn serve_takes_what_holds_for_functions_that_set_nothing() {
        let Command::Serve(serve) =
            parse("serve --timeout 2s --total-time 1m --memory 64 --metrics 127.0.0.1:0").unwrap()
        else {
            panic!("not serve");
        };
        assert_eq!(serve.addresses.metrics, "127.0.0.1:0".parse().ok());
        let limits = Limits::from(serve.own);
        assert_eq!(limits.first_byte, Duration::from_secs(2));
        assert_eq!(limits.total_time, Some(Duration::from_secs(60)));
        assert_eq!(limits.memory, 64 << 20);
        assert_eq!(limits.cpu_time, Limits::default().cpu_time);
    }

    #[test]
    fn invoke_takes_a_request() {
        let words = [
            "faasw",
            "invoke",
            "f",
            "--path",
            "/a?b",
            "-H",
            "X-A:  b: c ",
            "-d",
            "@-",
        ];
        let Command::Invoke(invoke) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not invoke");
        };
        assert_eq!(invoke.path, "/a?b");
        assert_eq!(invoke.headers[0].0, "x-a");
        assert_eq!(invoke.headers[0].1, "b: c");
        assert_eq!(invoke.data.as_deref(), Some("@-"));
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for line in [
            "up",
            "up f --listen here",
            "up f --env A",
            "up f --memory 1.5",
            "up f --timeout 10",
            "up f --freeze sometimes",
            "deploy f --name Upper",
            "invoke",
            "invoke f --method G@T",
            "invoke f -H novalue",
            "rm healthz",
            "logs f -n many",
            "rollback f last",
            "serve --log-format yaml",
            "serve --paths",
            "serve --domain *.example.com",
            "deploy f --host h:80",
            "serve --tls-cert c.pem",
            "serve --tls-key k.pem",
            "serve --redirect-http 127.0.0.1:80",
            "serve --timeout 0s",
            "serve --max-instances 0",
            "deploy f --concurrency 0",
            "deploy f --memory 0",
            "engine",
            "engine add lua.wasm",
            "image",
            "image export f",
            "image import",
            "image import f --name Upper",
            "engine add lua.wasm --extension .wasm",
            "up a.lua --engine lua.wasm",
            "up a.lua --engine .LUA=lua.wasm",
        ] {
            let error = parse(line).unwrap_err();
            assert_ne!(error.kind(), ErrorKind::DisplayHelp, "{line}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
