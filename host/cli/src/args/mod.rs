//! Arguments of all commands.

mod artifact;
mod engine;
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
use super::{exit, options::variable, serving::Level};

/// A serverless node: every request runs as WebAssembly in a microVM of its own.
#[derive(Debug, Parser)]
#[command(name = "faasw", version, after_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node with these functions, in the foreground
    #[command(after_help = "\
Examples:
  faasw up hello.wasm                  then: curl http://127.0.0.1:8080/hello/
  faasw up hello.wasm --watch          deploy it again whenever it changes
  faasw up a.wasm b.wasm -e LEVEL=debug --timeout 2s")]
    Up(Box<Up>),
    /// Run a node with the functions of its data directory, in the foreground
    #[command(after_help = "\
Examples:
  faasw serve                          then: faasw deploy hello.wasm
  faasw serve --listen 0.0.0.0:80 --data-dir /var/lib/faasw --metrics 127.0.0.1:9090
  faasw serve --log-format json --timeout 2s --memory 64
  faasw serve --listen 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem --redirect-http 0.0.0.0:80")]
    Serve(Box<Serve>),
    /// Run a node with one function at /, as a container of its own
    #[command(after_help = "\
What the container may have of memory and processors is divided among seeds, instances and
clients, unless an option says otherwise; what came of it is told when the node is ready.
Clients cannot connect before the function's seed is there. On SIGTERM /readyz fails at once,
clients are accepted for --drain-delay, then requests under way have 10 s.

Examples:
  faasw pod hello.wasm                   then: curl http://127.0.0.1:8080/
  PORT=3000 faasw pod app.js --memory 64 --health-listen [::]:9090
  faasw pod /function.wasm -e LEVEL=warn --log-format json --drain-delay 5s")]
    Pod(Box<Pod>),
    /// Make a function once for all pods of this host that serve the same
    #[command(
        subcommand,
        after_help = "\
A store is a folder of root's. `add` compiles and seeds a file, in jails of its own; a pod that is
given the entry (`pod --shared --shared-key`) reads that instead. docs/kubernetes.md

Examples:
  faasw share add hello.wasm --store /var/lib/faasw/shared --namespace shop -e LEVEL=warn
  faasw share find hello.wasm --store /var/lib/faasw/shared --namespace shop -e LEVEL=warn
  faasw share rm --store /var/lib/faasw/shared --stale"
    )]
    Share(Share),
    /// Make a function of a file, or a new version of one, on the running node
    #[command(after_help = "\
Deploying to a name that exists makes its next version; requests under way end
on the one before, and `faasw rollback` goes back to it.

Examples:
  faasw deploy hello.wasm
  faasw deploy hello.js                               a script, by its language engine
  faasw deploy shop/ --entry main.lua                 one of several files
  faasw deploy hello.wasm --name greeter -e GREETING=hi --memory 64 --concurrency 20
  faasw deploy shop.wasm --host shop.example.org --host www.example.org
  faasw deploy python.wasm --files app:/app -e PYTHONHOME=/app --args /app/main.py
  faasw deploy oci://registry.example.com/team/hello:v1           an artifact of a registry
  faasw deploy oci://registry.example.com/team/hello:main --watch   and what the tag leads to later")]
    Deploy(Box<Deploy>),
    /// Send a module to a registry, with the options that it is to be deployed with
    #[command(after_help = "\
Whoever may read the repository may read all of it, the values of --env too. What --allow-outbound,
--secret, --bind-secret, --kv, --host and higher limits say is what the function asks for: whoever
deploys it gives it that, or does not (`deploy --accept`).

Log-ins are those of `docker login` and `podman login`.

Examples:
  faasw push hello.wasm registry.example.com/team/hello:v1
  faasw push shop.wasm localhost:5000/shop:v2 -e LEVEL=info --memory 64 --files site:/site")]
    Push(Box<Push>),
    /// Get a module from a registry
    #[command(after_help = "\
Examples:
  faasw pull registry.example.com/team/hello:v1                   writes hello.wasm
  faasw pull registry.example.com/team/hello@sha256:… -o app.wasm")]
    Pull(Pull),
    /// Send a request to a function and print its response
    Invoke(Invoke),
    /// List the functions of the running node
    Ls(Ls),
    /// Show a function: its versions, options, limits, imports and seed
    Inspect(Inspect),
    /// Go back to an earlier version of a function
    #[command(after_help = "\
The next deployment still gets a new number. `faasw inspect NAME` lists the
versions that are kept: the newest 10.")]
    Rollback(Rollback),
    /// Remove a function, its versions and its log
    Rm(Rm),
    /// Print the newest lines of a function's log
    #[command(after_help = "\
A line is time, instance, stream and text. The stream is out or err of the
function, or node: what the node says about it. Instance 0 is the making of the
seed.")]
    Logs(Logs),
    /// Summarise what the running node has done
    Stats(Stats),
    /// Draw the running node's tree of seeds: sizes, working sets, instances
    #[command(after_help = "\
Level 0 is the booted guest, level 1 the engine with everything linked, level 2 a
function version. OWN is what a seed takes beside its parents, DISK its image, HOLDS
OWN and the private pages of its warm instances, by account; WRITE and READ are the pages that its instances use, HITS the requests that a warm instance served. A seed
that is not in memory was evicted for others; when it is used it is read from its
image, or made again where it has none.")]
    Tree(Tree),
    /// Look at a function's image, its seed on disk, and take it to another node
    #[command(subcommand)]
    Image(Image),
    /// Look into the key-value stores of functions, and change them
    #[command(
        subcommand,
        after_help = "\
STORE is a function, whose own store it is, or with --shared the name of one that functions
were deployed with (`deploy --kv`).

Examples:
  faasw kv ls                          the stores that have anything
  faasw kv ls greeter                  the keys of a function's own store
  faasw kv set greeter greeting hello
  faasw kv get --shared users alice"
    )]
    Kv(Kv),
    /// Set, list and remove the secrets of functions; nothing shows what they are
    #[command(
        subcommand,
        after_help = "\
A function reads those that it was deployed with (`deploy --secret NAME`) like its
configuration. What is set here holds for requests that begin after it, whatever the
version; it need not wait for the function, and goes with it.

Examples:
  faasw secret set shop api_key < key.txt
  pass show shop/api | faasw secret set shop api_key
  faasw secret ls"
    )]
    Secret(Secret),
    /// Add, list, warm and remove language engines, which run scripts
    #[command(subcommand)]
    Engine(Engine),
    /// Initialise a module once and for all, and write the module that begins there
    #[command(after_help = "\
The export runs in a microVM of this host, with the limits of a deployment; no node
needs to run. What it leaves is part of the module then, wherever that runs. `deploy
--init` does the same and deploys it.

Examples:
  faasw wizen app.wasm -o ready.wasm                  by its wizer-initialize
  faasw wizen app.wasm -o ready.wasm --init prepare
  faasw wizen app.wasm -o ready.wasm --init my:app/setup@1.0.0#run -e LEVEL=debug")]
    Wizen(Wizen),
    /// Make a folder to begin a function with: a handler, a request, how to go on
    #[command(after_help = "\
Examples:
  faasw new js hello                                  then: faasw up hello --watch
  faasw new rust hello")]
    New(New),
    /// Say what this host offers, and run a function as a test
    Doctor(Doctor),
    /// Connect to a key-value server for the node that starts this
    #[command(hide = true)]
    DialKv(DialKv),
}

/// A language that `new` knows.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Language {
    /// A script, which faasw runs as it is
    Js,
    /// A script, which faasw runs as it is
    Python,
    /// A component
    Rust,
}

#[derive(Debug, Args)]
pub struct New {
    /// Language of the function
    pub language: Language,
    /// Name of the function, and of the folder
    #[arg(value_parser = name)]
    pub name: FunctionName,
}

#[derive(Debug, Args)]
pub struct Wizen {
    /// A WebAssembly component, a WASI command, or the text form of either
    pub file: PathBuf,
    /// Write the module to this file
    #[arg(long, short = 'o', value_name = "OUT")]
    pub output: PathBuf,
    /// Call this export; one of an exported interface is INTERFACE#NAME
    /// [default: wizer-initialize, of a module]
    #[arg(long, value_name = "EXPORT")]
    pub init: Option<String>,
    /// Set an environment variable of the initialisation, any number of times
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// Let its memories grow to this many MiB [default: 128]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: Option<u32>,
    /// Let it draw randomness and read the clock; whoever runs the module finds the same
    #[arg(long)]
    pub allow_draws: bool,
}

#[derive(Debug, Args)]
pub struct Invoke {
    /// Name of the function
    #[arg(value_parser = name)]
    pub name: FunctionName,
    /// Path and query that the function sees
    #[arg(long, default_value = "/", help_heading = "Request")]
    pub path: String,
    /// Method of the request [default: GET, or POST with --data]
    #[arg(long, help_heading = "Request")]
    pub method: Option<Method>,
    /// Add a header field, any number of times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header, help_heading = "Request")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Send this text as the body, or the file after an @; @- is standard input
    #[arg(long, short = 'd', value_name = "TEXT|@FILE", help_heading = "Request")]
    pub data: Option<String>,
    /// Print status, header fields and timing to standard error
    #[arg(long, short = 'v', help_heading = "Output")]
    pub verbose: bool,
    /// Write the exact bytes of the body to a terminal, too, which obeys control characters in them
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
    #[arg(value_parser = name)]
    pub name: FunctionName,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Rollback {
    /// Name of the function
    #[arg(value_parser = name)]
    pub name: FunctionName,
    /// Number of the version [default: the one before the current]
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
    #[arg(value_parser = name)]
    pub name: FunctionName,
    #[command(flatten)]
    pub node: DataDir,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// Name of the function
    #[arg(value_parser = name)]
    pub name: FunctionName,
    /// Print at most this many lines
    #[arg(
        short = 'n',
        long = "lines",
        default_value_t = 100,
        value_name = "LINES"
    )]
    pub lines: usize,
    /// Go on printing lines as they come, until interrupted; with --json, one
    /// object a line
    #[arg(long, short = 'f')]
    pub follow: bool,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Look at the host and run the self-test for nodes with this confinement
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = Level::Full)]
    pub confinement: Level,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Node")]
pub struct DataDir {
    /// The node's data directory [default: faasw in the user's state folder]
    #[arg(
        long,
        value_name = "DIR",
        env = "FAASW_DATA_DIR",
        hide_env_values = true
    )]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(skip)]
pub struct Format {
    /// Print JSON to standard output instead of text
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

pub(super) fn name(text: &str) -> Result<FunctionName, faasw::NameError> {
    FunctionName::new(text)
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
    use clap::{CommandFactory as _, error::ErrorKind};

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
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
