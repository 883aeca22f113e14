//! `faasw-bench`: measures a running node, only through HTTP, its command line and /proc. The
//! exceptions are `sandboxes`, which uses pools of its own, `embedded` and `key_value`.
//!
//! On a shared machine only ratios that were taken in one run mean anything. So every command
//! measures its contestants in alternating rounds, takes a ratio from each round, and reports how
//! far the rounds are apart.
//!
//! - `http`: the same request to several addresses, by a `contest` of rounds under `load`.
//! - `floor`: the cost of a node's request through a microVM, beside the least cost for two
//!   processes with a VM. `server_timing` parses the node's report of its stages.
//! - `embedded`: a node in this process, called by `Node::invoke`, beside the same floor.
//! - `key_value`: the cost of functions' stores, on such a node with a data directory.
//! - `sandboxes`: the time to get a sandbox, with pools of kernel resources and without.
//! - `warm`: thousands of instances that are warm ahead of requests.
//! - `memory`, `soak`: the resources of a node's processes, by `process`; `hostile` clients beside
//!   the load.
//! - `neighbours`: the effect of one function's load on another function.
//! - `overload`: goodput under more load than the node can serve, by an `open_loop`.
//! - `versions`: two versions of the node, each started many times.
//! - `relay`: a body that a function passes from an upstream to its client.
//! - `report`: the parts of the performance report in one run, which starts node and peer itself.
//! - `node`: the node's command line. `interrupt`: an early, orderly end.
//! - `client`, `response`: an HTTP client with as little overhead as possible.
//! - `stats`, `table`: statistics of the samples, and their presentation.
#![deny(unsafe_op_in_unsafe_fn)]

mod client;
mod contest;
mod embedded;
mod floor;
mod hostile;
mod http;
mod interrupt;
mod key_value;
mod load;
mod memory;
mod neighbours;
mod node;
mod open_loop;
mod overload;
mod process;
mod relay;
mod report;
mod response;
mod sandboxes;
mod server_timing;
mod soak;
mod stats;
mod table;
#[cfg(test)]
mod test_server;
mod versions;
mod warm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Measures a node, and compares it with its peers.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Latency, throughput and CPU time of a request against the same elsewhere
    Http(http::Arguments),
    /// The least that a request through a microVM can cost here, and what it costs in a node
    Floor(floor::Arguments),
    /// Latency of a request to a node inside the calling program, beside the same floor
    Embedded(embedded::Arguments),
    /// Latency of a get from a function's key-value store beside that floor, and rate of durable
    /// sets beside the disk
    KeyValue(key_value::Arguments),
    /// A body that a function passes on from an upstream to its client, against the same elsewhere.
    /// UPSTREAM stands for the upstream's host and port in both addresses:
    /// http://127.0.0.1:8080/asks/proxy/UPSTREAM/body
    Relay(relay::Arguments),
    /// Time to get a sandbox: made ahead, or made on request with kept or new control groups
    Sandboxes(sandboxes::Arguments),
    /// Memory that a warm instance holds
    Memory(memory::Arguments),
    /// Resources of thousands of instances that are made warm ahead of requests
    Warm(warm::Arguments),
    /// Load for a long time, and whether anything grows
    Soak(soak::Arguments),
    /// Throughput and latency of a function beside another one's load, relative to alone
    Neighbours(neighbours::Arguments),
    /// Requests that a node serves under more load than it can carry
    Overload(overload::Arguments),
    /// A node against the version before it, both started many times
    Versions(versions::Arguments),
    /// Every figure that the node is held to, in one run that starts node and peer itself
    Report(report::Arguments),
    /// The other process of `floor`'s round trips
    #[command(hide = true)]
    FloorPartner(floor::PartnerArguments),
}

fn main() -> ExitCode {
    raise_descriptor_limit();
    let result = match Arguments::parse().command {
        Command::Http(arguments) => http::run(&arguments),
        Command::Floor(arguments) => floor::run(&arguments),
        Command::Embedded(arguments) => embedded::run(&arguments),
        Command::KeyValue(arguments) => key_value::run(&arguments),
        Command::Relay(arguments) => relay::run(&arguments),
        Command::Sandboxes(arguments) => sandboxes::run(&arguments),
        Command::Memory(arguments) => memory::run(&arguments),
        Command::Warm(arguments) => warm::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Neighbours(arguments) => neighbours::run(&arguments),
        Command::Overload(arguments) => overload::run(&arguments),
        Command::Versions(arguments) => versions::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::FloorPartner(arguments) => floor::serve_partner(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Raises the limit of descriptors as far as allowed, for hundreds of connections here and for the
/// sandboxes of a node that is started from here. If that fails, opening a descriptor reports the
/// error later.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
