//! What the commands take.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use faasw::{FreezePolicy, FunctionName, FunctionOptions, spelling};
use http::{HeaderName, HeaderValue, Method};

use super::exit;

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
    Up(Up),
    /// Run a node with the functions of its data directory, in the foreground
    Serve(Serve),
    /// Make a function of a file, on the running node
    Deploy(Deploy),
    /// Send a request to a function and print its response
    Invoke(Invoke),
    /// List the functions of the running node
    Ls(Ls),
    /// Remove a function and its log
    Rm(Rm),
    /// Print the newest lines of a function's log
    Logs(Logs),
    /// Say what this host offers, and run a function as a test
    Doctor(Doctor),
}

#[derive(Debug, Args)]
pub struct Up {
    /// WebAssembly components, WASI commands, or their text form
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Name of the function, where there is one file [default: the file's]
    #[arg(long, value_parser = name)]
    pub name: Option<FunctionName>,
    #[command(flatten)]
    pub listen: Listen,
    /// Keep functions, code and logs in DIR; without it they end with the node
    #[arg(long, value_name = "DIR", help_heading = "Node")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub listen: Listen,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Deploy {
    /// A WebAssembly component, a WASI command, or the text form of either
    pub file: PathBuf,
    /// Name of the function, which is also its path [default: the file's]
    #[arg(long, value_parser = name)]
    pub name: Option<FunctionName>,
    #[command(flatten)]
    pub options: Options,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
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
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Node")]
pub struct Listen {
    /// Serve functions on this address; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
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

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Function")]
pub struct Options {
    /// Set an environment variable, any number of times
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// Let the function's memories grow to this many MiB [default: 128]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// End a request that takes longer, such as 500ms or 30s [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// Freeze the seed before or after initialisation; after-init shares the
    /// randomness that it drew between all requests
    #[arg(long, value_name = "auto|before-init|after-init", default_value = "auto", value_parser = freeze)]
    pub freeze: FreezePolicy,
}

impl From<Options> for FunctionOptions {
    fn from(given: Options) -> Self {
        let mut options = Self::default().freeze(given.freeze);
        if let Some(mebibytes) = given.memory {
            options = options.memory(u64::from(mebibytes) << 20);
        }
        if let Some(limit) = given.timeout {
            options = options.time_limit(limit);
        }
        for (name, value) in given.environment {
            options = options.env(name, value);
        }
        options
    }
}

fn name(text: &str) -> Result<FunctionName, faasw::NameError> {
    FunctionName::new(text)
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("not of the form NAME=VALUE".into()),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("not of the form NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| "not a field name")?;
    let value = value.trim().parse().map_err(|_| "not a field value")?;
    Ok((name, value))
}

fn freeze(text: &str) -> Result<FreezePolicy, String> {
    spelling::freeze::parse(text)
        .ok_or_else(|| format!("not one of {}", spelling::freeze::WORDS.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, error::ErrorKind};

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = std::iter::once("faasw").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn up_takes_files_and_options() {
        let line = "up a.wasm b.wasm --listen [::1]:0 --env A=b=c -e D= --memory 64 --timeout 1500ms --freeze before-init";
        let Command::Up(up) = parse(line).unwrap() else {
            panic!("not up");
        };
        assert_eq!(up.files.len(), 2);
        assert_eq!(up.listen.listen, "[::1]:0".parse().unwrap());
        assert_eq!(up.data_dir, None);
        let expected = FunctionOptions::default()
            .env("A", "b=c")
            .env("D", "")
            .memory(64 << 20)
            .time_limit(Duration::from_millis(1500))
            .freeze(FreezePolicy::BeforeInit);
        assert_eq!(FunctionOptions::from(up.options), expected);
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
        ] {
            let error = parse(line).unwrap_err();
            assert_ne!(error.kind(), ErrorKind::DisplayHelp, "{line}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
