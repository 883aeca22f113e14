//! `faasw-bench`: how a running node compares, over HTTP alone.
//!
//! On a shared machine only ratios taken in one run mean anything, so every
//! command measures its contestants in alternating rounds, takes a ratio from
//! each round, and says how far the rounds are apart.
//!
//! - `latency`: the same request to several addresses.
//! - `compute`: kernels in a function against the same module run natively;
//!   `native` is the native side, `kernel` what both sides are asked and answer.
//! - `client`: a small HTTP client that adds as little of its own as it can.
//! - `stats`, `table`: what is made of the samples.
#![deny(unsafe_op_in_unsafe_fn)]

mod client;
mod compute;
mod kernel;
mod latency;
mod native;
mod stats;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Compares a running node with its peers and with native code.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Latency of one request against the same request elsewhere
    Http(latency::Arguments),
    /// Compute kernels in a function against the same module run natively
    Compute(compute::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Http(arguments) => latency::run(&arguments),
        Command::Compute(arguments) => compute::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
