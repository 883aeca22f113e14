//! `up` and `serve`: a node in the foreground, until it is told to stop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use faasw::{Deployed, Event, FunctionName, FunctionOptions, Node};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{
    args::{Format, Serve, Up},
    exit::Exit,
    output::{data_dir, deployed, print, print_json, read_module, say, size},
};

/// What `up` and `serve` print with `--json` when requests can come.
#[derive(Serialize)]
struct Ready<'a> {
    address: SocketAddr,
    functions: &'a [Deployed],
}

/// Runs a node with the given functions.
pub async fn up(args: Up) -> Result<(), Exit> {
    start_tracing("warn");
    let modules = modules(&args)?;
    let mut builder = Node::builder().listen(args.listen.listen).observe(show);
    if let Some(data_dir) = &args.data_dir {
        builder = builder.data_dir(data_dir).admin(true);
    }
    let mut stop = Stop::new()?;
    let node = tokio::select! {
        node = builder.start() => node?,
        () = stop.asked() => return Ok(()),
    };
    let options = FunctionOptions::from(args.options);
    let deploying = deploy_all(&node, modules, options);
    let deployed = tokio::select! {
        deployed = deploying => deployed,
        () = stop.asked() => {
            node.shutdown().await;
            return Ok(());
        }
    };
    let result = match deployed {
        Ok(deployed) => ready(&node, &deployed, &args.format).map(|()| stop),
        Err(exit) => Err(exit),
    };
    match result {
        Ok(stop) => run_until_asked(&node, stop).await,
        Err(exit) => {
            node.shutdown().await;
            Err(exit)
        }
    }
}

/// Runs a node with the functions that its data directory has.
pub async fn serve(args: Serve) -> Result<(), Exit> {
    start_tracing("info");
    let mut stop = Stop::new()?;
    let builder = Node::builder()
        .listen(args.listen.listen)
        .data_dir(data_dir(args.node)?)
        .admin(true);
    let node = tokio::select! {
        node = builder.start() => node?,
        () = stop.asked() => return Ok(()),
    };
    ready(&node, &[], &args.format)?;
    run_until_asked(&node, stop).await
}

type Module = (FunctionName, bytes::Bytes);

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
        if modules.iter().any(|(other, _)| *other == name) {
            return Err(Exit::usage(format_args!(
                "two files would be the function {name}"
            )));
        }
        modules.push((name, read_module(file)?));
    }
    Ok(modules)
}

async fn deploy_all(
    node: &Node,
    modules: Vec<Module>,
    options: FunctionOptions,
) -> Result<Vec<Deployed>, Exit> {
    let mut all = Vec::new();
    for (name, module) in modules {
        let done = node
            .deploy(name.as_str(), module, options.clone())
            .await
            .map_err(|error| Exit::failure(format_args!("{name} was not deployed: {error}")))?;
        say(deployed(&done));
        all.push(done);
    }
    Ok(all)
}

/// Says that requests can come; with functions, by a line to paste.
fn ready(node: &Node, deployed: &[Deployed], format: &Format) -> Result<(), Exit> {
    let Some(address) = node.address() else {
        return Err(Exit::failure("the gateway has no address"));
    };
    if format.json {
        return print_json(&Ready {
            address,
            functions: deployed,
        });
    }
    match deployed.first() {
        Some(first) => {
            say(format_args!("ready on {address}; Ctrl-C stops it"));
            print(format!(
                "  curl http://{}/{}/\n",
                reachable(address),
                first.function.name
            ))
        }
        None => {
            let count = node.list().len();
            let data_dir = node.data_dir().unwrap_or("".as_ref()).display();
            say(format_args!(
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

async fn run_until_asked(node: &Node, mut stop: Stop) -> Result<(), Exit> {
    stop.asked().await;
    say("stopping; once more stops at once");
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

/// Progress of deployments, and the functions' logs.
fn show(event: Event<'_>) {
    match event {
        Event::Compiling {
            function,
            module_bytes,
        } => say(format_args!(
            "{function}: compiling {}…",
            size(module_bytes as u64)
        )),
        Event::MakingSeed { function } => say(format_args!("{function}: making its seed…")),
        Event::Log { function, line } => say(format_args!("{function} | {}", line.text)),
        _ => {}
    }
}

/// Sends the node's own events to standard error; `FAASW_LOG` chooses which.
fn start_tracing(default: &str) {
    let filter = EnvFilter::try_from_env("FAASW_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
