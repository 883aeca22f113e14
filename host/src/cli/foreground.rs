//! `up` and `serve`: a node in the foreground, until it is told to stop.

use std::{
    io::IsTerminal as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use faasw::{Deployed, Event, FunctionName, FunctionOptions, Limits, Node, NodeBuilder, spelling};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{
    args::{Format, LogFormat, Serve, Serving, Up},
    exit::Exit,
    output::{data_dir, deployed, patiently, print, print_json, read_module, say, size},
    watch::Watch,
};

/// What `up` and `serve` print with `--json` when requests can come.
#[derive(Serialize)]
struct Ready<'a> {
    address: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
    functions: &'a [Deployed],
}

/// Runs a node with the given functions.
pub async fn up(args: Up) -> Result<(), Exit> {
    let log = args.serving.log_format;
    start_tracing(log, "warn,faasw::progress=info");
    let modules = modules(&args)?;
    let mut builder = builder(&args.serving).observe(move |event| log.show(event));
    if let Some(data_dir) = &args.data_dir {
        builder = builder.data_dir(data_dir).admin(true);
    }
    let mut stop = Stop::new()?;
    let node = tokio::select! {
        node = builder.start() => node?,
        () = stop.asked() => return Ok(()),
    };
    let options = FunctionOptions::from(args.options);
    let deploying = deploy_all(&node, &modules, &options, log);
    let deployed = tokio::select! {
        deployed = deploying => deployed,
        () = stop.asked() => {
            node.shutdown().await;
            return Ok(());
        }
    };
    let result = match deployed {
        Ok(deployed) => ready(&node, &deployed, &args.format, log),
        Err(exit) => Err(exit),
    };
    if let Err(exit) = result {
        node.shutdown().await;
        return Err(exit);
    }
    if args.watch {
        let mut watch = Watch::new();
        for (name, path, module) in modules {
            watch.add(name, path, &module);
        }
        log.say("watching for changes");
        tokio::select! {
            () = redeploy(&node, watch, &options, &args.format, log) => {}
            () = stop.asked() => {}
        }
        return stop_node(&node, stop, log).await;
    }
    run_until_asked(&node, stop, log).await
}

/// Runs a node with the functions that its data directory has.
pub async fn serve(args: Serve) -> Result<(), Exit> {
    let log = args.serving.log_format;
    start_tracing(log, "info");
    let mut stop = Stop::new()?;
    let builder = builder(&args.serving)
        .limits(Limits::from(args.own))
        .data_dir(data_dir(args.node)?)
        .admin(true);
    let node = tokio::select! {
        node = builder.start() => node?,
        () = stop.asked() => return Ok(()),
    };
    ready(&node, &[], &args.format, log)?;
    run_until_asked(&node, stop, log).await
}

/// Takes as many descriptors as the system gives: an instance takes three, and many
/// systems give 1024 unless asked.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        ..now
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

fn builder(serving: &Serving) -> NodeBuilder {
    raise_descriptors();
    let builder = Node::builder()
        .listen(serving.listen)
        .max_instances(serving.max_instances)
        .shells_ready(serving.shells_ready)
        .keep_alive(serving.keep_alive)
        .min_parked(serving.min_parked)
        .max_parked(serving.max_parked)
        .max_reuse(serving.max_reuse)
        .seed_memory(serving.seed_memory.saturating_mul(1 << 20))
        .function_memory(serving.function_memory.saturating_mul(1 << 20));
    #[cfg(feature = "ablation")]
    let builder = builder.without(serving.without.clone());
    match serving.metrics {
        Some(address) => builder.metrics(address),
        None => builder,
    }
}

type Module = (FunctionName, PathBuf, bytes::Bytes);

/// Names and contents of all files, before anything starts.
fn modules(args: &Up) -> Result<Vec<Module>, Exit> {
    if args.name.is_some() && args.files.len() > 1 {
        return Err(Exit::usage(
            "--name is for one file; several are named after themselves",
        ));
    }
    let mut modules: Vec<Module> = Vec::new();
    for file in &args.files {
        let name = match &args.name {
            Some(name) => name.clone(),
            None => FunctionName::from_file(file)
                .map_err(|error| Exit::usage(error).hint("--name gives one"))?,
        };
        if modules.iter().any(|(other, ..)| *other == name) {
            return Err(Exit::usage(format_args!(
                "two files would be the function {name}"
            )));
        }
        modules.push((name, file.clone(), read_module(file)?));
    }
    Ok(modules)
}

async fn deploy_all(
    node: &Node,
    modules: &[Module],
    options: &FunctionOptions,
    log: LogFormat,
) -> Result<Vec<Deployed>, Exit> {
    let mut all = Vec::new();
    for (name, _, module) in modules {
        let deploying = node.deploy(name.as_str(), module.clone(), options.clone());
        let done = patiently(&name, deploying)
            .await
            .map_err(|error| Exit::failure(format_args!("{name} was not deployed: {error}")))?;
        log.say(deployed(&done));
        all.push(done);
    }
    Ok(all)
}

/// Deploys what has changed, for as long as the node runs. A file that cannot
/// be deployed is no reason to stop: its next change may be the cure.
async fn redeploy(
    node: &Node,
    mut watch: Watch,
    options: &FunctionOptions,
    format: &Format,
    log: LogFormat,
) {
    loop {
        let (name, module) = watch.changed().await;
        log.say(format_args!("{name}: its file has changed"));
        let done = node.deploy(name.as_str(), module, options.clone()).await;
        match done {
            Ok(done) => {
                log.say(format_args!("{}\n{name}: redeployed", deployed(&done)));
                if format.json && print_json(&done).is_err() {
                    log.say("standard output cannot be written");
                }
            }
            Err(error) => log.say(format_args!(
                "{name} was not redeployed, the version before serves on: {error}"
            )),
        }
    }
}

/// Says that requests can come; with functions, by a line to paste.
fn ready(node: &Node, deployed: &[Deployed], format: &Format, log: LogFormat) -> Result<(), Exit> {
    let Some(address) = node.address() else {
        return Err(Exit::failure("the gateway has no address"));
    };
    let metrics = node.metrics_address();
    if format.json {
        return print_json(&Ready {
            address,
            metrics,
            functions: deployed,
        });
    }
    if let Some(metrics) = metrics {
        log.say(format_args!("metrics on http://{metrics}/metrics"));
    }
    match deployed.first() {
        Some(first) => {
            log.say(format_args!("ready on {address}; Ctrl-C stops it"));
            print(format!(
                "  curl http://{}/{}/\n",
                reachable(address),
                first.function.name
            ))
        }
        None => {
            let count = node.list().len();
            let data_dir = node.data_dir().unwrap_or("".as_ref()).display();
            log.say(format_args!(
                "ready on {address} with {count} functions of {data_dir}; Ctrl-C stops it"
            ));
            Ok(())
        }
    }
}

/// An address to connect to where `address` is one to listen on.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

async fn run_until_asked(node: &Node, mut stop: Stop, log: LogFormat) -> Result<(), Exit> {
    stop.asked().await;
    stop_node(node, stop, log).await
}

/// Lets requests under way finish; asked once more, does not.
async fn stop_node(node: &Node, mut stop: Stop, log: LogFormat) -> Result<(), Exit> {
    log.say("stopping; once more stops at once");
    tokio::select! {
        () = node.shutdown() => Ok(()),
        () = stop.asked() => Err(Exit::failure("stopped at once")),
    }
}

/// SIGINT and SIGTERM: both ask the node to stop.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn new() -> Result<Self, Exit> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Exit::failure(format_args!("signals cannot be had: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl LogFormat {
    /// Progress of deployments, and the functions' logs.
    fn show(self, event: Event<'_>) {
        match event {
            Event::Compiling {
                function,
                module_bytes,
            } => self.say(format_args!(
                "{function}: compiling {}…",
                size(module_bytes as u64)
            )),
            Event::MakingSeed { function } => {
                self.say(format_args!("{function}: making its seed…"));
            }
            Event::Log { function, line } if self == Self::Json => tracing::info!(
                target: "faasw::progress",
                %function,
                instance = line.instance,
                stream = spelling::stream::word(line.stream),
                "{}",
                line.text
            ),
            Event::Log { function, line } => say(format_args!("{function} | {}", line.text)),
            _ => {}
        }
    }

    /// Says something to standard error, as an event where those are JSON.
    fn say(self, line: impl std::fmt::Display) {
        match self {
            Self::Text => say(line),
            Self::Json => tracing::info!(target: "faasw::progress", "{line}"),
        }
    }
}

/// Sends the node's own events to standard error; `FAASW_LOG` chooses which.
fn start_tracing(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_env("FAASW_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => events.init(),
        LogFormat::Json => events.json().flatten_event(true).init(),
    }
}
