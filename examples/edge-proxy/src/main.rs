//! The proxy as a program: its arguments, the node and the server.

use std::{
    error::Error,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::ExitCode,
    thread::available_parallelism,
};

use clap::Parser;
use edge_proxy::{Edge, EdgeService, Role, Route};
use faasw::{FunctionOptions, Node};
use pingora::server::{RunArgs, Server, configuration::ServerConf};
use tokio::runtime::Runtime;

/// A reverse proxy with Wasm functions in microVMs.
#[derive(Parser)]
struct Arguments {
    /// Serve clients at this address; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6188")]
    listen: SocketAddr,
    /// Forward requests that no function answers to this address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    upstream: SocketAddr,
    /// Answer requests to paths under PREFIX with this function (repeatable)
    #[arg(long, value_name = "PREFIX=FILE", value_parser = prefix_and_file)]
    answer: Vec<(String, PathBuf)>,
    /// Rewrite the headers of requests to paths under PREFIX with this function (repeatable)
    #[arg(long, value_name = "PREFIX=FILE", value_parser = prefix_and_file)]
    rewrite: Vec<(String, PathBuf)>,
    /// Time for requests to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("edge-proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // Collects the logs of pingora and faasw.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let socket = TcpListener::bind(arguments.listen)
        .map_err(|error| format!("{}: {error}", arguments.listen))?;
    let address = socket.local_addr()?;

    // pingora makes a runtime for each service and ends it with the server. The node gets its own
    // runtime. It is then ready before the first request, can fail this program's start, and
    // outlives the last request.
    let runtime = Runtime::new()?;
    let node = runtime.block_on(Node::builder().start())?;
    let edge = Edge {
        routes: runtime.block_on(deploy(&node, arguments))?,
        node: node.clone(),
        upstream: arguments.upstream,
    };

    let mut server = Server::new_with_opt_and_conf(
        None,
        ServerConf {
            threads: available_parallelism()?.get(),
            grace_period_seconds: Some(arguments.grace),
            ..ServerConf::default()
        },
    );
    server.bootstrap();
    let service = EdgeService::new(&server.configuration, edge, socket)?;
    server.add_service(service);
    println!("serving http://{address}/");
    // Returns after SIGTERM or SIGINT, which pingora handles.
    server.run(RunArgs::default());
    runtime.block_on(node.shutdown());
    Ok(())
}

/// Deploys the functions of all routes.
async fn deploy(node: &Node, arguments: &Arguments) -> Result<Vec<Route>, Box<dyn Error>> {
    let rewriting = arguments.rewrite.iter().map(|route| (Role::Rewrite, route));
    let answering = arguments.answer.iter().map(|route| (Role::Answer, route));
    let mut routes = Vec::new();
    for (number, (role, (prefix, file))) in rewriting.chain(answering).enumerate() {
        let module = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let route = Route {
            prefix: prefix.clone(),
            role,
            function: format!("route-{number}"),
        };
        node.deploy(&route.function, module, FunctionOptions::default())
            .await
            .map_err(|error| format!("{}: {error}", file.display()))?;
        routes.push(route);
    }
    Ok(routes)
}

fn prefix_and_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((prefix, file)) if prefix.starts_with('/') => Ok((prefix.into(), file.into())),
        _ => Err("it is not like /path=function.wasm".into()),
    }
}
